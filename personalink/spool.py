"""What a run will seal, kept on disk until then: texts by name and user, in a file that goes away with the process.

In memory are offsets alone. Knows nothing of what the texts say.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType

from personalink.errors import StorageError


class Spool:
    """A file in `folder` whose name is taken away at once, so that it goes with the process, however that ends.

    Raises:
        StorageError: the folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._places: dict[str, dict[str, tuple[int, int]]] = {}
        self._end = 0
        try:
            self._file, name = tempfile.mkstemp(prefix=".spool.", dir=folder)
            os.unlink(name)
        except OSError as error:
            raise self._trouble(error) from None

    def put(self, name: str, user: str, text: str) -> None:
        """Keep a text; one of the same name and user is replaced.

        Raises:
            StorageError: the disk is full.
        """
        data = text.encode("utf-8")
        try:
            written = os.pwrite(self._file, data, self._end)
        except OSError as error:
            raise self._trouble(error) from None
        if written < len(data):
            raise self._trouble(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        self._places.setdefault(name, {})[user] = (self._end, len(data))
        self._end += len(data)

    def get(self, name: str, user: str) -> str | None:
        """The text of a name and user; None where there is none."""
        place = self._places.get(name, {}).get(user)
        return None if place is None else os.pread(self._file, place[1], place[0]).decode("utf-8")

    def has(self, name: str, user: str) -> bool:
        """Whether there is a text of a name and user."""
        return user in self._places.get(name, {})

    def texts(self, name: str, users: Iterable[str]) -> Iterator[tuple[str, str]]:
        """(user, text) of those of some users that have one, in their order."""
        for user in users:
            text = self.get(name, user)
            if text is not None:
                yield user, text

    def close(self) -> None:
        """Give the file back. Idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _trouble(self, error: OSError) -> StorageError:
        why = error.strerror or error
        return StorageError(f"cannot write in {self._folder}: {why}; make room, then the same command goes on")

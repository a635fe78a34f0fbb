"""The run's own append-only record of request key → completion; it alone makes resuming exact.

One record a line: `<bytes> <crc32> <json>\\n`. A record is in the file before its answer is used, so a killed run pays
again only for what was in flight. A torn tail is cut off, a damaged record in the middle is a miss; both are counted.
Knows nothing of users' data beyond the bill that each record carries.
"""

from __future__ import annotations

import fcntl
import json
import os
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from personalink.canonical import canonical_json
from personalink.errors import StorageError, UsageError
from personalink.lm.base import Completion, completion_from_dict, completion_to_dict


class Journal:
    """Open (and create) the journal at `path`, alone: a second process is refused.

    Attributes:
        torn: bytes cut off the end when it was opened.
        damaged: records in the middle whose checksum failed.

    Raises:
        UsageError: another process has it open.
        StorageError: the folder cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.torn = 0
        self.damaged = 0
        self._places: dict[bytes, tuple[int, int]] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            msg = f"cannot write the journal {path}: {error.strerror}; give another runs_dir or make room"
            raise StorageError(msg) from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            msg = f"another process is working in {path.parent.parent}; wait for it or stop it"
            raise UsageError(msg) from None
        self._end = self._scan()

    def _scan(self) -> int:
        """Index every whole record and cut off a torn tail; the offset at which to append."""
        end = 0
        with os.fdopen(os.dup(self._file), "rb") as file:
            file.seek(0)
            for line in file:
                record = _checked(line)
                if record is not None:
                    self._places[bytes.fromhex(record["key"])] = (end, len(line))
                elif line.endswith(b"\n"):
                    self.damaged += 1
                else:
                    self.torn = len(line)
                    break
                end += len(line)
        if self.torn:
            os.ftruncate(self._file, end)
        return end

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: str) -> bool:
        return bytes.fromhex(key) in self._places

    def get(self, key: str) -> Completion | None:
        """The completion under `key`, or None."""
        place = self._places.get(bytes.fromhex(key))
        if place is None:
            return None
        record = _checked(os.pread(self._file, place[1], place[0]))
        return None if record is None else completion_from_dict(record["completion"])

    def put(self, key: str, completion: Completion, bill: list[Any]) -> None:
        """Append one answer.

        Raises:
            StorageError: it could not be written (disk full, …); nothing more should be sent.
        """
        body = canonical_json({"key": key, "completion": completion_to_dict(completion), "bill": bill}).encode()
        line = b"%d %08x %s\n" % (len(body), zlib.crc32(body), body)
        try:
            written = os.pwrite(self._file, line, self._end)
        except OSError as error:
            msg = (
                f"cannot write the journal {self.path}: {error.strerror}; what is finished is kept, make room and go on"
            )
            raise StorageError(msg) from None
        if written < len(line):
            os.ftruncate(self._file, self._end)
            msg = f"cannot write the journal {self.path}: no space left; what is finished is kept, make room and go on"
            raise StorageError(msg)
        self._places[bytes.fromhex(key)] = (self._end, len(line))
        self._end += len(line)

    def forget(self, outcomes: Collection[str]) -> int:
        """Act as if answers with these outcomes were not there, so that they are asked for again; how many."""
        found = []
        for key, (offset, length) in self._places.items():
            record = _checked(os.pread(self._file, length, offset))
            if record is not None and record["completion"]["outcome"] in outcomes:
                found.append(key)
        for key in found:
            del self._places[key]
        return len(found)

    def remarks(self) -> list[str]:
        """What was wrong with the file when it was opened, in words."""
        told = [f"cut off {self.torn} bytes of a record that was not whole"] if self.torn else []
        if self.damaged:
            told.append(f"passed over {self.damaged} damaged records; their answers are asked for again")
        return [f"journal: {remark}" for remark in told]

    def bills(self) -> Iterator[tuple[list[Any], Completion]]:
        """Who asked for each answer that was paid for, in the order paid."""
        for offset, length in sorted(self._places.values()):
            record = _checked(os.pread(self._file, length, offset))
            if record is not None:
                yield record["bill"], completion_from_dict(record["completion"])

    def close(self) -> None:
        """Flush to disk and let other processes in. Idempotent."""
        if self._file >= 0:
            os.fsync(self._file)
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def _checked(line: bytes) -> dict[str, Any] | None:
    """The record of one line, or None where length or checksum fails."""
    parts = line.split(b" ", 2)
    if len(parts) != 3 or not line.endswith(b"\n") or not parts[0].isdigit():
        return None
    body = parts[2][:-1]
    if len(body) != int(parts[0]) or b"%08x" % zlib.crc32(body) != parts[1]:
        return None
    record: dict[str, Any] = json.loads(body)
    return record

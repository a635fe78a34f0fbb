"""The run's own append-only record of request key → completion; it alone makes resuming exact.

One record a line: `<bytes> <crc32> <json>\\n`. A record is in the file before its answer is used, so a killed run pays
again only for what was in flight. A torn tail is cut off, a damaged record in the middle is a miss; both are counted.
The JSON is canonical, so its keys are sorted: the bill stands first and the key last, and opening a journal and reading
its bills need not parse the answers between them.

Knows nothing of users' data beyond the bill that each record carries.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import zlib
from array import array
from binascii import unhexlify
from collections.abc import Collection, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from personalink.canonical import canonical_json
from personalink.errors import StorageError, UsageError
from personalink.lm.base import Completion, completion_from_dict, completion_to_dict
from personalink.lm.index import Index

_BLOCK = 1 << 18
"""Bytes read at once where the whole file is read."""

_PEEK = 1024
"""Bytes read of a record at first; few are longer."""

_WINDOW = 1024
"""Bills whose records are brought together, and most records of one of them."""

_KEYED = b'},"key":"' + b"0" * 64 + b'"}'
"""What every record ends with, whatever its key."""


class Journal:
    """Open (and create) the journal at `path`, alone: a second process is refused. Threads may share it.

    It is read through once, when `bills` are asked for or a first answer is, and takes some 20 bytes of memory a record
    from then on, whatever a record holds.

    Raises:
        UsageError: another process has it open.
        StorageError: the folder cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._index: Index | None = None
        self._end = self._torn = self._damaged = 0
        self._lock = threading.Lock()
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

    def _records(self) -> Iterator[bytes]:
        """The JSON of every whole record, in the order of the file. The first reading to the end indexes them, too."""
        prefixes, offsets, end, torn, damaged = bytearray(), array("Q"), 0, 0, 0
        with self.path.open("rb", buffering=_BLOCK) as file:
            for line in file:
                body = _body(line)
                if body is not None:
                    prefixes += body[-66:-50]
                    offsets.append(end)
                    yield body
                elif line.endswith(b"\n"):
                    damaged += 1
                else:
                    torn = len(line)
                    break
                end += len(line)
        with self._lock:
            if self._index is None:
                if torn:
                    os.ftruncate(self._file, end)
                self._end, self._torn, self._damaged = end, torn, damaged
                self._index = Index(unhexlify(prefixes), offsets)

    def _indexed(self) -> Index:
        """The index, made when it is first needed."""
        while self._index is None:
            for _ in self._records():
                pass
        return self._index

    @property
    def torn(self) -> int:
        """Bytes cut off the end when it was opened."""
        self._indexed()
        return self._torn

    @property
    def damaged(self) -> int:
        """Records in the middle that were not whole when it was opened."""
        self._indexed()
        return self._damaged

    def __len__(self) -> int:
        index = self._indexed()
        with self._lock:
            return len(index)

    def __contains__(self, key: str) -> bool:
        return self._find(key) is not None

    def get(self, key: str) -> Completion | None:
        """The completion under `key`, or None."""
        return self._find(key)

    def _find(self, key: str) -> Completion | None:
        """The completion of the newest whole record under `key`."""
        index = self._indexed()
        with self._lock:
            places = list(index.find(bytes.fromhex(key)))
        for place in places:
            record = self._read(place)
            if record is not None and record["key"] == key and (found := _completion(record)) is not None:
                return found
        return None

    def _read(self, place: int) -> dict[str, Any] | None:
        """The record at an offset; None where it is not whole."""
        line = os.pread(self._file, _PEEK, place)
        size = line[: max(0, line.find(b" ", 0, 20))]
        whole = len(size) + int(size) + len(b" 01234567 \n") if size.isdigit() else self._end
        if place + whole > self._end:
            return None
        line = line[:whole] if whole <= len(line) else os.pread(self._file, whole, place)
        body = _body(line)
        record: dict[str, Any] | None = None if body is None else json.loads(body)
        return record

    def put(self, key: str, completion: Completion, bill: list[Any]) -> None:
        """Append one answer.

        Raises:
            StorageError: it could not be written (disk full, …); nothing more should be sent.
        """
        body = canonical_json({"key": key, "completion": completion_to_dict(completion), "bill": bill}).encode()
        line = b"%d %08x %s\n" % (len(body), zlib.crc32(body), body)
        index = self._indexed()
        with self._lock:
            self._append(line)
            index.add(bytes.fromhex(key), self._end)
            self._end += len(line)

    def _append(self, line: bytes) -> None:
        if not os.fstat(self._file).st_nlink:
            msg = f"the journal {self.path} was deleted while it was written; the same command begins anew"
            raise StorageError(msg)
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

    def forget(self, outcomes: Collection[str]) -> int:
        """Act as if answers with these outcomes were not there, so that they are asked for again; how many.

        What they took stays in `bills`, since it was paid.
        """
        found: set[bytes] = set()
        for body in self._records():
            bad = json.loads(body)["completion"]["outcome"] in outcomes
            (found.add if bad else found.discard)(unhexlify(body[-66:-2]))
        with self._lock:
            self._indexed().drop(found)
        return len(found)

    def remarks(self) -> list[str]:
        """What was wrong with the file when it was opened, in words."""
        told = [f"cut off {self.torn} bytes of a record that was not whole"] if self.torn else []
        if self.damaged:
            told.append(f"passed over {self.damaged} damaged records; their answers are asked for again")
        return [f"journal: {remark}" for remark in told]

    def bills(self) -> Iterator[tuple[list[Any], list[list[int | None]], int]]:
        """Every answer that was paid for, in the order paid, those of one bill together as far as they stand near.

        Yields (bill, tokens of each answer as `Usage` has them, all their retries).
        """
        window: dict[bytes, list[bytes]] = {}
        for body in self._records():
            head = body[: body.find(b'"text":')]
            usage = body[body.rfind(b'"usage":[') + 8 : -len(_KEYED)]
            usages = window.get(head)
            if usages is not None and len(usages) < _WINDOW:
                usages.append(usage)
                continue
            if usages is not None or len(window) >= _WINDOW:
                yield from _settled(window)
                window.clear()
            window[head] = [usage]
        yield from _settled(window)

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


def _body(line: bytes) -> bytes | None:
    """The JSON of one line, or None where length or checksum fails, or it is no record."""
    head = line.find(b" ") + len(b" 01234567 ")
    body = line[head:-1]
    whole = line[:head] == b"%d %08x " % (len(body), zlib.crc32(body)) and body[-74:-66] == b',"key":"'
    return body if whole else None


def _completion(record: dict[str, Any]) -> Completion | None:
    """What a record answers; None where its checksum holds and it answers nothing."""
    try:
        return completion_from_dict(record["completion"])
    except (KeyError, TypeError, ValueError):
        return None


def _settled(window: dict[bytes, list[bytes]]) -> Iterator[tuple[list[Any], list[list[int | None]], int]]:
    """What `bills` yields, of records up to their text and their usages, as both stand in the file."""
    if not window:
        return
    bills = json.loads(b"[%s]" % b",".join(head[len(b'{"bill":') : head.find(b',"completion":{')] for head in window))
    tokens = json.loads(b"[[%s]]" % b"],[".join(b",".join(usages) for usages in window.values()))
    for head, bill, usages in zip(window, bills, tokens, strict=True):
        found = head.rfind(b'"retries":')
        yield bill, usages, int(head[found + len(b'"retries":') : -1]) * len(usages) if found >= 0 else 0

"""`personalink cache stats | verify | prune | export | import`: look after the file of answers kept across runs.

Knows the file's rows and the form of an export. What a run does with the cache is `lm.cache`'s.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import itertools
import json
import os
import re
import sqlite3
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from personalink.canonical import canonical_json, pretty_json
from personalink.cli.streams import out
from personalink.errors import IntegrityError, UsageError
from personalink.lm.base import completion_from_dict, completion_to_dict
from personalink.lm.cache import INSERT, KEPT, Entry, Who, as_ours, cache_path, make_entry, open_file, read

EXPORT = {"personalink_cache": 1}
"""First line of an export; the number is the version of its form."""

_SECONDS = {"h": 3600, "d": 86_400, "w": 604_800}
_POWERS = ("", "k", "m", "g", "t")
_LAST_SECOND = 253_402_300_799  # of the year 9999, the last that a date can be told of
_ROWS_AT_ONCE = 500  # rows written in one transaction, so that runs beside an import do not wait


def cache(options: argparse.Namespace) -> int:
    """`personalink cache ACTION`; the exit code.

    Raises:
        UsageError: there is no cache, it cannot be used, or an option or file is wrong.
        IntegrityError: the cache, or the file to import, is damaged.
    """
    path = cache_path(options.path or True)
    if path is None:
        raise UsageError(f"--path is {options.path!r}; it must be a file")
    actions = {"stats": stats, "verify": verify, "prune": prune, "export": export, "import": load}
    return actions[options.action](path, options)


@contextlib.contextmanager
def _opened(path: Path, create: bool = False) -> Iterator[sqlite3.Connection]:
    """The cache's file, with SQLite's errors told as ours and names read whatever their bytes."""
    file = open_file(path, create=create)
    file.text_factory = lambda raw: raw.decode("utf-8", "replace")
    try:
        yield file
    except sqlite3.Error as error:
        raise as_ours(error, path) from None
    finally:
        file.close()


def stats(path: Path, options: argparse.Namespace) -> int:
    """`personalink cache stats`."""
    columns = "count(*), coalesce(sum(size), 0), min(created), max(created)"
    with _opened(path) as file:
        total = file.execute(f"SELECT {columns} FROM entries").fetchone()
        query = f"SELECT model, endpoint, {columns} FROM entries GROUP BY model, endpoint ORDER BY model, endpoint"
        groups = file.execute(query).fetchall()
        used = _used(file)
    facts = {
        "path": str(path),
        "file_bytes": used,
        **_counted(total),
        "by_model": [{"model": model, "endpoint": endpoint, **_counted(rest)} for model, endpoint, *rest in groups],
    }
    if options.format == "json":
        out(pretty_json(facts).rstrip("\n"))
        return 0
    out(f"{path}: {facts['entries']} entries, {_size(facts['bytes'])} of answers in {_size(used)}{_span(facts)}")
    for group in facts["by_model"]:
        where = f"{group['model']} at {group['endpoint']}"
        out(f"  {where}: {group['entries']} entries, {_size(group['bytes'])}{_span(group)}")
    return 0


def _counted(row: Any) -> dict[str, Any]:
    entries, size, oldest, newest = row
    return {"entries": entries, "bytes": size, "oldest": _day(oldest), "newest": _day(newest)}


def _span(facts: dict[str, Any]) -> str:
    return f", {facts['oldest']} to {facts['newest']}" if facts["oldest"] and facts["newest"] else ""


def verify(path: Path, options: argparse.Namespace) -> int:
    """`personalink cache verify [--fix]`: 0 when every entry is whole or the damaged ones were deleted.

    Raises:
        IntegrityError: entries are damaged and stay, or the file itself is.
    """
    with _opened(path) as file:
        (found,) = file.execute("PRAGMA integrity_check(1)").fetchone()
        if found != "ok":
            msg = f"the file {path} is damaged ({found.splitlines()[-1]}); export what can still be read and delete it"
            raise IntegrityError(msg)
        rows = file.execute("SELECT rowid, key, who, crc32, CAST(value AS BLOB) FROM entries")
        total, damaged = 0, []
        for rowid, *rest in rows:
            total += 1
            if _read(*rest) is None:
                damaged.append((rowid,))
        if damaged and options.fix:
            file.execute("BEGIN IMMEDIATE")
            file.executemany("DELETE FROM entries WHERE rowid = ?", damaged)
            file.execute("COMMIT")
            out(f"{path}: {len(damaged)} damaged entries deleted, {total - len(damaged)} are whole")
            return 0
    if damaged:
        raise IntegrityError(f"{len(damaged)} of {total} entries in {path} are damaged; --fix deletes them")
    out(f"{path}: all {total} entries are whole")
    return 0


def _read(key: Any, who: Any, crc32: Any, value: Any) -> Any:
    """The answer of a row in which anything may be damaged, or None."""
    return read(key, who, crc32, value) if isinstance(key, bytes) and isinstance(who, bytes) else None


def prune(path: Path, options: argparse.Namespace) -> int:
    """`personalink cache prune [--older-than AGE] [--model NAME] [--max-size SIZE]`.

    Age and model narrow each other; the size then takes the oldest of what is left, whatever their model.

    Raises:
        UsageError: none of the three was given, or one is not readable.
    """
    if options.older_than is None and options.model is None and options.max_size is None:
        raise UsageError("say what to delete: --older-than 30d, --model NAME or --max-size 2GB")
    before = int(time.time()) - _age(options.older_than) if options.older_than is not None else None
    most = _bytes(options.max_size) if options.max_size is not None else None
    with _opened(path) as file:
        (total,) = file.execute("SELECT count(*) FROM entries").fetchone()
        size = _used(file)
        if before is not None or options.model is not None:
            file.execute(
                "DELETE FROM entries WHERE (?1 IS NULL OR created <= ?1) AND (?2 IS NULL OR model = ?2)",
                (before, options.model),
            )
        if most is not None:
            _shrink(file, most)
        file.execute("VACUUM")
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        (left,) = file.execute("SELECT count(*) FROM entries").fetchone()
        now = _used(file)
    out(f"{path}: {total - left} of {total} entries deleted, {_size(size)} → {_size(now)}")
    return 0


def _shrink(file: sqlite3.Connection, most: int) -> None:
    """Delete the oldest entries until what is in use is at most `most` bytes, or nothing is left."""
    while (used := _used(file)) > most:
        (entries,) = file.execute("SELECT count(*) FROM entries").fetchone()
        if not entries:
            return
        few = max(1, entries * (used - most) // used)
        file.execute(
            "DELETE FROM entries WHERE rowid IN (SELECT rowid FROM entries ORDER BY created, rowid LIMIT ?)", (few,)
        )


def _used(file: sqlite3.Connection) -> int:
    """Bytes of the file's pages that hold something; what a VACUUM leaves of it, or a little more."""
    pages, free, size = (
        file.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def export(path: Path, options: argparse.Namespace) -> int:
    """`personalink cache export FILE`: every whole entry, sorted, so that equal caches give equal files.

    Gzipped JSON lines: a header, an entry a line, and a last line with their number and the SHA-256 of all before it.

    Raises:
        UsageError: there is something else than an older export at FILE, or it cannot be written.
    """
    target = Path(options.file).expanduser()
    _check_target(target, path)
    written = damaged = 0
    with _opened(path) as file, _whole_file(target) as zipped:
        seen = hashlib.sha256()

        def write(line: dict[str, Any]) -> None:
            raw = (canonical_json(line) + "\n").encode()
            seen.update(raw)
            zipped.write(raw)

        write(EXPORT)
        columns = (
            "key, who, crc32, CAST(value AS BLOB), CAST(created AS INT), CAST(model AS TEXT), CAST(endpoint AS TEXT)"
        )
        for key, who, crc32, value, *rest in file.execute(f"SELECT {columns} FROM entries ORDER BY key, who"):
            completion = _read(key, who, crc32, value)
            if completion is None or not _is_time(rest[0]):
                damaged += 1
                continue
            names = dict(zip(("created", "model", "endpoint"), rest, strict=True))
            write({"key": key.hex(), "who": who.hex(), **names, "completion": completion_to_dict(completion)})
            written += 1
        write({"entries": written, "sha256": seen.hexdigest()})
    left_out = f"; {damaged} damaged ones were left out" if damaged else ""
    out(f"{target}: {written} entries of {path}{left_out}")
    return 0


def _check_target(target: Path, path: Path) -> None:
    """An export takes the place of an older export, and of nothing else.

    Raises:
        UsageError: the file is the cache, belongs to it, or holds something else.
    """
    here = path.resolve()
    if target.resolve() in (here, *(here.with_name(here.name + end) for end in ("-wal", "-shm", "-journal"))):
        raise UsageError(f"{target} is the cache itself; give another file for the export")
    if target.exists() and not _is_export(target):
        raise UsageError(f"{target} is there and is no export of a cache; give another file, or move it away")


def _is_export(file: Path) -> bool:
    """Whether a file begins as an export does, whole or not."""
    if not file.is_file():
        return False
    try:
        with file.open("rb") as raw, gzip.GzipFile(fileobj=raw) as unzipped:
            told = json.loads(unzipped.readline(100))
    except (OSError, EOFError, ValueError, RecursionError, zlib.error):
        return False
    return isinstance(told, dict) and told.keys() == EXPORT.keys()


@contextlib.contextmanager
def _whole_file(target: Path) -> Iterator[gzip.GzipFile]:
    """A gzip file that is whole or absent, without a clock in it.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        handle, name = tempfile.mkstemp(prefix=".export.", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as out:
                yield out
            os.chmod(name, 0o644)
            os.replace(name, target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}; give another file") from None


def load(path: Path, options: argparse.Namespace) -> int:
    """`personalink cache import FILE`: the file is checked to its end before anything is written.

    Raises:
        UsageError: it cannot be read, or is of another version. IntegrityError: it is damaged, or no export.
    """
    source = Path(options.file).expanduser()
    total = sum(1 for _ in _exported(source))
    added = 0
    with _opened(path, create=True) as file:
        entries = _exported(source)
        while some := list(itertools.islice(entries, _ROWS_AT_ONCE)):
            file.execute("BEGIN IMMEDIATE")
            added += file.executemany(INSERT, some).rowcount
            file.execute("COMMIT")
    out(f"{path}: {added} entries added, {total - added} were there already")
    return 0


def _exported(source: Path) -> Iterator[Entry]:
    """The entries of an export, and at the end the proof that it is whole.

    Raises:
        UsageError: it cannot be read, or is of another version. IntegrityError: it is damaged, or no export.
    """
    try:
        with source.open("rb") as raw, gzip.GzipFile(fileobj=raw) as unzipped:
            yield from _entries(unzipped, source)
    except (gzip.BadGzipFile, zlib.error, EOFError, ValueError, KeyError, TypeError, RecursionError) as error:
        what = str(error).splitlines()[0][:80] if str(error) else type(error).__name__
        raise IntegrityError(f"{source} is damaged, or no export of a cache ({what}); nothing was imported") from None
    except OSError as error:
        raise UsageError(f"cannot read {source}: {error.strerror}") from None


def _entries(lines: BinaryIO | gzip.GzipFile, source: Path) -> Iterator[Entry]:
    header = lines.readline()
    told = json.loads(header)
    if not isinstance(told, dict) or told.keys() != EXPORT.keys():
        raise ValueError("its first line is another")
    if told != EXPORT:
        version = told["personalink_cache"]
        raise UsageError(f"{source} is an export of version {version!r}; this personalink reads 1")
    seen, found, line = hashlib.sha256(header), 0, lines.readline()
    while following := lines.readline():
        yield _entry(json.loads(line))
        found += 1
        seen.update(line)
        line = following
    if json.loads(line) != {"entries": found, "sha256": seen.hexdigest()}:
        raise ValueError("its checksum fails")


def _entry(told: dict[str, Any]) -> Entry:
    completion = completion_from_dict(told["completion"])
    if completion.outcome not in KEPT:
        raise ValueError("an answer in it is none")
    if not _is_time(told["created"]):
        raise ValueError("a time in it is none")
    names = told["model"], told["endpoint"]
    if not all(isinstance(name, str) and name.encode("utf-8", "replace").decode() == name for name in names):
        raise ValueError("a name in it is none")
    entry = make_entry(told["key"], Who(told["who"], *names), completion, told["created"])
    if len(entry.key) != 32 or len(entry.who) != 32:
        raise ValueError("a key in it is none")
    return entry


def _is_time(seconds: Any) -> bool:
    return type(seconds) is int and 0 <= seconds <= _LAST_SECOND


def _age(text: str) -> int:
    """Seconds of an age such as "30d"."""
    found = re.fullmatch(r"(\d{1,6})([hdw])", text.strip().lower())
    if not found:
        raise UsageError(
            f"--older-than is {text!r}; it must be a number of hours, days or weeks, such as 12h, 30d or 4w"
        )
    return int(found[1]) * _SECONDS[found[2]]


def _bytes(text: str) -> int:
    """Bytes of a size such as "2GB" (powers of 1000) or "2GiB" (of 1024)."""
    found = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)\s*([kmgt]?)(i?)b?", text.strip().lower())
    if not found or (found[3] and not found[2]):
        raise UsageError(f"--max-size is {text!r}; it must be a size, such as 500MB or 2GB")
    return int(float(found[1]) * (1024 if found[3] else 1000) ** _POWERS.index(found[2]))


def _size(number: float) -> str:
    """Bytes for people: 812 B, 1.2 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000 or unit == "GB":
            break
        number /= 1000
    return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"


def _day(seconds: Any) -> str | None:
    """The date of a time; None for what is no time, which a damaged file may hold."""
    return None if not _is_time(seconds) else time.strftime("%Y-%m-%d", time.gmtime(seconds))

"""The optional cache across runs: one SQLite file that many processes share, and that never stops or changes a run.

An answer is found by the request's key and by who answers (`who_answers`), so that two servers with one model name
share nothing. Only outcomes "ok" and "truncated" (which a greedy model repeats) are kept; an empty or a refused answer
may be a server's hiccup and is asked for anew, and a failure never comes here. Each entry carries a checksum over its
key and its value: what fails it is a miss. Whatever else goes wrong with the file switches the cache off with one
warning.

Knows no gateway, ledger or run; a run's own record is the journal.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from personalink.canonical import canonical_json, digest
from personalink.errors import IntegrityError, PersonalinkError, UsageError
from personalink.lm.base import LM, Completion, completion_from_dict, completion_to_dict
from personalink.lm.weights import cache_folder

SCHEMA = 1
"""Version of the file's layout and of what a key and an answerer are made of."""

BUSY_S = 30.0
"""Seconds to wait for another process's write."""

BATCH, BATCH_S = 64, 2.0
"""Answers are written when so many are waiting, or by the first put that comes so many seconds after the oldest."""

KEPT = ("ok", "truncated")

FACTS = (
    "kind", "dialect", "model", "revision", "window", "n_ctx", "slots", "total_slots", "version", "build_info",
    "fingerprint", "system_fingerprint", "weights_sha256", "xllamacpp",
)  # fmt: skip
"""What of `LM.describe()` tells one answerer from another, where it is there; the rest may change at each start."""

ENTRY = ("id", "root", "parent", "max_model_len", "owned_by", "meta")
"""The same of the server's own entry for the model."""

_APPLICATION = 0x504C4E4B  # "PLNK", in the file's header
_TABLE = """
CREATE TABLE IF NOT EXISTS entries (
    key BLOB NOT NULL, who BLOB NOT NULL, created INTEGER NOT NULL, size INTEGER NOT NULL, crc32 INTEGER NOT NULL,
    model TEXT NOT NULL, endpoint TEXT NOT NULL, completion_tokens INTEGER, value BLOB NOT NULL,
    PRIMARY KEY (key, who)
)"""
_HEADER = """SELECT (SELECT application_id FROM pragma_application_id), (SELECT user_version FROM pragma_user_version),
    (SELECT count(*) FROM sqlite_master)"""  # one statement, so one state of a file that others may be laying out
INSERT = "INSERT OR IGNORE INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_SELECT = "SELECT crc32, CAST(value AS BLOB) FROM entries WHERE key = ? AND who = ?"
_DELETE = "DELETE FROM entries WHERE key = ? AND who = ?"

_log = logging.getLogger(__name__)


class Who(NamedTuple):
    """Who answers: a digest (64 hexadecimal digits) of all that tells it apart, and two names for people to read."""

    digest: str
    model: str
    endpoint: str


class Entry(NamedTuple):
    """One row of the file. `created` is in seconds since 1970, `size` the bytes of `value` (canonical JSON)."""

    key: bytes
    who: bytes
    created: int
    size: int
    crc32: int
    model: str
    endpoint: str
    completion_tokens: int | None
    value: bytes


def who_answers(lm: LM) -> Who:
    """Who stands behind `lm`: its identity, where it is, and what it says of itself. The model must be started.

    The endpoint is the server's base URL where the model has one (`api_url`), else its kind ("embedded", "scripted").
    A server that serves other weights under the same address, name, version and window cannot be told apart from here:
    set `revision`.
    """
    told = lm.describe()
    endpoint = str(getattr(lm, "api_url", None) or told.get("kind") or type(lm).__name__)
    entry = told.get("model_entry")
    who = {
        "schema": SCHEMA,
        "identity": lm.identity,
        "endpoint": endpoint,
        "facts": {name: told[name] for name in FACTS if name in told},
        "entry": {name: entry[name] for name in ENTRY if name in entry} if isinstance(entry, dict) else {},
    }
    return Who(digest(who), lm.model, endpoint)


def cache_path(where: bool | str | Path | None) -> Path | None:
    """The file that a setting means: None, False, "" and "off" are none; True and "on" the default place; else a path.

    The default is `cache.sqlite` in PERSONALINK_HOME, else in XDG_CACHE_HOME/personalink, else ~/.cache/personalink.
    """
    if where is None or where is False or where in ("", "off"):
        return None
    return cache_folder().parent / "cache.sqlite" if where is True or where == "on" else Path(where).expanduser()


def open_cache(where: bool | str | Path | None) -> contextlib.AbstractContextManager[Cache | None]:
    """The cache that a setting means, to be closed at the end of `with`; None for none."""
    path = cache_path(where)
    return contextlib.nullcontext() if path is None else Cache(path)


class Cache:
    """Answers of earlier runs, and of other processes now, in one file.

    No method raises for what is wrong with the file: the cache is then switched off, with one warning in the log, and
    every later `get` is a miss. It may be used from several threads.

    Args:
        path: the file; it and its folder are made when absent.
        busy_s: seconds to wait for another process before the cache is switched off, at least 0.

    Attributes:
        hits, misses: of `get` so far. damaged: misses because an entry failed its checksum.
    """

    def __init__(self, path: str | Path, *, busy_s: float = BUSY_S) -> None:
        self.path = Path(path).expanduser()
        self.hits = self.misses = self.damaged = 0
        self._lock = threading.Lock()
        self._waiting: dict[tuple[bytes, bytes], Entry] = {}
        self._bad: set[tuple[bytes, bytes]] = set()
        self._since = 0.0
        self._file: sqlite3.Connection | None = None
        try:
            self._file = open_file(self.path, busy_s=busy_s)
        except PersonalinkError as error:
            self._switch_off(error)
        else:
            atexit.register(self.close)

    @property
    def on(self) -> bool:
        """Whether it is in use: neither closed nor switched off."""
        return self._file is not None

    def get(self, key: str, who: Who) -> Completion | None:
        """The answer that `who` gave to the request with `key` (see `Request.key`), or None."""
        place = bytes.fromhex(key), bytes.fromhex(who.digest)
        with self._lock:
            found = self._find(place)
            if found is None:
                self.misses += 1
            else:
                self.hits += 1
        return found

    def _find(self, place: tuple[bytes, bytes]) -> Completion | None:
        if self._file is None:
            return None
        waiting = self._waiting.get(place)
        if waiting is not None:
            return read(*place, waiting.crc32, waiting.value)
        try:
            row = self._file.execute(_SELECT, place).fetchone()
        except sqlite3.Error as error:
            self._switch_off(as_ours(error, self.path))
            return None
        if row is None:
            return None
        completion = read(*place, *row)
        if completion is None:
            self.damaged += 1
            self._bad.add(place)
        return completion

    def put(self, key: str, who: Who, completion: Completion) -> None:
        """Keep one answer when its outcome is one of `KEPT`. What is there already stays, unless it is damaged."""
        if completion.outcome not in KEPT or self._file is None:
            return
        entry = make_entry(key, who, completion, int(time.time()))
        with self._lock:
            now = time.monotonic()
            if not self._waiting:
                self._since = now
            self._waiting[entry[:2]] = entry
            if len(self._waiting) >= BATCH or now - self._since >= BATCH_S:
                self._flush()

    def flush(self) -> None:
        """Write what is waiting, so that other processes see it."""
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, {}
        if self._file is None or not waiting:
            return
        try:
            self._file.execute("BEGIN IMMEDIATE")
            self._file.executemany(_DELETE, self._bad & waiting.keys())
            self._file.executemany(INSERT, waiting.values())
            self._file.execute("COMMIT")
        except sqlite3.Error as error:
            self._switch_off(as_ours(error, self.path))
        self._bad -= waiting.keys()

    def _switch_off(self, error: PersonalinkError) -> None:
        _log.warning("%s; the run goes on without the cache", error)
        self._let_go()

    def _let_go(self) -> None:
        file, self._file = self._file, None
        self._waiting.clear()
        if file is not None:
            with contextlib.suppress(sqlite3.Error):
                file.close()

    def close(self) -> None:
        """Write what is waiting and let the file go. Idempotent; done at the program's end where nobody does."""
        with self._lock:
            self._flush()
            self._let_go()
        atexit.unregister(self.close)

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def checksum(key: bytes, who: bytes, value: bytes) -> int:
    """CRC-32 over key, answerer and value, so that a value in another's place fails too."""
    return zlib.crc32(value, zlib.crc32(who, zlib.crc32(key)))


def make_entry(key: str, who: Who, completion: Completion, created: int) -> Entry:
    """The row of one answer."""
    where, answerer = bytes.fromhex(key), bytes.fromhex(who.digest)
    value = canonical_json(completion_to_dict(completion)).encode()
    crc = checksum(where, answerer, value)
    tokens = completion.usage.completion
    return Entry(where, answerer, created, len(value), crc, who.model, who.endpoint, tokens, value)


def read(key: bytes, who: bytes, crc32: Any, value: Any) -> Completion | None:
    """The answer of a row; None where it is damaged, or none that a cache keeps."""
    if not isinstance(value, bytes) or crc32 != checksum(key, who, value):
        return None
    try:
        completion = completion_from_dict(json.loads(value))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return completion if completion.outcome in KEPT and isinstance(completion.text, str) else None


def open_file(path: Path, *, busy_s: float = BUSY_S, create: bool = True) -> sqlite3.Connection:
    """A connection to the cache at `path`, in write-ahead mode and with autocommit; any thread may use it.

    Raises:
        UsageError: it cannot be opened or made, is locked for too long, or is something else's database.
        IntegrityError: it is damaged.
    """
    try:
        if not create and not path.exists():
            raise UsageError(f"no cache at {path}; give --path, or run once with cache=on")
        path.parent.mkdir(parents=True, exist_ok=True)
        file = sqlite3.connect(path, timeout=busy_s, isolation_level=None, check_same_thread=False)
    except (OSError, sqlite3.Error) as error:
        raise as_ours(error, path) from None
    try:
        _patiently(lambda: _prepare(file, path), busy_s)
    except sqlite3.Error as error:
        file.close()
        raise as_ours(error, path) from None
    except BaseException:
        file.close()
        raise
    return file


def _prepare(file: sqlite3.Connection, path: Path) -> None:
    """Make sure that the file is a cache of this version; a new one is laid out."""
    application, version, tables = file.execute(_HEADER).fetchone()
    if (application, version) != (_APPLICATION, SCHEMA):
        if application or version or tables:
            ours = application == _APPLICATION
            kind = f"a cache of version {version}, not {SCHEMA}" if ours else "no cache of personalink"
            raise UsageError(f"{path} is {kind}; give another path")
        file.execute("PRAGMA journal_mode=WAL")
        file.execute("BEGIN IMMEDIATE")
        file.execute(_TABLE)
        file.execute(f"PRAGMA application_id={_APPLICATION}")
        file.execute(f"PRAGMA user_version={SCHEMA}")
        file.execute("COMMIT")
    file.execute("PRAGMA synchronous=NORMAL")
    file.execute(_SELECT, (b"", b"")).fetchone()  # the table is there and can be read


def _patiently(work: Callable[[], None], busy_s: float) -> None:
    """Do `work` again while the file is busy: entering write-ahead mode does not wait by itself."""
    until = time.monotonic() + busy_s
    while True:
        try:
            return work()
        except sqlite3.OperationalError as error:
            if _code(error) not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) or time.monotonic() > until:
                raise
            time.sleep(0.02)


def as_ours(error: OSError | sqlite3.Error, path: Path) -> PersonalinkError:
    """What SQLite or the system says about the file, in one line that names it and the remedy."""
    if isinstance(error, OSError):
        return UsageError(f"cannot use the cache {path}: {error.strerror}; give another path")
    code = _code(error)
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return IntegrityError(f"the cache {path} is damaged ({error}); delete it, or export what can still be read")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return UsageError(f"the cache {path} is kept locked by another process")
    return UsageError(f"cannot use the cache {path}: {error}; give another path or make room")


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary result code, 0 where the error is not SQLite's own."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF

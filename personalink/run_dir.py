"""A run's directory: `sealed/` is the same bytes however often the run was interrupted, `log/` is the rest.

Knows names and files, not what stands in them.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from personalink.canonical import canonical_json, digest, file_digest, pretty_json, write_atomic
from personalink.errors import IncompleteRun, IntegrityError, StorageError, UsageError
from personalink.lm.journal import Journal

SEAL = "seal.json"
NAME_DIGITS = 12
"""A run's folder is named by so many digits of its configuration's digest."""
_ASIDE = re.compile(r"\.old\d+$")
_ENDED = ("complete", "failed")
_COMPUTED = ("table.", "selection.", "metrics.")
LAYOUT = """What is where in a run's directory

sealed/   the same bytes however often the run was interrupted
  config.json          the resolved configuration
  model.json           who answered
  data.json            where the users come from, and what the loader left out
  seal.json            the digest of every file that is not computed from others
  manifest.json        the users, their queries, their random-user donors, the digest of the data
  predictions.jsonl    every answer, with its raw text
  golds.jsonl          the gold labels, kept apart
  floors.jsonl         what the history predicts without a model
  products/            what was prepared once a user: drafts, and refinements with every pass
  personas/            each user's kept persona, to read (.md) and to load (.json)
  metrics.json, table.*, selection.*    the scores
log/      the rest
  journal              request -> completion, append-only: what makes resuming exact
  attempts.jsonl       when, with which versions, what the endpoint says it is, and how long it took
  ledger.json          calls and tokens by user, phase and depth
  answered_by.json     what the answers say answered them
  status.json          complete, incomplete or interrupted, and who is unfinished
report/   what `personalink report` and `personalink contraction` made of it; may be deleted
"""


class RunDir:
    """The directory of one run.

    Args:
        path: where it is; made when absent.

    Raises:
        PersonalinkError: it cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sealed = path / "sealed"
        self.log = path / "log"
        self._began: float | None = None

    def open(self, config: Mapping[str, Any], *, fresh: bool) -> None:
        """Make or find the directory for a configuration; `fresh` puts an older run aside, it is never deleted.

        Raises:
            IntegrityError: another configuration's run stands here.
            UsageError: another process works in the run that is to be put aside.
            StorageError: the folder cannot be written.
        """
        try:
            if fresh and self.path.exists():
                self._put_aside()
            self.log.mkdir(parents=True, exist_ok=True)
            standing = self.read_json("sealed/config.json")
            wanted = json.loads(canonical_json(config))
            if standing is not None and standing != wanted:
                keys = {*standing, *wanted} if isinstance(standing, dict) else {"everything"}
                changed = sorted(k for k in keys if k == "everything" or standing.get(k) != wanted.get(k))
                what = ", ".join(changed)
                msg = f"{self.path} holds a run of another configuration (differs in {what}); use fresh=true"
                raise IntegrityError(msg)
            if standing is None:
                self.seal("config.json", pretty_json(config))
            write_atomic(self.path / "README.txt", LAYOUT)
        except OSError as error:
            msg = f"cannot write the run's folder {self.path}: {error.strerror}; give another runs_dir"
            raise StorageError(msg) from None

    def sweep(self) -> None:
        """Take away what a process that was killed while it wrote left behind; for who alone works here."""
        for path in self.sealed.rglob(".*"):
            if path.is_file():
                path.unlink(missing_ok=True)

    def _put_aside(self) -> None:
        if (self.log / "journal").exists():
            Journal(self.log / "journal").close()  # nobody works here, or this raises
        n = 1
        while (aside := self.path.with_name(f"{self.path.name}.old{n}")).exists():
            n += 1
        self.path.rename(aside)

    def seal(self, name: str, text: str) -> None:
        """Write one sealed file, whole or not at all."""
        write_atomic(self.sealed / name, text)

    def seal_lines(self, name: str, records: Iterable[Mapping[str, Any]]) -> None:
        """Write one sealed file of JSON lines, in the order given."""
        self.seal(name, "".join(canonical_json(record) + "\n" for record in records))

    def close_seal(self) -> None:
        """Write down the digest of every sealed file but the tables, which are computed from them."""
        self.seal(SEAL, pretty_json(self._digests()))

    def _digests(self) -> dict[str, str]:
        names = (p for p in self.sealed.rglob("*") if p.is_file())
        return {
            str(path.relative_to(self.sealed)): file_digest(path)
            for path in names
            if path.name != SEAL and not path.name.startswith((*_COMPUTED, "."))
        }

    def broken_seal(self) -> str:
        """The first sealed file that is missing, altered or new since it was sealed; "" when all is as it was."""
        sealed = self.read_json(f"sealed/{SEAL}")
        if not isinstance(sealed, dict):
            return SEAL
        found = self._digests()
        return next((name for name in sorted({*sealed, *found}) if sealed.get(name) != found.get(name)), "")

    def check_seal(self) -> None:
        """Refuse what was altered, and what was never sealed to its end.

        Raises:
            IncompleteRun: the run is still worked on, or was killed before it could seal what it has.
            IntegrityError: a sealed file is missing, altered or new.
        """
        name = self.broken_seal()
        if name and self.status["state"] not in _ENDED:
            msg = f"{self.path} is not finished: it is being worked on, or was killed; the same command goes on"
            raise IncompleteRun(msg)
        if name:
            msg = f"{self.sealed / name} is missing or was altered; run the same command again to seal it anew"
            raise IntegrityError(msg)

    def read_json(self, name: str) -> Any:
        """A JSON file of the run, None where it is absent.

        Raises:
            IntegrityError: it is not JSON.
        """
        path = self.path / name
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (json.JSONDecodeError, UnicodeDecodeError, OSError) as error:
            msg = f"{path} is damaged: {error}"
            raise IntegrityError(msg) from None

    def read_lines(self, name: str) -> Iterator[Any]:
        """The records of a file of JSON lines, each an object.

        Raises:
            IntegrityError: the file cannot be read, or a line is no JSON object.
        """
        path = self.path / name
        for number, line in enumerate(_lines(path), 1):
            try:
                record = json.loads(line)
            except ValueError as error:
                msg = f"{path} is damaged in line {number}: {getattr(error, 'msg', error)}"
                raise IntegrityError(msg) from None
            if not isinstance(record, dict):
                msg = f"{path} is damaged in line {number}: expected an object"
                raise IntegrityError(msg)
            yield record

    @property
    def status(self) -> dict[str, Any]:
        """What the last attempt came to: {"state": "complete" | "failed" | "incomplete" | "interrupted" | "", …}."""
        status = self.read_json("log/status.json")
        return status if isinstance(status, dict) and "state" in status else {"state": ""}

    def set_status(self, state: str, **facts: Any) -> None:
        """Write the status."""
        write_atomic(self.log / "status.json", pretty_json({**facts, "state": state}))

    def note_attempt(self, facts: Mapping[str, Any]) -> None:
        """Append one attempt: versions and what the endpoint says it is."""
        self._began = time.monotonic()
        self._append_attempt(facts)

    def end_attempt(self) -> None:
        """Append how many seconds the attempt noted last has taken; nothing where none was noted. Once an attempt."""
        if self._began is not None:
            seconds, self._began = time.monotonic() - self._began, None
            self._append_attempt({"seconds": round(seconds, 3)})

    def _append_attempt(self, facts: Mapping[str, Any]) -> None:
        line = canonical_json({"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **facts}) + "\n"
        with (self.log / "attempts.jsonl").open("a", encoding="utf-8") as file:
            file.write(line)

    def attempts(self) -> list[dict[str, Any]]:
        """What is known of each attempt, in order; "seconds" is None for one that was killed before it could tell.

        Raises:
            IntegrityError: the file cannot be read.
        """
        found: list[dict[str, Any]] = []
        for record in self.read_lines("log/attempts.jsonl"):
            if "seconds" in record and found:
                found[-1]["seconds"] = record["seconds"]
            elif "ended" not in record:  # what a sweep says of a job that ended without a word
                found.append({"seconds": None, **record})
        return found


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, none where there is no file. Only a newline ends one: texts hold U+2028 and its like.

    Raises:
        IntegrityError: the file cannot be read.
    """
    try:
        with path.open("rb") as lines:
            yield from lines
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        msg = f"{path} is damaged: {error}"
        raise IntegrityError(msg) from None


def file_name(user: str) -> str:
    """A user's id as a file name: percent-encoded, shortened with a digest where it is long; never empty or hidden."""
    name = quote(user, safe=" @+=,-_").replace(".", "%2E", 1) if user.startswith(".") else quote(user, safe=" @+=,-_.")
    return name if 0 < len(name) <= 120 else f"{name[:100]}~{digest(user)[:12]}"


def find_run(where: str | Path) -> RunDir:
    """The run at a path: its directory, or a folder that holds exactly one run, those put aside not counted.

    Raises:
        UsageError: there is no run, or there are several (they are listed).
    """
    path = Path(where).expanduser()
    if (path / "sealed" / "config.json").exists():
        return RunDir(path)
    below = sorted(p.parent.parent for p in path.glob("**/sealed/config.json")) if path.is_dir() else []
    found = [run for run in below if not _ASIDE.search(run.name)][:20]
    if len(found) == 1:
        return RunDir(found[0])
    if found:
        msg = f"{path} holds several runs; name one: {', '.join(str(p) for p in found)}"
        raise UsageError(msg)
    msg = f"no run at {path}: expected a folder with sealed/config.json, such as runs/quickstart/0123456789ab"
    raise UsageError(msg)

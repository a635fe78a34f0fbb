"""Who asked for what: calls, retries, failures and tokens by user, phase and depth. Unknown is None, never 0.

Counts what was paid for (each journalled answer once); answers that came from the journal or from the cache across runs
are counted apart and cost nothing. Knows nothing of transports.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from personalink.canonical import canonical_json
from personalink.lm.base import Usage

OPEN = 8192
"""Lines kept as objects, some 400 bytes each; then they are packed into 52 bytes each."""

_PACKED = struct.Struct("<2I3i3q2i")  # user, kind, then `Counts` in its order
_UNKNOWN = -1  # stands for None there


class Bill(NamedTuple):
    """Who pays for a request: the user it is for, the phase ("evaluate", "rewrite", "audit", "answer", …) and, within
    a refinement, the depth. `row` names the method where the phase is "answer"."""

    user: str = ""
    phase: str = ""
    depth: int = 0
    row: str = ""


@dataclass(slots=True)
class Counts:
    """Totals of one line of the ledger: `calls` sent and paid for, `cached_calls` that the cache across runs answered,
    `replayed` from the journal. Tokens are those of `calls`; a total is None as soon as one of them did not tell.

    `failed` requests raised in this attempt (earlier attempts do not tell theirs), and `retries` are the attempts
    beyond the first of calls and of failed requests: a server saw `calls + failed + retries` where each reached it.
    """

    calls: int = 0
    cached_calls: int = 0
    replayed: int = 0
    prompt_tokens: int | None = 0
    cached_tokens: int | None = 0
    completion_tokens: int | None = 0
    retries: int = 0
    failed: int = 0

    def add(self, usage: Usage, retries: int = 0) -> None:
        """One paid answer."""
        self.calls += 1
        self.prompt_tokens = _sum(self.prompt_tokens, usage.prompt)
        self.cached_tokens = _sum(self.cached_tokens, usage.cached)
        self.completion_tokens = _sum(self.completion_tokens, usage.completion)
        self.retries += retries

    def merge(self, other: Counts) -> None:
        """Add another line to this one."""
        self.calls += other.calls
        self.cached_calls += other.cached_calls
        self.replayed += other.replayed
        self.prompt_tokens = _sum(self.prompt_tokens, other.prompt_tokens)
        self.cached_tokens = _sum(self.cached_tokens, other.cached_tokens)
        self.completion_tokens = _sum(self.completion_tokens, other.completion_tokens)
        self.retries += other.retries
        self.failed += other.failed

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


def _known(n: int) -> int | None:
    return None if n == _UNKNOWN else n


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


class Ledger:
    """Lines by `Bill`. Threads may share it.

    Attributes:
        lines: those written to lately; older ones are packed, and perhaps once more here. Read `total`, `by` and
            `as_dict`, which have them all.
    """

    def __init__(self) -> None:
        self.lines: dict[Bill, Counts] = {}
        self._packed = bytearray()
        self._users: dict[str, int] = {}
        self._kinds: dict[tuple[str, int, str], int] = {}
        self._lock = threading.Lock()

    def paid(self, bill: Bill, usage: Usage, retries: int = 0) -> None:
        """An answer that was sent for, after so many attempts beyond the first."""
        with self._lock:
            self._line(bill).add(usage, retries)

    def paid_before(self, bill: Bill, usages: Sequence[Sequence[int | None]], retries: int) -> None:
        """Answers that an earlier attempt sent for, by the tokens of each and the retries of all."""
        tokens = [_UNKNOWN if None in counts else sum(counts) for counts in zip(*usages, strict=True)]
        with self._lock:
            self._pack(bill, len(usages), 0, 0, *tokens, retries, 0)

    def failed(self, bill: Bill, retries: int = 0) -> None:
        """A request that raised, after so many attempts beyond the first."""
        with self._lock:
            line = self._line(bill)
            line.failed += 1
            line.retries += retries

    def cached(self, bill: Bill, n: int = 1) -> None:
        """Answers that the cache across runs held: no call, no token."""
        with self._lock:
            self._line(bill).cached_calls += n

    def replayed(self, bill: Bill) -> None:
        """An answer that was already in the journal, or on its way for somebody else."""
        with self._lock:
            self._line(bill).replayed += 1

    def add(self, bill: Bill, counts: Counts) -> None:
        """A whole line of another ledger."""
        with self._lock:
            self._line(bill).merge(counts)

    def _line(self, bill: Bill) -> Counts:
        """The open line of a bill."""
        line = self.lines.get(bill)
        if line is None:
            if len(self.lines) >= OPEN:
                for old, c in self.lines.items():
                    self._pack(old, *(_UNKNOWN if n is None else n for n in c.as_dict().values()))
                self.lines.clear()
            line = self.lines[bill] = Counts()
        return line

    def _pack(self, bill: Bill, *counts: int) -> None:
        """Put a line away, its counts in the order of `Counts`."""
        who = self._users.setdefault(bill.user, len(self._users))
        kind = self._kinds.setdefault(bill[1:], len(self._kinds))
        self._packed += _PACKED.pack(who, kind, *counts)

    def _all(self) -> Iterator[tuple[Bill, Counts]]:
        """Every line; a bill may come more than once."""
        users, kinds = list(self._users), list(self._kinds)
        rows = _PACKED.iter_unpack(self._packed)
        for who, kind, calls, cached_calls, replayed, prompt, cached, completion, retries, failed in rows:
            tokens = (_known(prompt), _known(cached), _known(completion))
            yield Bill(users[who], *kinds[kind]), Counts(calls, cached_calls, replayed, *tokens, retries, failed)
        yield from self.lines.items()

    def _summed(self, of: Callable[[Bill], Any]) -> dict[Any, Counts]:
        """Totals by what `of` makes of a bill."""
        groups: dict[Any, Counts] = {}
        with self._lock:
            for bill, counts in self._all():
                groups.setdefault(of(bill), Counts()).merge(counts)
        return groups

    def total(self, bills: Iterable[Bill] | None = None) -> Counts:
        """The sum of some lines, or of all."""
        wanted = None if bills is None else set(bills)
        return self._summed(lambda bill: wanted is None or bill in wanted).get(True, Counts())

    def by(self, field: str) -> dict[Any, Counts]:
        """Totals by one field of the bill, such as "phase"."""
        return self._summed(lambda bill: getattr(bill, field))

    def as_dict(self) -> dict[str, Any]:
        """Total, by phase, and every line: plain JSON, sorted."""
        return {**self._heads(), "lines": list(self._lines())}

    def as_json(self) -> str:
        """`as_dict` as JSON for people, a line of the ledger on a line, made without holding all lines as objects."""
        lines = ",\n".join(f"    {canonical_json(line)}" for line in self._lines())
        heads = "".join(f'  "{name}": {canonical_json(value)},\n' for name, value in self._heads().items())
        return f'{{\n{heads}  "lines": [\n{lines}\n  ]\n}}\n'

    def _heads(self) -> dict[str, Any]:
        phases = sorted(self.by("phase").items())
        return {"total": self.total().as_dict(), "by_phase": {phase: c.as_dict() for phase, c in phases}}

    def _lines(self) -> Iterator[dict[str, Any]]:
        for bill, counts in sorted(self._summed(lambda bill: bill).items()):
            yield {**bill._asdict(), **counts.as_dict()}

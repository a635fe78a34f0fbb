"""Who asked for what: calls and tokens by user, phase and depth. Unknown is None, never 0.

Counts what was paid for (each journalled answer once); answers that came from the journal or from the cache across runs
are counted apart and cost nothing. Knows nothing of transports.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from personalink.lm.base import Usage


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
    `replayed` from the journal. Tokens are those of `calls`; a total is None as soon as one of them did not tell."""

    calls: int = 0
    cached_calls: int = 0
    replayed: int = 0
    prompt_tokens: int | None = 0
    cached_tokens: int | None = 0
    completion_tokens: int | None = 0

    def add(self, usage: Usage) -> None:
        """One paid answer."""
        self.calls += 1
        self.prompt_tokens = _sum(self.prompt_tokens, usage.prompt)
        self.cached_tokens = _sum(self.cached_tokens, usage.cached)
        self.completion_tokens = _sum(self.completion_tokens, usage.completion)

    def merge(self, other: Counts) -> None:
        """Add another line to this one."""
        self.calls += other.calls
        self.cached_calls += other.cached_calls
        self.replayed += other.replayed
        self.prompt_tokens = _sum(self.prompt_tokens, other.prompt_tokens)
        self.cached_tokens = _sum(self.cached_tokens, other.cached_tokens)
        self.completion_tokens = _sum(self.completion_tokens, other.completion_tokens)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


class Ledger:
    """Lines by `Bill`."""

    def __init__(self) -> None:
        self.lines: dict[Bill, Counts] = {}

    def paid(self, bill: Bill, usage: Usage) -> None:
        """An answer that was sent for."""
        self.lines.setdefault(bill, Counts()).add(usage)

    def cached(self, bill: Bill) -> None:
        """An answer that the cache across runs held: no call, no token."""
        self.lines.setdefault(bill, Counts()).cached_calls += 1

    def replayed(self, bill: Bill) -> None:
        """An answer that was already in the journal, or on its way for somebody else."""
        self.lines.setdefault(bill, Counts()).replayed += 1

    def total(self, bills: Iterable[Bill] | None = None) -> Counts:
        """The sum of some lines, or of all."""
        counts = Counts()
        for bill in self.lines if bills is None else bills:
            counts.merge(self.lines[bill])
        return counts

    def by(self, field: str) -> dict[Any, Counts]:
        """Totals by one field of the bill, such as "phase"."""
        groups: dict[Any, Counts] = {}
        for bill, counts in self.lines.items():
            groups.setdefault(getattr(bill, field), Counts()).merge(counts)
        return groups

    def as_dict(self) -> dict[str, Any]:
        """Total, by phase, and every line: plain JSON, sorted."""
        return {
            "total": self.total().as_dict(),
            "by_phase": {phase: c.as_dict() for phase, c in sorted(self.by("phase").items())},
            "lines": [{**bill._asdict(), **counts.as_dict()} for bill, counts in sorted(self.lines.items())],
        }

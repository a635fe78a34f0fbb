"""Two runs over the same users, row by row: differences with intervals and tests, flips both ways, near ties, settings.

Knows the evidence of two runs; refuses runs that were not made from the same manifest. Other models, prompts and
settings are what such a comparison is for, and are listed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from personalink import stats
from personalink.errors import IntegrityError, UsageError
from personalink.logprobs import NEAR_TIE
from personalink.metrics import primary
from personalink.report.answers import Judged
from personalink.report.contrasts import Choices, Contrast, contrast, matched
from personalink.report.evidence import Evidence
from personalink.text import nearest


@dataclass(frozen=True, slots=True)
class Flip:
    """A query that the two runs answered with different labels.

    Attributes:
        user, query, gold: which. a, b: the labels; None for INVALID.
        better: "a", "b", or "" where neither is nearer to the gold.
        margin_a, margin_b: of the answers, in nats (see `logprobs.margin`); None where logprobs were not asked for.
    """

    user: str
    query: str
    gold: str
    a: str | None
    b: str | None
    better: str
    margin_a: float | None
    margin_b: float | None

    @property
    def near_tie(self) -> bool | None:
        """Whether either margin is below `NEAR_TIE`, so that the flip may be chance; None where none is known."""
        known = [margin for margin in (self.margin_a, self.margin_b) if margin is not None]
        return min(known) < NEAR_TIE if known else None


@dataclass(frozen=True, slots=True)
class RowPair:
    """A row of run A beside a row of run B.

    Attributes:
        a, b: their names. contrast: a − b. corrected: its p by Holm over the rows compared.
        flips: in the manifest's order. verdict: what the comparison says of A.
    """

    a: str
    b: str
    contrast: Contrast
    corrected: float
    flips: tuple[Flip, ...]
    verdict: str

    @property
    def name(self) -> str:
        """The row, or both where they differ."""
        return self.a if self.a == self.b else f"{self.a}:{self.b}"

    def count(self, better: str) -> int:
        """How many flips are for the better in "a" or "b", or in neither ("")."""
        return sum(flip.better == better for flip in self.flips)

    @property
    def near_ties(self) -> int | None:
        """How many flips are near ties; None where no margin is known."""
        known = [flip.near_tie for flip in self.flips if flip.near_tie is not None]
        return sum(known) if known or not self.flips else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs compared.

    Attributes:
        a, b: their evidence. rows: the pairs of rows, in A's order.
        only_a, only_b: rows that the other run does not have; empty where the pairs were named.
        settings: dotted key → the two values, for every setting that differs; None where one run has no such key.
        models: what the two runs' models are called.
    """

    a: Evidence
    b: Evidence
    rows: tuple[RowPair, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    settings: Mapping[str, tuple[Any, Any]]
    models: tuple[str, str]


def compare(
    a: Evidence, b: Evidence, *, pairs: Sequence[tuple[str, str]] = (), choices: Choices | None = None
) -> Comparison:
    """Compare two runs on the queries that both answered.

    Args:
        a, b: the runs; a run may be compared with itself.
        pairs: (row of a, row of b); () for every row that both have.
        choices: the test and the margin.

    Raises:
        IntegrityError: the manifests differ, so the runs are not about the same users, queries or data.
        UsageError: the tasks differ in what an answer can be, a row is not there, or nothing can be paired.
    """
    choices = choices or Choices()
    _check(a, b)
    wanted = list(pairs) or [(row, row) for row in a.methods if row in b.methods]
    if not wanted:
        msg = f"{a.name} and {b.name} have no row in common; name pairs with --row ROW_OF_A:ROW_OF_B"
        raise UsageError(msg)
    found = []
    for first, second in wanted:
        _check_row(a, first)
        _check_row(b, second)
        both = matched(a.judged(first), b.judged(second))
        if not both:
            msg = f"rows {first} of {a.name} and {second} of {b.name} share no query with a gold label"
            raise UsageError(msg)
        found.append((first, second, both, contrast(a.task, both, seed=a.config["seed"], choices=choices)))
    direction = primary(a.task)[1]
    rows = tuple(
        RowPair(first, second, made, p, tuple(_flips(a, both)), made.verdict(p, direction))
        for (first, second, both, made), p in zip(found, stats.holm([made.p for *_, made in found]), strict=True)
    )
    return Comparison(
        a=a,
        b=b,
        rows=rows,
        only_a=() if pairs else tuple(row for row in a.methods if row not in b.methods),
        only_b=() if pairs else tuple(row for row in b.methods if row not in a.methods),
        settings=differing(a.config, b.config),
        models=(_model(a), _model(b)),
    )


def differing(a: Any, b: Any, key: str = "") -> dict[str, tuple[Any, Any]]:
    """The settings that differ between two configurations, by dotted key, in the order of the keys."""
    if not (isinstance(a, Mapping) and isinstance(b, Mapping)):
        return {} if a == b else {key: (a, b)}
    found: dict[str, tuple[Any, Any]] = {}
    for name in sorted({*a, *b}):
        found |= differing(a.get(name), b.get(name), f"{key}.{name}" if key else name)
    return found


def _check(a: Evidence, b: Evidence) -> None:
    if differs := [name for name in sorted({*a.manifest, *b.manifest}) if a.manifest.get(name) != b.manifest.get(name)]:
        plain = [name for name in differs if name != "entries"]
        told = "; ".join(f"{name}: {a.manifest.get(name)!r:.60} and {b.manifest.get(name)!r:.60}" for name in plain)
        users = f"{len(a.manifest['entries'])} and {len(b.manifest['entries'])} users" if "entries" in differs else ""
        what = "; ".join(part for part in (told, users) if part)
        msg = (
            f"{a.run.path} and {b.run.path} have different manifests ({what}), so their answers cannot be paired; run "
            "one of them again with the other's data, seed and data.n_users"
        )
        raise IntegrityError(msg)
    if (a.task.kind, a.task.labels) != (b.task.kind, b.task.labels):
        msg = (
            f"{a.run.path} and {b.run.path} have tasks with other answers ({a.task.name} and {b.task.name}); "
            "compare runs whose task has the same labels or scale"
        )
        raise UsageError(msg)


def _check_row(evidence: Evidence, row: str) -> None:
    if row not in evidence.methods:
        near = nearest(row, evidence.methods)
        hint = f"did you mean {near!r}?" if near else f"its rows are {', '.join(evidence.methods)}"
        msg = f"{row!r} is no row of {evidence.run.path}; {hint}"
        raise UsageError(msg)


def _flips(a: Evidence, pairs: Sequence[tuple[Judged, Judged]]) -> Iterator[Flip]:
    for one, other in pairs:
        first, second = one.prediction, other.prediction
        if first.label != second.label:
            errors = one.error(a.task), other.error(a.task)
            better = "" if errors[0] == errors[1] else "a" if errors[0] < errors[1] else "b"
            labels = (one.scored.gold, first.label, second.label)
            yield Flip(first.user, first.query, *labels, better, first.margin, second.margin)


def _model(evidence: Evidence) -> str:
    who = evidence.run.read_json("sealed/model.json") or {}
    return f"{who.get('model')} ({who.get('lm')})"

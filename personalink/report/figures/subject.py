"""What figures are about: which rows are compared, how a row looks, and what one row gains on another.

Knows a run's evidence and the contexts by name; draws nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from personalink.metrics import primary
from personalink.report.answers import Judged
from personalink.report.evidence import Evidence
from personalink.report.figures.style import BLACK, BLUE, GREEN, GREY, PURPLE, RED, SKY, plain
from personalink.report.tables import METRIC_NAMES, label_of
from personalink.stats import Interval, bootstrap_mean, tango
from personalink.stats.bootstrap import multiplicities, resample_blocks
from personalink.tasks import Task

DRAWS = 2_000
"""Resamples of the intervals that figures add to those of the tables: their ends are good to a line's width."""

FEW = 5
"""Fewer values than this have no bootstrap interval that means anything."""

_OURS = "personalink.contexts."
_SHORT = {
    "random_user_persona": "RandomUser, persona",
    "random_user_demos": "RandomUser, items",
    "rag_pag": "RAG+PAG",
    "oracle": "Oracle",
    "personalink_r2_no_rules": "r=2 without rules",
    "personalink_r2_no_exemplars": "r=2 without exemplars",
    "personalink_r2_no_summary": "r=2 without summary",
}


@dataclass(frozen=True, slots=True)
class Look:
    """How all rows of a kind are drawn: `marker` tells them apart where colours do not."""

    color: str
    marker: str


_KINDS = {
    "NoPersonalization": "none",
    "Retrieval": "retrieval",
    "PersonaLink": "persona",
    "Draft": "draft",
    "RetrievalWithDraft": "both",
    "RandomUserPersona": "control",
    "RandomUserDemonstrations": "control",
    "FullProfile": "oracle",
}

LOOKS: Mapping[str, Look] = {
    "floor": Look(GREY, "o"),
    "none": Look(BLACK, "o"),
    "control": Look(GREY, "X"),
    "retrieval": Look(BLUE, "o"),
    "draft": Look(GREEN, "s"),
    "both": Look(PURPLE, "^"),
    "persona": Look(RED, "D"),
    "ablation": Look(RED, "d"),
    "oracle": Look(BLACK, "*"),
    "other": Look(SKY, "v"),
}
"""Kind of row → how it is drawn. "both" is retrieval with a draft, "ablation" a persona without one of its fields."""


def kind_of(evidence: Evidence, row: str) -> str:
    """A row's kind, by its context; one of `LOOKS`."""
    if row in evidence.floors:
        return "floor"
    settings = evidence.config["context"][row]
    target = str(settings["_target_"])
    kind = _KINDS.get(target.removeprefix(_OURS), "other") if target.startswith(_OURS) else "other"
    return "ablation" if kind == "persona" and settings.get("without") else kind


def row_name(row: str, limit: int = 26) -> str:
    """How people read a row, short enough for a figure."""
    return plain(_SHORT.get(row) or label_of(row), limit)


def persona_rows(evidence: Evidence) -> dict[int, str]:
    """Depth → the row that answers behind the persona kept at that depth, from 1 on; of equal ones the first."""
    found: dict[int, str] = {}
    for row in evidence.methods:
        if kind_of(evidence, row) == "persona":
            depth = min(int(evidence.config["context"][row].get("depth", 2)), evidence.config["optimizer"]["depth"])
            found.setdefault(depth, row)
    found.pop(0, None)
    return dict(sorted(found.items()))


def of_kind(evidence: Evidence, kind: str) -> list[str]:
    """The rows of a kind that have an answer with a gold label, in the table's order."""
    return [row for row in evidence.methods if kind_of(evidence, row) == kind and evidence.judged(row)]


def chosen(evidence: Evidence) -> str | None:
    """The persona row that is looked at closely: r = 2, as in the paper, or the deepest; None without one."""
    rows = {depth: row for depth, row in persona_rows(evidence).items() if evidence.judged(row)}
    return rows.get(2) or (rows[max(rows)] if rows else None)


def baseline(evidence: Evidence) -> str | None:
    """The row without personalization; None without one."""
    return next(iter(of_kind(evidence, "none")), None)


def close_rows(evidence: Evidence) -> list[str]:
    """The few rows that are looked at closely: no personalization, the middle of retrieval, a persona."""
    retrieval = of_kind(evidence, "retrieval")
    middle = "rag_5" if "rag_5" in retrieval else retrieval[len(retrieval) // 2] if retrieval else None
    return [row for row in (baseline(evidence), middle, chosen(evidence)) if row]


def sample(judged: Sequence[Judged]) -> str:
    """How many users and queries, such as "n = 200 users, one query each"."""
    return counted(len({one.prediction.user for one in judged}), len(judged))


def counted(users: int, queries: int) -> str:
    """The same from the two counts."""
    people = f"n = {users:,} user{'s' * (users != 1)}"
    asked = "one query" if queries == users else f"{queries:,} queries in all"
    return f"{people}, {asked}{' each' * (queries == users and users > 1)}"


def axis(evidence: Evidence, metric: str) -> str:
    """A metric with the direction that is better."""
    unit = ", points" if evidence.task.kind == "rating" else ""
    return f"{METRIC_NAMES[metric]}{unit} ({primary(evidence.task)[1]} is better)"


def gain_axis(task: Task) -> str:
    """The unit of `gains`."""
    return "accuracy" if task.kind == "label" else "MAE, points"


def pairs(evidence: Evidence, a: str, b: str) -> list[tuple[Judged, Judged]]:
    """Answers of two rows to the same queries, whose gold labels are known."""
    others = {one.key: one for one in evidence.judged(b)}
    return [(one, others[one.key]) for one in evidence.judged(a) if one.key in others]


def gains(task: Task, pairs: Sequence[tuple[Judged, Judged]]) -> list[float]:
    """What the first answer gains on the second: error of the second − error of the first; higher is better."""
    return [b.error(task) - a.error(task) for a, b in pairs]


def gain_interval(task: Task, gains: Sequence[float], seed: int) -> Interval | None:
    """The mean gain with its 95 % interval: Tango's for labels, bootstrap for ratings; None for fewer than `FEW`."""
    if task.kind == "label":
        return tango(sum(g > 0 for g in gains), sum(g < 0 for g in gains), len(gains))
    return bootstrap_mean(gains, seed=seed, draws=DRAWS) if len(gains) >= FEW else None


def bands(values: Sequence[Sequence[float]], seed: int) -> list[tuple[float, float]]:
    """The 95 % percentile interval of the mean of each of several quantities, all over the same users.

    Args:
        values: one sequence a quantity, each with one number a user; the users are drawn once for all of them.
        seed: the run's.
    """
    import numpy as np

    table = np.array(values, dtype=np.float64).T
    blocks = resample_blocks(len(table), draws=DRAWS, seed=seed)
    drawn = np.concatenate([multiplicities(block) @ table for block in blocks]) / len(table)
    low, high = np.quantile(drawn, (0.025, 0.975), axis=0)
    return list(zip(low.tolist(), high.tolist(), strict=True))


def gain_words(task: Task) -> str:
    """How `gain_interval` makes its intervals, for captions."""
    if task.kind == "label":
        return "95 % score intervals (Tango 1998)."
    return f"95 % bootstrap intervals; hollow: fewer than {FEW} queries, no interval."

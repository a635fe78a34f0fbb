"""Tables of a run: what the rows scored, and what the loop selected beside what the audit says.

Knows metrics by name; computes none, reads no file, and leaves the layout to `layout.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from personalink.metrics import headline, primary
from personalink.refinement import Refinement
from personalink.report.layout import NO_BREAK, Cell, Column, Table
from personalink.tasks.base import Task

ROW_LABELS: Mapping[str, str] = {
    "nopers": "NoPers",
    "random_user": "RandomUser",
    "random_user_persona": "RandomUser (persona)",
    "random_user_demos": "RandomUser (demonstrations)",
    **{f"rag_{k}": f"RAG-{k}" for k in (1, 3, 5, 10, 20)},
    "pag": "PAG",
    "rag_pag": "RAG + PAG",
    **{f"personalink_r{r}": f"PersonaLink r={r}" for r in (1, 2, 3)},
    "personalink_r2_no_rules": "PersonaLink r=2 − decision rules",
    "personalink_r2_no_exemplars": "PersonaLink r=2 − exemplars",
    "personalink_r2_no_summary": "PersonaLink r=2 − preference summary",
    "oracle": "Oracle (full profile)",
}
"""Row name → how people read it; a name that is not here shows as itself."""

METRIC_NAMES: Mapping[str, str] = {
    **{"accuracy": "Accuracy", "macro_f1": "Macro-F1", "mae": "MAE", "rmse": "RMSE"},
    **{"rouge_1": "ROUGE-1", "rouge_l": "ROUGE-L"},
}
"""Metric → how people read it."""

ARROWS: Mapping[str, str] = {"higher": "↑", "lower": "↓"}
"""Which direction is better → the sign after a metric's name."""

_EXPECTED = {"expected_mae": "MAE (expected)", "expected_rmse": "RMSE (expected)"}
BEST = "Bold (in plain text: *) marks the best method of a column; floors and the oracle are not in that contest."
COUNTS = (
    "Invalid: an answer came, but no label could be read from it. Failed: no label because the answer was empty, "
    "refused, cut off or never asked for (prompt too long). No answer is in both; n minus both is how many were read."
)
_SELECTION = (
    "Selection score: what the gate maximised on the slice. It is optimistic and is not accuracy; the audit score, on "
    "items that neither gate nor rewriter saw, is the honest one."
)


@dataclass(frozen=True, slots=True)
class RowResult:
    """One row's scores.

    Attributes:
        name: the row's name, such as "rag_5". label: how people read it; "" for the one in `ROW_LABELS`.
        metrics: what `metrics.score` gave.
        interval: of the primary metric, 95 %; None when unknown.
        context_tokens: mean size of the context placed, in tokens; None when unknown.
        kind: "floor" for a predictor without a model.
        calls: model calls behind the row; None when unknown.
    """

    name: str
    label: str
    metrics: Mapping[str, float | int | None]
    interval: tuple[float, float] | None = None
    context_tokens: float | None = None
    kind: Literal["method", "floor"] = "method"
    calls: int | None = None


def results_table(task: Task, rows: Sequence[RowResult], *, title: str = "", notes: Sequence[str] = ()) -> Table:
    """What every row scored: floors first, then methods in the order given.

    *Invalid* and *Failed* share out the answers without a label, so nothing is counted twice: Failed = empty + refused
    + too long + truncated without a label; Invalid = the rest of them. A truncated answer that names a label is in
    neither. The best method of a headline column is bold, ties at the three decimals shown included.

    Args:
        task: decides the metrics.
        rows: one a floor or method.
        title: one line above; the task's name when empty.
        notes: lines below, before the table's own.
    """
    first, direction = primary(task)
    names = headline(task)
    arrow = NO_BREAK + ARROWS[direction]
    expected = [name for name in _EXPECTED if any(name in r.metrics for r in rows)]
    columns = (
        Column("row", "Row", "text", csv_only=True),
        Column("method", "Method", "text"),
        Column("kind", "Kind", "text", csv_only=True),
        *(Column(name, METRIC_NAMES[name] + arrow, "metric") for name in names),
        Column(first, f"95{NO_BREAK}% interval", "interval"),
        Column(f"official_{first}", f"Official LaMP {METRIC_NAMES[first]}{arrow}", "metric"),
        *(Column(name, _EXPECTED[name] + arrow, "metric") for name in expected),
        Column("n", "n", "count"),
        Column("invalid", "Invalid", "count"),
        Column("failed", "Failed", "count"),
        Column("context_tokens", "Context tokens", "mean"),
        Column("calls", "Calls", "count", csv_only=True),
    )
    ordered = sorted(rows, key=lambda r: r.kind != "floor")
    cells = tuple(_result_cells(r, names, (f"official_{first}", *expected)) for r in ordered)
    bold = frozenset(
        (number, column)
        for column, spec in enumerate(columns)
        if spec.key in names and spec.style == "metric"
        for number in best(
            [(r.name, r.metrics.get(spec.key) if r.kind == "method" else None) for r in ordered], direction
        )
    )
    own = (*notes, *([BEST] if bold else []), COUNTS)
    return Table(title or f"Results on {task.name}", columns, cells, own, bold)


def selection_table(
    refinements: Sequence[Refinement], *, title: str = "Selection beside audit, by depth", notes: Sequence[str] = ()
) -> Table:
    """Per depth 0…R: mean slice score (what was selected on) beside the mean audit score (what nobody selected on).

    Scores are in the gate's unit: share right in [0, 1], or −MAE or −RMSE; higher is better. The share accepted is of
    the candidates that a pass proposed. Users without a slice are left out and counted in a note; means over users
    with an audit slice stand apart, selection score included, since the two are only comparable over the same users.

    Args:
        refinements: one a user.
        title: one line above.
        notes: lines below, before the table's own.
    """
    users = [r for r in refinements if r.slice_ids]
    audited = [r for r in users if r.audit]
    rows = []
    for depth in range(1 + max((len(r.passes) for r in users), default=0)):
        passes = [r.passes[depth - 1] for r in users if 0 < depth <= len(r.passes)]
        proposed = [p for p in passes if p.candidate is not None]
        rows.append(
            (
                depth,
                _mean([r.score_at(depth).value for r in users]),
                len(users),
                _mean([r.score_at(depth).value for r in audited]),
                _mean([r.audit[min(depth, len(r.audit) - 1)].value for r in audited]),
                len(audited),
                _mean([float(p.accepted) for p in proposed]),
                len(proposed) if depth else None,
            )
        )
    columns = (
        Column("depth", "Depth", "count"),
        Column("selection", f"Selection{NO_BREAK}↑", "metric"),
        Column("users", "Users", "count"),
        Column("selection_audited", f"Selection, audited{NO_BREAK}users{NO_BREAK}↑", "metric"),
        Column("audit", f"Audit{NO_BREAK}↑", "metric"),
        Column("audited_users", "Audited users", "count"),
        Column("accepted_share", "Share accepted", "metric"),
        Column("candidates", "Candidates", "count"),
    )
    left_out = len(refinements) - len(users)
    short = (f"{left_out} of {len(refinements)} users had a history too short for a slice.",) if left_out else ()
    return Table(title, columns, tuple(rows), (*notes, _SELECTION, *short))


def _result_cells(result: RowResult, names: Sequence[str], further: Sequence[str]) -> tuple[Cell, ...]:
    get: Callable[[str], Any] = result.metrics.get
    return (
        result.name,
        result.label or label_of(result.name),
        result.kind,
        *(get(name) for name in names),
        result.interval,
        *(get(name) for name in further),
        get("n"),
        *missing_labels(result.metrics),
        result.context_tokens,
        result.calls,
    )


def label_of(row: str) -> str:
    """How people read a row's name."""
    return ROW_LABELS.get(row, row)


def missing_labels(metrics: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Answers without a label, shared out as (invalid, failed) (see `results_table`); None for unknown."""
    get = metrics.get
    failed = _sum([get("n_empty"), get("n_refused"), get("n_too_long"), get("n_truncated_invalid")])
    none = get("n_invalid")
    return None if none is None or failed is None else none - failed, failed


def best(values: Sequence[tuple[str, float | None]], direction: str) -> list[int]:
    """Positions of the best of (row, metric) by what is shown of the metric, the oracle left out of the contest.

    Args:
        values: one a row; None does not compete. direction: "higher" or "lower" is better.
    """
    shown = {
        number: round(value, 3)
        for number, (row, value) in enumerate(values)
        if value is not None and not (row == "oracle" or row.startswith("oracle_"))
    }
    winner = (max if direction == "higher" else min)(shown.values(), default=None)
    return [number for number, value in shown.items() if value == winner]


def _sum(values: Sequence[int | None]) -> int | None:
    return None if any(value is None for value in values) else sum(value or 0 for value in values)


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None

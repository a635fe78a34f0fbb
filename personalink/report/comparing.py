"""A comparison of two runs for people and for files: text, tables, plain JSON.

Knows a `Comparison`; computes nothing.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from personalink.canonical import canonical_json
from personalink.logprobs import NEAR_TIE
from personalink.metrics import headline, primary
from personalink.report.compare import Comparison, Flip, RowPair
from personalink.report.evidence import Evidence
from personalink.report.families import ENOUGH, FEW
from personalink.report.layout import NO_BREAK, Cell, Column, Table
from personalink.report.tables import ARROWS, METRIC_NAMES

LISTED = 20
"""Unfinished users that the text names."""


def rows_table(made: Comparison) -> Table:
    """The pairs of rows: both scores, the difference with its interval, flips both ways, near ties, p, verdict."""
    metric, direction = primary(made.a.task)
    second = headline(made.a.task)[1]
    columns = (
        Column("row_a", "Row", "text", csv_only=True),
        Column("row_b", "Row of B", "text", csv_only=True),
        Column("method", "Row", "text", people_only=True),
        Column("n", "n", "count", csv_only=len({row.contrast.n for row in made.rows}) == 1),
        Column("a", f"A{NO_BREAK}{ARROWS[direction]}", "metric"),
        Column("b", f"B{NO_BREAK}{ARROWS[direction]}", "metric"),
        Column("difference", "A − B", "signed"),
        Column("difference", f"95{NO_BREAK}% interval", "interval"),
        Column("flips", "Labels differ", "count"),
        Column("a_better", "A better", "count"),
        Column("b_better", "B better", "count"),
        Column("near_ties", "Near ties", "count"),
        Column("p", "p", "p"),
        Column("p_holm", "p, Holm", "p"),
        Column("verdict", "A is", "remark"),
        Column(f"difference_{second}", "", "signed", csv_only=True),
        Column(f"difference_{second}", "", "interval", csv_only=True),
        Column("margin", "", "metric", csv_only=True),
        Column("p_equivalent", "", "p", csv_only=True),
        Column("p_a_not_inferior", "", "p", csv_only=True),
        Column("p_b_not_inferior", "", "p", csv_only=True),
    )
    title = f"{METRIC_NAMES[metric]} of A beside B, task {made.a.task.name}, over the queries that both answered"
    return Table(title, columns, tuple(_cells(row) for row in made.rows), notes=_notes(made))


def _cells(row: RowPair) -> tuple[Cell, ...]:
    c = row.contrast
    within = (c.equivalent.margin, c.equivalent.p, c.a_not_inferior.p, c.b_not_inferior.p)
    return (
        *(row.a, row.b, row.name, c.n, c.a, c.b),
        *(c.difference.estimate, (c.difference.low, c.difference.high)),
        *(len(row.flips), row.count("a"), row.count("b"), row.near_ties),
        *(c.p, row.corrected, row.verdict),
        *(c.second.difference, (c.second.interval.low, c.second.interval.high), *within),
    )


def _notes(made: Comparison) -> tuple[str, ...]:
    one = made.rows[0].contrast
    margins = any(flip.near_tie is not None for row in made.rows for flip in row.flips)
    counts = sorted({row.contrast.n for row in made.rows})
    least = counts[0]
    return (
        *([f"n = {least} queries."] if len(counts) == 1 else []),
        f"p: {one.test}, two-sided; Holm over the {len(made.rows)} rows. Equivalent, not inferior, not superior: by a "
        f"margin of {one.equivalent.margin:g}; undecided: these answers are too few to tell.",
        f"Near ties: differing labels of which an answer's margin is below {NEAR_TIE} nats"
        + ("." if margins else "; unknown here, since no margin was asked for (run with logprobs=5)."),
        *([FEW.format(n=least)] if least < ENOUGH else []),
    )


def flips_table(made: Comparison) -> Table:
    """Every query whose label differs, row by row."""
    columns = (
        Column("row", "Row", "text"),
        Column("user", "User", "remark"),
        Column("query", "Query", "remark"),
        Column("gold", "Gold", "remark"),
        Column("a", "A", "remark"),
        Column("b", "B", "remark"),
        Column("better", "Better", "remark"),
        Column("margin_a", "Margin, A", "metric"),
        Column("margin_b", "Margin, B", "metric"),
    )
    cells = tuple(_flip_cells(row, flip) for row in made.rows for flip in row.flips)
    return Table("Queries whose label differs", columns, cells, notes=("“–” is an answer without a label.",))


def _flip_cells(row: RowPair, flip: Flip) -> tuple[Cell, ...]:
    labels = (flip.gold, flip.a, flip.b, flip.better.upper())
    return (row.name, flip.user, flip.query, *labels, flip.margin_a, flip.margin_b)


def as_text(made: Comparison, *, flips: bool = False) -> str:
    """The comparison for people: the runs, the rows, what differs in the settings; every flip where asked for."""
    parts = [_who("A", made.a, made.models[0]) + _who("B", made.b, made.models[1]), rows_table(made).as_text()]
    for letter, rows in (("A", made.only_a), ("B", made.only_b)):
        parts += [f"Only in {letter}: {', '.join(rows)}\n"] if rows else []
    if flips:
        parts.append(flips_table(made).as_text())
    settings = "".join(f"  {key}: {_short(a)} → {_short(b)}\n" for key, (a, b) in made.settings.items())
    parts.append(f"Settings that differ, A → B:\n{settings}" if settings else "No setting differs.\n")
    return "\n".join(parts).rstrip("\n")


def _who(letter: str, evidence: Evidence, model: str) -> str:
    names = list(evidence.incomplete)
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    left = f"; not finished: {', '.join(names[:LISTED])}{more}" if names else ""
    return f"{letter}: {evidence.name}, model {model}, {len(evidence.users)} users{left}\n"


def _short(value: Any) -> str:
    text = "not set" if value is None else value if isinstance(value, str) else canonical_json(value)
    return text if len(text) <= 60 else text[:59] + "…"


def as_dict(made: Comparison) -> dict[str, Any]:
    """The comparison as plain JSON, with every flip."""
    runs = [
        {"run": one.name, "path": str(one.run.path), "model": model, "users": len(one.users)}
        | {"incomplete": dict(one.incomplete), "rows_only_here": list(only)}
        for one, model, only in ((made.a, made.models[0], made.only_a), (made.b, made.models[1], made.only_b))
    ]
    rows = [
        {"a": row.a, "b": row.b, "metric": primary(made.a.task)[0], "p_holm": row.corrected, "verdict": row.verdict}
        | {"contrast": asdict(row.contrast)}
        | {"flips": [{**asdict(flip), "near_tie": flip.near_tie} for flip in row.flips]}
        for row in made.rows
    ]
    settings = {key: {"a": a, "b": b} for key, (a, b) in made.settings.items()}
    return {"a": runs[0], "b": runs[1], "rows": rows, "settings": settings}

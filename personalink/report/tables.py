"""Tables for people and for files: what the rows scored, and what the loop selected beside what the audit says.

Knows metrics by name and how to lay a table out (text, Markdown, CSV, LaTeX); computes no metric and reads no file.
"""

from __future__ import annotations

import csv
import io
import math
import re
import textwrap
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from personalink.metrics import headline, primary
from personalink.refinement import Refinement
from personalink.tasks.base import Task
from personalink.text import one_line

Cell = str | int | float | tuple[float, float] | None
Style = Literal["text", "metric", "mean", "count", "interval"]

WIDTH = 120
"""Most characters of a line of `Table.as_text`."""

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

_METRIC_NAMES = {"accuracy": "Accuracy", "macro_f1": "Macro-F1", "mae": "MAE", "rmse": "RMSE"}
_EXPECTED = {"expected_mae": "MAE (expected)", "expected_rmse": "RMSE (expected)"}
_ARROWS = {"higher": "↑", "lower": "↓"}
_NO_BREAK = "\u00a0"
_BEST = "Bold (in plain text: *) marks the best method of a column; floors and the oracle are not in that contest."
_COUNTS = (
    "Invalid: an answer came, but no label could be read from it. Failed: no label because the answer was empty, "
    "refused, cut off or never asked for (prompt too long). No answer is in both; n minus both is how many were read."
)
_SELECTION = (
    "Selection score: what the gate maximised on the slice. It is optimistic and is not accuracy; the audit score, on "
    "items that neither gate nor rewriter saw, is the honest one."
)


@dataclass(frozen=True, slots=True)
class Column:
    """One column: `key` heads it in CSV, `title` for people; `style` says how its cells are written.

    "metric" has three decimals, "mean" none, "interval" is a pair that CSV splits into `<key>_low` and `<key>_high`.
    `csv_only` columns are not shown to people.
    """

    key: str
    title: str
    style: Style
    csv_only: bool = False


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


@dataclass(frozen=True, slots=True)
class Table:
    """A table, ready to be written.

    Attributes:
        title: one line above it. columns: left to right. rows: one cell a column each.
        notes: lines below it. bold: (row, column) positions of the cells that stand out.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    bold: frozenset[tuple[int, int]] = frozenset()

    def as_text(self) -> str:
        """Aligned plain text without colour, no line over `WIDTH` characters; bold cells end in *."""
        starred = {column for _, column in self.bold}
        columns: list[list[str]] = []
        heads: list[list[str]] = []
        for index, column in self._shown():
            pad = " " if index in starred else ""
            cells = [
                _written(row[index], column.style) + ("*" if (number, index) in self.bold else pad)
                for number, row in enumerate(self.rows)
            ]
            words = max(len(word) for word in column.title.split(" "))
            heads.append(textwrap.wrap(column.title, max([words, *map(len, cells)]), break_long_words=False))
            columns.append(cells)
        widths = [max(map(len, [*head, *cells])) for head, cells in zip(heads, columns, strict=True)]
        widths[0] = max(8, min(widths[0], WIDTH - sum(widths[1:]) - 2 * (len(widths) - 1)))
        depth = max(map(len, heads))
        lines = [_line([_at(head, i - depth + len(head)) for head in heads], widths) for i in range(depth)]
        lines.append("─" * len(_line(["─" * width for width in widths], widths)))
        lines += [_line(list(cells), widths) for cells in zip(*columns, strict=True)]
        above = textwrap.wrap(one_line(self.title), WIDTH)
        below = [line for note in self.notes for line in textwrap.wrap(one_line(note), WIDTH)]
        text = "\n".join([*above, *([""] if above else []), *lines, *([""] if below else []), *below])
        return text.replace(_NO_BREAK, " ") + "\n"

    def as_markdown(self) -> str:
        """A GitHub table under a bold title; bold cells are bold, notes are a list."""
        shown = self._shown()
        grid = [
            [f"**{text}**" if mark else text for text, mark in cells] for cells in self._cells(shown, _markdown_escaped)
        ]
        lines = [
            "| " + " | ".join(_markdown_escaped(column.title.replace(_NO_BREAK, " ")) for _, column in shown) + " |",
            "|" + "|".join(" :-- " if column.style == "text" else " --: " for _, column in shown) + "|",
            *("| " + " | ".join(row) + " |" for row in grid),
        ]
        title = f"**{_markdown_escaped(self.title)}**\n\n" if self.title else ""
        notes = "".join(f"\n- {_markdown_escaped(note)}" for note in self.notes)
        return title + "\n".join(lines) + "\n" + (notes + "\n" if notes else "")

    def as_csv(self) -> str:
        """One header row, then numbers at full precision; unknown is empty. Title and notes are left out."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        pairs = [column.style == "interval" for column in self.columns]
        writer.writerow(
            name
            for column, pair in zip(self.columns, pairs, strict=True)
            for name in ((f"{column.key}_low", f"{column.key}_high") if pair else (column.key,))
        )
        for row in self.rows:
            writer.writerow(
                value
                for cell, pair in zip(row, pairs, strict=True)
                for value in ((cell if isinstance(cell, tuple) else (None, None)) if pair else (cell,))
            )
        return file.getvalue()

    def as_latex(self) -> str:
        """A `table` with a booktabs `tabular`; needs `\\usepackage{booktabs}` and nothing else, pdflatex included."""
        shown = self._shown()
        grid = [
            [f"\\textbf{{{text}}}" if mark else text for text, mark in cells] for cells in self._cells(shown, latex)
        ]
        heads = [latex(column.title) for _, column in shown]
        body = [" & ".join(row) + r" \\" for row in grid]
        return "\n".join(
            [
                r"\begin{table}[t]",
                r"\centering",
                *([f"\\caption{{{latex(self.title)}}}"] if self.title else []),
                r"\footnotesize",
                r"\setlength{\tabcolsep}{4pt}",
                r"\begin{tabular}{" + "".join("l" if column.style == "text" else "r" for _, column in shown) + "}",
                r"\toprule",
                " & ".join(heads) + r" \\",
                r"\midrule",
                *body,
                r"\bottomrule",
                r"\end{tabular}",
                *(f"\\par\\smallskip {latex(note)}" for note in self.notes),
                r"\end{table}",
                "",
            ]
        )

    def _shown(self) -> list[tuple[int, Column]]:
        return [(i, column) for i, column in enumerate(self.columns) if not column.csv_only]

    def _cells(self, shown: Sequence[tuple[int, Column]], escape: Callable[[str], str]) -> list[list[tuple[str, bool]]]:
        """Written and escaped cells of the shown columns, each with whether it is bold."""
        return [
            [(escape(_written(row[i], column.style)), (number, i) in self.bold) for i, column in shown]
            for number, row in enumerate(self.rows)
        ]


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
    arrow = _NO_BREAK + _ARROWS[direction]
    expected = [name for name in _EXPECTED if any(name in r.metrics for r in rows)]
    columns = (
        Column("row", "Row", "text", csv_only=True),
        Column("method", "Method", "text"),
        Column("kind", "Kind", "text", csv_only=True),
        *(Column(name, _METRIC_NAMES[name] + arrow, "metric") for name in names),
        Column(first, f"95{_NO_BREAK}% interval", "interval"),
        Column(f"official_{first}", f"Official LaMP {_METRIC_NAMES[first]}{arrow}", "metric"),
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
        for number in _best(ordered, spec.key, direction)
    )
    own = (*notes, *([_BEST] if bold else []), _COUNTS)
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
        Column("selection", f"Selection{_NO_BREAK}↑", "metric"),
        Column("users", "Users", "count"),
        Column("selection_audited", f"Selection, audited{_NO_BREAK}users{_NO_BREAK}↑", "metric"),
        Column("audit", f"Audit{_NO_BREAK}↑", "metric"),
        Column("audited_users", "Audited users", "count"),
        Column("accepted_share", "Share accepted", "metric"),
        Column("candidates", "Candidates", "count"),
    )
    left_out = len(refinements) - len(users)
    short = (f"{left_out} of {len(refinements)} users had a history too short for a slice.",) if left_out else ()
    return Table(title, columns, tuple(rows), (*notes, _SELECTION, *short))


def latex(text: str) -> str:
    """`text` for LaTeX with pdflatex and no package: specials escaped, arrows and signs as math.

    Letters that plain pdflatex lacks lose their marks, and what has no Latin form becomes "?".
    """
    return "".join(_LATEX.get(character) or _plain_letter(character) for character in one_line(text))


_LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    **{character: f"{{{character}}}" for character in "[]*"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    '"': "''",
    **{character: f"${character}$" for character in "<>|"},
    **{"↑": r"$\uparrow$", "↓": r"$\downarrow$", "→": r"$\to$", "−": "$-$", "±": r"$\pm$", "×": r"$\times$"},
    **{"≤": r"$\le$", "≥": r"$\ge$", "⁄": "/", "∞": r"$\infty$", "Δ": r"$\Delta$", "·": r"$\cdot$"},
    **{"–": "--", "—": "---", "…": r"\ldots{}", "‘": "`", "’": "'", "“": "``", "”": "''"},
    **{"ß": r"\ss{}", "æ": r"\ae{}", "Æ": r"\AE{}", "ø": r"\o{}", "Ø": r"\O{}", "œ": r"\oe{}", "Œ": r"\OE{}"},
}
_ACCENTS = {"\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0308": '"', "\u030a": "r", "\u0327": "c"}


def _plain_letter(character: str) -> str:
    if character.isascii():
        return character
    parts = list(unicodedata.normalize("NFKD", character))
    base, marks = parts[0], parts[1:]
    accent = _ACCENTS.get(marks[0]) if len(marks) == 1 and base.isascii() and base.isalpha() else None
    if accent:
        return f"\\{accent}{{\\{base}}}" if base in "ij" else f"\\{accent}{{{base}}}"
    plain = ("" if unicodedata.combining(m) else m if m.isascii() else _LATEX.get(m, "?") for m in parts)
    return "".join(_LATEX.get(m, m) for m in plain)


def _markdown_escaped(text: str) -> str:
    return re.sub(r"([\\|*_`<\[\]])", r"\\\1", one_line(text))


def _written(cell: Cell, style: Style) -> str:
    """A cell for people; "–" for unknown."""
    if cell is None:
        return "–"
    if isinstance(cell, tuple):
        return f"[{_decimals(cell[0])}, {_decimals(cell[1])}]"
    if isinstance(cell, str):
        return one_line(cell)
    return _decimals(cell) if style == "metric" else f"{cell:.0f}" if style == "mean" else str(cell)


def _decimals(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 1e4 else f"{value:.2g}"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    """One line of text: the first column to the left, clipped to its width, the others to the right."""
    first = cells[0] if len(cells[0]) <= widths[0] else cells[0][: widths[0] - 1] + "…"
    rest = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
    return "  ".join([first.ljust(widths[0]), *rest]).rstrip()


def _at(lines: Sequence[str], index: int) -> str:
    return lines[index] if index >= 0 else ""


def _result_cells(result: RowResult, names: Sequence[str], further: Sequence[str]) -> tuple[Cell, ...]:
    get: Callable[[str], Any] = result.metrics.get
    failed = _sum([get("n_empty"), get("n_refused"), get("n_too_long"), get("n_truncated_invalid")])
    none = get("n_invalid")
    return (
        result.name,
        result.label or ROW_LABELS.get(result.name, result.name),
        result.kind,
        *(get(name) for name in names),
        result.interval,
        *(get(name) for name in further),
        get("n"),
        None if none is None or failed is None else none - failed,
        failed,
        result.context_tokens,
        result.calls,
    )


def _best(ordered: Sequence[RowResult], name: str, direction: str) -> list[int]:
    """Positions of the best methods by what is shown of the metric, neither floors nor the oracle."""
    values = {
        number: round(value, 3)
        for number, r in enumerate(ordered)
        if r.kind == "method" and not (r.name == "oracle" or r.name.startswith("oracle_"))
        if (value := r.metrics.get(name)) is not None
    }
    best = (max if direction == "higher" else min)(values.values(), default=None)
    return [number for number, value in values.items() if value == best]


def _sum(values: Sequence[int | None]) -> int | None:
    return None if any(value is None for value in values) else sum(value or 0 for value in values)


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None

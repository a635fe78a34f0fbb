"""How a table is laid out: in text, Markdown, CSV, LaTeX and HTML, all from the same cells.

Knows columns and cells; computes no metric, reads no file, and knows nothing of rows or tasks.
"""

from __future__ import annotations

import csv
import io
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from personalink.report.html import escaped, html_table
from personalink.report.latex import latex, latex_table
from personalink.text import one_line

Cell = str | int | float | tuple[float, float] | None
Style = Literal["text", "remark", "metric", "signed", "p", "mean", "count", "interval"]
At = tuple[int, int]
"""(row, column), both from 0."""

WIDTH = 120
"""Most characters of a line of `Table.as_text`."""

NO_BREAK = "\u00a0"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: `key` heads it in CSV, `title` for people; `style` says how its cells are written.

    "text" stands to the left and "remark" to the right; "metric" has three decimals, "signed" the same with its sign,
    "p" the same but "<0.001" below that; "mean" has none; "interval" is a pair that CSV splits into `<key>_low` and
    `<key>_high`. `csv_only` columns are not shown to people, `people_only` ones not in CSV.
    """

    key: str
    title: str
    style: Style
    csv_only: bool = False
    people_only: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table, ready to be written.

    Attributes:
        title: one line above it. columns: left to right. rows: one cell a column each.
        notes: lines below it. bold: positions of the cells that stand out.
        marks: position → what is raised after that cell, such as "**"; left out of text and CSV.
        groups: number of a row → the heading that stands above it; left out of text and CSV.
        compact: in small type, and centred on the page where it is wider than the text (LaTeX alone).
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    bold: frozenset[At] = frozenset()
    marks: Mapping[At, str] = field(default_factory=dict)
    groups: Mapping[int, str] = field(default_factory=dict)
    compact: bool = False

    def as_text(self) -> str:
        """Aligned plain text without colour, no line over `WIDTH` characters; bold cells end in *."""
        starred = {column for _, column in self.bold}
        columns: list[list[str]] = []
        heads: list[list[str]] = []
        for index, column in self._shown():
            pad = " " if index in starred else ""
            cells = [
                written(row[index], column.style) + ("*" if (number, index) in self.bold else pad)
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
        return text.replace(NO_BREAK, " ") + "\n"

    def as_markdown(self) -> str:
        """A GitHub table under a bold title; bold cells are bold, notes are a list."""
        shown = self._shown()
        grid = self._grid(markdown_escaped, "**{}**".format, markdown_escaped)
        for number in sorted(self.groups, reverse=True):
            grid.insert(number, [f"*{markdown_escaped(self.groups[number])}*", *[""] * (len(shown) - 1)])
        lines = [
            "| " + " | ".join(markdown_escaped(column.title.replace(NO_BREAK, " ")) for _, column in shown) + " |",
            "|" + "|".join(" :-- " if column.style == "text" else " --: " for _, column in shown) + "|",
            *("| " + " | ".join(row) + " |" for row in grid),
        ]
        title = f"**{markdown_escaped(self.title)}**\n\n" if self.title else ""
        notes = "".join(f"\n- {markdown_escaped(note)}" for note in self.notes)
        return title + "\n".join(lines) + "\n" + (notes + "\n" if notes else "")

    def as_csv(self) -> str:
        """One header row, then numbers at full precision; unknown is empty. Title and notes are left out."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        kept = [(i, column) for i, column in enumerate(self.columns) if not column.people_only]
        writer.writerow(
            name
            for _, column in kept
            for name in ((f"{column.key}_low", f"{column.key}_high") if column.style == "interval" else (column.key,))
        )
        for row in self.rows:
            writer.writerow(
                value for i, column in kept for value in (_pair(row[i]) if column.style == "interval" else (row[i],))
            )
        return file.getvalue()

    def as_latex(self) -> str:
        """A `table` with a booktabs `tabular` (see `latex.latex_table`)."""
        return latex_table(
            [_stacked(column) if self.compact else latex(column.title) for _, column in self._shown()],
            "".join("l" if column.style == "text" else "r" for _, column in self._shown()),
            self._grid(latex, r"\textbf{{{}}}".format, lambda mark: f"$^{{{_RAISED.get(mark, mark)}}}$"),
            title=latex(self.title) if self.title else "",
            notes=[latex(note) for note in self.notes],
            groups={number: latex(group) for number, group in self.groups.items()},
            compact=self.compact,
        )

    def as_html(self) -> str:
        """A `figure` with the table, its title and its notes; every text is escaped. Wants a page around it."""
        return html_table(
            [column.title for _, column in self._shown()],
            [column.style == "text" for _, column in self._shown()],
            self._grid(escaped, "<strong>{}</strong>".format, lambda mark: f"<sup>{escaped(mark)}</sup>"),
            title=self.title,
            notes=self.notes,
            groups=self.groups,
        )

    def _shown(self) -> list[tuple[int, Column]]:
        return [(i, column) for i, column in enumerate(self.columns) if not column.csv_only]

    def _grid(
        self, escape: Callable[[str], str], bold: Callable[[str], str], raised: Callable[[str], str]
    ) -> list[list[str]]:
        """The shown columns' cells, written and escaped, bold where they are, with their marks."""
        grid = []
        for number, row in enumerate(self.rows):
            cells = []
            for i, column in self._shown():
                text = escape(written(row[i], column.style))
                mark = self.marks.get((number, i), "")
                cells.append((bold(text) if (number, i) in self.bold else text) + (raised(mark) if mark else ""))
            grid.append(cells)
        return grid


_HEAD = 14
_BREAK = r" \\ "
_RAISED = {"†": r"\dagger", "‡": r"\ddagger"}


def written(cell: Cell, style: Style) -> str:
    """A cell for people; "–" for unknown. A negative "metric" keeps its hyphen: sealed tables are the same bytes."""
    if cell is None:
        return "–"
    if isinstance(cell, tuple):
        return f"[{_decimals(cell[0])}, {_decimals(cell[1])}]".replace("-", "−")
    if isinstance(cell, str):
        return one_line(cell)
    if style == "p":
        return "<0.001" if cell < 0.001 else f"{cell:.3f}"
    if style == "signed":
        return signed(cell)
    return _decimals(cell) if style == "metric" else f"{cell:.0f}" if style == "mean" else str(cell)


def signed(value: float) -> str:
    """A difference with its sign and three decimals; no sign where these are all 0."""
    text = _decimals(abs(value))
    return text if text == "0.000" else f"{'−' if value < 0 else '+'}{text}"


def _decimals(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 1e4 else f"{value:.2g}"


def _stacked(column: Column) -> str:
    """A column's title in LaTeX, its words below one another where they are many."""
    lines = [latex(line) for line in textwrap.wrap(column.title, _HEAD, break_long_words=False)] or [""]
    side = "l" if column.style == "text" else "r"
    return rf"\shortstack[{side}]{{{_BREAK.join(lines)}}}" if len(lines) > 1 else lines[0]


def _pair(cell: Cell) -> tuple[float | None, float | None]:
    return cell if isinstance(cell, tuple) else (None, None)


def markdown_escaped(text: str) -> str:
    """`text` as one line of Markdown that reads as it is."""
    return re.sub(r"([\\|*_`<\[\]])", r"\\\1", one_line(text))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    """One line of text: the first column to the left, clipped to its width, the others to the right."""
    first = cells[0] if len(cells[0]) <= widths[0] else cells[0][: widths[0] - 1] + "…"
    rest = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
    return "  ".join([first.ljust(widths[0]), *rest]).rstrip()


def _at(lines: Sequence[str], index: int) -> str:
    return lines[index] if index >= 0 else ""

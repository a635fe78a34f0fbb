"""The list of users: static pages of a hundred that need no script, and the same rows as data for the script that sorts
and filters them.

One description of the columns makes both, so that they cannot tell two stories. Knows no run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from personalink.report.pages.markup import Html, called, document, el, plain, short

PAGE = 100
"""Rows of a static page, and of what the script shows at a time."""
CHUNK = 2_000
"""Rows of a data file."""

Kind = Literal["user", "count", "score", "gain", "of", "change", "choice"]
Value = str | int | float | None | tuple[int, int]


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        key: its name in a filter, one word. title: its head.
        kind: how a value is written: "user" (a link), "count", "score" (three decimals), "gain" (with its sign), "of"
            (2 of 3), "change" (8 → 2), "choice" (one of few words, which get a menu).
    """

    key: str
    title: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Listing:
    """A list of users.

    Attributes:
        columns: left to right; the first is the user. rows: a value a column; unknown is None.
        links: the address of each row's page, from the list's folder.
        note: what the columns mean.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Value]]
    links: Sequence[str]
    note: str

    @property
    def pages(self) -> int:
        """Static pages, at least one."""
        return max(1, -(-len(self.rows) // PAGE))

    def page(self, number: int, title: str, trail: Sequence[Html]) -> str:
        """A static page of the list, from 1; the first is where the script takes over."""
        first = (number - 1) * PAGE
        body = [
            el("h1", title),
            el("p", f"{len(self.rows):,} users, those who gained most first.", class_="lede", id="told", role="status"),
            el("div", id="tools"),
            el("div", self._table(first), class_="wide", id="list", role="region", tabindex="0", aria_label="Users"),
            self._pager(number),
            el("p", self.note, class_="quiet"),
        ]
        return document(title, body, root="", trail=trail, script=number == 1)

    def chunks(self) -> Iterator[str]:
        """The data files: calls of `personalink(chunk)`, ASCII throughout, so that no text can be more than data."""
        for start in range(0, max(1, len(self.rows)), CHUNK):
            rows = [
                [link, *(plain(short(value)) if isinstance(value, str) else value for value in row)]
                for link, row in zip(self.links[start : start + CHUNK], self.rows[start : start + CHUNK], strict=True)
            ]
            yield f"personalink({json.dumps(rows, separators=(',', ':'))});\n"

    def _table(self, first: int) -> Html:
        numbers = {c.key: c.kind not in ("user", "choice") for c in self.columns}
        heads = [
            el("th", c.title, scope="col", data_key=c.key, data_kind=c.kind, class_="n" if numbers[c.key] else None)
            for c in self.columns
        ]
        rows = [
            el("tr", (self._cell(c, v, link) for c, v in zip(self.columns, row, strict=True)))
            for row, link in zip(self.rows[first : first + PAGE], self.links[first : first + PAGE], strict=True)
        ]
        chunks = len(range(0, max(1, len(self.rows)), CHUNK))
        return el(
            "table", el("thead", el("tr", heads)), el("tbody", rows), data_chunks=chunks, data_total=len(self.rows)
        )

    def _cell(self, column: Column, value: Value, link: str) -> Html:
        if column.kind == "user":
            return el("th", el("a", called(str(value)), href=link), scope="row")
        return el("td", written(value, column.kind), class_=None if column.kind == "choice" else "n")

    def _pager(self, number: int) -> Html | None:
        if self.pages == 1:
            return None
        near = sorted({1, self.pages, *range(max(1, number - 2), min(self.pages, number + 2) + 1)})
        links = [
            el("li", el("a", f"{n}", href=page_file(n), aria_current="page" if n == number else None)) for n in near
        ]
        return el("nav", el("ul", links), class_="pager", id="pager", aria_label="Pages of the list")


def page_file(number: int) -> str:
    """The file of a static page of the list."""
    return "users.html" if number == 1 else f"users-{number}.html"


def written(value: Value, kind: Kind) -> str:
    """A value as people read it; "–" for unknown. The script writes them alike."""
    if value is None or value == "":
        return "–"
    if isinstance(value, tuple):
        return f"{value[0]:,} {'of' if kind == 'of' else '→'} {value[1]:,}"
    if isinstance(value, str):
        return short(value)
    if kind == "count":
        return f"{value:,}"
    return decimals(value, signed=kind == "gain")


def decimals(value: float, *, signed: bool = False) -> str:
    """A score: three decimals, a true minus, and where it is `signed` a plus; nothing has no sign."""
    shown = f"{value:+.3f}" if signed else f"{value:.3f}"
    return shown[1:] if shown in ("+0.000", "-0.000") else shown.replace("-", "−")

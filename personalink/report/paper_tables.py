"""Tables 2 to 5 in the paper's layout: our rows beside the paper's, with intervals, tests, counts and costs.

Knows one run's evidence and what the paper printed; leaves layout to `layout.py` and tests to `families.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from personalink.metrics import headline, primary
from personalink.report.costs import RowCost
from personalink.report.evidence import Evidence
from personalink.report.families import ENOUGH, FEW, TestFamily, Tests
from personalink.report.layout import NO_BREAK, At, Cell, Column, Table, signed
from personalink.report.paper import PAPER_CONTEXT, PAPER_TABLES, RECURSION_P, PaperTable, paper_name, paper_row
from personalink.report.tables import ARROWS, BEST, COUNTS, METRIC_NAMES, best, label_of, missing_labels

OUTSIDE = "‡"
"""Marks a value of the paper that does not lie within our interval."""

REFERENCE = "†"
"""Marks the row that the others are tested against."""


@dataclass(frozen=True, slots=True)
class Made:
    """What a report could make of a run.

    Attributes:
        tables: file name → table, in the paper's order. families: the tests behind their stars.
        remarks: in one line each, what was left out or is missing, and why.
    """

    tables: Mapping[str, Table]
    families: tuple[TestFamily, ...]
    remarks: tuple[str, ...]


def paper_tables(tests: Tests, costs: Mapping[str, RowCost]) -> Made:
    """Every table of the paper that the run has rows for.

    Args:
        tests: over the run's evidence, with its choices. costs: what its rows cost.
    """
    tables, families, remarks = {}, [], []
    for paper in PAPER_TABLES:
        floors = tests.evidence.floors if paper.floors else ()
        there = [row for row in paper.rows if row in tests.evidence.methods]
        lacking = ", ".join(row for row in paper.rows if row not in there)
        if len(there) < 2 or not set(there) & set(paper.subject):
            remarks.append(f"{paper.name} is left out: the run has not enough of its rows (it lacks {lacking})")
            continue
        if lacking:
            remarks.append(f"{paper.name} is without {lacking}: the run has no such rows")
        reference = tests.choices.reference or paper.reference
        family = tests.family(f"Table {paper.number}", there, reference)
        if family is None:
            why = f"no row {reference} to test against" if reference not in there else "no answer with a gold label"
            remarks.append(f"{paper.name} has no stars: the run has {why}")
        else:
            families.append(family)
        tables[paper.name] = _Writer(paper, tests, family, costs).table([*floors, *there])
    return Made(tables, tuple(families), tuple(remarks))


@dataclass(frozen=True, slots=True)
class _Writer:
    """One of the paper's tables over one run."""

    paper: PaperTable
    tests: Tests
    family: TestFamily | None
    costs: Mapping[str, RowCost]

    @property
    def evidence(self) -> Evidence:
        return self.tests.evidence

    @property
    def known(self) -> bool:
        """Whether the paper has the run's task."""
        return paper_row(self.evidence.task.name, "nopers") is not None

    def table(self, rows: Sequence[str]) -> Table:
        """The table of the rows that there are."""
        counted = any(any(missing_labels(self.evidence.results.metrics[row])) for row in rows)
        columns = self._columns(counted)
        keys = [column.key for column in columns]
        cells = tuple(tuple(self._cells(row)) for row in rows)
        direction = primary(self.evidence.task)[1]
        bold, marks = set(), self._marks(rows, keys)
        for name in headline(self.evidence.task):
            at = keys.index(name)
            scores = ((row, self.evidence.results.metrics[row][name]) for row in rows)
            contest = [(row, None if row in self.evidence.floors else score) for row, score in scores]
            bold |= {(number, at) for number in best(contest, direction)}
        return Table(
            f"The paper's table {self.paper.number}: {self.paper.title}, {self._about()}",
            columns,
            cells,
            notes=tuple(self._notes(rows, counted, bool(bold))),
            bold=frozenset(bold),
            marks=marks,
            groups=({0: _FLOORS} if rows[0] in self.evidence.floors else {}) | headings(self.paper, rows),
            compact=True,
        )

    def _about(self) -> str:
        evidence = self.evidence
        return f"task {evidence.task.name}, n = {len(evidence.users)} users, seed {evidence.config['seed']}"

    def _columns(self, counted: bool) -> tuple[Column, ...]:
        task, context = self.evidence.task, self.paper.context
        arrow, theirs = NO_BREAK + ARROWS[primary(task)[1]], f"Paper (ours{NO_BREAK}−{NO_BREAK}paper)"
        columns = [Column("row", "Row", "text", csv_only=True), Column("method", "Method", "text")]
        if context:
            columns.append(Column("context_tokens", "Context tokens a query", "mean"))
            columns.append(Column("paper_context_tokens", "Paper", "mean", csv_only=not self.known))
        for name in headline(task):
            columns += [
                Column(name, METRIC_NAMES[name] + arrow, "metric"),
                Column(name, f"95{NO_BREAK}% interval", "interval"),
                Column(f"paper_{name}_shown", theirs, "remark", csv_only=not self.known, people_only=True),
                Column(f"paper_{name}", "", "metric", csv_only=True),
                Column(f"difference_from_paper_{name}", "", "signed", csv_only=True),
                Column(f"paper_{name}_within", "", "text", csv_only=True),
            ]
        columns += [
            Column("n", "n", "count", csv_only=not counted),
            Column("invalid", "Invalid", "count", csv_only=not counted),
            Column("failed", "Failed", "count", csv_only=not counted),
            *([] if context else [Column("context_tokens", "", "mean", csv_only=True)]),
            Column("query_tokens", "", "mean", csv_only=True),
            Column("build_calls", "", "metric", csv_only=True),
            Column("build_tokens", "Build: tokens a user", "mean", csv_only=not context),
        ]
        tested = ("reference", "difference", "p", "p_holm", "stars", "test")
        return (*columns, *(Column(key, "", "text", csv_only=True) for key in tested))

    def _cells(self, row: str) -> list[Cell]:
        evidence, cost, context = self.evidence, self.costs.get(row), self.paper.context
        metrics = evidence.results.metrics[row]
        cells: list[Cell] = [row, self.paper.labels.get(row, label_of(row))]
        if context:
            cells += [metrics["context_tokens"], PAPER_CONTEXT.get(row)]
        for name in headline(evidence.task):
            interval = self.tests.interval(row, name)
            cells += [metrics[name], interval, *self._beside(row, name, metrics[name], interval)]
        cells += [metrics["n"], *missing_labels(metrics), *([] if context else [metrics["context_tokens"]])]
        cells += [cost.query, cost.calls, cost.tokens] if cost else [None] * 3
        one = self.family.of(row) if self.family else None
        if one is None or self.family is None:
            return [*cells, *[None] * 6]
        made = one.contrast
        return [*cells, self.family.reference, made.difference.estimate, made.p, one.corrected, one.stars, made.test]

    def _beside(self, row: str, name: str, ours: float | None, interval: tuple[float, float] | None) -> list[Cell]:
        """The paper's value: as people see it, itself, ours − it, and whether it lies within our interval."""
        task = self.evidence.task.name
        printed = paper_row(task, row)
        if printed is None:
            return [None, None, None, None]
        value = printed[name]
        if ours is None or interval is None:
            return [f"{value:.3f}", value, None, None]
        within = interval[0] <= value <= interval[1]
        stars = (
            "*" * self.paper.stars.get(task, {}).get(paper_name(row), 0)
            if name == headline(self.evidence.task)[0]
            else ""
        )
        shown = f"{value:.3f}{stars} ({signed(ours - value)}){'' if within else OUTSIDE}"
        return [shown, value, ours - value, "yes" if within else "no"]

    def _marks(self, rows: Sequence[str], keys: Sequence[str]) -> dict[At, str]:
        if self.family is None:
            return {}
        marks = {(number, 1): REFERENCE for number, row in enumerate(rows) if row == self.family.reference}
        at = keys.index(headline(self.evidence.task)[0])
        found = {number: self.family.of(row) for number, row in enumerate(rows)}
        return marks | {(number, at): one.stars for number, one in found.items() if one is not None}

    def _notes(self, rows: Sequence[str], counted: bool, bold: bool) -> list[str]:
        evidence, family = self.evidence, self.family
        notes = [BEST.replace(" (in plain text: *)", "")] if bold else []
        if self.known:
            notes.append(
                f"Paper: as printed (200 users, a 7B model), and ours − paper; {OUTSIDE}: it lies outside our interval."
            )
        if family is not None:
            printed = self.paper.stars.get(evidence.task.name)
            own = _STARS if printed else _NO_STARS if self.known else ""
            notes.append(
                f"Stars: the row differs from {label_of(family.reference)} ({REFERENCE}) at p < .05, .01, .001 "
                f"({family.rows[0].contrast.test}; Holm over the {len(family.rows)} rows of this table). {own}".rstrip()
            )
        notes += self._recursion()
        notes.append(COUNTS if counted else "Every answer of every row was read: none invalid, none failed.")
        if evidence.incomplete:
            notes.append(f"Not finished, and in no row: {incomplete(evidence)}.")
        if len(evidence.users) < ENOUGH:
            notes.append(FEW.format(n=len(evidence.users)))
        return [*notes, *evidence.config["notes"]]

    def _recursion(self) -> list[str]:
        """Under table 2: what the passes after the first change, beside what the paper says of it."""
        evidence = self.evidence
        made = None
        if self.paper.number == 2 and {"pag", "personalink_r2"} <= set(evidence.methods):
            made = self.tests.contrast("personalink_r2", "pag")
        if made is None:
            return []
        printed = RECURSION_P.get(evidence.task.name)
        theirs = f"; the paper: p {printed}" if printed else ""
        name = METRIC_NAMES[primary(evidence.task)[0]]
        ends = f"[{signed(made.difference.low)}, {signed(made.difference.high)}]"
        return [
            f"PersonaLink r=2 − PAG: {name} {signed(made.difference.estimate)} {ends}, p = {made.p:.3f} ({made.test}, "
            f"by itself{theirs}). The paper's r=1 is PAG, the first draft without a gate."
        ]


_STARS = "Stars at the paper's values are its own, not corrected."
_NO_STARS = "The paper prints none here."
_LISTED = 10


_FLOORS = "Floors, without a model"


def headings(paper: PaperTable, rows: Sequence[str]) -> dict[int, str]:
    """Number of a row → the heading that the paper puts above it, for those of its rows that there are."""
    firsts = ((heading, next((row for row in rows if row in members), None)) for heading, members in paper.groups)
    return {rows.index(first): heading for heading, first in firsts if heading and first is not None}


def incomplete(evidence: Evidence) -> str:
    """The users whom a run did not finish, in a line: how many, and the first of them by name."""
    names = list(evidence.incomplete)
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{len(names)} of {len(names) + len(evidence.users)} users ({', '.join(names[:_LISTED])}{more})"

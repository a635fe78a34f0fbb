"""Families of tests: the rows of one table against one reference, their p-values corrected together by Holm.

Knows one run's evidence; knows no table's layout but that of the tests themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from personalink import stats
from personalink.metrics import bootstrap_interval, primary
from personalink.report.contrasts import Choices, Contrast, contrast, matched
from personalink.report.evidence import Evidence
from personalink.report.layout import NO_BREAK, At, Cell, Column, Table
from personalink.report.paper import PAPER_P, paper_name
from personalink.report.tables import METRIC_NAMES, label_of

ENOUGH = 20
"""With fewer pairs, a bootstrap's intervals and p are too sure, since what was never seen is never drawn."""

FEW = "n is {n} here: so few answers show that the pipeline works and bear no claim, whatever the tests say."

LEVELS = (0.05, 0.01, 0.001)
"""One star for each that a p stays below, as in the paper."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A row against the reference of its family: the contrast (row − reference), and its p corrected by Holm."""

    row: str
    contrast: Contrast
    corrected: float

    @property
    def stars(self) -> str:
        """Of the corrected p: "*" below .05, "**" below .01, "***" below .001."""
        return "*" * sum(self.corrected < level for level in LEVELS)


@dataclass(frozen=True, slots=True)
class TestFamily:
    """Tests that are looked at together.

    Attributes:
        name: what they belong to, such as "Table 4". reference: the row that all others are tested against.
        rows: the others, each with its test; without those that share no scored query with the reference.
    """

    name: str
    reference: str
    rows: tuple[Compared, ...]

    def of(self, row: str) -> Compared | None:
        """A row's test; None for the reference itself and for rows that are not in the family."""
        return next((one for one in self.rows if one.row == row), None)


@dataclass(frozen=True, slots=True)
class Tests:
    """Makes families over one run, each contrast and each interval once, however many tables show it."""

    evidence: Evidence
    choices: Choices
    _made: dict[tuple[str, str], Contrast | None] = field(default_factory=dict)
    _intervals: dict[tuple[str, str], tuple[float, float] | None] = field(default_factory=dict)

    def family(self, name: str, rows: Sequence[str], reference: str) -> TestFamily | None:
        """The rows of a table against a reference; None where the run lacks the reference, or nothing can be paired."""
        if reference not in self.evidence.methods:
            return None
        others = [row for row in rows if row != reference and row in self.evidence.methods]
        found = {row: made for row in others if (made := self.contrast(row, reference)) is not None}
        if not found:
            return None
        corrected = stats.holm([made.p for made in found.values()])
        compared = (Compared(row, made, p) for (row, made), p in zip(found.items(), corrected, strict=True))
        return TestFamily(name, reference, tuple(compared))

    def contrast(self, row: str, reference: str) -> Contrast | None:
        """Row − reference over the queries that both answered; None where there is none with a gold label."""
        key = (row, reference)
        if key not in self._made:
            evidence = self.evidence
            pairs = matched(evidence.judged(row), evidence.judged(reference))
            seed, task = evidence.config["seed"], evidence.task
            self._made[key] = contrast(task, pairs, seed=seed, choices=self.choices) if pairs else None
        return self._made[key]

    def interval(self, row: str, metric: str) -> tuple[float, float] | None:
        """The 95 % bootstrap interval of a row's metric; None where no answer has a gold label."""
        key, evidence = (row, metric), self.evidence
        if key not in self._intervals:
            seed, scored = evidence.config["seed"], evidence.scored(row)
            self._intervals[key] = bootstrap_interval(evidence.task, scored, metric, seed=seed)
        return self._intervals[key]


def tests_table(evidence: Evidence, families: Sequence[TestFamily], choices: Choices) -> Table:
    """Every test of a report, family by family: difference, interval, counts, p, and what it comes to."""
    metric, direction = primary(evidence.task)
    name, label = METRIC_NAMES[metric], evidence.task.kind == "label"
    paper = PAPER_P.get(evidence.task.name, {})
    columns = (
        Column("family", "Family", "text", csv_only=True),
        Column("reference", "Reference", "text", csv_only=True),
        Column("row", "Row", "text", csv_only=True),
        Column("method", "Method", "text"),
        Column("n", "n", "count"),
        Column("difference", f"{name}, row − reference", "signed"),
        Column("difference", f"95{NO_BREAK}% interval", "interval"),
        Column("row_better", "Only the row right" if label else "Row nearer", "count"),
        Column("reference_better", "Only the reference right" if label else "Reference nearer", "count"),
        Column("p", "p", "p"),
        Column("p_holm", "p, Holm", "p"),
        Column("verdict", "The row is", "remark"),
        Column("paper_p", "The paper's p", "remark"),
        *(Column(key, key, "metric", csv_only=True) for key in (_MCNEMAR if label else ())),
        *(Column(key, key, "metric", csv_only=True) for key in _WITHIN),
        Column("second_difference", "", "metric", csv_only=True),
        Column("second_difference", "", "interval", csv_only=True),
        Column("second_p", "", "p", csv_only=True),
    )
    rows: list[tuple[Cell, ...]] = []
    groups: dict[int, str] = {}
    marks: dict[At, str] = {}
    starred = [column.key for column in columns].index("p_holm")
    for family in families:
        groups[len(rows)] = f"{family.name}: against {label_of(family.reference)}, a family of {len(family.rows)}"
        for one in family.rows:
            marks[len(rows), starred] = one.stars
            printed = paper.get(paper_name(one.row)) if family.reference == "personalink_r2" else None
            rows.append(_test_cells(family, one, direction, printed, label))
    return Table(
        f"Tests: every row against the reference of its table, task {evidence.task.name}",
        columns,
        tuple(rows),
        notes=_test_notes(evidence, families, choices),
        marks=marks,
        groups=groups,
        compact=True,
    )


_MCNEMAR = ("p_exact", "p_mid", "p_chi2cc")
_WITHIN = ("margin", "p_equivalent", "p_row_not_inferior", "p_reference_not_inferior")


def _test_cells(
    family: TestFamily, one: Compared, direction: str, printed: str | None, label: bool
) -> tuple[Cell, ...]:
    made, second = one.contrast, one.contrast.second
    mcnemar = (made.mcnemar.exact, made.mcnemar.mid_p, made.mcnemar.chi2cc) if label else ()
    within = (made.equivalent.margin, made.equivalent.p, made.a_not_inferior.p, made.b_not_inferior.p)
    return (
        family.name,
        family.reference,
        one.row,
        label_of(one.row),
        made.n,
        made.difference.estimate,
        (made.difference.low, made.difference.high),
        made.a_better,
        made.b_better,
        made.p,
        one.corrected,
        made.verdict(one.corrected, direction),
        printed,
        *mcnemar,
        *within,
        second.difference,
        (second.interval.low, second.interval.high),
        second.p,
    )


def _test_notes(evidence: Evidence, families: Sequence[TestFamily], choices: Choices) -> tuple[str, ...]:
    test = next(one.contrast.test for family in families for one in family.rows)
    margin, name = choices.margin_for(evidence.task), METRIC_NAMES[primary(evidence.task)[0]]
    interval = "a score interval (Tango 1998)" if evidence.task.kind == "label" else "by the bootstrap, 10,000 draws"
    return (
        f"p: {test}, two-sided, over the queries that both rows answered. Stars: p < .05, .01, .001 after Holm's "
        "correction over the family. The paper's p are not corrected.",
        f"Interval: of the difference, 95{NO_BREAK}%, {interval}; it is not widened for the family.",
        f"A difference that is not significant is no tie by itself. Equivalent: the difference is within ±{margin:g} "
        f"of {name} (two one-sided tests, each at .05). Not inferior: the row is not worse than the reference by "
        f"{margin:g} or more; not superior: the reference is not worse than the row by so much. Undecided: these "
        "answers are too few to tell. These claims are not corrected; the margin is a choice made beforehand.",
        *([FEW.format(n=least)] if (least := min(one.contrast.n for f in families for one in f.rows)) < ENOUGH else []),
    )

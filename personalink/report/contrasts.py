"""Two rows on the queries that both answered: their difference with its interval, a test, and what a tie amounts to.

McNemar for labels, a paired bootstrap for ratings and texts; beside the test, whether the rows are equivalent, or one
not inferior, within a margin. Knows answers beside their golds; knows no run and no table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from personalink import stats
from personalink.errors import ConfigError
from personalink.generation_metrics import rouge
from personalink.metrics import primary
from personalink.report.answers import Judged
from personalink.stats import Interval, McNemar, Paired, Within
from personalink.stats.records import McNemarTest
from personalink.tasks import Task

MARGINS: Mapping[str, float] = {"label": 0.05, "rating": 0.1, "text": 0.02}
"""Kind of task → the largest difference of its primary metric that does not matter: a choice, not a finding."""

MCNEMAR: Mapping[McNemarTest, str] = {
    "exact": "McNemar, exact",
    "mid_p": "McNemar, mid-p",
    "chi2cc": "McNemar, chi² with continuity correction",
}

OUTCOMES: Mapping[str, str] = {"rating": "|error|", "text": "ROUGE-L"}
"""Kind of task → what the bootstrap draws from."""

ALPHA = 0.05
"""Of every test, two-sided."""


@dataclass(frozen=True, slots=True)
class Choices:
    """How rows are compared.

    Attributes:
        reference: the row that the others are tested against; None for the paper's, table by table.
        mcnemar: which p of McNemar's tests is shown and starred ("chi2cc" gives the paper's); CSV has all three.
        margin: of equivalence and non-inferiority, in the primary metric's unit, > 0; None for `MARGINS`.

    Raises:
        ConfigError: an unknown test, or a margin that is no finite number above 0.
    """

    reference: str | None = None
    mcnemar: McNemarTest = "exact"
    margin: float | None = None

    def __post_init__(self) -> None:
        if self.mcnemar not in MCNEMAR:
            msg = f"mcnemar is {self.mcnemar!r}; it must be one of {', '.join(MCNEMAR)}"
            raise ConfigError(msg)
        if self.margin is not None and not 0 < self.margin < float("inf"):
            msg = f"margin is {self.margin!r}; it must be a finite number above 0"
            raise ConfigError(msg)

    def margin_for(self, task: Task) -> float:
        """The margin of a task."""
        return MARGINS[task.kind] if self.margin is None else self.margin


@dataclass(frozen=True, slots=True)
class Contrast:
    """A row (a) against another (b) over the queries that both answered and that have a gold label.

    Attributes:
        n: how many queries.
        a, b: the primary metric of each over them.
        difference: a − b in the primary metric, with its 95 % interval.
        second: the same for the secondary metric: macro-F1, RMSE, ROUGE-1.
        test: how `p` was found, in words. p: two-sided, of no difference in the primary metric.
        mcnemar: all about right and wrong, for ratings too.
        a_better, b_better: how often one of the two came nearer to the gold; for labels the discordant counts.
        equivalent: whether |a − b| stays within the margin; a_not_inferior, b_not_inferior: whether a, or b, is not
            worse than the other by more than that.
    """

    n: int
    a: float
    b: float
    difference: Interval
    second: Paired
    test: str
    p: float
    mcnemar: McNemar
    a_better: int
    b_better: int
    equivalent: Within
    a_not_inferior: Within
    b_not_inferior: Within

    def verdict(self, p: float, direction: str) -> str:
        """What the comparison comes to, in words about a: "better" or "worse" where `p` is significant; else
        "equivalent", "not inferior" or "not superior" within the margin; else "undecided".

        Args:
            p: corrected for the family. direction: "higher" or "lower" is better.
        """
        if p <= ALPHA:
            return "better" if (self.a > self.b) == (direction == "higher") else "worse"
        if self.equivalent.holds:
            return "equivalent"
        return (
            "not inferior"
            if self.a_not_inferior.holds
            else "not superior"
            if self.b_not_inferior.holds
            else "undecided"
        )


def matched(a: Sequence[Judged], b: Sequence[Judged]) -> list[tuple[Judged, Judged]]:
    """The answers of two rows to the same (user, query), where it has a gold label, in the order of `a`."""
    others = {one.key: one for one in b}
    return [(one, others[one.key]) for one in a if one.gold is not None and one.key in others]


def contrast(task: Task, pairs: Sequence[tuple[Judged, Judged]], *, seed: int, choices: Choices) -> Contrast:
    """Compare a row with another on their matched answers, at least one.

    Labels: the difference of accuracy with its score interval (Tango 1998), and McNemar's test. Ratings and texts: the
    difference of the primary metric and its p by the paired bootstrap; so too that of macro-F1, RMSE and ROUGE-1.

    Args:
        seed: of the draws, the run's.

    Raises:
        DataError: there are no pairs.
        ConfigError: the margin is too large for the task.
    """
    direction, margin = primary(task)[1], choices.margin_for(task)
    sides = [[one for one, _ in pairs], [other for _, other in pairs]]
    right = [[one.right for one in side] for side in sides]
    errors = [[one.error(task) for one in side] for side in sides]
    mcnemar = stats.mcnemar(*right)
    a: Sequence[float]
    b: Sequence[float]
    if task.kind == "label":
        a, b = right
        difference = stats.tango(mcnemar.a_only, mcnemar.b_only, len(pairs))
        test, p = MCNEMAR[choices.mcnemar], float(getattr(mcnemar, choices.mcnemar))
    else:
        a, b = errors if direction == "lower" else [[1 - error for error in side] for side in errors]
        paired = stats.paired_bootstrap(a, b, seed=seed)
        difference, test, p = paired.interval, f"paired bootstrap of {OUTCOMES[task.kind]}", paired.p
    return Contrast(
        n=len(pairs),
        a=math.fsum(a) / len(pairs),
        b=math.fsum(b) / len(pairs),
        difference=difference,
        second=_second(task, sides, errors, seed),
        test=test,
        p=p,
        mcnemar=mcnemar,
        a_better=sum(x < y for x, y in zip(*errors, strict=True)),
        b_better=sum(x > y for x, y in zip(*errors, strict=True)),
        equivalent=stats.equivalence(a, b, margin=margin, seed=seed),
        a_not_inferior=stats.non_inferiority(a, b, margin=margin, better=direction, seed=seed),
        b_not_inferior=stats.non_inferiority(b, a, margin=margin, better=direction, seed=seed),
    )


def _second(task: Task, sides: Sequence[Sequence[Judged]], errors: Sequence[Sequence[float]], seed: int) -> Paired:
    if task.kind == "rating":
        return stats.paired_bootstrap(*errors, statistic="rms", seed=seed)
    golds = [one.scored.gold for one in sides[0]]
    a, b = ([one.prediction.label for one in side] for side in sides)
    if task.kind == "text":
        scores = [
            [rouge(g, x).rouge_1 if x is not None else 0.0 for g, x in zip(golds, s, strict=True)] for s in (a, b)
        ]
        return stats.paired_bootstrap(*scores, seed=seed)
    return stats.macro_f1_difference(golds, a, b, labels=task.labels, seed=seed)

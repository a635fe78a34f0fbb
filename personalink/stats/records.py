"""What a statistical comparison comes to, as plain frozen records; knows no formula.

A difference is always a − b, in the unit of the values that were compared. p is two-sided unless a record says
otherwise, and lies in [0, 1].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

Statistic = Callable[[Floats], Floats]
"""From how often each draw holds each of n units, shape (draws, n), to the value of each draw, shape (draws,)."""

McNemarTest = Literal["exact", "mid_p", "chi2cc"]
IntervalMethod = Literal["percentile", "bca"]


@dataclass(frozen=True, slots=True)
class Interval:
    """A two-sided confidence interval.

    Attributes:
        estimate: the value on the data themselves.
        low, high: the interval's ends, low ≤ high.
        confidence: the share of such intervals that cover the true value, such as 0.95.
        method: how it was made: "percentile", "bca", "wilson" or "tango".
        note: why another method was used than the one asked for, or why the width means little; "" otherwise.
    """

    estimate: float
    low: float
    high: float
    confidence: float
    method: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class McNemar:
    """Two methods' answers to the same queries, and three tests of whether they are equally often right.

    Attributes:
        a_only, b_only: the discordant counts: how often only a, and only b, was right.
        exact, mid_p, chi2cc: the p of each test (see `mcnemar_counts`); 1 for all where nothing is discordant.
        both, neither: how often both were right, and neither; None where only the discordant counts are known.
    """

    a_only: int
    b_only: int
    exact: float
    mid_p: float
    chi2cc: float
    both: int | None = None
    neither: int | None = None

    @property
    def discordant(self) -> int:
        """How often exactly one of the two was right: all that the tests look at."""
        return self.a_only + self.b_only

    @property
    def n(self) -> int | None:
        """How many pairs there are; None where only the discordant counts are known."""
        return None if self.both is None or self.neither is None else self.discordant + self.both + self.neither


@dataclass(frozen=True, slots=True)
class Paired:
    """Two methods compared on the same units by a paired bootstrap.

    Attributes:
        difference: a − b on the data themselves.
        interval: of that difference.
        p: two-sided, of no difference (see `paired_bootstrap`).
        n: how many units were resampled: pairs, or users in a cluster bootstrap.
    """

    difference: float
    interval: Interval
    p: float
    n: int


@dataclass(frozen=True, slots=True)
class Tested:
    """The result of one two-sided test.

    Attributes:
        p: of the null hypothesis.
        method: "exact" or "monte carlo".
        note: what the method did, in words.
    """

    p: float
    method: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Within:
    """Whether a difference lies within a margin, as a tested claim: equivalence or non-inferiority.

    Attributes:
        claim: "equivalent" or "not inferior".
        difference: a − b on the data themselves.
        low, high: the interval with confidence 1 − 2·alpha; the claim holds where it lies within the margin.
        margin: the largest difference that does not matter, > 0.
        p: of the null hypothesis that the difference is *not* within the margin: small p supports the claim.
        holds: p ≤ alpha.
        method: "bootstrap" or "tango".
    """

    claim: Literal["equivalent", "not inferior"]
    difference: float
    low: float
    high: float
    margin: float
    p: float
    holds: bool
    method: str


@dataclass(frozen=True, slots=True)
class BinaryEffect:
    """How large a difference between paired right-or-wrong answers is; positive where a is right more often.

    Attributes:
        difference: share right of a minus that of b, in [−1, 1].
        g: Cohen's g, b's discordant share taken from a's: a_only / discordant − ½, in [−½, ½]; 0 without discordance.
        odds_ratio: a_only / b_only, ≥ 0; None where b_only is 0.
        h: Cohen's h of the two shares, in [−π, π].
    """

    difference: float
    g: float
    odds_ratio: float | None
    h: float


@dataclass(frozen=True, slots=True)
class NumericEffect:
    """How large a difference between paired numbers is; positive where a's are larger.

    Attributes:
        difference: mean of a − b.
        d_z: that mean over the standard deviation of the differences; None where this is 0 or n is 1.
        d_av: that mean over √((var a + var b) / 2); None where this is 0 or n is 1.
        cliff: Cliff's delta, P(a > b) − P(a < b) over all n² cross pairs, in [−1, 1].
        within: the same over the n pairs themselves, in [−1, 1].
    """

    difference: float
    d_z: float | None
    d_av: float | None
    cliff: float
    within: float

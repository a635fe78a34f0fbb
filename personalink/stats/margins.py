"""A tie as a tested claim: equivalence and non-inferiority within a margin. "Not significant" alone is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from personalink.errors import ConfigError
from personalink.stats import checks
from personalink.stats.bootstrap import TINY, Bootstrap, mean_of
from personalink.stats.distributions import normal_cdf
from personalink.stats.proportions import tango, tango_z
from personalink.stats.records import Floats, Interval, Within

Tail = Callable[[float], float]
"""The one-sided p that the true difference is at most (below), or at least (above), a bound."""


def equivalence(
    a: ArrayLike, b: ArrayLike, *, margin: float, seed: int, alpha: float = 0.05, draws: int = 10_000
) -> Within:
    """Is |true mean of a − b| below `margin`? Two one-sided tests (Schuirmann 1987): p is the larger of the two.

    Booleans (right or wrong) are tested by Tango's score test for paired shares (Tango 1998; `proportions.tango_z`).
    Numbers are tested by the paired bootstrap: (1 + #{draw beyond the bound}) / (draws + 1) a side (Davison & Hinkley
    1997, §4.2). Differences that are all alike have no spread there, however few they are: give booleans as such.

    Args:
        a, b: outcomes of the two methods, shape (n,) each, in the same order.
        margin: the largest difference that does not matter, > 0, in the outcomes' unit; below 1 for booleans.
        seed, draws: of the bootstrap.
        alpha: level of the claim, in (0, ½); the interval shown has confidence 1 − 2·alpha.

    Raises:
        DataError: the lengths differ, there are no pairs, or a value is NaN or infinite.
        ConfigError: a setting is out of range.
    """
    return _within("equivalent", a, b, "both", margin, alpha, draws, seed)


def non_inferiority(
    a: ArrayLike,
    b: ArrayLike,
    *,
    margin: float,
    better: Literal["higher", "lower"],
    seed: int,
    alpha: float = 0.05,
    draws: int = 10_000,
) -> Within:
    """Is a worse than b by less than `margin`? One one-sided test at the margin; tests and errors as in `equivalence`.

    Args:
        a, b, margin, seed, alpha, draws: see `equivalence`.
        better: which outcomes are better: "higher" (right answers) or "lower" (errors).
    """
    checks.choice(better, "better", ("higher", "lower"))
    return _within("not inferior", a, b, better, margin, alpha, draws, seed)


def _within(
    claim: Literal["equivalent", "not inferior"],
    a: ArrayLike,
    b: ArrayLike,
    side: Literal["both", "higher", "lower"],
    margin: float,
    alpha: float,
    draws: int,
    seed: int,
) -> Within:
    checks.positive(margin, "margin")
    if checks.share(alpha, "alpha") >= 0.5:
        msg = f"alpha is {alpha!r}; it must lie between 0 and 0.5"
        raise ConfigError(msg)
    bootstrap = Bootstrap(draws, seed, 1 - 2 * alpha)
    first, second = checks.pairs(a, b)
    binary = all(np.asarray(outcomes).dtype == np.bool_ for outcomes in (a, b))
    if binary:
        checks.share(margin, "margin")
    interval, below, above = _tango(first, second, alpha) if binary else _bootstrap(first, second, bootstrap)
    p = max(below(-margin) if side != "lower" else 0.0, above(margin) if side != "higher" else 0.0)
    method = "tango" if binary else "bootstrap"
    return Within(claim, interval.estimate, interval.low, interval.high, margin, p, p <= alpha, method)


def _tango(a: Floats, b: Floats, alpha: float) -> tuple[Interval, Tail, Tail]:
    a_only, b_only, n = int(np.sum(a > b)), int(np.sum(a < b)), len(a)
    return (
        tango(a_only, b_only, n, confidence=1 - 2 * alpha),
        lambda bound: normal_cdf(-tango_z(a_only, b_only, n, bound)),
        lambda bound: normal_cdf(tango_z(a_only, b_only, n, bound)),
    )


def _bootstrap(a: Floats, b: Floats, bootstrap: Bootstrap) -> tuple[Interval, Tail, Tail]:
    statistic, n = mean_of(a - b), len(a)
    values = bootstrap.values(statistic, n)
    tiny = TINY * float(max(np.abs(a).max(), np.abs(b).max()))
    return (
        bootstrap.interval(statistic, n, values),
        lambda bound: float(1 + np.sum(values <= bound + tiny)) / (len(values) + 1) if n > 1 else 1.0,
        lambda bound: float(1 + np.sum(values >= bound - tiny)) / (len(values) + 1) if n > 1 else 1.0,
    )

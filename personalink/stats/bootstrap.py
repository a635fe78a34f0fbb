"""The bootstrap: resamples in blocks of bounded memory, percentile and BCa intervals, a paired comparison.

Knows units by number only: an item, or a user with all that belongs to them. A statistic is given as a function of how
often each draw holds each unit, so one draw costs a row of a matrix product.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from personalink.seeding import stream
from personalink.stats import checks
from personalink.stats.distributions import normal_cdf, normal_quantile
from personalink.stats.records import Floats, Interval, IntervalMethod, Ints, Paired, Statistic

BLOCK = 500_000
"""Cells of a block of draws × units: some 4 MiB as indices, and as much again as counts."""

TINY = 1e-12
"""Two values are tied within this share of the largest value that was compared: what rounding may leave of zero."""

NO_SPREAD = "all draws are equal, so the width says nothing"


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """How to resample. The draws hang on `seed` and the number of units alone, so comparisons are drawn alike.

    Attributes:
        draws: how many resamples, ≥ 1.
        seed: the run's seed.
        confidence: of the two-sided interval, in (0, 1).
        method: "percentile" (Efron 1979) or "bca" (Efron 1987).

    Raises:
        ConfigError: one of them is out of range.
    """

    draws: int
    seed: int
    confidence: float = 0.95
    method: IntervalMethod = "percentile"

    def __post_init__(self) -> None:
        checks.at_least_one(self.draws, "draws")
        checks.share(self.confidence, "confidence")
        checks.choice(self.method, "method", ("percentile", "bca"))

    def values(self, statistic: Statistic, n: int) -> Floats:
        """The statistic of every resample of n units, shape (draws,)."""
        blocks = resample_blocks(n, draws=self.draws, seed=self.seed)
        return np.concatenate([statistic(multiplicities(block)) for block in blocks])

    def interval(self, statistic: Statistic, n: int, values: Floats) -> Interval:
        """The interval that `values` give, by `method`; percentile, with the reason in `note`, where BCa has none."""
        estimate = float(statistic(np.ones((1, n)))[0])
        tail = (1 - self.confidence) / 2
        method, note, tails = "percentile", "", (tail, 1 - tail)
        if np.ptp(values) <= TINY * np.abs(values).max():
            note = NO_SPREAD
        elif self.method == "bca":
            found = bca_tails(values, estimate, jackknife(statistic, n), tail)
            method, tails = ("percentile", tails) if isinstance(found, str) else ("bca", found)
            note = f"percentile, since BCa is undefined: {found}" if isinstance(found, str) else ""
        low, high = np.quantile(values, tails, method="linear")
        return Interval(estimate, float(low), float(high), self.confidence, method, note)

    def compare(self, statistic: Statistic, n: int, *, scale: float) -> Paired:
        """A difference with its interval and `two_sided_p`; ties are counted within `TINY` · `scale`."""
        values = self.values(statistic, n)
        interval = self.interval(statistic, n, values)
        return Paired(interval.estimate, interval, two_sided_p(values, TINY * scale) if n > 1 else 1.0, n)


def bootstrap_mean(
    values: ArrayLike,
    *,
    seed: int,
    draws: int = 10_000,
    confidence: float = 0.95,
    method: IntervalMethod = "percentile",
) -> Interval:
    """The mean with its bootstrap interval.

    Args:
        values: shape (n,), n ≥ 1; shares where they are 0 and 1.
        seed, draws, confidence, method: see `Bootstrap`.

    Returns:
        The interval, in the values' unit. BCa falls back to percentile, with the reason in `note`, where it is
        undefined: all draws lie on one side of the mean, or leaving out one value never changes it.

    Raises:
        DataError: no values, or one that is NaN or infinite.
        ConfigError: a setting is out of range.
    """
    bootstrap = Bootstrap(draws, seed, confidence, method)
    found = checks.numbers(values, "values")
    statistic = mean_of(found)
    return bootstrap.interval(statistic, len(found), bootstrap.values(statistic, len(found)))


def paired_bootstrap(
    a: ArrayLike,
    b: ArrayLike,
    *,
    seed: int,
    statistic: str = "mean",
    draws: int = 10_000,
    confidence: float = 0.95,
    method: IntervalMethod = "percentile",
) -> Paired:
    """Two methods on the same units: a − b, its interval, and a two-sided p of no difference.

    p = 2·min(1 + #{draw ≤ 0}, 1 + #{draw ≥ 0}) / (draws + 1), at most 1 (Efron & Tibshirani 1993, §15.4, with the +1
    of Davison & Hinkley 1997, §4.2): the percentile interval excludes 0 where p is below 1 − confidence. A draw of
    exactly 0 counts on both sides, so a method compared with itself has p = 1; so has a single pair. The least p is
    2 / (draws + 1).

    Args:
        a, b: outcomes of the two methods, shape (n,) each, in the same order: right or wrong as 1 and 0, or |error|.
        statistic: "mean", or "rms", the root mean square: with |error|, MAE or RMSE.
        seed, draws, confidence, method: see `Bootstrap`.

    Raises:
        DataError: the lengths differ, there are no pairs, or a value is NaN or infinite.
        ConfigError: a setting is out of range.
    """
    bootstrap = Bootstrap(draws, seed, confidence, method)
    checks.choice(statistic, "statistic", ("mean", "rms"))
    first, second = checks.pairs(a, b)
    scale = float(max(np.abs(first).max(), np.abs(second).max()))
    if statistic == "mean":
        return bootstrap.compare(mean_of(first - second), len(first), scale=scale)
    squares = mean_of(first**2), mean_of(second**2)
    return bootstrap.compare(lambda w: np.sqrt(squares[0](w)) - np.sqrt(squares[1](w)), len(first), scale=scale)


def resample_blocks(n: int, *, draws: int = 10_000, seed: int = 12345) -> Iterator[Ints]:
    """Resamples of n units with replacement (Efron 1979), a block at a time so that memory stays small.

    Yields index arrays of shape (draws in the block, n), int64 in [0, n); the same for the same (n, draws, seed).

    Raises:
        ConfigError: `draws` below 1.
    """
    checks.at_least_one(draws, "draws")
    random = stream(seed, "", "bootstrap")
    size = max(1, BLOCK // max(1, n))
    for start in range(0, draws, size):
        yield random.integers(0, n, size=(min(size, draws - start), n))


def multiplicities(indices: Ints) -> Floats:
    """How often each draw holds each unit: (draws, n) indices → (draws, n) counts."""
    draws, n = indices.shape
    flat = (indices + np.arange(draws)[:, None] * n).ravel()
    return np.bincount(flat, minlength=draws * n).reshape(draws, n).astype(np.float64)


def mean_of(values: Floats) -> Statistic:
    """The mean as a statistic: Σ w·x / Σ w of each draw."""
    return lambda weights: weights @ values / weights.sum(axis=1)


def jackknife(statistic: Statistic, n: int) -> Floats:
    """The statistic with each unit left out in turn, shape (n,), in blocks; n ≥ 2 (Quenouille 1956)."""
    size = max(1, BLOCK // n)
    parts = []
    for start in range(0, n, size):
        left_out = np.arange(start, min(start + size, n))
        weights = np.ones((len(left_out), n))
        weights[np.arange(len(left_out)), left_out] = 0
        parts.append(statistic(weights))
    return np.concatenate(parts)


def bca_tails(values: Floats, estimate: float, left_out: Floats, tail: float) -> tuple[float, float] | str:
    """The quantiles of the draws that end a BCa interval (Efron 1987; Efron & Tibshirani 1993, eq. 14.9–14.15).

    Args:
        values: the draws. estimate: the statistic on the data.
        left_out: the jackknife. tail: (1 − confidence) / 2.

    Returns:
        Two shares of the draws, or why there are none. Draws equal to the estimate count half on either side.
    """
    tiny = TINY * float(np.abs(values).max())
    share = float(np.mean(values < estimate - tiny) + np.mean(values <= estimate + tiny)) / 2
    if not 0 < share < 1:
        return "all draws lie on one side of the estimate"
    spread = left_out.mean() - left_out
    if not np.abs(spread).max() > TINY * np.abs(left_out).max():
        return "leaving out one unit never changes the estimate"
    acceleration = float(np.sum(spread**3) / (6 * np.sum(spread**2) ** 1.5))
    bias = normal_quantile(share)
    ends = []
    for z in (bias + normal_quantile(tail), bias - normal_quantile(tail)):
        if acceleration * z >= 1:
            return "the acceleration is too large for this confidence"
        ends.append(normal_cdf(bias + z / (1 - acceleration * z)))
    return ends[0], ends[1]


def two_sided_p(values: Floats, tiny: float) -> float:
    """The p of `paired_bootstrap` from its draws; those within `tiny` of 0 count on both sides."""
    fewer = min(int(np.sum(values <= tiny)), int(np.sum(values >= -tiny)))
    return min(1.0, 2 * (1 + fewer) / (len(values) + 1))

"""How large a paired difference is, apart from how sure. Knows numbers only."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from personalink.stats import checks
from personalink.stats.bootstrap import TINY
from personalink.stats.records import BinaryEffect, Floats, NumericEffect


def binary_effect(a_right: ArrayLike, b_right: ArrayLike) -> BinaryEffect:
    """Effect sizes of paired right-or-wrong answers.

    Cohen's g = a_only / (a_only + b_only) − ½ (Cohen 1988, eq. 5.2.1); the odds ratio of matched pairs, a_only / b_only
    (Fleiss, Levin & Paik 2003, ch. 13); Cohen's h = 2·asin√p_a − 2·asin√p_b (Cohen 1988, eq. 6.2.1).

    Args:
        a_right, b_right: whether each answer is right, shape (n,) each, in the same order.

    Raises:
        DataError: the lengths differ, there are no pairs, or a value is neither true nor false.
    """
    a, b = checks.right_pairs(a_right, b_right)
    a_only, b_only = int(np.sum(a & ~b)), int(np.sum(~a & b))
    angles = [2 * math.asin(math.sqrt(float(x.mean()))) for x in (a, b)]
    return BinaryEffect(
        difference=(a_only - b_only) / len(a),
        g=a_only / (a_only + b_only) - 0.5 if a_only + b_only else 0.0,
        odds_ratio=a_only / b_only if b_only else None,
        h=angles[0] - angles[1],
    )


def numeric_effect(a: ArrayLike, b: ArrayLike) -> NumericEffect:
    """Effect sizes of paired numbers, such as |error|.

    d_z = mean(a − b) / sd(a − b) (Cohen 1988, §2.3.5); d_av = mean(a − b) / √((var a + var b) / 2) (Cumming 2012,
    ch. 11); n − 1 in all variances. Cliff's delta is the share of a > b minus that of a < b (Cliff 1993).

    Args:
        a, b: outcomes of the two methods, shape (n,) each, in the same order.

    Raises:
        DataError: the lengths differ, there are no pairs, or a value is NaN or infinite.
    """
    first, second = checks.pairs(a, b)
    n, mean, difference = len(first), float(np.mean(first - second)), first - second
    ordered = np.sort(second)
    above = np.searchsorted(ordered, first, side="left").sum()
    below = (n - np.searchsorted(ordered, first, side="right")).sum()
    return NumericEffect(
        difference=mean,
        d_z=_over(mean, _variance(difference)),
        d_av=_over(mean, (_variance(first) + _variance(second)) / 2),
        cliff=float(above - below) / n**2,
        within=float(np.sign(difference).mean()),
    )


def _variance(values: Floats) -> float:
    return float(values.var(ddof=1)) if len(values) > 1 else 0.0


def _over(mean: float, variance: float) -> float | None:
    sd = math.sqrt(variance)
    return mean / sd if sd > TINY * abs(mean) else None

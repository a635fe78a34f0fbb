"""Shares of right answers: one share's interval and test, and the interval of a paired difference of shares."""

from __future__ import annotations

import math

from personalink.errors import DataError
from personalink.stats import checks
from personalink.stats.distributions import binomial_pmf, normal_quantile
from personalink.stats.records import Interval

_HALVINGS = 64


def wilson(k: int, n: int, *, confidence: float = 0.95) -> Interval:
    """A share with its score interval (Wilson 1927): (p̂ + z²/2n ± z·√(p̂(1−p̂)/n + z²/4n²)) / (1 + z²/n).

    Args:
        k: how many of n were right, 0 ≤ k ≤ n.
        n: how many there are, ≥ 1.
        confidence: two-sided, in (0, 1).

    Returns:
        Ends in [0, 1]; 0 exactly at k = 0, 1 exactly at k = n.

    Raises:
        DataError: k or n is no count, or k exceeds n.
        ConfigError: `confidence` is out of range.
    """
    _check_counts(k, n)
    z = normal_quantile((1 + checks.share(confidence, "confidence")) / 2)
    share = k / n
    middle = share + z * z / (2 * n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    low = 0.0 if k == 0 else (middle - half) / (1 + z * z / n)
    high = 1.0 if k == n else (middle + half) / (1 + z * z / n)
    return Interval(share, low, high, confidence, "wilson")


def binomial_test(k: int, n: int, share: float) -> float:
    """The exact two-sided p of k right out of n where each is right with probability `share`, such as chance.

    The sum of P(i) over every count i that is no likelier than k (Sterne 1954), likelihoods within 10⁻⁷ of each other
    being tied, as in R and scipy. With `share` ½ this is the sign test. In (0, 1].

    Raises:
        DataError: k or n is no count, or k exceeds n.
        ConfigError: `share` is not in (0, 1).
    """
    _check_counts(k, n)
    pmf = binomial_pmf(n, checks.share(share, "share"))
    return min(1.0, math.fsum(pmf[pmf <= pmf[k] * (1 + 1e-7)]))


def tango(a_only: int, b_only: int, n: int, *, confidence: float = 0.95) -> Interval:
    """The difference of two paired shares, (a_only − b_only) / n, with its score interval (Tango 1998).

    It holds every δ that the score test of `tango_z` does not reject, found by halving to 1e-15; within [−1, 1]. Unlike
    a bootstrap it has a width where the methods never differ.

    Args:
        a_only, b_only: the discordant counts: how often only a, and only b, was right.
        n: all pairs, ≥ 1.
        confidence: two-sided, in (0, 1).

    Raises:
        DataError: a count is none, or there are more discordant pairs than pairs.
        ConfigError: `confidence` is out of range.
    """
    check_pairs(a_only, b_only, n)
    z = normal_quantile((1 + checks.share(confidence, "confidence")) / 2)
    estimate = (a_only - b_only) / n
    ends = []
    for far, sign in ((-1.0, 1), (1.0, -1)):
        inside, outside = estimate, far
        for _ in range(_HALVINGS):
            middle = (inside + outside) / 2
            rejected = sign * tango_z(a_only, b_only, n, middle) > z
            inside, outside = (inside, middle) if rejected else (middle, outside)
        ends.append(inside)
    return Interval(estimate, ends[0], ends[1], confidence, "tango")


def tango_z(a_only: int, b_only: int, n: int, difference: float) -> float:
    """The score statistic that two paired shares differ by `difference` (Tango 1998); falls with `difference`.

    (b − c − nδ) / √(n(2q + δ(1 − δ))) with b = a_only, c = b_only, and q the likeliest share of b_only given δ. At
    δ = 0 it is McNemar's (b − c) / √(b + c). Without variance it is 0, but ±∞ for a δ = ±1 that was not seen.
    """
    shifted = a_only - b_only - n * difference
    linear = -a_only - b_only + (2 * n - a_only + b_only) * difference
    root = math.sqrt(max(0.0, linear**2 + 8 * n * b_only * difference * (1 - difference)))
    variance = n * ((root - linear) / (2 * n) + difference * (1 - difference))
    if variance > 0:
        return shifted / math.sqrt(variance)
    return math.copysign(math.inf, shifted) if shifted and abs(difference) == 1 else 0.0


def check_pairs(a_only: int, b_only: int, n: int) -> None:
    """Refuse counts that no table of n pairs has.

    Raises:
        DataError: one is no count, or the discordant ones exceed n.
    """
    discordant = checks.count(a_only, "a_only") + checks.count(b_only, "b_only")
    if discordant > checks.count(n, "n", least=1):
        msg = f"a_only + b_only is {discordant} and n is {n}; there cannot be more discordant pairs than pairs"
        raise DataError(msg)


def _check_counts(k: int, n: int) -> None:
    if checks.count(k, "k") > checks.count(n, "n", least=1):
        msg = f"k is {k} and n is {n}; k counts some of the n"
        raise DataError(msg)

"""McNemar's tests: are two methods equally often right on the same queries? Knows only right and wrong."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from personalink.stats import checks
from personalink.stats.distributions import binomial_pmf, chi2_tail
from personalink.stats.records import Floats, McNemar, McNemarTest

TESTS: tuple[McNemarTest, ...] = ("exact", "mid_p", "chi2cc")


def mcnemar(a_right: ArrayLike, b_right: ArrayLike) -> McNemar:
    """The three tests of `mcnemar_counts` on paired answers, with the whole two-by-two table.

    Args:
        a_right, b_right: whether each answer is right, shape (n,) each, in the same order of queries.

    Raises:
        DataError: the lengths differ, there are no pairs, or a value is neither true nor false.
    """
    a, b = checks.right_pairs(a_right, b_right)
    both, a_only, b_only, neither = (int(np.sum(x & y)) for x, y in ((a, b), (a, ~b), (~a, b), (~a, ~b)))
    return _tested(a_only, b_only, both, neither)


def mcnemar_counts(a_only: int, b_only: int) -> McNemar:
    """The three tests from the discordant counts b = `a_only` and c = `b_only`, all two-sided; n = b + c.

    - exact: binomial(n, ½): min(1, 2·P(X ≤ min(b, c))) (McNemar 1947; Fagerland, Lydersen & Laake 2013).
    - mid_p: exact − P(X = b); 1 − ½·P(X = b) where b = c (Fagerland, Lydersen & Laake 2013).
    - chi2cc: (|b − c| − 1)² / n against chi² with one degree of freedom (Edwards 1948); 1/n where b = c.

    All are 1 where n is 0. The exact test and chi2cc keep their level; mid-p hardly ever exceeds it and misses less.

    Raises:
        DataError: a count is negative or no whole number.
    """
    return _tested(checks.count(a_only, "a_only"), checks.count(b_only, "b_only"))


def p_values(n: int, test: McNemarTest) -> Floats:
    """The p of a test of `mcnemar_counts` for every b = 0 … n of n discordant pairs, shape (n + 1,)."""
    if n == 0:
        return np.ones(1)
    if test == "chi2cc":
        return np.array([_chi2cc(b, n - b) for b in range(n + 1)])
    pmf = binomial_pmf(n, 0.5)
    b = np.arange(n + 1)
    exact: Floats = np.minimum(1, 2 * np.cumsum(pmf)[np.minimum(b, n - b)])
    if test == "exact":
        return exact
    return np.where(2 * b == n, 1 - pmf / 2, exact - pmf)


def _tested(a_only: int, b_only: int, both: int | None = None, neither: int | None = None) -> McNemar:
    n = a_only + b_only
    exact, mid_p = (float(p_values(n, test)[a_only]) for test in ("exact", "mid_p"))
    return McNemar(a_only, b_only, exact, mid_p, _chi2cc(a_only, b_only), both, neither)


def _chi2cc(a_only: int, b_only: int) -> float:
    n = a_only + b_only
    return chi2_tail((abs(a_only - b_only) - 1) ** 2 / n) if n else 1.0

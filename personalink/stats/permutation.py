"""The sign-flip permutation test of paired differences. Knows numbers only."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from personalink.seeding import stream
from personalink.stats import checks
from personalink.stats.bootstrap import BLOCK, TINY
from personalink.stats.records import Floats, Ints, Tested

ENUMERATED = 20
"""All sign patterns are listed up to this many differences that are not 0: 2²⁰ of them."""

_STEPS = 10**8


def sign_flip(differences: ArrayLike, *, seed: int, draws: int = 10_000) -> Tested:
    """Is the mean of paired differences 0? Under the null each difference is as likely to have either sign.

    p is the share of sign patterns whose |sum| is at least the one observed (Fisher 1935, §21). Differences of 0 change
    nothing and are left out; p = 1 where nothing is left. Exact, by one of two ways, where that can be:

    - differences that are whole numbers of one unit (ratings, rubric points, right or wrong): the distribution of the
      sum is built up by convolution (Pagano & Tritchler 1983), for any n with n · Σ|d| up to 10⁸ units. On right or
      wrong this is the exact McNemar test.
    - any others, up to 20 of them: every pattern.

    Else Monte Carlo: (1 + #{|drawn sum| ≥ |sum|}) / (draws + 1) (Davison & Hinkley 1997, §4.2), so never 0.

    Args:
        differences: a − b, shape (n,), n ≥ 1.
        seed, draws: of Monte Carlo alone; draws ≥ 1.

    Returns:
        p in (0, 1], two-sided; `method` "exact" or "monte carlo"; `note` says which way.

    Raises:
        DataError: no differences, or one that is NaN or infinite.
        ConfigError: `draws` below 1.
    """
    checks.at_least_one(draws, "draws")
    found = checks.numbers(differences, "differences")
    found = found[np.abs(found) > TINY * np.abs(found).max()]
    if not found.size:
        return Tested(1.0, "exact", "no difference")
    if (units := _whole_units(found)) is not None:
        return Tested(_convolved(units), "exact", "by convolution")
    if found.size <= ENUMERATED:
        return Tested(_enumerated(found), "exact", f"all 2^{found.size} sign patterns")
    return Tested(_drawn(found, seed, draws), "monte carlo", f"{draws} draws, (1 + hits) / (1 + draws)")


def _whole_units(differences: Floats) -> Ints | None:
    """The differences as whole numbers of 1 or of the smallest of them; None where they are not, or are too many."""
    size = np.abs(differences)
    for unit in (1.0, float(size.min())):
        units = differences / unit
        whole = np.rint(units)
        few = np.abs(units).sum() * size.size <= _STEPS
        if few and np.abs(units - whole).max() <= 1e-9 and np.abs(whole).min() >= 1:
            return whole.astype(np.int64)
    return None


def _convolved(units: Ints) -> float:
    """P(|Σ ±u| ≥ |Σ u|): the sum of the positive ones grows by |u| or by 0, each with probability ½."""
    total, observed = int(np.abs(units).sum()), abs(int(units.sum()))
    chance = np.zeros(total + 1)
    chance[0] = 1
    reach = 0
    for u in np.abs(units):
        grown = chance[: reach + 1] / 2
        chance[: reach + 1] = grown
        chance[u : reach + u + 1] += grown
        reach += int(u)
    far = np.abs(2 * np.arange(total + 1) - total) >= observed
    return min(1.0, float(chance[far].sum()))


def _enumerated(differences: Floats) -> float:
    """The share of all sign patterns, the first sign held (the others mirror them), shape (2^(n−1),) at most."""
    sums = differences[:1]
    for d in differences[1:]:
        sums = np.concatenate([sums + d, sums - d])
    return float(np.mean(_at_least(sums, differences)))


def _drawn(differences: Floats, seed: int, draws: int) -> float:
    random = stream(seed, "", "sign flip")
    size = max(1, BLOCK // differences.size)
    hits = 0
    for start in range(0, draws, size):
        shape = (min(size, draws - start), differences.size)
        signs = 2.0 * random.integers(0, 2, size=shape, dtype=np.int8) - 1
        hits += int(np.sum(_at_least(signs @ differences, differences)))
    return (1 + hits) / (1 + draws)


def _at_least(sums: Floats, differences: Floats) -> Ints:
    tiny = TINY * float(np.abs(differences).sum())
    reached: Ints = (np.abs(sums) >= abs(float(differences.sum())) - tiny).astype(np.int64)
    return reached

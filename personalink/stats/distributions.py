"""The normal and the binomial distribution, in double precision and without scipy."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from personalink.stats.records import Floats

_NORMAL = NormalDist()
_SMALL = 16
"""Below this, Stirling's error is taken from `lgamma`; from here on the series is exact to 1e-14."""


def normal_cdf(z: float) -> float:
    """P(Z ≤ z) of the standard normal, ½·erfc(−z/√2); in [0, 1], accurate in both tails."""
    return 0.5 * math.erfc(-z / math.sqrt(2))


def normal_quantile(p: float) -> float:
    """The z with P(Z ≤ z) = p, for p strictly between 0 and 1 (Wichura 1988, algorithm AS 241)."""
    return _NORMAL.inv_cdf(p)


def chi2_tail(x: float) -> float:
    """P(X ≥ x) of chi² with one degree of freedom, x ≥ 0: that of a squared standard normal, erfc(√(x/2))."""
    return math.erfc(math.sqrt(x / 2))


def binomial_pmf(n: int, p: float) -> Floats:
    """P(k successes in n trials) for k = 0 … n, shape (n + 1,); `binomial_log_pmf` raised, so below 1e-308 it is 0."""
    pmf: Floats = np.exp(binomial_log_pmf(n, p))
    return pmf


def binomial_log_pmf(n: int, p: float) -> Floats:
    """log P(k successes in n trials) for k = 0 … n, by the saddle point expansion (Loader 2000).

    It is right to some 1e-13 of itself; −∞ where the probability is 0.

    Args:
        n: trials, ≥ 0.
        p: probability of success, in [0, 1].

    Returns:
        Shape (n + 1,), in nats.
    """
    log = np.full(n + 1, -math.inf)
    if n == 0 or p in (0, 1):
        log[n if p == 1 else 0] = 0
        return log
    log[0], log[n] = n * math.log1p(-p), n * math.log(p)
    k = np.arange(1, n, dtype=np.float64)
    error = _stirling_errors(n)
    corrected = error[n] - error[1:n] - error[n - 1 : 0 : -1]
    deviance = _deviance(k, n * p) + _deviance(n - k, n * (1 - p))
    log[1:n] = corrected - deviance - 0.5 * np.log(2 * math.pi * k * (n - k) / n)
    return log


def _stirling_errors(n: int) -> Floats:
    """log k! − log(√(2πk)·(k/e)ᵏ) for k = 0 … n (Loader 2000); that of 0 stands unused."""
    k = np.arange(n + 1, dtype=np.float64)
    k[0] = 1
    s = 1 / k**2
    errors: Floats = (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - s / 1188) * s) * s) * s) / k
    for i in range(1, min(_SMALL, n + 1)):
        errors[i] = math.lgamma(i + 1) - (i + 0.5) * math.log(i) + i - 0.5 * math.log(2 * math.pi)
    return errors


def _deviance(x: Floats, mean: float) -> Floats:
    """x·log(x/mean) + mean − x (Loader 2000), without its cancellation near x = mean."""
    t = (x - mean) / mean
    deviance: Floats = mean * ((1 + t) * np.log1p(t) - t)
    return deviance

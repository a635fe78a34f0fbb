"""What a comparison of n users could have found: power, and the smallest difference that is found often enough."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from personalink.errors import ConfigError
from personalink.stats import checks
from personalink.stats.discordant import TESTS, p_values
from personalink.stats.distributions import binomial_log_pmf, normal_quantile
from personalink.stats.records import Floats, McNemarTest

_UNLIKELY = 1e-13
_HALVINGS = 50


def mcnemar_power(
    n: int, *, discordant: float, difference: float, alpha: float = 0.05, test: McNemarTest = "exact"
) -> float:
    """The chance that McNemar's test rejects at `alpha`; in [0, 1].

    Summed over every outcome rather than approximated: binomial(n, discordant) discordant pairs, of which a share
    ½ + difference / (2·discordant) is a's (the unconditional power of Miettinen 1968, without its normal
    approximation). Numbers of discordant pairs less likely than 1e-13 are left out.

    Args:
        n: pairs, ≥ 1.
        discordant: the true share of pairs in which exactly one method is right, in (0, 1).
        difference: the true difference of the shares right; |difference| ≤ discordant.
        alpha: level of the test, in (0, 1).
        test: "exact", "mid_p" or "chi2cc".

    Raises:
        DataError: n is no count.
        ConfigError: a setting is out of range.
    """
    rejections = _Rejections.of(n, discordant, alpha, test)
    if not (isinstance(difference, int | float) and abs(difference) <= discordant):
        msg = f"difference is {difference!r}; it must be a number within ±{discordant}, the share that is discordant"
        raise ConfigError(msg)
    return rejections.power(abs(difference))


def minimum_detectable_mcnemar(
    n: int, *, discordant: float, power: float = 0.8, alpha: float = 0.05, test: McNemarTest = "exact"
) -> float | None:
    """The smallest true difference of the shares right that McNemar's test finds with `power` (see `mcnemar_power`).

    Args:
        n, discordant, alpha, test: see `mcnemar_power`.
        power: in (0, 1).

    Returns:
        In (0, discordant], found by halving to 1e-15; None where even a difference of `discordant` is found less often.

    Raises:
        DataError: n is no count.
        ConfigError: a setting is out of range.
    """
    checks.share(power, "power")
    rejections = _Rejections.of(n, discordant, alpha, test)
    low, high = 0.0, float(discordant)
    if rejections.power(high) < power:
        return None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if rejections.power(middle) >= power else (middle, high)
    return high


def minimum_detectable_mean(n: int, *, sd: float, power: float = 0.8, alpha: float = 0.05) -> float:
    """The smallest true mean of paired differences that a two-sided test finds with `power`: (z₁₋α⁄₂ + z_power)·sd/√n.

    The normal approximation, without the chance of rejecting on the wrong side (Chow, Shao & Wang 2008, §3.1.1); for a
    paired bootstrap or a sign flip of some dozens of pairs or more.

    Args:
        n: pairs, ≥ 2.
        sd: standard deviation of the paired differences, > 0; the result is in its unit.
        power: in (½, 1), so that the result is above that of chance.
        alpha: two-sided level, in (0, 1).

    Raises:
        DataError: n is no count of at least 2.
        ConfigError: a setting is out of range.
    """
    checks.count(n, "n", least=2)
    if checks.share(power, "power") < 0.5:
        msg = f"power is {power!r}; it must be at least 0.5"
        raise ConfigError(msg)
    z = normal_quantile(1 - checks.share(alpha, "alpha") / 2) + normal_quantile(power)
    return z * checks.positive(sd, "sd") / math.sqrt(n)


@dataclass(frozen=True, slots=True)
class _Rejections:
    """Every likely table that a test rejects, shape (tables,) each: its discordant counts, and its log probability
    where there is no difference."""

    a_only: Floats
    b_only: Floats
    log_chance: Floats
    discordant: float

    @classmethod
    def of(cls, n: int, discordant: float, alpha: float, test: McNemarTest) -> _Rejections:
        checks.choice(test, "test", TESTS)
        checks.share(alpha, "alpha")
        log_pmf = binomial_log_pmf(checks.count(n, "n", least=1), checks.share(discordant, "discordant"))
        tables = []
        for m in np.flatnonzero(log_pmf > math.log(_UNLIKELY)):
            a_only = np.flatnonzero(p_values(int(m), test) <= alpha)
            log_chance = log_pmf[m] + binomial_log_pmf(int(m), 0.5)[a_only]
            tables.append(np.stack([a_only, m - a_only, log_chance]))
        a_only, b_only, log_chance = np.concatenate(tables, axis=1)
        return cls(a_only, b_only, log_chance, discordant)

    def power(self, difference: float) -> float:
        """The tables' probability where a's share of the discordant pairs is ½·(1 + difference / discordant)."""
        lean = min(1.0, difference / self.discordant)
        log = self.log_chance + self.a_only * math.log1p(lean) + self.b_only * math.log(max(1 - lean, 1e-300))
        return min(1.0, float(np.exp(log).sum()))

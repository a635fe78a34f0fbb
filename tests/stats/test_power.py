"""Power by its definition, and the smallest difference that is found."""

from __future__ import annotations

import math

import pytest
from scipy.stats import binom, norm
from statsmodels.stats.power import normal_power

from personalink.errors import ConfigError, DataError
from personalink.stats import mcnemar_counts, mcnemar_power, minimum_detectable_mcnemar, minimum_detectable_mean
from personalink.stats.discordant import TESTS


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("difference", [0, 0.1, 0.25, 0.3])
def test_power_sums_over_every_table(test, difference):
    n, discordant = 30, 0.3
    p_a = 0.5 + difference / (2 * discordant)
    expected = math.fsum(
        binom.pmf(m, n, discordant) * binom.pmf(b, m, p_a)
        for m in range(n + 1)
        for b in range(m + 1)
        if getattr(mcnemar_counts(b, m - b), test) <= 0.05
    )
    found = mcnemar_power(n, discordant=discordant, difference=difference, test=test)
    assert found == pytest.approx(expected, abs=1e-11)
    assert mcnemar_power(n, discordant=discordant, difference=-difference, test=test) == found


@pytest.mark.parametrize("test", TESTS)
def test_the_detectable_difference_has_just_that_power(test):
    found = minimum_detectable_mcnemar(200, discordant=0.2, power=0.9, test=test)
    assert mcnemar_power(200, discordant=0.2, difference=found, test=test) == pytest.approx(0.9, abs=1e-9)


def test_the_detectable_difference_is_near_the_normal_approximation():
    """Connett, Smith & McHugh (1987): √n·d = z₁₋α⁄₂·√ψ + z_power·√(ψ − d²), solved for d."""
    n, psi = 800, 0.2
    za, zb = norm.ppf(0.975), norm.ppf(0.8)
    approximate = math.sqrt(psi) * (math.sqrt(n) * za + zb * math.sqrt(n - za**2 + zb**2)) / (n + zb**2)
    assert minimum_detectable_mcnemar(n, discordant=psi, test="mid_p") == pytest.approx(approximate, rel=0.01)
    assert minimum_detectable_mcnemar(n, discordant=psi) == pytest.approx(approximate, rel=0.05)


def test_too_few_pairs_detect_nothing():
    assert minimum_detectable_mcnemar(10, discordant=0.2) is None


@pytest.mark.parametrize(("n", "sd", "power", "alpha"), [(200, 1, 0.8, 0.05), (50, 0.3, 0.9, 0.01), (15, 4, 0.5, 0.1)])
def test_the_detectable_mean_has_statsmodels_power(n, sd, power, alpha):
    found = minimum_detectable_mean(n, sd=sd, power=power, alpha=alpha)
    assert normal_power(found / sd, n, alpha / 2, alternative="larger") == pytest.approx(power, abs=1e-12)


def test_wrong_input_is_named():
    with pytest.raises(ConfigError, match=r"difference is 0\.4; it must be a number within ±0\.3"):
        mcnemar_power(10, discordant=0.3, difference=0.4)
    with pytest.raises(ConfigError, match="discordant is 0; it must lie between 0 and 1"):
        minimum_detectable_mcnemar(10, discordant=0)
    with pytest.raises(ConfigError, match="power is 1; it must lie between 0 and 1"):
        minimum_detectable_mcnemar(10, discordant=0.3, power=1)
    with pytest.raises(ConfigError, match="test is 'chi2'; it must be one of exact, mid_p, chi2cc"):
        mcnemar_power(10, discordant=0.3, difference=0, test="chi2")
    with pytest.raises(DataError, match="n is -4"):
        mcnemar_power(-4, discordant=0.3, difference=0)
    with pytest.raises(DataError, match="n is 1; it must be a whole number of at least 2"):
        minimum_detectable_mean(1, sd=1)
    with pytest.raises(ConfigError, match=r"power is 0\.2; it must be at least 0\.5"):
        minimum_detectable_mean(10, sd=1, power=0.2)
    with pytest.raises(ConfigError, match="sd is -1; it must be a finite number above 0"):
        minimum_detectable_mean(10, sd=-1)

"""Shares beside scipy and statsmodels; Tango's interval beside its published example and the likelihood itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import binom, binomtest, chi2, norm
from statsmodels.stats.proportion import proportion_confint

from personalink.errors import ConfigError, DataError
from personalink.stats import binomial_test, tango, wilson
from personalink.stats.distributions import binomial_pmf, chi2_tail, normal_cdf, normal_quantile
from personalink.stats.proportions import tango_z

shares = st.tuples(st.integers(1, 500), st.floats(0, 1)).map(lambda t: (round(t[0] * t[1]), t[0]))


@settings(deadline=None)
@given(shares, st.sampled_from([0.5, 0.9, 0.95, 0.999]))
def test_wilson_is_statsmodels(kn, confidence):
    k, n = kn
    found = wilson(k, n, confidence=confidence)
    expected = proportion_confint(k, n, alpha=1 - confidence, method="wilson")
    assert (found.low, found.high) == pytest.approx(expected, abs=1e-12)
    theirs = binomtest(k, n).proportion_ci(confidence, method="wilson")
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), abs=1e-12)
    assert found.estimate == k / n


@settings(deadline=None)
@given(shares, st.sampled_from([0.25, 0.5, 1 / 15, 0.9]))
def test_the_binomial_test_is_scipys(kn, share):
    k, n = kn
    assert binomial_test(k, n, share) == pytest.approx(binomtest(k, n, share).pvalue, abs=1e-12)


def test_the_papers_tests_against_chance():
    assert f"{binomial_test(36, 180, 0.25):.2f}" == "0.14"
    assert f"{binomial_test(39, 180, 0.25):.2f}" == "0.34"


@pytest.mark.parametrize("n", [0, 1, 2, 15, 16, 17, 40, 999, 20_000])
@pytest.mark.parametrize("p", [0, 1e-9, 0.013, 0.25, 0.5, 0.9, 1])
def test_the_binomial_is_scipys(n, p):
    found = binomial_pmf(n, p)
    expected = binom.pmf(np.arange(n + 1), n, p)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)
    seen = expected > 1e-30
    np.testing.assert_allclose(found[seen], expected[seen], rtol=1e-10)
    assert found.sum() == pytest.approx(1, abs=1e-12)


def test_the_normal_and_chi2_are_scipys():
    for z in np.linspace(-30, 30, 121):
        assert normal_cdf(z) == pytest.approx(norm.cdf(z), rel=1e-12)
        assert chi2_tail(z * z) == pytest.approx(chi2.sf(z * z, 1), rel=1e-12)
    for p in (1e-300, 1e-9, 0.025, 0.3, 0.5, 0.975, 1 - 1e-9):
        assert normal_quantile(p) == pytest.approx(norm.ppf(p), abs=1e-12)


def test_tango_on_the_published_example():
    """Airway hyper-responsiveness, 21 children: b = 1, c = 7 (Fagerland, Lydersen & Laake 2014, table III)."""
    found = tango(1, 7, 21)
    assert (round(found.low, 3), round(found.high, 3)) == (-0.517, -0.026)
    assert found.estimate == -6 / 21


@settings(deadline=None)
@given(st.integers(0, 30), st.integers(0, 30), st.integers(1, 60), st.floats(-0.9, 0.9))
def test_tangos_nuisance_share_is_the_likeliest(b, c, rest, delta):
    n = b + c + rest

    def unlikely(q):
        cells = np.array([q + delta, q, 1 - 2 * q - delta])
        with np.errstate(divide="ignore"):
            return -sum(k * np.log(x) for k, x in zip((b, c, rest), cells, strict=True) if k)

    lowest, highest = max(0, -delta) + 1e-12, (1 - delta) / 2 - 1e-12
    best = minimize_scalar(unlikely, bounds=(lowest, highest), method="bounded", options={"xatol": 1e-12}).x
    variance = n * (2 * best + delta - delta**2)
    assert tango_z(b, c, n, delta) == pytest.approx((b - c - n * delta) / np.sqrt(variance), rel=2e-4, abs=2e-4)


@settings(deadline=None)
@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 60))
def test_tangos_ends_are_just_not_rejected(b, c, rest):
    n = max(1, b + c + rest)
    found = tango(b, c, n)
    assert -1 <= found.low <= found.estimate <= found.high <= 1
    z = norm.ppf(0.975)
    for end, sign in ((found.low, 1), (found.high, -1)):
        if abs(end) < 1 - 1e-9:
            assert sign * tango_z(b, c, n, end) == pytest.approx(z, abs=1e-6)
    other = tango(c, b, n)
    assert (found.low, found.high) == pytest.approx((-other.high, -other.low), abs=1e-12)


def test_without_a_difference_tangos_test_is_mcnemars():
    assert tango_z(9, 4, 50, 0) == pytest.approx(5 / np.sqrt(13), abs=1e-12)
    assert tango_z(0, 0, 50, 0) == 0
    assert tango(0, 0, 200).high == pytest.approx(-tango(0, 0, 200).low) == pytest.approx(0.01885, abs=1e-4)
    assert (tango(0, 5, 5).low, tango(5, 0, 5).high) == (-1, 1)


def test_wrong_input_is_named():
    with pytest.raises(DataError, match="k is 6 and n is 5; k counts some of the n"):
        wilson(6, 5)
    with pytest.raises(DataError, match="k is -1; it must be a whole number of at least 0"):
        binomial_test(-1, 5, 0.5)
    with pytest.raises(DataError, match="n is 0; it must be a whole number of at least 1"):
        wilson(0, 0)
    with pytest.raises(ConfigError, match="confidence is 95; it must lie between 0 and 1"):
        wilson(1, 2, confidence=95)
    with pytest.raises(ConfigError, match="share is 1; it must lie between 0 and 1"):
        binomial_test(1, 2, 1)
    with pytest.raises(DataError, match=r"a_only \+ b_only is 9 and n is 8"):
        tango(4, 5, 8)

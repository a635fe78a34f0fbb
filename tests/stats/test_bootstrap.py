"""The bootstrap's draws, its intervals beside scipy's, and the p of a paired comparison."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import bootstrap as scipy_bootstrap

from personalink.errors import ConfigError, DataError
from personalink.stats import bootstrap as core
from personalink.stats import bootstrap_mean, paired_bootstrap
from personalink.stats.bootstrap import Bootstrap, bca_tails, jackknife, mean_of, resample_blocks, two_sided_p

SEED = 12345


def looped(values, *, draws, seed=SEED, of=np.mean):
    """The same draws, one at a time."""
    rows = np.concatenate(list(resample_blocks(len(values), draws=draws, seed=seed)))
    return np.array([of(np.asarray(values)[row]) for row in rows])


def skewed(n=40):
    return np.random.default_rng(7).exponential(size=n)


def test_draws_depend_on_seed_and_n_alone(monkeypatch):
    whole = np.concatenate(list(resample_blocks(40, draws=100)))
    assert whole.shape == (100, 40)
    assert whole.min() == 0
    assert whole.max() == 39
    assert not np.array_equal(whole, np.concatenate(list(resample_blocks(40, draws=100, seed=0))))
    monkeypatch.setattr(core, "BLOCK", 280)
    blocks = list(resample_blocks(40, draws=100))
    assert len(blocks) == 15
    assert np.array_equal(whole, np.concatenate(blocks))


@pytest.mark.parametrize("method", ["percentile", "bca"])
@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.999])
def test_intervals_of_a_mean_are_scipys_on_the_same_draws(method, confidence):
    values = skewed()
    ours = bootstrap_mean(values, seed=SEED, draws=2000, confidence=confidence, method=method)
    given_draws = SimpleNamespace(bootstrap_distribution=looped(values, draws=2000))
    theirs = scipy_bootstrap(
        (values,), np.mean, n_resamples=0, bootstrap_result=given_draws, confidence_level=confidence, method=method
    ).confidence_interval
    np.testing.assert_allclose([ours.low, ours.high], theirs, rtol=0, atol=1e-12)
    assert (ours.estimate, ours.method, ours.note) == (pytest.approx(values.mean(), abs=1e-12), method, "")
    assert ours.confidence == confidence


def test_bca_leans_where_percentile_does_not():
    percentile, bca = (bootstrap_mean(skewed(), seed=SEED, method=m) for m in ("percentile", "bca"))
    assert bca.low > percentile.low
    assert bca.high > percentile.high


@pytest.mark.parametrize(("statistic", "of"), [("mean", np.mean), ("rms", lambda x: np.sqrt(np.mean(x**2)))])
def test_a_paired_comparison_equals_a_plain_loop(statistic, of):
    random = np.random.default_rng(5)
    a, b = random.integers(0, 5, (2, 33)).astype(float)
    found = paired_bootstrap(a, b, seed=SEED, statistic=statistic, draws=500)
    draws = looped(a, draws=500, of=of) - looped(b, draws=500, of=of)
    assert found.difference == found.interval.estimate == pytest.approx(of(a) - of(b), abs=1e-12)
    np.testing.assert_allclose(
        [found.interval.low, found.interval.high], np.percentile(draws, [2.5, 97.5]), rtol=0, atol=1e-12
    )
    fewer = min(np.sum(draws <= 1e-12), np.sum(draws >= -1e-12))
    assert found.p == pytest.approx(min(1, 2 * (1 + fewer) / 501), abs=1e-12)
    assert found.n == 33


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.sampled_from(["mean", "rms"]))
def test_a_method_compared_with_itself_has_p_one(values, statistic):
    found = paired_bootstrap(values, values, seed=SEED, statistic=statistic, draws=200, method="bca")
    assert found.p == 1
    assert (found.difference, found.interval.low, found.interval.high) == (0, 0, 0)
    assert found.interval.note == "all draws are equal, so the width says nothing"


def test_rounding_does_not_untie_what_is_equal():
    a, b = [0.1 + 0.2, 0.3, 1.1 + 2.2], [0.3, 0.1 + 0.2, 3.3]
    assert paired_bootstrap(a, b, seed=SEED, draws=300).p == 1


def test_a_swap_of_the_methods_mirrors_everything():
    random = np.random.default_rng(2)
    a, b = random.normal(0.2, 1, (2, 50))
    one, other = paired_bootstrap(a, b, seed=1), paired_bootstrap(b, a, seed=1)
    assert one.p == other.p
    assert (one.interval.low, one.interval.high) == pytest.approx(
        (-other.interval.high, -other.interval.low), abs=1e-12
    )


def test_p_and_percentile_interval_say_the_same():
    random = np.random.default_rng(4)
    for shift in np.linspace(0, 0.6, 25):
        found = paired_bootstrap(random.normal(shift, 1, 60), np.zeros(60), seed=SEED, draws=1999)
        excluded = found.interval.low > 0 or found.interval.high < 0
        assert excluded == (found.p <= 0.05) or abs(found.p - 0.05) < 0.002


def test_p_is_never_zero_and_one_pair_says_nothing():
    assert paired_bootstrap([1] * 9, [0] * 9, seed=SEED, draws=999).p == 2 / 1000
    assert paired_bootstrap([1], [0], seed=SEED).p == 1
    assert two_sided_p(np.array([-1.0, 0.0, 1.0]), 0.0) == 1


def test_bca_falls_back_and_says_why():
    why = "percentile, since BCa is undefined: "
    same = bootstrap_mean([3, 3, 3], seed=SEED, method="bca")
    assert (same.method, same.note) == ("percentile", "all draws are equal, so the width says nothing")
    assert (same.low, same.high) == (3, 3)
    bootstrap = Bootstrap(400, SEED, method="bca")
    one_sided = bootstrap.interval(mean_of(skewed()), 40, np.linspace(5, 6, 400))
    assert (one_sided.method, one_sided.note) == ("percentile", why + "all draws lie on one side of the estimate")
    assert bca_tails(np.arange(9.0), 4, np.ones(9), 0.025) == "leaving out one unit never changes the estimate"
    outlier = np.array([0.0] * 5 + [-1e9])
    share = bca_tails(np.array([0.0] * 99 + [5.0]), 2.0, outlier, 1e-9)
    assert share == "the acceleration is too large for this confidence"


def test_the_jackknife_leaves_each_unit_out_once(monkeypatch):
    values = skewed(11)
    monkeypatch.setattr(core, "BLOCK", 33)
    expected = [np.delete(values, i).mean() for i in range(11)]
    np.testing.assert_allclose(jackknife(mean_of(values), 11), expected, rtol=0, atol=1e-14)


def test_wrong_input_is_named():
    with pytest.raises(DataError, match=r"^values: value 1 is nan; every value must be a finite number$"):
        bootstrap_mean([1, float("nan")], seed=1)
    with pytest.raises(DataError, match="values is empty"):
        bootstrap_mean([], seed=1)
    with pytest.raises(DataError, match="a has 1 values and b has 2"):
        paired_bootstrap([1], [1, 2], seed=1)
    with pytest.raises(DataError, match="b: value 0 is inf"):
        paired_bootstrap([1], [np.inf], seed=1)
    for confidence in (0, 1, 95, -0.1, float("nan"), "high"):
        with pytest.raises(ConfigError, match=r"^confidence is .*; it must lie between 0 and 1$"):
            bootstrap_mean([1, 2], seed=1, confidence=confidence)
    for draws in (0, -5, 2.5, True):
        with pytest.raises(ConfigError, match=r"^draws is .*; it must be at least 1$"):
            paired_bootstrap([1, 2], [1, 2], seed=1, draws=draws)
    with pytest.raises(ConfigError, match="method is 'bcaa'; it must be one of percentile, bca"):
        bootstrap_mean([1, 2], seed=1, method="bcaa")
    with pytest.raises(ConfigError, match="statistic is 'median'; it must be one of mean, rms"):
        paired_bootstrap([1], [1], seed=1, statistic="median")

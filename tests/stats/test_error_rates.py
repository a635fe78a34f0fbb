"""What the tests and intervals promise, simulated: type-I error, coverage, family-wise error, power.

All streams are seeded. A rate over R simulations has the Monte Carlo standard error √(p(1 − p)/R); every bound below is
the promised rate ± 3.3 of them (one in a thousand falls outside by chance), plus, where a method only promises its rate
for large n, an allowance that is named. Each is narrow enough to fail for a p that is one-sided by mistake, and for an
interval of 90 % that is sold as one of 95 %.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from personalink import stats
from personalink.stats.discordant import TESTS
from personalink.stats.distributions import normal_cdf

ALPHA = 0.05


def slack(p: float, simulations: int) -> float:
    return 3.3 * math.sqrt(p * (1 - p) / simulations)


def check(rate: float, promised: float, simulations: int, *, above: float = 0.0, below: float = 0.0) -> None:
    """`rate` is `promised`, but for Monte Carlo error and an allowance on either side."""
    low, high = promised - below - slack(promised, simulations), promised + above + slack(promised, simulations)
    assert low <= rate <= high, f"{rate:.4f} is outside [{low:.4f}, {high:.4f}]"


def simulate(simulations: int, rejects) -> float:
    """The share of simulations, each with a generator and a seed of its own, in which `rejects` says yes."""
    random = np.random.default_rng(20260101)
    return float(np.mean([rejects(random, seed) for seed in range(simulations)]))


def right_or_wrong(random: np.random.Generator, n: int, *, a_only: float, b_only: float, both: float = 0.5):
    """Paired booleans with the given shares of the four outcomes."""
    cell = random.choice(4, size=n, p=[both, a_only, b_only, 1 - both - a_only - b_only])
    return cell <= 1, (cell == 0) | (cell == 2)


counted = cache(stats.mcnemar_counts)


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("difference", [0.0, 0.1])
def test_mcnemar_rejects_as_often_as_its_computed_power(test, difference):
    simulations, n, discordant = 20_000, 200, 0.2
    random = np.random.default_rng(1)
    m = random.binomial(n, discordant, simulations)
    b = random.binomial(m, 0.5 + difference / (2 * discordant))
    ps = np.array([getattr(counted(int(x), int(y - x)), test) for x, y in zip(b, m, strict=True)])
    rate = float(np.mean(ps <= ALPHA))
    check(rate, stats.mcnemar_power(n, discordant=discordant, difference=difference, test=test), simulations)
    if difference == 0:  # the discreteness of the exact test costs it up to a third of its level here
        check(rate, ALPHA, simulations, below=0.003 if test == "mid_p" else 0.02)


def test_mcnemar_finds_the_detectable_difference_with_its_power():
    simulations, n = 20_000, 200
    found = stats.minimum_detectable_mcnemar(n, discordant=0.2, power=0.8)
    random = np.random.default_rng(2)
    m = random.binomial(n, 0.2, simulations)
    b = random.binomial(m, 0.5 + found / 0.4)
    rate = np.mean([counted(int(x), int(y - x)).exact <= ALPHA for x, y in zip(b, m, strict=True)])
    check(float(rate), 0.8, simulations)


@pytest.mark.parametrize("statistic", ["mean", "rms"])
def test_paired_bootstrap_type_i(statistic):
    def rejects(random, seed):
        a, b = random.choice(5, size=(2, 80), p=[0.6, 0.25, 0.08, 0.04, 0.03])  # |error| of two equal methods
        return stats.paired_bootstrap(a, b, seed=seed, statistic=statistic, draws=199).p <= ALPHA

    check(simulate(1500, rejects), ALPHA, 1500, above=0.01, below=0.01)  # percentile: right for large n


@pytest.mark.parametrize(
    ("draw", "method", "below"),
    [
        (lambda random: random.integers(-3, 4, 60), "exact", 0.01),  # discrete: at most its level
        (lambda random: random.normal(size=9), "exact", 0.01),  # 1/2⁸ steps: .0469 is the nearest below .05
        (lambda random: random.standard_t(3, 40) * np.arange(1, 41), "monte carlo", 0.0),
    ],
)
def test_sign_flip_type_i(draw, method, below):
    def rejects(random, seed):
        found = stats.sign_flip(draw(random), seed=seed, draws=199)
        assert found.method == method
        return found.p <= ALPHA

    check(simulate(3000, rejects), ALPHA, 3000, below=below)


def test_sign_flip_finds_the_detectable_mean_with_its_power():
    shift = stats.minimum_detectable_mean(60, sd=2.0, power=0.8)

    def rejects(random, seed):
        return stats.sign_flip(random.normal(shift, 2.0, 60), seed=seed, draws=399).p <= ALPHA

    check(simulate(1500, rejects), 0.8, 1500, below=0.02)  # the approximation takes sd as known


def clustered(random, users=50):
    """Tasks whose differences hang on their user: 1 to 6 tasks each, no true difference."""
    return {
        f"u{i:02d}": effect + random.normal(0, 0.5, size)
        for i, (effect, size) in enumerate(zip(random.normal(size=users), random.integers(1, 7, users), strict=True))
    }


@pytest.mark.parametrize("weigh", ["task", "user"])
def test_cluster_bootstrap_type_i(weigh):
    def rejects(random, seed):
        return stats.cluster_bootstrap(clustered(random), seed=seed, weigh=weigh, draws=199).p <= ALPHA

    check(simulate(1500, rejects), ALPHA, 1500, above=0.02)  # 50 users: percentile is a little narrow


def test_tasks_resampled_one_by_one_would_reject_far_too_often():
    def rejects(random, seed):
        flat = np.concatenate(list(clustered(random).values()))
        return stats.paired_bootstrap(flat, np.zeros(len(flat)), seed=seed, draws=199).p <= ALPHA

    assert simulate(300, rejects) > 0.2


LABELS = list("abcde")


def news(random, n=150):
    """Gold labels, uneven, and two equally good methods."""
    gold = random.choice(LABELS, size=n, p=[0.4, 0.25, 0.15, 0.12, 0.08])
    guesses = [np.where(random.random(n) < 0.7, gold, random.choice([*LABELS, "?"], size=n)) for _ in range(2)]
    return gold.tolist(), guesses[0].tolist(), guesses[1].tolist()


def test_macro_f1_difference_type_i():
    def rejects(random, seed):
        return stats.macro_f1_difference(*news(random), labels=LABELS, seed=seed, draws=199).p <= ALPHA

    check(simulate(1000, rejects), ALPHA, 1000, above=0.01, below=0.015)  # a ratio: right for large n


def test_binomial_test_type_i():
    @cache
    def p(k):
        return stats.binomial_test(k, 180, 0.25)

    right = np.random.default_rng(3).binomial(180, 0.25, 20_000)
    check(float(np.mean([p(int(k)) <= ALPHA for k in right])), ALPHA, 20_000, below=0.012)  # exact: at most its level


@pytest.mark.parametrize(("n", "share"), [(200, 0.745), (30, 0.9), (60, 0.5)])
def test_wilson_coverage(n, share):
    @cache
    def interval(k):
        return stats.wilson(k, n)

    drawn = [interval(int(k)) for k in np.random.default_rng(4).binomial(n, share, 20_000)]
    covered = np.mean([i.low <= share <= i.high for i in drawn])
    check(float(covered), 0.95, 20_000, above=0.03, below=0.02)  # it swings about 95 % with n and the share


@pytest.mark.parametrize(("a_only", "b_only"), [(0.1, 0.1), (0.15, 0.05), (0.02, 0.02)])
def test_tango_coverage(a_only, b_only):
    @cache
    def interval(b, c):
        return stats.tango(b, c, 100)

    cells = np.random.default_rng(5).multinomial(100, [a_only, b_only, 1 - a_only - b_only], 10_000)
    covered = [(i := interval(int(b), int(c))).low <= a_only - b_only <= i.high for b, c, _ in cells]
    check(float(np.mean(covered)), 0.95, 10_000, above=0.03, below=0.01)  # conservative where little is discordant


@pytest.mark.parametrize("method", ["percentile", "bca"])
@pytest.mark.parametrize("values", ["uniform", "exponential"])
def test_coverage_of_the_bootstrap_of_a_mean(method, values):
    def covers(random, seed):
        drawn = random.exponential(size=80) if values == "exponential" else random.random(80)
        interval = stats.bootstrap_mean(drawn, seed=seed, draws=399, method=method)
        return interval.low <= (1.0 if values == "exponential" else 0.5) <= interval.high

    check(simulate(1500, covers), 0.95, 1500, below=0.02)  # 80 values: narrow by one or two points


def test_coverage_of_cluster_and_macro_f1_intervals():
    def clusters(random, seed):
        interval = stats.cluster_bootstrap(clustered(random), seed=seed, draws=399).interval
        return interval.low <= 0 <= interval.high

    def macro(random, seed):
        gold, a, b = news(random)
        interval = stats.macro_f1_difference(gold, a, b, labels=LABELS, seed=seed, draws=399).interval
        return interval.low <= 0 <= interval.high

    check(simulate(800, clusters), 0.95, 800, below=0.02)
    check(simulate(800, macro), 0.95, 800, above=0.01, below=0.015)


@pytest.mark.parametrize("claim", ["equivalent", "not inferior"])
def test_a_claim_within_a_margin_is_made_wrongly_no_more_often_than_alpha(claim):
    """The true difference is the margin itself: a is worse by just what would matter."""

    def binary(random, seed):
        a, b = right_or_wrong(random, 150, a_only=0.05, b_only=0.15)
        return claimed(a, b, 0.1, "higher", seed)

    def numeric(random, seed):
        return claimed(random.normal(0.3, 1, 80), np.zeros(80), 0.3, "lower", seed)

    def claimed(a, b, margin, better, seed):
        if claim == "equivalent":
            return stats.equivalence(a, b, margin=margin, seed=seed, draws=199).holds
        return stats.non_inferiority(a, b, margin=margin, better=better, seed=seed, draws=199).holds

    check(simulate(1500, binary), ALPHA, 1500, above=0.005, below=0.01)
    check(simulate(1500, numeric), ALPHA, 1500, above=0.01, below=0.005)


@pytest.mark.parametrize("adjust", [stats.holm, stats.bonferroni])
@pytest.mark.parametrize("correlation", [0.0, 0.8])
@pytest.mark.parametrize("true_effects", [0, 3])
def test_family_wise_error(adjust, correlation, true_effects):
    """Of eight tests, `true_effects` find something real; an error is any rejection among the others."""
    simulations, tests = 4000, 8
    random = np.random.default_rng(6)
    shared = random.normal(size=(simulations, 1))
    z = math.sqrt(correlation) * shared + math.sqrt(1 - correlation) * random.normal(size=(simulations, tests))
    z[:, :true_effects] += 6
    ps = 2 * np.vectorize(normal_cdf)(-np.abs(z))
    errors = [any(p <= ALPHA for p in adjust(row)[true_effects:]) for row in ps]
    rate = float(np.mean(errors))
    assert rate <= ALPHA + slack(ALPHA, simulations)
    if correlation == 0:
        nulls = tests - true_effects
        level = ALPHA / (nulls if adjust is stats.holm else tests)  # Holm has spent its first steps on what is real
        check(rate, 1 - (1 - level) ** nulls, simulations)
    assert np.mean((ps[:, true_effects:] <= ALPHA).any(axis=1)) > 2 * ALPHA  # unadjusted, it is not kept

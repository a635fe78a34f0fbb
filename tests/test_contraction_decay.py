"""The decay's arithmetic: the fit through means, and what a bootstrap over users says of it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from personalink.contraction import Fit, decay, fit

# the fit


def test_the_papers_triple() -> None:
    found = fit((0.90, 0.21, 0.02))
    assert isinstance(found, Fit)
    assert round(found.L, 4) == 0.1491
    assert found.r2 is not None
    assert round(found.r2, 4) == 0.9819
    unrounded = fit((0.90, 0.21, 0.01866))
    assert isinstance(unrounded, Fit)
    assert round(unrounded.L, 3) == 0.144
    printed = fit((0.90, 0.2125, 0.01866))  # one triple among many that give both printed figures
    assert isinstance(printed, Fit)
    assert round(printed.L, 3) == 0.144
    assert printed.r2 is not None
    assert round(printed.r2, 3) == 0.979


@given(st.lists(st.floats(1e-6, 2), min_size=2, max_size=8))
def test_the_fit_is_least_squares(means: list[float]) -> None:
    found = fit(means)
    assert isinstance(found, Fit)
    slope, intercept = np.polyfit(np.arange(len(means)), np.log(means), 1)
    assert pytest.approx(math.exp(slope), rel=1e-8) == found.L
    assert found.scale == pytest.approx(math.exp(intercept), rel=1e-8)
    if found.r2 is not None:
        assert 0 <= found.r2 <= 1
        assert found.r2 == pytest.approx(np.corrcoef(np.arange(len(means)), np.log(means))[0, 1] ** 2, abs=1e-6)


@given(st.floats(1e-3, 2), st.floats(0.01, 1.5), st.integers(3, 7))
def test_a_geometric_decay_is_found_exactly(first: float, factor: float, passes: int) -> None:
    found = fit([first * factor**t for t in range(passes)])
    assert isinstance(found, Fit)
    assert pytest.approx(factor, rel=1e-9) == found.L
    assert found.scale == pytest.approx(first, rel=1e-9)
    assert found.r2 is None or found.r2 == pytest.approx(1)


@given(st.lists(st.floats(1e-4, 1), min_size=3, max_size=5), st.floats(0.1, 10))
def test_the_unit_of_displacement_does_not_matter(means: list[float], unit: float) -> None:
    a, b = fit(means), fit([unit * mean for mean in means])
    assert isinstance(a, Fit)
    assert isinstance(b, Fit)
    assert pytest.approx(a.L, rel=1e-9) == b.L


def test_what_has_no_fit_says_why() -> None:
    assert fit((0.9, 0.2, 0.0)) == "mean displacement 0 in pass 3, which has no logarithm"
    assert "in pass 1 and 3" in str(fit((0.0, 0.2, 0.0)))
    assert "needs two passes" in str(fit((0.9,)))


def test_two_passes_and_equal_means_have_no_r2() -> None:
    two, equal = fit((0.9, 0.3)), fit((0.5, 0.5, 0.5))
    assert isinstance(two, Fit)
    assert isinstance(equal, Fit)
    assert (two.r2, equal.r2) == (None, None)
    assert pytest.approx(1 / 3) == two.L
    assert equal.L == 1


# intervals over users


def geometric(n: int, seed: int, L: float = 0.3, passes: int = 3) -> Any:
    """Users who all decay by L on average, each with noise."""
    noise = np.random.default_rng(seed).lognormal(-0.08, 0.4, (n, passes))
    return 0.9 * L ** np.arange(passes) * noise


def test_intervals_hold_what_was_measured_and_hang_on_the_seed_alone() -> None:
    moved = geometric(40, 1)
    found = decay(moved, seed=1, draws=2000)
    assert found.fit is not None
    assert found.interval is not None
    assert found.interval.estimate == found.fit.L
    assert found.interval.low < found.fit.L < found.interval.high
    assert [r is not None and r.low < r.estimate < r.high for r in found.ratios] == [True, True]
    assert found.ratios[0] is not None
    assert found.ratios[0].estimate == pytest.approx(found.means[1] / found.means[0])
    assert decay(moved, seed=1, draws=2000) == found
    assert decay(moved, seed=2, draws=2000) != found


def test_coverage_of_the_interval_of_L() -> None:
    held = 0
    for trial in range(200):
        interval = decay(geometric(40, trial), seed=trial, draws=400).interval
        assert interval is not None
        held += interval.low <= 0.3 <= interval.high
    assert 0.89 <= held / 200 <= 0.99


def test_a_draw_that_the_last_pass_does_not_move_has_L_0() -> None:
    moved = np.full((10, 3), 0.5)
    moved[1:, 2] = 0  # one user of ten moves in the last pass: .9^10 of all draws leave that one out
    found = decay(moved, seed=0, draws=1000)
    assert found.interval is not None
    assert found.interval.low == 0
    assert found.interval.high < 1
    assert "draws a pass moved nobody" in found.interval.note
    assert found.ratios[1] is not None
    assert found.ratios[1].low == 0


def test_a_draw_that_the_first_pass_does_not_move_leaves_L_unbounded() -> None:
    moved = np.full((4, 3), 0.1)
    moved[1:, 0] = 0
    found = decay(moved, seed=0, draws=1000)
    assert found.interval is not None
    assert found.interval.high == math.inf
    assert found.ratios[0] is not None
    assert found.ratios[0].high == math.inf


def test_zeros_give_what_they_can() -> None:
    moved = np.array([[0.9, 0.2, 0.0], [0.7, 0.1, 0.0]])
    found = decay(moved, seed=0, draws=100)
    assert (found.fit, found.interval) == (None, None)
    assert "pass 3" in found.no_fit
    assert found.ratios[1] is not None
    assert (found.ratios[1].estimate, found.ratios[1].low, found.ratios[1].high) == (0, 0, 0)
    alone = decay(np.array([[0.9, 0.2, 0.1], [0, 0, 0]]), seed=0, draws=100)  # one mover: every draw says the same
    assert alone.interval is not None
    assert alone.interval.low == alone.interval.high == alone.interval.estimate
    assert "all draws are equal" in alone.interval.note
    assert "where no pass moved anybody, are left out" in alone.interval.note
    assert "limit" not in alone.interval.note
    still = decay(np.zeros((2, 3)), seed=0, draws=100)
    assert (still.fit, still.ratios) == (None, (None, None))
    assert decay(np.array([[0.9]]), seed=0, draws=100).ratios == ()


@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 2**32))
@settings(max_examples=60)
def test_no_displacements_break_it(n: int, passes: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    moved = random.random((n, passes)) * random.integers(0, 2, (n, passes))
    found = decay(moved, seed=0, draws=50)
    for interval in (found.interval, *found.ratios):
        if interval is not None:
            assert 0 <= interval.low <= interval.high
            assert math.isfinite(interval.estimate)
    assert (found.fit is None) == bool(found.no_fit)

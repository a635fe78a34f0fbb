"""A tie is a claim with a margin: equivalence and non-inferiority, for right-or-wrong and for numbers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from personalink.errors import ConfigError, DataError
from personalink.stats import equivalence, non_inferiority
from personalink.stats.bootstrap import resample_blocks
from personalink.stats.proportions import tango_z

RIGHT = np.array([True] * 150 + [False] * 50)
OTHER = np.array([True] * 144 + [False] * 6 + [True] * 6 + [False] * 44)
"""Six against six of 200."""


def test_a_tie_of_two_hundred_is_equivalence_only_within_a_margin_that_n_can_show():
    wide, narrow = (equivalence(RIGHT, OTHER, margin=m, seed=1) for m in (0.05, 0.02))
    assert (wide.claim, wide.method, wide.holds, wide.difference) == ("equivalent", "tango", True, 0)
    assert not narrow.holds
    assert wide.p < 0.05 < narrow.p
    assert (wide.low, wide.high) == (narrow.low, narrow.high)
    assert wide.p == pytest.approx(norm.cdf(tango_z(6, 6, 200, 0.05)), abs=1e-12)


@pytest.mark.parametrize("margin", np.linspace(0.005, 0.12, 24))
def test_the_claim_holds_just_where_the_interval_lies_within_the_margin(margin):
    worse = RIGHT.copy()
    worse[:8] = False
    for a, b in ((RIGHT, OTHER), (worse, RIGHT), (RIGHT, worse)):
        for found in (
            equivalence(a, b, margin=margin, seed=1),
            equivalence(a.astype(float), b.astype(float), margin=margin, seed=1, draws=1999),
        ):
            assert found.holds == (-margin < found.low and found.high < margin) or abs(found.p - 0.05) < 0.01
            assert found.holds == (found.p <= 0.05)


def test_non_inferiority_looks_at_the_side_that_is_worse():
    errors_a, errors_b = np.full(60, 0.0), np.tile([0.0, 1.0], 30)  # a errs less
    assert non_inferiority(errors_a, errors_b, margin=0.1, better="lower", seed=1).holds
    assert not non_inferiority(errors_a, errors_b, margin=0.1, better="higher", seed=1).holds
    found = non_inferiority(RIGHT, OTHER, margin=0.05, better="higher", seed=1)
    assert found.claim == "not inferior"
    assert found.p == pytest.approx(norm.sf(tango_z(6, 6, 200, -0.05)), abs=1e-12)


def test_the_bootstraps_p_is_the_share_beyond_the_bound():
    a = np.random.default_rng(2).normal(size=40)
    draws = np.array([a[row].mean() for block in resample_blocks(40, draws=999, seed=5) for row in block])
    found = equivalence(a, np.zeros(40), margin=0.4, seed=5, draws=999)
    assert found.p == (1 + max(np.sum(draws <= -0.4), np.sum(draws >= 0.4))) / 1000
    assert (found.low, found.high) == pytest.approx(tuple(np.percentile(draws, [5, 95])), abs=1e-12)
    assert found.method == "bootstrap"


def test_a_few_equal_answers_show_no_equivalence():
    few, many = np.ones(10, dtype=bool), np.ones(2000, dtype=bool)
    assert not equivalence(few, few, margin=0.05, seed=1).holds
    assert equivalence(many, many, margin=0.05, seed=1).holds
    assert equivalence([1.0], [1.0], margin=0.05, seed=1).p == 1


def test_wrong_input_is_named():
    with pytest.raises(ConfigError, match="margin is 0; it must be a finite number above 0"):
        equivalence(RIGHT, OTHER, margin=0, seed=1)
    with pytest.raises(ConfigError, match="margin is 5; it must lie between 0 and 1"):
        equivalence(RIGHT, OTHER, margin=5, seed=1)
    with pytest.raises(ConfigError, match=r"alpha is 0\.5; it must lie between 0 and 0\.5"):
        equivalence(RIGHT, OTHER, margin=0.1, alpha=0.5, seed=1)
    with pytest.raises(ConfigError, match="better is 'up'; it must be one of higher, lower"):
        non_inferiority(RIGHT, OTHER, margin=0.1, better="up", seed=1)
    with pytest.raises(DataError, match="a has 200 values and b has 1"):
        equivalence(RIGHT, [True], margin=0.1, seed=1)
    with pytest.raises(DataError, match="a: value 0 is nan"):
        equivalence([np.nan], [1], margin=0.1, seed=1)
    with pytest.raises(DataError, match="a: expected numbers in one row"):
        equivalence([[1], [1, 2]], [1], margin=0.1, seed=1)

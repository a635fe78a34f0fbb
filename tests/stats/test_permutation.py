"""The sign-flip test: scipy's permutation test and McNemar's as oracles, and its three ways beside each other."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import permutation_test

from personalink.errors import ConfigError, DataError
from personalink.stats import mcnemar_counts, sign_flip
from personalink.stats import permutation as core


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-4, 4), min_size=1, max_size=11))
def test_whole_numbers_are_every_pattern(differences):
    observed = abs(sum(differences))
    patterns = itertools.product((1, -1), repeat=len(differences))
    hits = sum(abs(sum(s * d for s, d in zip(p, differences, strict=True))) >= observed for p in patterns)
    found = sign_flip(differences, seed=1)
    assert found.p == pytest.approx(hits / 2 ** len(differences), abs=1e-12)
    assert found.method == "exact"


@pytest.mark.parametrize("n", [2, 7, 12])
def test_real_numbers_are_scipys_permutation_test(n):
    values = np.random.default_rng(n).normal(0.4, 1, n)
    theirs = permutation_test(
        (values, np.zeros(n)), lambda x, y: np.mean(x - y), permutation_type="samples", n_resamples=np.inf
    )
    found = sign_flip(values, seed=1)
    assert found.p == pytest.approx(theirs.pvalue, abs=1e-12)
    assert (found.method, found.note) == ("exact", f"all 2^{n} sign patterns")


@settings(deadline=None)
@given(st.integers(0, 150), st.integers(0, 150))
def test_on_right_or_wrong_it_is_the_exact_mcnemar_test_at_any_size(b, c):
    found = sign_flip([1] * b + [-1] * c + [0] * 5, seed=1)
    assert found.p == pytest.approx(mcnemar_counts(b, c).exact, abs=1e-12)
    assert found.method == "exact"


def test_thirds_are_whole_numbers_of_a_third():
    grades = np.array([0, 1 / 3, 2 / 3, 1])
    random = np.random.default_rng(6)
    differences = grades[random.integers(0, 4, 90)] - grades[random.integers(0, 4, 90)]
    found = sign_flip(differences, seed=1)
    assert (found.method, found.note) == ("exact", "by convolution")
    assert found.p == pytest.approx(sign_flip(np.rint(3 * differences), seed=1).p, abs=1e-12)


def test_monte_carlo_is_near_the_exact_p_and_never_zero(monkeypatch):
    values = np.random.default_rng(8).normal(0.3, 1, 18)
    exact = sign_flip(values, seed=1)
    monkeypatch.setattr(core, "ENUMERATED", 0)
    drawn = sign_flip(values, seed=1, draws=40_000)
    assert (exact.method, drawn.method) == ("exact", "monte carlo")
    assert drawn.note == "40000 draws, (1 + hits) / (1 + draws)"
    assert abs(drawn.p - exact.p) < 4 * np.sqrt(exact.p * (1 - exact.p) / 40_000)
    assert drawn.p != exact.p
    assert sign_flip(np.random.default_rng(1).normal(9, 1, 50), seed=1, draws=99).p == 0.01


def test_the_same_seed_gives_the_same_p_and_another_another():
    values = np.random.default_rng(8).normal(0.2, 1, 60)
    assert sign_flip(values, seed=0) == sign_flip(values, seed=0)
    assert sign_flip(values, seed=0).p != sign_flip(values, seed=1).p


def test_many_large_whole_numbers_are_drawn_rather_than_convolved():
    assert sign_flip(np.arange(1, 2001) * 1000, seed=1, draws=50).method == "monte carlo"


@pytest.mark.parametrize("values", [[0], [0, 0.0], [0.0] * 500])
def test_a_method_compared_with_itself_has_p_one(values):
    assert sign_flip(values, seed=1).p == 1


def test_the_unit_changes_nothing():
    differences = np.random.default_rng(3).integers(-3, 5, 40)
    for unit in (1e-9, 0.5, 1e9):
        found = sign_flip(differences * unit, seed=1)
        assert (found.method, found.p) == ("exact", pytest.approx(sign_flip(differences, seed=1).p, abs=1e-12))


def test_signs_and_zeros_change_nothing():
    values = [0.4, -1.3, 2.2, 0.9]
    p = sign_flip(values, seed=1).p
    assert sign_flip([-v for v in values], seed=1).p == p
    assert sign_flip([*values, 0, 0], seed=1).p == p


def test_wrong_input_is_named():
    with pytest.raises(DataError, match="differences: value 1 is nan"):
        sign_flip([1, np.nan], seed=1)
    with pytest.raises(DataError, match="differences is empty"):
        sign_flip([], seed=1)
    with pytest.raises(ConfigError, match="draws is 0; it must be at least 1"):
        sign_flip([1], seed=1, draws=0)

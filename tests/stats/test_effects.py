"""Effect sizes by their definitions, and statsmodels where it has them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu, ttest_rel
from statsmodels.stats.proportion import proportion_effectsize

from personalink.errors import DataError
from personalink.stats import binary_effect, numeric_effect

binary = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60)
numeric = st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), min_size=2, max_size=60)


@settings(deadline=None)
@given(binary)
def test_binary_effects(pairs):
    a, b = (np.array(x) for x in zip(*pairs, strict=True))
    found = binary_effect(a, b)
    assert found.h == pytest.approx(proportion_effectsize(a.mean(), b.mean()), abs=1e-12)
    assert found.difference == pytest.approx(a.mean() - b.mean(), abs=1e-12)
    a_only, b_only = int(np.sum(a & ~b)), int(np.sum(~a & b))
    assert found.odds_ratio == (a_only / b_only if b_only else None)
    assert found.g == (a_only / (a_only + b_only) - 0.5 if a_only + b_only else 0)


@settings(deadline=None)
@given(numeric)
def test_numeric_effects(pairs):
    a, b = (np.array(x, dtype=float) for x in zip(*pairs, strict=True))
    found = numeric_effect(a, b)
    n = len(pairs)
    assert found.difference == pytest.approx(np.mean(a - b), abs=1e-12)
    assert found.cliff == pytest.approx(2 * mannwhitneyu(a, b, method="asymptotic").statistic / n**2 - 1, abs=1e-12)
    assert found.within == pytest.approx(np.mean(a > b) - np.mean(a < b), abs=1e-12)
    if np.std(a - b) > 0:
        assert found.d_z == pytest.approx(ttest_rel(a, b).statistic / math.sqrt(n), abs=1e-12)
    else:
        assert found.d_z is None
    pooled = (np.var(a, ddof=1) + np.var(b, ddof=1)) / 2
    assert found.d_av == (None if pooled == 0 else pytest.approx(np.mean(a - b) / math.sqrt(pooled), abs=1e-12))


def test_what_has_no_spread_has_no_standardised_difference():
    assert numeric_effect([1], [0]).d_z is None
    found = numeric_effect([0.4, 0.7, 1.0], [0.3, 0.6, 0.9])  # 0.1 each, but for rounding
    assert found.d_z is None
    assert found.d_av is not None


def test_a_method_compared_with_itself_has_no_effect():
    none = binary_effect([1, 0, 1], [1, 0, 1])
    assert (none.difference, none.g, none.odds_ratio, none.h) == (0, 0, None, 0)
    same = numeric_effect([1, 2, 3], [1, 2, 3])
    assert (same.difference, same.d_z, same.d_av, same.cliff, same.within) == (0, None, 0, 0, 0)


def test_wrong_input_is_named():
    with pytest.raises(DataError, match="a has 1 values and b has 2"):
        binary_effect([1], [1, 0])
    with pytest.raises(DataError, match="b: value 0 is nan"):
        numeric_effect([1], [math.nan])

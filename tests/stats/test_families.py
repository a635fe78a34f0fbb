"""Holm and Bonferroni are statsmodels', and a family is whole or refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from personalink.errors import ConfigError, DataError
from personalink.stats import Family, bonferroni, holm

lists = st.lists(st.floats(0, 1), min_size=1, max_size=20)


@settings(max_examples=12, deadline=None)
@given(lists)
def test_both_are_statsmodels(ps):
    assert holm(ps) == pytest.approx(multipletests(ps, method="holm")[1], abs=1e-12)
    assert bonferroni(ps) == pytest.approx(multipletests(ps, method="bonferroni")[1], abs=1e-12)


@settings(deadline=None)
@given(lists)
def test_holm_is_never_weaker_than_bonferroni(ps):
    assert all(p <= h <= b for p, h, b in zip(ps, holm(ps), bonferroni(ps), strict=True))


def test_a_family_adjusts_its_own_tests_by_name():
    family = Family("depth", ["r1", "r2", "r3"])
    assert family.tests == ("r1", "r2", "r3")
    adjusted = family.adjust({"other": 0.001, "r3": 0.01, "r2": 0.04, "r1": 0.03})
    assert list(adjusted) == ["r1", "r2", "r3"]
    assert adjusted == pytest.approx({"r1": 0.06, "r2": 0.06, "r3": 0.03})
    plain = Family("depth", ("r1", "r2", "r3"), "bonferroni").adjust({"r3": 0.01, "r2": 0.04, "r1": 0.03})
    assert plain == pytest.approx({"r1": 0.09, "r2": 0.12, "r3": 0.03})


def test_the_papers_eight_intervals_share_their_tails():
    assert (1 - Family("plan", tuple("abcdefgh")).confidence()) / 2 == pytest.approx(0.003125, abs=1e-12)


def test_wrong_input_is_named():
    with pytest.raises(ConfigError, match="family 'x' has no tests; name at least one"):
        Family("x", ())
    with pytest.raises(ConfigError, match="family 'x' names 'a' twice"):
        Family("x", ("a", "b", "a"))
    with pytest.raises(ConfigError, match="method of family 'x' is 'fdr'; it must be one of holm, bonferroni"):
        Family("x", ("a",), "fdr")
    with pytest.raises(DataError, match="family 'x': no p for b, c; every test of a family must be there"):
        Family("x", ("a", "b", "c")).adjust({"a": 0.5})
    with pytest.raises(DataError, match=r"p-values: value 1 is 1\.5; a p-value lies in \[0, 1\]"):
        holm([0.1, 1.5])
    with pytest.raises(DataError, match="p-values is empty"):
        bonferroni([])
    with pytest.raises(DataError, match="p-values: value 0 is nan"):
        holm([float("nan")])
    with pytest.raises(ConfigError, match="level is 1; it must lie between 0 and 1"):
        Family("x", ("a",)).confidence(1)

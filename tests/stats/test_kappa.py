"""Quadratic-weighted kappa is scikit-learn's with the scale given, and keeps the places of labels that are absent."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from personalink.errors import ConfigError, DataError
from personalink.stats import quadratic_kappa

SCALE = ("1", "2", "3", "4", "5")


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(SCALE), st.sampled_from(SCALE)), min_size=1, max_size=60))
def test_it_is_sklearns_with_the_scale_given(pairs):
    a, b = zip(*pairs, strict=True)
    found = quadratic_kappa(a, b, labels=SCALE)
    if len({*a, *b}) == 1:
        assert found is None
    else:
        assert found == pytest.approx(cohen_kappa_score(a, b, weights="quadratic", labels=SCALE), abs=1e-12)


def test_absent_labels_hold_their_place():
    a, b = ["1", "1", "5", "4"], ["1", "4", "5", "5"]
    fixed = quadratic_kappa(a, b, labels=SCALE)
    assert fixed != pytest.approx(cohen_kappa_score(a, b, weights="quadratic"))
    assert fixed == pytest.approx(cohen_kappa_score(a, b, weights="quadratic", labels=SCALE))


def test_a_rater_agrees_with_itself():
    assert quadratic_kappa(["1", "3"], ["1", "3"], labels=SCALE) == 1


def test_wrong_input_is_named():
    with pytest.raises(DataError, match="b: rating 1 is '6'; it must be one of 1, 2, 3, 4, 5"):
        quadratic_kappa(["1", "2"], ["1", "6"], labels=SCALE)
    with pytest.raises(DataError, match="a has 1 ratings and b has 2"):
        quadratic_kappa(["1"], ["1", "2"], labels=SCALE)
    with pytest.raises(DataError, match="a has 0 ratings"):
        quadratic_kappa([], [], labels=SCALE)
    for labels in (["1"], ["1", "1"]):
        with pytest.raises(ConfigError, match="a scale needs at least two labels, each once"):
            quadratic_kappa(["1"], ["1"], labels=labels)

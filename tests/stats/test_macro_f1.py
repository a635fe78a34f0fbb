"""Macro-F1 over all labels, resampled: scikit-learn's, draw by draw."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import f1_score

from personalink.errors import ConfigError, DataError
from personalink.stats import macro_f1_bootstrap, macro_f1_difference
from personalink.stats.bootstrap import resample_blocks

LABELS = [f"label {i}" for i in range(9)]


def answers(seed, n=61):
    random = np.random.default_rng(seed)
    gold = [LABELS[i] for i in random.integers(0, 6, n)]  # three labels never occur
    guesses = [LABELS[random.integers(9)] if random.random() < 0.5 else g for g in gold]
    return gold, [None if random.random() < 0.1 else "outside" if random.random() < 0.1 else g for g in guesses]


def sklearns(gold, given):
    filled = [g if g in LABELS else "?" for g in given]
    return f1_score(gold, filled, labels=LABELS, average="macro", zero_division=0)


def test_every_draw_is_sklearns():
    gold, given = answers(1)
    other = answers(2)[1]
    rows = np.concatenate(list(resample_blocks(len(gold), draws=80, seed=3)))
    scores = [[sklearns([gold[i] for i in row], [method[i] for i in row]) for row in rows] for method in (given, other)]
    found = macro_f1_bootstrap(gold, given, labels=LABELS, seed=3, draws=80)
    assert found.estimate == pytest.approx(sklearns(gold, given), abs=1e-12)
    np.testing.assert_allclose([found.low, found.high], np.percentile(scores[0], [2.5, 97.5]), rtol=0, atol=1e-12)
    paired = macro_f1_difference(gold, given, other, labels=LABELS, seed=3, draws=80)
    ends = np.percentile(np.subtract(*scores), [2.5, 97.5])
    np.testing.assert_allclose([paired.interval.low, paired.interval.high], ends, rtol=0, atol=1e-12)
    assert paired.difference == pytest.approx(sklearns(gold, given) - sklearns(gold, other), abs=1e-12)


def test_labels_that_never_occur_count():
    found = macro_f1_bootstrap(["a", "b"], ["a", "b"], labels=["a", "b", "c", "d"], seed=1)
    assert found.estimate == 0.5


def test_a_method_compared_with_itself_has_p_one():
    gold, given = answers(4)
    assert macro_f1_difference(gold, given, given, labels=LABELS, seed=1, draws=500).p == 1


def test_bca_is_offered():
    gold, given = answers(5)
    found = macro_f1_bootstrap(gold, given, labels=LABELS, seed=1, draws=500, method="bca")
    assert (found.method, found.note) == ("bca", "")
    assert found.low < found.estimate < found.high


def test_wrong_input_is_named():
    with pytest.raises(DataError, match="gold: item 1 is 'x', which is not one of the labels"):
        macro_f1_bootstrap(["a", "x"], ["a", "a"], labels=["a", "b"], seed=1)
    with pytest.raises(DataError, match="gold is empty"):
        macro_f1_bootstrap([], [], labels=["a", "b"], seed=1)
    with pytest.raises(DataError, match="gold has 2 labels and there are 1 answers"):
        macro_f1_difference(["a", "b"], ["a", "b"], ["a"], labels=["a", "b"], seed=1)
    with pytest.raises(ConfigError, match="labels: 'a' stands twice"):
        macro_f1_bootstrap(["a"], ["a"], labels=["a", "b", "a"], seed=1)

import math
import subprocess
import sys
import typing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score, mean_absolute_error, root_mean_squared_error

from personalink.agent import AnswerOutcome
from personalink.errors import ConfigError, DataError
from personalink.metrics import OUTCOMES, Scored, bootstrap_interval, headline, primary, score
from personalink.stats.bootstrap import resample_blocks
from personalink.tasks import task

NEWS = task("lamp2")
STARS = task("lamp3")


def scored(gold, label, text=None, outcome=None):
    if outcome is None:
        outcome = "ok" if label is not None else "unreadable"
    return Scored(gold, label, text if text is not None else label or "", outcome)


def news(gold, answers):
    """Scored answers from positions in the label list, −1 for INVALID."""
    return [scored(NEWS.labels[g], NEWS.labels[a] if a >= 0 else None) for g, a in zip(gold, answers, strict=True)]


def test_outcomes_are_the_agents():
    assert set(OUTCOMES) == set(typing.get_args(AnswerOutcome))


def test_primary_and_headline():
    assert primary(NEWS) == ("accuracy", "higher")
    assert primary(STARS) == ("mae", "lower")
    assert headline(NEWS) == ("accuracy", "macro_f1")
    assert headline(STARS) == ("mae", "rmse")


def test_macro_f1_is_over_all_labels():
    result = score(NEWS, news([0, 0, 1, 2], [0, 1, 1, -1]))
    assert result["macro_f1"] == pytest.approx((2 / 3 + 2 / 3) / 15, abs=1e-12)
    assert f"{result['macro_f1']:.3f}" == "0.089"
    assert result["accuracy"] == 0.5
    assert f1_score([0, 0, 1, 2], [0, 1, 1, -1], average="macro", zero_division=0) == pytest.approx(1 / 3)


codes = st.lists(st.tuples(st.integers(0, 14), st.integers(-1, 14)), min_size=1, max_size=60)


@settings(max_examples=50, deadline=None)
@given(codes)
def test_label_metrics_are_sklearns(pairs):
    gold, answers = zip(*pairs, strict=True)
    result = score(NEWS, news(gold, answers))
    expected = f1_score(gold, answers, labels=range(15), average="macro", zero_division=0)
    assert result["macro_f1"] == pytest.approx(expected, abs=1e-12)
    assert result["accuracy"] == pytest.approx(np.mean(np.equal(gold, answers)), abs=1e-12)
    assert result["n"] == len(pairs) == result["n_ok"] + result["n_unreadable"]


def test_official_label_scoring_reads_the_stripped_raw_text():
    answers = [
        scored("sports", "sports", " sports\n"),
        scored("sports", "sports", "Sports"),
        scored("sports", "sports", "The category is sports."),
        scored("politics", "politics", "politics"),
    ]
    result = score(NEWS, answers)
    assert result["accuracy"] == 1
    assert result["official_accuracy"] == 0.5
    assert result["official_macro_f1"] == pytest.approx((2 * 1 / (1 + 3) + 1) / 15)


def test_official_scoring_never_reads_our_own_error_line():
    assert score(STARS, [scored("1", None, "4", "too_long")])["official_mae"] == 4


def test_ratings_count_invalid_as_the_farther_end():
    answers = [scored("5", "4"), scored("2", None, "?"), scored("3", None, "?"), scored("1", "1")]
    result = score(STARS, answers)
    gold, filled = [5, 2, 3, 1], [4, 5, 5, 1]
    assert result["mae"] == mean_absolute_error(gold, filled) == 1.5
    assert result["rmse"] == root_mean_squared_error(gold, filled) == math.sqrt((1 + 9 + 4) / 4)
    assert result["accuracy"] == 0.25
    assert (result["valid_n"], result["valid_mae"], result["valid_rmse"]) == (2, 0.5, math.sqrt(0.5))
    errors = [STARS.error(STARS.parse(a.text), a.gold) for a in answers]
    assert result["mae"] == np.mean(errors)


@pytest.mark.parametrize(
    ("gold", "text", "error"),
    [
        ("4", " 4.5\n", 0.5),
        ("4", "9", 5),
        ("4", "four", 3),
        ("2", "", 3),
        ("3", "none", 2),
        ("5", "5/5", 4),
        ("2", "nan", 3),
        ("2", "inf", 3),
        ("2", "1e300", 3),
    ],
)
def test_official_rating_scoring(gold, text, error):
    result = score(STARS, [scored(gold, STARS.parse(text).label, text)])
    assert result["official_mae"] == result["official_rmse"] == error


def test_outcomes_are_counted_once_each():
    answers = [
        scored("1", "1"),
        scored("1", None, "eh"),
        scored("1", None, "", "empty"),
        scored("1", "2", "2 because", "truncated"),
        scored("1", None, "because", "truncated"),
        scored("1", None, "", "refused"),
        scored("1", None, "", "too_long"),
    ]
    result = score(STARS, answers)
    assert [result[f"n_{o}"] for o in OUTCOMES] == [1, 1, 1, 2, 1, 1]
    assert sum(result[f"n_{o}"] for o in OUTCOMES) == result["n"] == 7
    assert result["n_invalid"] == 5
    assert result["n_truncated_invalid"] == 1


@pytest.mark.parametrize("which", [NEWS, STARS])
def test_no_answers_give_none_and_never_nan(which):
    result = score(which, [])
    counts = {k: v for k, v in result.items() if k == "n" or k.startswith("n_") or k == "valid_n"}
    assert set(counts.values()) == {0}
    assert {v for k, v in result.items() if k not in counts} == {None}
    assert bootstrap_interval(which, [], primary(which)[0]) is None


def test_nothing_valid_gives_none_for_the_valid_only_metrics():
    result = score(STARS, [scored("5", None, "?")])
    assert result["valid_mae"] is None
    assert result["valid_n"] == 0
    assert result["mae"] == 4


def test_wrong_input_is_named():
    with pytest.raises(DataError, match="answer 1: 'weather' is not a label of task lamp2"):
        score(NEWS, [scored("sports", "sports"), scored("weather", "sports")])
    with pytest.raises(DataError, match="outcome 'fine' is unknown"):
        score(NEWS, [scored("sports", "sports", outcome="fine")])
    with pytest.raises(ConfigError, match="did you mean 'accuracy'"):
        bootstrap_interval(NEWS, news([0], [0]), "accuracyy")
    with pytest.raises(ConfigError, match="draws is 0"):
        bootstrap_interval(NEWS, news([0], [0]), "accuracy", draws=0)
    with pytest.raises(ConfigError, match="level is 95"):
        bootstrap_interval(NEWS, news([0], [0]), "accuracy", level=95)


def random_answers(which, n=57):
    random = np.random.default_rng(3)
    names = [*which.labels, None]
    out = []
    for _ in range(n):
        gold = which.labels[random.integers(len(which.labels))]
        label = gold if random.random() < 0.5 else names[random.integers(len(names))]
        out.append(scored(gold, label, f"{label} " if random.random() < 0.7 else "hm"))
    return out


@pytest.mark.parametrize("metric", ["accuracy", "macro_f1", "official_accuracy", "official_macro_f1"])
def test_bootstrap_of_labels_equals_a_plain_loop(metric):
    check_loop(NEWS, metric)


@pytest.mark.parametrize("metric", ["mae", "rmse", "accuracy", "official_mae", "official_rmse"])
def test_bootstrap_of_ratings_equals_a_plain_loop(metric):
    check_loop(STARS, metric)


def check_loop(which, metric, draws=60):
    answers = random_answers(which)
    values = [
        score(which, [answers[i] for i in row])[metric]
        for block in resample_blocks(len(answers), draws=draws, seed=0)
        for row in block
    ]
    expected = np.percentile(values, [2.5, 97.5])
    got = bootstrap_interval(which, answers, metric, draws=draws, seed=0)
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12)


def test_half_width_at_the_papers_size():
    low, high = bootstrap_interval(NEWS, news([0] * 200, [0] * 149 + [1] * 51), "accuracy")
    assert (high - low) / 2 == pytest.approx(0.06, abs=0.004)
    assert low < 0.745 < high


def test_importing_loads_no_sklearn():
    code = "import sys, personalink.metrics; sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

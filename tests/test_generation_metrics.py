"""ROUGE: the library's figures are the formula's, and a row's are their means."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from personalink.errors import ConfigError, DataError
from personalink.generation_metrics import TEXT_METRICS, rouge
from personalink.metrics import Scored, bootstrap_interval, headline, primary, score
from personalink.tasks import task

rouge_scorer = pytest.importorskip("rouge_score.rouge_scorer", reason="rouge-score is not installed: [generation]")
HEADLINE = task("lamp4")
SENTENCES = st.lists(st.sampled_from("a an the mill opens Mill, in town! 2 née".split()), max_size=8).map(" ".join)


def f1(hits: int, a: list[str], b: list[str]) -> Fraction:
    return Fraction(2 * hits, len(a) + len(b)) if hits else Fraction(0)


def expected(gold: str, answer: str) -> tuple[Fraction, Fraction]:
    """Lin 2004, §2 and §3, in exact rationals: words in common, and in common in order."""
    a, b = (re.findall(r"[a-z0-9]+", text.lower()) for text in (gold, answer))
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1][j + 1] = table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
    return f1((Counter(a) & Counter(b)).total(), a, b), f1(table[-1][-1], a, b)


@given(SENTENCES, SENTENCES)
def test_rouge_is_the_formula(gold, answer):
    one, longest = expected(gold, answer)
    found = rouge(gold, answer)
    assert math.isclose(found.rouge_1, one, abs_tol=1e-12)
    assert math.isclose(found.rouge_l, longest, abs_tol=1e-12)


def test_words_are_not_stemmed_and_case_and_marks_do_not_count():
    assert rouge("Mills opened", "mill opens").rouge_1 == 0
    assert rouge("A Mill opens!", "a mill, opens") == (1.0, 1.0)
    assert rouge("Älter née 东", "née") == (0.8, 0.8)  # read as "lter n e" and "n e", as the official evaluation does
    assert rouge("", "x") == rouge("…", "…") == (0.0, 0.0)


def scored(*pairs, **options):
    return [Scored(gold, answer or None, answer, "ok" if answer else "empty", **options) for gold, answer in pairs]


ROW = scored(("a mill opens", "mill opens"), ("a mill opens", "bakery"), ("rain is due", ""), ("x y", "x y"))


def test_a_row_is_the_mean_of_its_answers():
    found = score(HEADLINE, ROW)
    assert found["rouge_l"] == pytest.approx((0.8 + 0 + 0 + 1) / 4)
    assert (found["n"], found["n_empty"], found["n_invalid"]) == (4, 1, 1)
    assert primary(HEADLINE) == ("rouge_l", "higher")
    assert headline(HEADLINE) == ("rouge_l", "rouge_1")
    assert all(score(HEADLINE, [])[name] is None for name in TEXT_METRICS)


def test_the_official_figure_is_of_the_raw_answer_and_its_bootstrap_median_is_ours():
    row = [Scored("a mill opens", "mill opens", '"mill opens"\nArticle: b', "ok"), *ROW]
    found = score(HEADLINE, row)
    assert found["rouge_l"] > found["official_rouge_l"]
    scorer, aggregator = (
        rouge_scorer.RougeScorer(["rouge1", "rougeL"], use_stemmer=False),
        rouge_scorer.scoring.BootstrapAggregator(),
    )
    for s in row:
        aggregator.add_scores(scorer.score_multi([s.gold.strip()], s.text.strip()))
    assert found["official_rouge_l"] == pytest.approx(aggregator.aggregate()["rougeL"].mid.fmeasure, abs=0.05)
    never_sent = Scored("a mill opens", None, "the prompt does not fit: a mill opens", "too_long")
    assert score(HEADLINE, [never_sent])["official_rouge_1"] == 0.0


def test_the_interval_holds_the_mean_and_is_of_known_metrics():
    low, high = bootstrap_interval(HEADLINE, ROW, "rouge_l", draws=2000)
    assert 0 <= low < score(HEADLINE, ROW)["rouge_l"] < high <= 1
    assert bootstrap_interval(HEADLINE, [ROW[3]] * 5, "rouge_1", draws=100) == (1.0, 1.0)
    with pytest.raises(ConfigError, match="did you mean 'rouge_l'"):
        bootstrap_interval(HEADLINE, ROW, "rouge_lsum")


def test_an_outcome_that_is_none_is_refused():
    with pytest.raises(DataError, match="outcome 'fine' is unknown"):
        score(HEADLINE, [Scored("a", "a", "a", "fine")])


def test_the_library_is_not_loaded_before_a_score_is_wanted():
    code = (
        "import sys, personalink as pl; t = pl.task('lamp4'); t.parse('x'); loaded = 'nltk' in sys.modules; "
        "from personalink.tasks.base import Reading; print(loaded, t.points(Reading('x'), 'x'), 'nltk' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "10000", "True"]

"""Tasks whose answer is an option of the question, or a text in the user's own words."""

from __future__ import annotations

import importlib.util

import pytest
from hypothesis import given
from hypothesis import strategies as st

from personalink.agent import Agent
from personalink.errors import ConfigError, DataError
from personalink.gate import SliceScore, make_gate
from personalink.lm import ScriptedLM
from personalink.lm.gateway import Gateway
from personalink.optimizer import Optimizer, OptimizerConfig
from personalink.tasks import INVALID, ChoiceTask, Reading, TextTask, task, task_from
from personalink.tasks.parsing import read_choice, read_text
from personalink.tasks.text import UNIT

pytest.importorskip("rouge_score", reason="rouge-score is not installed: [generation]")

MARKS = ("[1]", "[2]")
HEADLINE = task("lamp4")


# options


@pytest.mark.parametrize(
    ("text", "label", "how"),
    [
        ("[1]", "[1]", "exact"),
        (" [2]\n", "[2]", "exact"),
        ("1", "[1]", "folded"),
        ("2.", "[2]", "folded"),
        ("(2)", "[2]", "folded"),
        ("**[2]**", "[2]", "folded"),
        ("[2]\n\nIt is on graphs, as [1] is not.", "[2]", "folded"),
        ('[1]: "Sorting in 2 passes"', "[1]", "contained"),
        ("2: Sorting 1 list", "[2]", "contained"),
        ("The related reference is [2].", "[2]", "contained"),
        ("Reference: 2", "[2]", "contained"),
        ("I choose [1], which has 2 authors", "[1]", "contained"),
        ("<think>[1] or [2]?</think>[2]", "[2]", "exact"),
        ("[1] or [2]", None, "none"),
        ("1 and 2", None, "none"),
        ("[1], [2]", None, "none"),
        ("Both [1] and [2] are.", None, "none"),
        ("1970s graphs", None, "none"),
        ("neither", None, "none"),
        ("", None, "none"),
    ],
)
def test_the_option_that_an_answer_names(text, label, how):
    assert read_choice(text, MARKS) == Reading(label, how)


@given(st.text(max_size=60))
def test_any_text_names_an_option_or_none(text):
    assert read_choice(text, MARKS).label in (*MARKS, None)


def test_the_wording_of_a_choice_task_is_pinned():
    one = task("lamp1")
    assert one.system().endswith("would cite.\nAnswer with [1] or [2] only.")
    assert one.question("T\n[1] A\n[2] B") == "Paper: T\n[1] A\n[2] B\nReference:"
    assert (one.kind, one.rule_labels, one.labels) == ("label", (), MARKS)
    assert isinstance(one, ChoiceTask)
    assert one.as_dict()["kind"] == "choice"
    assert one.options("T\n[1] A: b\n[2]  B ") == {"[1]": "A: b", "[2]": "B"}
    assert one.options("no options") == {}


# texts


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("A mill opens", "A mill opens"),
        ('"A mill opens"', "A mill opens"),
        ("“A mill opens”", "A mill opens"),
        ("**A mill opens**", "A mill opens"),
        ("**Headline:** A mill opens", "A mill opens"),
        ("headline: 'A mill opens'", "A mill opens"),
        ("# Headline: A mill opens\n\nIt is short.", "A mill opens"),
        ('Here is a headline:\n\n"A mill opens"', "A mill opens"),
        ("Headline:\nA mill opens", "A mill opens"),
        ("A mill opens\nArticle: another", "A mill opens"),
        ("<think>A bakery?</think>\nA mill opens", "A mill opens"),
        ('"No", she said of "it"', '"No", she said of "it"'),
        ("It's Sam's", "It's Sam's"),
        ("Mills: a  history", "Mills: a history"),
        ("Only this:", "Only this:"),
        ("*sighs* Monday", "*sighs* Monday"),
        ("Headline:", None),
        (" \n ", None),
        ("<think>still at it", None),
    ],
)
def test_the_text_of_an_answer(text, label):
    assert read_text(text, "Headline").label == label
    assert HEADLINE.parse(text).label == label


@given(st.text(max_size=80))
def test_any_text_gives_one_line_and_reading_it_again_changes_little(text):
    read = read_text(text, "Headline")
    assert read == INVALID or (read.label and len(read.label.splitlines()) == 1)
    if read.how == "exact":
        assert read.label == text.strip()


def test_the_wording_of_a_text_task_is_pinned():
    assert HEADLINE.system() == (
        "Write the headline that this author would give to a news article.\nAnswer with the headline only."
    )
    assert HEADLINE.question("x") == "Article: x\nHeadline:"
    assert (HEADLINE.kind, HEADLINE.labels, HEADLINE.rule_labels, HEADLINE.best_points) == ("text", (), (), UNIT)


def test_points_are_f1_in_whole_parts():
    gold = "A mill opens in town"
    assert HEADLINE.points(Reading("a MILL opens, in town!"), gold) == UNIT
    assert HEADLINE.points(INVALID, gold) == 0
    assert HEADLINE.points(Reading("bakery"), gold) == 0
    assert HEADLINE.points(Reading("opens mill"), gold) == round(UNIT * 2 * 1 / (5 + 2))  # in order: one of two
    by_words = task("lamp4", metric="rouge_1")
    assert by_words.points(Reading("opens mill"), gold) == round(UNIT * 2 * 2 / (5 + 2))
    assert HEADLINE.slice_value(3 * UNIT, 4) == 0.75
    assert HEADLINE.slice_value(0, 0) == 0.0


@given(st.text(max_size=40), st.text(max_size=40))
def test_points_are_bounded_integers(gold, answer):
    points = HEADLINE.points(HEADLINE.parse(answer), gold)
    assert type(points) is int
    assert 0 <= points <= HEADLINE.best_points


def test_labels_are_any_text_on_one_line():
    assert HEADLINE.check_label(" Two\nlines ") == "Two lines"
    for bad in ("", " \n", None, 3, []):
        with pytest.raises(DataError, match="is no text; task lamp4 needs what the user wrote"):
            HEADLINE.check_label(bad)


def test_a_margin_counts_f1_and_not_points():
    gate = make_gate("margin", margin=0.05, unit=HEADLINE.unit)
    assert [gate.accepts(score(1000, 2000), score(1000, 2000 + more)) for more in (1, 999, 1000)] == [0, 0, 1]


def score(*points):
    return SliceScore(points, HEADLINE.slice_value(sum(points), len(points)))


# what free texts rule out


@pytest.mark.parametrize("constrain", ["label", "line"])
def test_a_text_cannot_be_constrained_to_labels(constrain):
    with pytest.raises(ConfigError, match=f"constrain is '{constrain}', but an answer to task lamp4 is any text"):
        Agent(HEADLINE, Gateway(ScriptedLM(lambda r: "")), constrain=constrain)


def test_texts_cannot_stratify_a_slice():
    with pytest.raises(ConfigError, match="slice_by is 'stratified', but the labels of task lamp4 are texts"):
        Optimizer(Agent(HEADLINE, Gateway(ScriptedLM(lambda r: ""))), OptimizerConfig(slice_by="stratified"))


def test_without_the_library_a_text_task_says_which_extra_it_needs(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ConfigError, match=r'rouge-score, which is not installed; pip install "personalink\[generation\]"'
    ):
        task("lamp5")
    assert task("lamp1").kind == "label"


def test_ones_own_text_task():
    own = task_from({"kind": "text", "name": "subjects", "instruction": "Write a subject.", "metric": "rouge_1"})
    assert own == TextTask("subjects", "Write a subject.", metric="rouge_1")
    assert own.demonstration("x", "Hello") == "Text: x\nAnswer: Hello"
    assert task_from(own.as_dict()) == own

"""Tasks: wording, scores as integers, gold labels, settings, the catalogue."""

import itertools
import json
import math
from importlib.util import find_spec

import pytest

from personalink.errors import ConfigError, DataError
from personalink.tasks import CATALOGUE, LabelTask, RatingTask, Reading, task, task_from

NEWS, STARS = task("lamp2"), task("lamp3")
SCORED = find_spec("rouge_score") is not None
KNOWN = [name for name, settings in CATALOGUE.items() if SCORED or settings["kind"] != "text"]
READINGS = [Reading(None, "none"), *(Reading(str(r)) for r in range(1, 6))]


def test_the_wording_of_a_label_task_is_pinned():
    small = LabelTask("t", "Choose.", ("a", "b c"))
    assert small.system() == "Choose.\nLabels: a, b c\nAnswer with the label only."
    assert small.question("some text") == "Text: some text\nLabel:"
    assert small.demonstration("some text", "a") == "Text: some text\nLabel: a"
    assert NEWS.question("x") == "Article: x\nCategory:"


def test_the_wording_of_a_rating_task_is_pinned():
    assert STARS.system() == (
        "Predict the rating that this person gave with a product review.\n"
        "Ratings: 1, 2, 3, 4, 5\n"
        "Answer with the number only."
    )
    assert STARS.question("x") == "Review: x\nRating:"


def test_a_demonstration_is_the_question_with_its_answer():
    for one in map(task, KNOWN):
        label = one.labels[0] if one.labels else "A mill opens"
        assert one.demonstration("x", label) == one.question("x") + f" {label}"


def test_label_points():
    assert [NEWS.points(Reading(label), "politics") for label in ("politics", "sports", None)] == [1, 0, 0]
    assert (NEWS.slice_value(3, 8), NEWS.slice_value(0, 0)) == (0.375, 0.0)


def test_rating_points_are_integers_and_an_invalid_answer_counts_as_the_farther_end():
    by_metric = {metric: task("lamp3", metric=metric) for metric in ("mae", "rmse", "exact")}
    for gold, reading in itertools.product(range(1, 6), READINGS):
        answer = int(reading.label) if reading.label else (1 if gold >= 3 else 5)
        error = abs(answer - gold)
        assert STARS.error(reading, str(gold)) == error
        assert by_metric["mae"].points(reading, str(gold)) == -error
        assert by_metric["rmse"].points(reading, str(gold)) == -error * error
        assert by_metric["exact"].points(reading, str(gold)) == int(reading.label == str(gold))
        assert all(type(one.points(reading, str(gold))) is int for one in by_metric.values())


def test_slice_values_stand_in_the_metrics_unit_and_are_never_minus_zero():
    assert STARS.slice_value(-6, 8) == -0.75
    assert task("lamp3", metric="rmse").slice_value(-8, 8) == -1.0
    assert task("lamp3", metric="exact").slice_value(6, 8) == 0.75
    for metric in ("mae", "rmse", "exact"):
        for n in (0, 8):
            assert math.copysign(1, task("lamp3", metric=metric).slice_value(0, n)) == 1


def test_gold_labels():
    assert NEWS.check_label(" Food & Drink ") == "food & drink"
    with pytest.raises(DataError, match=r"label 'polics' is not a label of task lamp2; did you mean 'politics'\?"):
        NEWS.check_label("polics")
    with pytest.raises(DataError, match=r"label 'quite another' is not .*; labels are food & drink, sports"):
        NEWS.check_label("quite another")
    assert [STARS.check_label(text) for text in ("5", "5.0", " 4 ", "1.00")] == ["5", "5", "4", "1"]
    for bad in ("0", "6", "4.5", "", "five", "nan", "inf", "-inf", "1e400", None, []):
        with pytest.raises(DataError, match=r"rating .* is not an integer from 1 to 5 \(task lamp3\)"):
            STARS.check_label(bad)


@pytest.mark.parametrize("name", KNOWN)
def test_a_task_survives_as_plain_json(name):
    one = task(name)
    assert task_from(json.loads(json.dumps(one.as_dict()))) == one
    assert all(one.parse(label) == Reading(label, "exact") for label in one.labels)


def test_changed_settings_survive_too():
    one = task("lamp3", low=0, high=10, metric="rmse", halves="reject", max_tokens=3, label_name="Score")
    assert task_from(one.as_dict()) == one
    assert one.labels == tuple(str(r) for r in range(11))
    small = task_from({"name": "t", "instruction": "Choose.", "labels": ["a", "b"]})
    assert small == LabelTask("t", "Choose.", ("a", "b"))


def test_labels_of_the_catalogue():
    assert len(task("lamp2").labels) == len(task("lamp2_tags").labels) == 15
    assert task("films").labels == ("1", "2", "3", "4", "5")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"kind": "essay"}, "task.kind is 'essay'; it must be label, choice, rating, text"),
        (
            {"kind": "text", "name": "t", "instruction": "x", "labels": ["a", "b"]},
            "task.labels is unknown for kind 'te",
        ),
        ({"kind": "text", "name": "t", "instruction": "x", "metric": "mae"}, "metric is 'mae'; it must be rouge_l or"),
        ({"kind": "text", "name": "t", "instruction": "x", "max_tokens": 0}, "max_tokens is 0; it must be a whole"),
        ({"kind": "choice", "name": "t", "instruction": "x"}, "task.labels is missing"),
        ({"name": "t"}, "task.instruction is missing"),
        ({"name": "t", "instruction": "x"}, "task.labels is missing"),
        ({"name": "t", "instruction": "x", "labels": ["a", "b"], "metrics": 1}, "did you mean 'metric'?"),
        ({"name": "t", "instruction": "x", "labels": ["a", "b"], "low": 1}, "task.low is unknown for kind 'label'"),
        ({"name": "t", "instruction": "x", "labels": "a, b"}, "task.labels is 'a, b'; it must be a list"),
        ({"name": "t", "instruction": "x", "labels": None}, "task.labels is None; it must be a list"),
        ({"name": "t", "instruction": None, "labels": ["a", "b"]}, "task.instruction is None; it must be a text"),
        ({"name": "", "instruction": "x", "labels": ["a", "b"]}, "task.name is ''; it must be a text"),
        ({"name": "t", "instruction": "x", "labels": [True, "b"]}, "task.labels holds True, which is no text"),
        ({"name": "t", "instruction": "x", "labels": ["a", 7]}, "task.labels holds 7, which is no text"),
        ({"name": "t", "instruction": "x", "labels": ["a", 1.5]}, "labels must be text: put it in quotes"),
        ({"name": "t", "instruction": "x", "labels": ["a", "b"], "label_name": None}, "task.label_name is None"),
        ({"name": "t", "instruction": "x", "labels": ["a", "b"], "input_name": ""}, "task.input_name is ''"),
        ({"name": "t", "instruction": "x", "labels": ["a", "b"], "input_name": "a\nb"}, "must be a text of one line"),
        ({"name": "t", "instruction": "x", "labels": ["a"]}, "labels must be two or more, distinct"),
        ({"name": "t", "instruction": "x", "labels": ["a", "A"]}, "labels must be two or more, distinct"),
        ({"name": "t", "instruction": "x", "labels": ["a", ""]}, "labels must be two or more, distinct"),
        ({"name": "t", "instruction": "x", "labels": ["a", "b\nc"]}, "label 'b\\nc' must be one line"),
        ({"name": "t", "instruction": "x", "labels": ["a", " b"]}, "label ' b' must be one line"),
        ({"name": "t", "instruction": "x", "labels": ["a", "b -> c"]}, "label 'b -> c' must be one line"),
        ({"name": "t", "instruction": "x", "labels": ["a", "b"], "metric": "mae"}, "metric 'mae' is for ratings"),
        ({"name": "t", "instruction": "x", "labels": ["a", "b"], "max_tokens": 0}, "max_tokens is 0"),
        ({"name": "t", "instruction": "x", "labels": ["a", "b"], "wording": 2}, "task.wording is 2"),
        ({"kind": "rating", "name": "t", "instruction": "x", "low": 5}, "low (5) must be below high (5)"),
        ({"kind": "rating", "name": "t", "instruction": "x", "low": "1"}, "low is '1'; it must be a whole number"),
        ({"kind": "rating", "name": "t", "instruction": "x", "high": 4.5}, "high is 4.5; it must be a whole number"),
        (
            {"kind": "rating", "name": "t", "instruction": "x", "metric": "mse"},
            "metric is 'mse'; it must be one of mae",
        ),
        (
            {"kind": "rating", "name": "t", "instruction": "x", "halves": "up"},
            "halves is 'up'; it must be one of half_",
        ),
        (
            {"kind": "rating", "name": "t", "instruction": "x", "max_tokens": 0},
            "max_tokens is 0; it must be at least 1",
        ),
    ],
)
def test_settings_that_are_wrong_are_told_in_one_line(settings, told):
    with pytest.raises(ConfigError) as caught:
        task_from(settings)
    assert told in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_task_by_a_wrong_name():
    with pytest.raises(ConfigError, match=r"no task 'lamp22'; did you mean 'lamp2'\?"):
        task("lamp22")
    with pytest.raises(
        ConfigError, match="no task 'something else'; tasks are lamp1, lamp2, lamp2_tags, lamp3, lamp4, "
    ):
        task("something else")


def test_labels_may_come_as_a_list():
    assert LabelTask("t", "x", ["a", "b"]).labels == ("a", "b")
    assert hash(RatingTask("t", "x")) == hash(RatingTask("t", "x"))

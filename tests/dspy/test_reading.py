"""Answers as they are read, and a persona's place: spaces, the adapter, the metric."""

from __future__ import annotations

import enum
import math
from typing import Any, Literal

import pytest

from . import REASON

dspy = pytest.importorskip("dspy", reason=REASON)

from dspy.utils.exceptions import AdapterParseError  # noqa: E402

import personalink as pl  # noqa: E402
from personalink.dspy import connect  # noqa: E402
from personalink.dspy.adapter import placing, sections  # noqa: E402
from personalink.dspy.metric import SCALE, Judgement, Metric  # noqa: E402
from personalink.dspy.spaces import Space, given_space, space_of  # noqa: E402
from personalink.errors import ConfigError  # noqa: E402

from .programs import SIDES, Where, fields  # noqa: E402


class Mood(enum.Enum):
    GOOD = "good mood"
    BAD = "bad mood"


@pytest.mark.parametrize(
    ("annotation", "said", "value"),
    [
        (Literal["politics", "sports"], "Politics.", "politics"),
        (Literal["politics", "sports"], " **Sports** ", "sports"),
        (Literal["politics", "sports"], "It is politics, surely", "politics"),
        (Literal["politics", "sports"], "politics or sports", None),
        (Literal[1, 2, 3], "3 stars", 3),
        (Literal[1, 2, 3], "9", 3),
        (Mood, "Good mood!", Mood.GOOD),
        (Mood, Mood.BAD, Mood.BAD),
        (bool, "true", True),
    ],
)
def test_labels_are_read_as_personalink_reads_them(annotation: Any, said: Any, value: Any) -> None:
    space = space_of(annotation)
    assert space is not None
    assert space.read(said) == value


def test_open_types_have_no_space() -> None:
    for annotation in (str, int, float, list[str], Literal["only"], None, dict[str, int], Literal["A", "a"]):
        assert space_of(annotation) is None


def test_given_labels() -> None:
    ratings = given_space(range(1, 6))
    assert ratings is not None
    assert ratings.reader.kind == "rating"
    assert (ratings.read("4.5"), ratings.read(2), ratings.read("none")) == (5, 2, None)
    assert given_space(None) is None
    for wrong in ("abc", ["one"], [None, "x"], ["A", "a"]):
        with pytest.raises(ConfigError):
            given_space(wrong)  # type: ignore[arg-type]


def ask(said: str, signature: Any = Where, base: Any = None, **options: Any) -> tuple[Any, list[Any]]:
    """(the field that comes of an answer, the requests it took)."""
    model = pl.ScriptedLM(lambda request: said)
    adapter = placing(base, "", options.pop("given", {}), constrain=options.pop("constrain", False))
    with dspy.context(lm=connect(model), adapter=adapter):
        return dspy.Predict(signature)(text="x").side, model.requests


@pytest.mark.parametrize(
    "said", ["[[ ## side ## ]]\nNorth.\n\n[[ ## completed ## ]]", "North.", "north", '{"side": "NORTH"}', "It's north"]
)
@pytest.mark.parametrize("base", [None, "chat", "json"])
def test_a_label_with_a_full_stop_costs_one_call_and_no_error(said: str, base: str | None) -> None:
    adapters = {"chat": dspy.ChatAdapter(), "json": dspy.JSONAdapter(), None: None}
    side, requests = ask(said, base=adapters[base])
    assert side == "north"
    assert len(requests) == 1


def test_labels_that_no_type_tells_are_read_where_they_are_given() -> None:
    given = {"side": Space.of(SIDES)}
    assert ask(fields(side="North!"), "text -> side", given=given)[0] == "north"
    assert ask(fields(side="upwards"), "text -> side", given=given)[0] == "upwards"
    assert ask(fields(side="4 stars"), "text -> side: int", given={"side": Space.of(range(1, 6))})[0] == 4


def test_an_answer_that_names_nothing_is_an_error_after_one_call() -> None:
    model = pl.ScriptedLM(lambda request: "no idea")
    with dspy.context(lm=connect(model), adapter=placing(None, "", {}, constrain=False)):
        predict = dspy.Predict(Where)
        with pytest.raises(AdapterParseError) as caught:
            predict(text="x")
    assert len(model.requests) == 1
    assert caught.value.signature is predict.signature  # as GEPA looks for it


def test_several_fields_are_read_or_not_as_one() -> None:
    signature = "text -> side: Literal['north', 'south'], size: int"
    assert ask("[[ ## side ## ]]\nNorth.\n[[ ## size ## ]]\n3", signature)[0] == "north"
    with pytest.raises(AdapterParseError):
        ask("[[ ## side ## ]]\nNorth.", signature)
    with pytest.raises(AdapterParseError):
        ask("[[ ## side ## ]]\nNorth.\n[[ ## size ## ]]\nlarge", signature)


def test_sections() -> None:
    assert sections("[[ ## a ## ]] 1\n[[ ## a ## ]] 2\n[[ ## b ## ]]\n3", ["a", "b"]) == {"a": "1", "b": "3"}
    assert sections("nothing", ["a", "b"]) == {}
    assert sections("just this", ["a"]) == {"a": "just this"}


def test_an_empty_persona_changes_no_byte_and_another_stands_after_the_instructions() -> None:
    plain = dspy.ChatAdapter().format(Where, [], {"text": "x"})
    assert placing(None, "", {}, constrain=True).format(Where, [], {"text": "x"}) == plain
    system, user = placing(None, "Likes\n- the north", {}, constrain=True).format(Where, [], {"text": "x"})
    assert user == plain[1]
    assert system["content"].startswith(plain[0]["content"])
    assert [line.strip() for line in system["content"].splitlines()[-2:]] == ["Likes", "- the north"]


def test_the_users_adapter_stays_what_it_was() -> None:
    mine = dspy.JSONAdapter()
    made = placing(mine, "a", {}, constrain=False)
    assert isinstance(made, dspy.JSONAdapter)
    assert type(made).__name__ == "JSONAdapter"
    assert type(mine) is dspy.JSONAdapter
    again = placing(made, "b", {}, constrain=False)
    assert "\n        a" not in again.format(Where, [], {"text": "x"})[0]["content"]  # one persona at a time


def test_one_closed_field_can_be_constrained_as_a_whole_answer() -> None:
    _, (request,) = ask(fields(side="north"), constrain=True)
    assert request.constraint is not None
    assert request.constraint.choices == tuple(fields(side=side) for side in SIDES)
    for signature in ("text -> side", "text -> side: Literal['a', 'b'], why"):
        said = fields(side="a", why="so")
        assert ask(said, signature, constrain=True)[1][0].constraint is None


def two(example: Any, prediction: Any) -> float:
    return 0.25


def three(example: Any, prediction: Any, trace: Any = None) -> bool:
    assert trace is None
    return True


def five(gold: Any, pred: Any, trace: Any, pred_name: Any, pred_trace: Any) -> Any:
    return dspy.Prediction(score=0.5, feedback=f"{pred_name} {len(trace)} {len(pred_trace)}")


@pytest.mark.parametrize(
    ("metric", "judgement"),
    [
        (two, Judgement(SCALE // 4)),
        (three, Judgement(SCALE)),
        (five, Judgement(SCALE // 2, "p 2 1")),
        (lambda e, p: {"score": 1, "feedback": "good"}, Judgement(SCALE, "good")),
        (lambda e, p: dspy.Prediction(score=0.1), Judgement(SCALE // 10)),
        (lambda *a: False, Judgement(0)),
    ],
)
def test_metrics_of_every_shape(metric: Any, judgement: Judgement) -> None:
    assert Metric(metric).judge(None, None, [1, 2], "p") == judgement


@pytest.mark.parametrize("said", [1.5, -0.1, math.nan, "good", None, {}, []])
def test_a_score_out_of_range_or_none_is_said(said: Any) -> None:
    with pytest.raises(ConfigError, match="the metric returned"):
        Metric(lambda e, p: said).judge(None, None, [], None)


def test_a_metric_that_breaks_breaks() -> None:
    with pytest.raises(ZeroDivisionError):
        Metric(lambda e, p: 1 / 0).judge(None, None, [], None)


def test_metrics_and_ranges_that_cannot_be() -> None:
    for wrong in (None, 3, lambda: 1, lambda a: 1, lambda a, b, *, c: 1):
        with pytest.raises(ConfigError, match="metric is"):
            Metric(wrong)  # type: ignore[arg-type]
    for low, high in ((1.0, 1.0), (2.0, 1.0), (math.nan, 1.0), ("0", 1.0), (0.0, math.inf)):
        with pytest.raises(ConfigError):
            Metric(two, low, high)  # type: ignore[arg-type]

"""A DSPy program as a personalink task: examples become items, predictions readings, the metric's scores points.

Knows DSPy's examples and no model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import dspy

from personalink.brief import clip
from personalink.data.types import Item, User
from personalink.dspy.metric import SCALE, Judgement
from personalink.dspy.spaces import Space
from personalink.errors import DataError
from personalink.lm.counters import EstimateCounter
from personalink.logprobs import TokenLogprobs
from personalink.slicing import Split
from personalink.tasks.base import GateMetric, Reading, Wording
from personalink.text import normalised, one_line

USER = "user_id"
"""The input by which a program for many users looks the persona up; it is not passed on."""

FEEDBACK_TOKENS = 60
"""Bound of a metric's words on one mistake, by the estimate."""


@dataclass(frozen=True, slots=True)
class Judged(Reading):
    """What a program answered: the user's own label where the metric is content, else the answer with its words."""

    points: int = 0


@dataclass(frozen=True, slots=True)
class ProgramTask:
    """What a program is asked, as far as the loop needs to know; implements `personalink.Task`.

    Attributes:
        instruction: what its predictors are told to do. space: its answers, None for open text, which has no rules.
        best: the most points of an answer.
    """

    instruction: str
    space: Space | None
    best: int
    name: str = "dspy"
    wording: Wording = Wording("Input", "Answer")
    max_tokens: int = 1
    metric: GateMetric = "exact"

    @property
    def kind(self) -> Literal["label", "rating"]:
        """Ratings are worded as such."""
        return "label" if self.space is None else self.space.reader.kind

    @property
    def labels(self) -> tuple[str, ...]:
        """The answers as text; one empty text where they are open, since a schema needs one."""
        return ("",) if self.space is None else self.space.labels

    @property
    def rule_labels(self) -> tuple[str, ...]:
        """The answers: a rule names one."""
        return self.labels

    def then(self) -> str:
        """One of the answers."""
        return f"one of the {self.kind}s {', '.join(self.labels)}"

    def system(self) -> str:
        """The instructions, and the answers where they are a closed set."""
        return self.instruction if self.space is None else f"{self.instruction}\nAnswers: {', '.join(self.labels)}"

    def question(self, text: str) -> str:
        """One new input."""
        return self.wording.question(text)

    def demonstration(self, text: str, label: str) -> str:
        """One past pair."""
        return self.wording.demonstration(text, label)

    def parse(self, text: str) -> Reading:
        """The answer that a rule names."""
        return Reading(one_line(text)) if self.space is None else self.space.reader.parse(text)

    def expected(self, tokens: Sequence[TokenLogprobs]) -> float | None:
        """None: a program's tokens are not looked at."""

    def points(self, reading: Reading, gold: str) -> int:
        """The metric's points, told with the reading."""
        return reading.points if isinstance(reading, Judged) else 0

    @property
    def best_points(self) -> int:
        """Points of the metric's `perfect_score`."""
        return self.best

    @property
    def unit(self) -> int:
        """A gate's margin counts points here."""
        return 1

    def slice_value(self, total: int, n: int) -> float:
        """The metric's mean."""
        return total / n / SCALE if n else 0.0

    def check_label(self, label: str) -> str:
        """A user's answer in canonical spelling; DataError when it is none of a closed set."""
        return one_line(label) if self.space is None else self.space.reader.check_label(label)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"kind": "dspy", "instruction": self.instruction, "labels": list(self.labels)}


@dataclass(frozen=True, slots=True)
class Shape:
    """Which fields of an example are a program's inputs and which the user's answer.

    Attributes:
        inputs: a bare `Predict`'s; empty for another program, whose examples tell theirs.
        outputs: the last predictor's. Of another program's examples all that is no input is the answer where none of
            these is there.
    """

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    @classmethod
    def of(cls, program: Any) -> Shape:
        """The shape of a program."""
        if isinstance(program, dspy.Predict):
            return cls(tuple(program.signature.input_fields), tuple(program.signature.output_fields))
        last = program.predictors()[-1:]
        return cls((), tuple(last[0].signature.output_fields) if last else ())

    @property
    def single(self) -> bool:
        """Whether an answer is one field, as far as the program tells."""
        return len(self.outputs) == 1 or not self.inputs

    def given(self, example: Any) -> dict[str, Any]:
        """The inputs of an example, without the user's id.

        Raises:
            DataError: it does not say which they are.
        """
        if self.inputs:
            return {name: example[name] for name in self.inputs if name in example}
        try:
            return {name: value for name, value in example.inputs().items() if name != USER}
        except ValueError:
            msg = f"{example!r:.60} does not tell its inputs; make it with dspy.Example(…).with_inputs(…)"
            raise DataError(msg) from None

    def wanted(self, example: Any) -> dict[str, Any]:
        """The user's own answer."""
        names = [name for name in self.outputs if example.get(name) is not None]
        if not names and not self.inputs:
            inputs = self.given(example)
            names = [name for name in example if name not in {*inputs, USER} and example[name] is not None]
        return {name: example[name] for name in names}


@dataclass(frozen=True, slots=True)
class Past:
    """One example of a user with its item."""

    example: Any
    item: Item
    answer: dict[str, Any]


def written(fields: dict[str, Any]) -> str:
    """Fields as one text: the value of an only one, else `name: value` each, on one line."""
    if len(fields) == 1:
        return str(next(iter(fields.values())))
    return "; ".join(f"{name}: {one_line(str(value))}" for name, value in fields.items())


def past_of(user: str, examples: Iterable[Any], shape: Shape, say: Callable[[dict[str, Any]], str]) -> list[Past]:
    """A user's examples as items, their places as ids.

    Raises:
        DataError: one is no example, or has no answer.
    """
    past = []
    for i, example in enumerate(examples):
        if not isinstance(example, dspy.Example):
            msg = f"user {user}: {example!r:.60} is no dspy.Example"
            raise DataError(msg)
        answer = shape.wanted(example)
        if not answer:
            expected = f" ({', '.join(shape.outputs)})" if shape.outputs else ""
            msg = f"user {user}: example {i} holds no answer{expected}"
            raise DataError(msg)
        past.append(Past(example, Item(str(i), written(shape.given(example)), say(answer)), answer))
    return past


def judged(past: Past, said: dict[str, Any], judgement: Judgement, best: int, say: Callable[[Any], str]) -> Judged:
    """A reading of a prediction. It is no mistake where it reads as the user's answer or has the best score."""
    answer = say({name: said.get(name) for name in past.answer})
    if judgement.points == best or normalised(answer) == normalised(past.item.label):
        return Judged(past.item.label, points=judgement.points)
    words = clip(judgement.feedback, FEEDBACK_TOKENS, EstimateCounter().count)
    return Judged(f"{one_line(answer)} ({words})" if words else one_line(answer), points=judgement.points)


@dataclass(frozen=True, slots=True)
class GivenSlicer:
    """The slice that a user gave as `valset`; the pool is the rest, without copies of it."""

    ids: frozenset[str]

    def split(self, user: User, seed: int) -> Split:
        """Slice and pool; no audit slice."""
        held = tuple(item for item in user.history if item.id in self.ids)
        texts = {normalised(item.input) for item in held}
        return Split(held, (), tuple(item for item in user.history if normalised(item.input) not in texts))

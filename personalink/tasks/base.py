"""What a task is: instruction, label space, how a question and a demonstration are worded, parser, points.

Knows nothing of contexts, users or models: it turns inputs into text and text into a `Reading`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

from personalink.logprobs import TokenLogprobs

How = Literal["exact", "folded", "contained", "near", "number", "rounded", "clamped", "trimmed", "none"]
Kind = Literal["label", "rating", "text"]
GateMetric = Literal["exact", "mae", "rmse", "rouge_1", "rouge_l"]


@dataclass(frozen=True, slots=True)
class Reading:
    """What the parser made of one answer: a label of the task, or None for INVALID; `how` says by which rule.

    Where the answer is a text of one's own (a headline), that text is the label.
    """

    label: str | None
    how: How = "exact"


INVALID = Reading(None, "none")


@dataclass(frozen=True, slots=True)
class Wording:
    """The words around inputs and labels; `version` is bumped with every change, so that runs can be told apart."""

    input_name: str
    label_name: str
    version: int = 1

    def question(self, text: str) -> str:
        """`Article: …` and an open label line."""
        return f"{self.input_name}: {text}\n{self.label_name}:"

    def demonstration(self, text: str, label: str) -> str:
        """The same with the label filled in."""
        return f"{self.input_name}: {text}\n{self.label_name}: {label}"


class Task(Protocol):
    """Everything that is asked and scored. Implemented by `LabelTask`, `ChoiceTask`, `RatingTask` and `TextTask`.

    `kind` chooses the metrics; `metric` is what the gate counts; `max_tokens` bounds an answer.
    """

    @property
    def name(self) -> str:
        """Short name, such as "lamp2"."""
        ...

    @property
    def kind(self) -> Kind:
        """Which family of metrics the task has."""
        ...

    @property
    def labels(self) -> tuple[str, ...]:
        """Every valid label, in canonical order; () where any text is one."""
        ...

    @property
    def rule_labels(self) -> tuple[str, ...]:
        """What a decision rule may lead to: the labels, or () where it gives advice in words of its own."""
        ...

    @property
    def wording(self) -> Wording:
        """The names of input and label in prompts."""
        ...

    @property
    def max_tokens(self) -> int:
        """Most tokens of an answer."""
        ...

    @property
    def metric(self) -> GateMetric:
        """What the gate counts."""
        ...

    def system(self) -> str:
        """The system message: instruction and labels."""
        ...

    def then(self) -> str:
        """What a decision rule leads to, as the rewriter is told."""
        ...

    def question(self, text: str) -> str:
        """The question about one new input."""
        ...

    def demonstration(self, text: str, label: str) -> str:
        """One past pair, worded like the question with its answer."""
        ...

    def parse(self, text: str) -> Reading:
        """Read an answer; never raises."""
        ...

    def expected(self, tokens: Sequence[TokenLogprobs]) -> float | None:
        """The mean of the rating as the model weighed it, beside the one it gave; None where there is none."""
        ...

    def points(self, reading: Reading, gold: str) -> int:
        """What one answer adds to the slice score: an integer, higher is better, so that ties are decided exactly."""
        ...

    @property
    def best_points(self) -> int:
        """The most points that one answer can have; an answer with fewer is a mistake."""
        ...

    @property
    def unit(self) -> int:
        """How many points make 1 in the metric's own unit."""
        ...

    def slice_value(self, total: int, n: int) -> float:
        """The slice score in the metric's own unit, higher is better: share right, −MAE, −RMSE or mean F1.

        0.0 for n = 0.
        """
        ...

    def check_label(self, label: str) -> str:
        """The canonical form of a gold label.

        Raises:
            DataError: it is not in the label space, or is no text.
        """
        ...

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON for the run's configuration."""
        ...


def listed(labels: Sequence[str]) -> str:
    """Labels as they stand in a prompt."""
    return ", ".join(labels)


def plain_task(task: Any) -> dict[str, Any]:
    """A task's settings as plain JSON, the wording's names beside the task's own."""
    values = asdict(task)
    wording = values.pop("wording")
    values["labels"] = list(values["labels"]) if "labels" in values else None
    named = {"input_name": wording["input_name"], "label_name": wording["label_name"], "wording": wording["version"]}
    return {key: value for key, value in {**values, **named}.items() if value is not None}

"""Tasks whose answer is one label of a fixed set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from personalink.errors import ConfigError, DataError
from personalink.logprobs import TokenLogprobs
from personalink.tasks.base import GateMetric, Reading, Wording, listed, plain_task
from personalink.tasks.parsing import read_label
from personalink.text import nearest, one_line


@dataclass(frozen=True, slots=True)
class LabelTask:
    """Choose one of `labels` for an input.

    Attributes:
        name: short name of the task.
        instruction: what to do, in a sentence or two; the label list is added to it.
        labels: at least two distinct labels, in canonical order.
        wording: the names of input and label in prompts.
        max_tokens: room for the answer.

    Raises:
        ConfigError: fewer than two labels, two that differ only in case, or one that is not a clean line.
    """

    name: str
    instruction: str
    labels: tuple[str, ...]
    wording: Wording = Wording("Text", "Label")
    max_tokens: int = 24
    kind: Literal["label"] = "label"
    metric: GateMetric = "exact"

    def __post_init__(self) -> None:
        if isinstance(self.labels, str) or not all(isinstance(label, str) for label in self.labels):
            msg = f"task {self.name}: labels must be a list of texts, got {self.labels!r:.60}"
            raise ConfigError(msg)
        object.__setattr__(self, "labels", tuple(self.labels))
        for label in self.labels:
            if label != one_line(label) or "->" in label:
                msg = f"task {self.name}: label {label!r:.60} must be one line without doubled spaces and without '->'"
                raise ConfigError(msg)
        folded = {label.casefold().strip() for label in self.labels}
        if len(self.labels) < 2 or len(folded) != len(self.labels) or "" in folded:
            msg = f"task {self.name}: labels must be two or more, distinct without regard to case, and not empty"
            raise ConfigError(msg)
        if not isinstance(self.max_tokens, int) or isinstance(self.max_tokens, bool) or self.max_tokens < 1:
            msg = f"task {self.name}: max_tokens is {self.max_tokens!r}; it must be a whole number of at least 1"
            raise ConfigError(msg)
        if self.metric != "exact":
            msg = f"task {self.name}: metric {self.metric!r} is for ratings; a label task has 'exact'"
            raise ConfigError(msg)

    @property
    def rule_labels(self) -> tuple[str, ...]:
        """The labels."""
        return self.labels

    def then(self) -> str:
        """One of the labels."""
        return f"one of the labels {listed(self.labels)}"

    def system(self) -> str:
        """Instruction and labels."""
        return f"{self.instruction}\nLabels: {listed(self.labels)}\nAnswer with the label only."

    def question(self, text: str) -> str:
        """The question about one new input."""
        return self.wording.question(text)

    def demonstration(self, text: str, label: str) -> str:
        """One past pair."""
        return self.wording.demonstration(text, label)

    def parse(self, text: str) -> Reading:
        """Nearest valid class (see `parsing.read_label`)."""
        return read_label(text, self.labels)

    def expected(self, tokens: Sequence[TokenLogprobs]) -> None:
        """None: labels have no mean."""

    def points(self, reading: Reading, gold: str) -> int:
        """1 for the gold label, else 0."""
        return int(reading.label == gold)

    @property
    def best_points(self) -> int:
        """Points of a right answer."""
        return 1

    @property
    def unit(self) -> int:
        """A point is one answer right."""
        return 1

    def slice_value(self, total: int, n: int) -> float:
        """Share answered right, in [0, 1]."""
        return total / n if n else 0.0

    def check_label(self, label: str) -> str:
        """The canonical spelling of a gold label; DataError when it is none."""
        if not isinstance(label, str):
            msg = f"label {label!r:.40} is no text; labels of task {self.name} are {listed(self.labels)}"
            raise DataError(msg)
        for known in self.labels:
            if known.casefold() == label.strip().casefold():
                return known
        near = nearest(label, self.labels)
        hint = f"; did you mean {near!r}?" if near else f"; labels are {listed(self.labels)}"
        msg = f"label {label!r} is not a label of task {self.name}{hint}"
        raise DataError(msg)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON, as `task_from` takes it."""
        return plain_task(self)

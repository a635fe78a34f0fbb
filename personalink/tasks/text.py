"""Tasks whose answer is a text in the user's own words: a headline, a title, a tweet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from personalink.errors import ConfigError, DataError
from personalink.generation_metrics import check_installed, rouge
from personalink.logprobs import TokenLogprobs
from personalink.tasks.base import GateMetric, Reading, Wording, plain_task
from personalink.tasks.parsing import read_text
from personalink.text import one_line

UNIT = 10_000
"""Points of an answer with an F1 of 1: F1 is rounded to so many parts, and integers decide in the gate."""


@dataclass(frozen=True, slots=True)
class TextTask:
    """Write a text as this user would.

    Attributes:
        instruction: what to write, in a sentence or two.
        wording: the names of input and label in prompts.
        max_tokens: room for the answer.
        metric: what the gate counts: the F1 of "rouge_l" (the default) or "rouge_1" against the user's own text.

    Any text is a label, so `labels` is empty, and what a history holds as labels are the user's own texts. An INVALID
    answer has no points.

    Raises:
        ConfigError: a setting is none of its values, or rouge-score is not installed.
    """

    name: str
    instruction: str
    wording: Wording = Wording("Text", "Answer")
    max_tokens: int = 64
    metric: GateMetric = "rouge_l"
    kind: Literal["text"] = "text"

    def __post_init__(self) -> None:
        if not isinstance(self.max_tokens, int) or isinstance(self.max_tokens, bool) or self.max_tokens < 1:
            msg = f"task {self.name}: max_tokens is {self.max_tokens!r}; it must be a whole number of at least 1"
            raise ConfigError(msg)
        if self.metric not in ("rouge_l", "rouge_1"):
            msg = f"task {self.name}: metric is {self.metric!r}; it must be rouge_l or rouge_1"
            raise ConfigError(msg)
        check_installed()

    @property
    def labels(self) -> tuple[str, ...]:
        """None in particular: any text is one."""
        return ()

    @property
    def rule_labels(self) -> tuple[str, ...]:
        """None: a rule gives advice."""
        return ()

    def then(self) -> str:
        """How to write, in words."""
        return 'how to write, in at most as many words, such as "begin with a number"'

    def system(self) -> str:
        """The instruction, and that nothing else is wanted."""
        return f"{self.instruction}\nAnswer with the {self.wording.label_name.lower()} only."

    def question(self, text: str) -> str:
        """The question about one new input."""
        return self.wording.question(text)

    def demonstration(self, text: str, label: str) -> str:
        """One past input with what the user made of it."""
        return self.wording.demonstration(text, label)

    def parse(self, text: str) -> Reading:
        """The text itself, without what stands around it (see `parsing.read_text`)."""
        return read_text(text, self.wording.label_name)

    def expected(self, tokens: Sequence[TokenLogprobs]) -> None:
        """None: texts have no mean."""

    def points(self, reading: Reading, gold: str) -> int:
        """F1 of the metric against the user's own text, in parts of `UNIT`; 0 for INVALID."""
        if reading.label is None:
            return 0
        found = rouge(gold, reading.label)
        return round(UNIT * (found.rouge_l if self.metric == "rouge_l" else found.rouge_1))

    @property
    def best_points(self) -> int:
        """Points of the user's own words in their order."""
        return UNIT

    @property
    def unit(self) -> int:
        """Parts of an F1 of 1."""
        return UNIT

    def slice_value(self, total: int, n: int) -> float:
        """Mean F1, in [0, 1]."""
        return total / (n * UNIT) if n else 0.0

    def check_label(self, label: str) -> str:
        """The text on one line; DataError when it is none."""
        line = one_line(label) if isinstance(label, str) else ""
        if not line:
            msg = f"label {label!r:.40} is no text; task {self.name} needs what the user wrote"
            raise DataError(msg)
        return line

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON, as `task_from` takes it."""
        return plain_task(self)

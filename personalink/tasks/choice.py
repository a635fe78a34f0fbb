"""Tasks whose question names its own options, such as "[1] … [2] …": the label is the option's mark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from personalink.tasks.base import Reading, plain_task
from personalink.tasks.label import LabelTask
from personalink.tasks.parsing import read_choice


@dataclass(frozen=True, slots=True)
class ChoiceTask(LabelTask):
    """Choose one of the options that an input lists, a line each behind its mark; `labels` are the marks.

    Scored as a `LabelTask` (its `kind` is "label"). A mark means nothing beyond its own question, so a decision rule
    gives advice in words, and a floor looks at the options' texts (see `options`).
    """

    @property
    def rule_labels(self) -> tuple[str, ...]:
        """None: a rule gives advice."""
        return ()

    def then(self) -> str:
        """Which option to take, in words."""
        return 'which option to take, in at most as many words and not by its mark, such as "the one on graphs"'

    def system(self) -> str:
        """Instruction and marks."""
        return f"{self.instruction}\nAnswer with {' or '.join(self.labels)} only."

    def parse(self, text: str) -> Reading:
        """The option that is named (see `parsing.read_choice`)."""
        return read_choice(text, self.labels)

    def options(self, text: str) -> dict[str, str]:
        """Mark → text of the options in an input, in its order; empty where it lists none."""
        return {
            label: line.removeprefix(label).strip()
            for line in text.splitlines()
            for label in self.labels
            if line.startswith(label)
        }

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON, as `task_from` takes it."""
        return {**plain_task(self), "kind": "choice"}

"""One prediction: what a row answered to one query of one user, raw text included, so that it can be read again.

Plain JSON both ways; knows nothing of models. The gold label is not in it: it is joined when a run is scored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from personalink.agent import Answer, AnswerOutcome
from personalink.contexts.base import Placed
from personalink.lm.base import Usage
from personalink.tasks.base import How, Reading, Task


@dataclass(frozen=True, slots=True)
class Prediction:
    """A row's answer to one query.

    Attributes:
        user, query, row: whose, which, by which method.
        label: what was read from the answer; None for INVALID. how: by which rule.
        outcome: see `agent.Answer`.
        text: the raw completion.
        context_tokens: size of the context placed, by the agent's counter.
        item_ids: history items shown in it. notes: what the context tells of itself.
        usage: prompt and completion tokens as the server counted them (cached ones hang on what came before, so they
            stand in the ledger alone). constrained: by what the answer was constrained, "" for nothing.
        margin: in nats, small where a flip is near (see `logprobs.margin`). expected: the expected rating, beside the
            label (see `tasks.RatingTask.expected`). Both stand in the record only where they are known.
    """

    user: str
    query: str
    row: str
    label: str | None
    how: How
    outcome: AnswerOutcome
    text: str
    context_tokens: int
    item_ids: tuple[str, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)
    usage: Usage = Usage()
    constrained: str = ""
    margin: float | None = None
    expected: float | None = None

    @classmethod
    def of(cls, user: str, query: str, row: str, placed: Placed, tokens: int, answer: Answer) -> Prediction:
        """Join what was placed and what was answered."""
        return cls(
            user=user,
            query=query,
            row=row,
            label=answer.reading.label,
            how=answer.reading.how,
            outcome=answer.outcome,
            text=answer.text,
            context_tokens=tokens,
            item_ids=placed.item_ids,
            notes=placed.notes,
            usage=replace(answer.usage, cached=None),
            constrained=answer.constrained,
            margin=answer.margin,
            expected=answer.expected,
        )

    def reread(self, task: Task) -> Prediction:
        """The same prediction with its raw text parsed again (after a change of parser)."""
        if self.outcome in ("empty", "refused", "too_long"):
            return self
        reading: Reading = task.parse(self.text)
        outcome = self.outcome
        if outcome in ("ok", "unreadable"):
            outcome = "ok" if reading.label is not None else "unreadable"
        values = {name: getattr(self, name) for name in self.__slots__}
        return Prediction(**{**values, "label": reading.label, "how": reading.how, "outcome": outcome})

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        values = {name: getattr(self, name) for name in self.__slots__}
        for name in ("margin", "expected"):
            if values[name] is None:
                del values[name]
        usage = {"prompt": self.usage.prompt, "completion": self.usage.completion}
        return {**values, "item_ids": list(self.item_ids), "notes": dict(self.notes), "usage": usage}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Prediction:
        """The inverse of `as_dict`."""
        return cls(**{**data, "item_ids": tuple(data["item_ids"]), "usage": Usage(**data["usage"])})

"""Tasks whose answer is an integer rating on a scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from personalink.errors import ConfigError, DataError
from personalink.logprobs import TokenLogprobs
from personalink.tasks.base import GateMetric, Reading, Wording, listed, plain_task
from personalink.tasks.parsing import read_rating


@dataclass(frozen=True, slots=True)
class RatingTask:
    """Give an integer rating in [low, high].

    Attributes:
        metric: what the gate counts: "mae" (the default), "rmse" or "exact" (what the paper most likely did).
        halves: what to do with "4.5": "half_up" or "reject".

    An INVALID answer counts as the farther end of the scale, in the gate and in MAE.

    Raises:
        ConfigError: low is not below high, or a setting is none of its values.
    """

    name: str
    instruction: str
    low: int = 1
    high: int = 5
    wording: Wording = Wording("Text", "Rating")
    max_tokens: int = 8
    metric: GateMetric = "mae"
    halves: Literal["half_up", "reject"] = "half_up"
    kind: Literal["rating"] = "rating"

    def __post_init__(self) -> None:
        for name in ("low", "high", "max_tokens"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                msg = f"task {self.name}: {name} is {value!r}; it must be a whole number"
                raise ConfigError(msg)
        if self.low >= self.high:
            msg = f"task {self.name}: low ({self.low}) must be below high ({self.high})"
            raise ConfigError(msg)
        if self.max_tokens < 1:
            msg = f"task {self.name}: max_tokens is {self.max_tokens}; it must be at least 1"
            raise ConfigError(msg)
        for name, choices in (("metric", ("mae", "rmse", "exact")), ("halves", ("half_up", "reject"))):
            if getattr(self, name) not in choices:
                msg = f"task {self.name}: {name} is {getattr(self, name)!r}; it must be one of {', '.join(choices)}"
                raise ConfigError(msg)

    @property
    def labels(self) -> tuple[str, ...]:
        """The ratings as text, lowest first."""
        return tuple(str(r) for r in range(self.low, self.high + 1))

    @property
    def rule_labels(self) -> tuple[str, ...]:
        """The ratings."""
        return self.labels

    def then(self) -> str:
        """One of the ratings."""
        return f"one of the ratings {listed(self.labels)}"

    def system(self) -> str:
        """Instruction and scale."""
        return f"{self.instruction}\nRatings: {listed(self.labels)}\nAnswer with the number only."

    def question(self, text: str) -> str:
        """The question about one new input."""
        return self.wording.question(text)

    def demonstration(self, text: str, label: str) -> str:
        """One past pair."""
        return self.wording.demonstration(text, label)

    def parse(self, text: str) -> Reading:
        """The rating stated (see `parsing.read_rating`)."""
        return read_rating(text, self.low, self.high, halves=self.halves)

    def expected(self, tokens: Sequence[TokenLogprobs]) -> float | None:
        """The expected rating Σ p·r / Σ p, within the scale, rounded to 4 decimals: another reading of an answer.

        The sums go over the ratings r among the likeliest tokens at the place of the first token that is a rating
        (white space around it aside); what is not among them counts for nothing. None where no token is a rating, and
        for a scale with more than one digit a rating, since such a rating may be several tokens.
        """
        place = next((token for token in tokens if token.text.strip() in self.labels), None)
        if place is None or not 0 <= self.low < self.high <= 9:
            return None
        seen = [(place.text, place.logprob), *place.others]
        weights = [(math.exp(min(0.0, p)), int(text)) for text, p in seen if text.strip() in self.labels]
        total = math.fsum(weight for weight, _ in weights)
        return round(math.fsum(weight * rating for weight, rating in weights) / total, 4) if total else None

    def error(self, reading: Reading, gold: str) -> int:
        """|answer − gold|; for INVALID the distance to the farther end."""
        truth = int(gold)
        if reading.label is None:
            return max(truth - self.low, self.high - truth)
        return abs(int(reading.label) - truth)

    def points(self, reading: Reading, gold: str) -> int:
        """Minus the (squared) error, or 1/0 for the exact metric."""
        if self.metric == "exact":
            return int(reading.label == gold)
        error = self.error(reading, gold)
        return -error if self.metric == "mae" else -error * error

    @property
    def best_points(self) -> int:
        """Points of an exact answer."""
        return 1 if self.metric == "exact" else 0

    @property
    def unit(self) -> int:
        """A point is one answer right, or one of the (squared) error."""
        return 1

    def slice_value(self, total: int, n: int) -> float:
        """−MAE, −RMSE or share exact."""
        if not n:
            return 0.0
        return 0.0 - math.sqrt(-total / n) if self.metric == "rmse" else total / n

    def check_label(self, label: str) -> str:
        """The rating as canonical text ("5", "5.0" → "5"); DataError when it is not an integer on the scale."""
        try:
            value = math.nan if isinstance(label, bool) else float(label)
        except (ValueError, TypeError, OverflowError):
            value = math.nan
        if not math.isfinite(value) or value != int(value) or not self.low <= value <= self.high:
            msg = f"rating {label!r} is not an integer from {self.low} to {self.high} (task {self.name})"
            raise DataError(msg)
        return str(int(value))

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON, as `task_from` takes it."""
        return plain_task(self)

"""A DSPy metric as the gate counts it: exact integers within a declared range, and its feedback as text.

Metrics of two, three and five arguments, that return a float, a bool, or a score with feedback. Knows no model.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from personalink.errors import ConfigError

SCALE = 1_000_000
"""Scores are compared as whole millionths, so that a tie is a tie on every machine."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a metric said of one prediction: points in millionths, higher is better, and its words."""

    points: int
    feedback: str = ""


@dataclass(frozen=True, slots=True)
class Metric:
    """A user's metric.

    Attributes:
        metric: (example, prediction[, trace[, predictor's name, its trace]]) → score, or score with feedback. One of
            three arguments gets None for the trace, as in an evaluation; one of five gets all, as GEPA gives them.
        failure_score: of an answer that cannot be read: the least that the metric ever gives.
        perfect_score: the most that it ever gives.

    Raises:
        ConfigError: it is not callable so, or the range is none.
    """

    metric: Callable[..., Any]
    failure_score: float = 0.0
    perfect_score: float = 1.0

    def __post_init__(self) -> None:
        for name in ("failure_score", "perfect_score"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                msg = f"{name} is {value!r}; it must be a number"
                raise ConfigError(msg)
        if not self.failure_score < self.perfect_score:
            msg = f"failure_score ({self.failure_score:g}) must be below perfect_score ({self.perfect_score:g})"
            raise ConfigError(msg)
        arity(self.metric)

    @property
    def best(self) -> int:
        """The most points of an answer."""
        return _points(self.perfect_score)

    @property
    def worst(self) -> int:
        """Points of an answer that cannot be read."""
        return _points(self.failure_score)

    def judge(self, example: Any, prediction: Any, trace: list[Any], name: str | None) -> Judgement:
        """The metric's verdict. Its own exceptions pass: a metric that breaks is no wrong answer.

        Args:
            trace: (predictor, inputs, prediction) of each call of the program. name: of the last one's predictor.

        Raises:
            ConfigError: it returned no number, or one out of the declared range.
        """
        further = {2: (), 3: (None,), 5: (trace, name, trace[-1:])}[arity(self.metric)]
        score, feedback = _read(self.metric(example, prediction, *further))
        if not math.isfinite(score) or not self.failure_score <= score <= self.perfect_score:
            msg = (
                f"the metric returned {score:g}, which is not from failure_score ({self.failure_score:g}) to "
                f"perfect_score ({self.perfect_score:g}); give PersonaLink the least and the most that it returns"
            )
            raise ConfigError(msg)
        return Judgement(_points(score), feedback)


def arity(metric: Callable[..., Any]) -> int:
    """How many arguments to call a metric with: 5, 3 or 2, the most that it takes.

    Raises:
        ConfigError: it takes none of these.
    """
    if callable(metric):
        signature = inspect.signature(metric)
        for n in (5, 3, 2):
            try:
                signature.bind(*range(n))
            except TypeError:
                continue
            return n
    msg = f"metric is {metric!r:.60}; it must take (example, prediction), a trace, and perhaps GEPA's two more"
    raise ConfigError(msg)


def _points(score: float) -> int:
    return round(score * SCALE)


def _read(said: Any) -> tuple[float, str]:
    """Score and feedback of what a metric returned."""
    score, feedback = said, None
    if isinstance(said, Mapping):
        score, feedback = said.get("score"), said.get("feedback")
    elif hasattr(said, "score"):
        score, feedback = said.score, getattr(said, "feedback", None)
    try:
        return float(score), "" if feedback is None else str(feedback)
    except (TypeError, ValueError):
        msg = f"the metric returned {said!r:.60}; it must return a number, a bool, or dspy.Prediction(score, feedback)"
        raise ConfigError(msg) from None

"""The gate: whether a candidate persona replaces the incumbent. Exact integers decide, never floats.

Knows nothing of personas or models. Each gate is monotone: it never lets the kept slice score fall.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from personalink.errors import ConfigError


@dataclass(frozen=True, slots=True)
class SliceScore:
    """Points of one persona on the slice, item by item, in the slice's order. Higher is better.

    Attributes:
        points: one integer an item (see `Task.points`).
        value: the same in the metric's unit: share right, −MAE, −RMSE or mean F1.
    """

    points: tuple[int, ...]
    value: float

    @property
    def total(self) -> int:
        """Sum of the points: what is compared."""
        return sum(self.points)


class Gate(Protocol):
    """One rule; `name` stands in records."""

    @property
    def name(self) -> str:
        """Short name."""
        ...

    def accepts(self, incumbent: SliceScore, candidate: SliceScore) -> bool:
        """Whether the candidate replaces the incumbent; both were scored on the same items."""
        ...


@dataclass(frozen=True, slots=True)
class Strict:
    """Accept only a better score (>). The default: with no improvement the user keeps the empty persona, so the test
    prompts are exactly those of no personalization (the paper's corollary holds for this gate alone)."""

    name: str = "strict"

    def accepts(self, incumbent: SliceScore, candidate: SliceScore) -> bool:
        """total > total."""
        return candidate.total > incumbent.total


@dataclass(frozen=True, slots=True)
class NoRegress:
    """Accept a score that is no worse (≥), as the paper's appendix A does."""

    name: str = "no_regress"

    def accepts(self, incumbent: SliceScore, candidate: SliceScore) -> bool:
        """total ≥ total."""
        return candidate.total >= incumbent.total


@dataclass(frozen=True, slots=True)
class Margin:
    """Accept a score that is better by at least `margin` an item, on average; `unit` points are 1 (see `Task.unit`)."""

    margin: float = 0.1
    name: str = "margin"
    unit: int = 1

    def __post_init__(self) -> None:
        if not (isinstance(self.margin, int | float) and 0 <= self.margin < math.inf):
            msg = f"gate margin is {self.margin!r}; it must be a number of points an item of at least 0"
            raise ConfigError(msg)

    def accepts(self, incumbent: SliceScore, candidate: SliceScore) -> bool:
        """total − total ≥ margin · unit · n, and better at all."""
        gain = candidate.total - incumbent.total
        return gain > 0 and gain >= Fraction(str(self.margin)) * self.unit * len(candidate.points)


@dataclass(frozen=True, slots=True)
class McNemar:
    """Accept a better score whose improved and worsened items differ by the exact McNemar (sign) test at `alpha`."""

    alpha: float = 0.05
    name: str = "mcnemar"

    def __post_init__(self) -> None:
        if not (isinstance(self.alpha, int | float) and 0 < self.alpha <= 1):
            msg = f"gate alpha is {self.alpha!r}; it must be a probability above 0 and at most 1"
            raise ConfigError(msg)

    def accepts(self, incumbent: SliceScore, candidate: SliceScore) -> bool:
        """Better in total, more items better than worse, and p ≤ alpha."""
        better, worse = discordant(incumbent, candidate)
        return (
            candidate.total > incumbent.total and better > worse and exact_p(better, worse) <= Fraction(str(self.alpha))
        )


def discordant(incumbent: SliceScore, candidate: SliceScore) -> tuple[int, int]:
    """How many items the candidate scores better, and how many worse."""
    pairs: Sequence[tuple[int, int]] = list(zip(incumbent.points, candidate.points, strict=True))
    return sum(c > i for i, c in pairs), sum(c < i for i, c in pairs)


def exact_p(better: int, worse: int) -> Fraction:
    """Two-sided exact McNemar p (McNemar 1947; binomial(n, ½)), in (0, 1]; 1 when no item differs."""
    n = better + worse
    tail = sum(math.comb(n, i) for i in range(min(better, worse) + 1))
    return min(Fraction(1), Fraction(2 * tail, 2**n))


GATES = ("strict", "no_regress", "margin", "mcnemar")


def make_gate(name: str, *, margin: float = 0.1, alpha: float = 0.05, unit: int = 1) -> Gate:
    """A gate by name; `margin` counts units of `unit` points.

    Raises:
        ConfigError: no such gate, or `margin` or `alpha` is out of range.
    """
    gates: dict[str, Gate] = {
        "strict": Strict(),
        "no_regress": NoRegress(),
        "margin": Margin(margin, unit=unit),
        "mcnemar": McNemar(alpha),
    }
    if name not in gates:
        msg = f"gate is {name!r}; it must be one of {', '.join(GATES)}"
        raise ConfigError(msg)
    return gates[name]

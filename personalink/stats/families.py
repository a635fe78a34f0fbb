"""Families of tests: p-values that were looked at together, adjusted together. Knows names and p-values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from personalink.errors import ConfigError, DataError
from personalink.stats import checks


@dataclass(frozen=True, slots=True)
class Family:
    """Tests that answer one question together, named in a run's configuration.

    Attributes:
        name: how tables call it.
        tests: the tests' names, at least one, each once.
        method: "holm" (never weaker than Bonferroni) or "bonferroni" (intervals can be adjusted alike).

    Raises:
        ConfigError: there is no test, one stands twice, or the method is unknown.
    """

    name: str
    tests: tuple[str, ...]
    method: Literal["holm", "bonferroni"] = "holm"

    def __post_init__(self) -> None:
        checks.choice(self.method, f"method of family {self.name!r}", _METHODS)
        object.__setattr__(self, "tests", tuple(self.tests))
        twice = next((test for i, test in enumerate(self.tests) if test in self.tests[:i]), None)
        if not self.tests or twice is not None:
            what = "has no tests; name at least one" if twice is None else f"names {twice!r} twice; name each test once"
            msg = f"family {self.name!r} {what}"
            raise ConfigError(msg)

    def adjust(self, ps: Mapping[str, float]) -> dict[str, float]:
        """Each test's adjusted p, in the family's order.

        Args:
            ps: test → p in [0, 1]; must hold every test of the family, and may hold others.

        Raises:
            DataError: a test is missing, or a p lies outside [0, 1].
        """
        if missing := [test for test in self.tests if test not in ps]:
            msg = f"family {self.name!r}: no p for {', '.join(missing)}; every test of a family must be there"
            raise DataError(msg)
        adjusted = _METHODS[self.method]([ps[test] for test in self.tests])
        return dict(zip(self.tests, adjusted, strict=True))

    def confidence(self, level: float = 0.95) -> float:
        """The confidence of each interval with which all of them cover together at least at `level` (Bonferroni):
        1 − (1 − level) / m.

        Raises:
            ConfigError: `level` is not in (0, 1).
        """
        return 1 - (1 - checks.share(level, "level")) / len(self.tests)


def holm(ps: Sequence[float]) -> tuple[float, ...]:
    """Holm's step-down adjusted p-values, in the order given (Holm 1979): the i-th smallest of m times m − i + 1, at
    least that of the one before and at most 1. Keeps the family-wise error whatever the tests' dependence.

    Raises:
        DataError: no p-values, or one outside [0, 1].
    """
    found = checks.p_values(ps)
    order = np.argsort(found, kind="stable")
    stepped = np.maximum.accumulate(found[order] * np.arange(len(found), 0, -1))
    adjusted = np.empty_like(found)
    adjusted[order] = np.minimum(1, stepped)
    return tuple(float(p) for p in adjusted)


def bonferroni(ps: Sequence[float]) -> tuple[float, ...]:
    """m·p, at most 1, in the order given (Dunn 1961).

    Raises:
        DataError: no p-values, or one outside [0, 1].
    """
    found = checks.p_values(ps)
    return tuple(float(p) for p in np.minimum(1, found * len(found)))


_METHODS: dict[str, Callable[[Sequence[float]], tuple[float, ...]]] = {"holm": holm, "bonferroni": bonferroni}

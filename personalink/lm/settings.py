"""Numbers that a model's settings must be: checked where they are given, so that nothing fails later and elsewhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from personalink.errors import ConfigError


def check_whole(least: int, **values: Any) -> None:
    """Each value is a whole number of at least `least`, or None for "not given".

    Raises:
        ConfigError: one is not; names it as `lm.NAME`.
    """
    for name, value in values.items():
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ConfigError(f"lm.{name} is {value!r}; it must be a whole number and at least {least}")


def check_seed(seed: Any) -> None:
    """A seed is a whole number of 64 bits.

    Raises:
        ConfigError: it is not.
    """
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise ConfigError(f"seed is {seed!r:.60}; it must be a whole number")
    if not -(2**63) <= seed < 2**63:
        raise ConfigError(f"seed is {seed}; it must fit 64 bits (from −2^63 to 2^63 − 1)")


def check_seconds(values: Mapping[str, Any], *, zero: bool) -> None:
    """Each value is a number of seconds above 0, or of at least 0 where `zero` may be.

    Raises:
        ConfigError: one is not; names it as `lm.NAME`.
    """
    for name, value in values.items():
        numeric = isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
        if not numeric or value < 0 or (value == 0 and not zero):
            raise ConfigError(f"lm.{name} is {value!r}; it must be seconds, {'at least' if zero else 'more than'} 0")

"""What every function of this room demands of its input, refused in one plain line. Computes nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sized
from numbers import Integral, Real

import numpy as np
from numpy.typing import ArrayLike, NDArray

from personalink.errors import ConfigError, DataError
from personalink.stats.records import Floats


def numbers(values: ArrayLike, name: str) -> Floats:
    """`values` as finite float64, shape (n,), n ≥ 1.

    Raises:
        DataError: not one row of numbers, none at all, or one of them is NaN or infinite.
    """
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        msg = f"{name}: expected numbers in one row ({error})"
        raise DataError(msg) from None
    if found.ndim != 1:
        msg = f"{name}: expected numbers in one row, not shape {found.shape}"
        raise DataError(msg)
    if not found.size:
        msg = f"{name} is empty; at least one value is needed"
        raise DataError(msg)
    if not np.isfinite(found).all():
        place = int(np.flatnonzero(~np.isfinite(found))[0])
        msg = f"{name}: value {place} is {found[place]}; every value must be a finite number"
        raise DataError(msg)
    return found


def pairs(a: ArrayLike, b: ArrayLike) -> tuple[Floats, Floats]:
    """Two rows of `numbers` of the same length.

    Raises:
        DataError: see `numbers`; or the lengths differ.
    """
    first, second = numbers(a, "a"), numbers(b, "b")
    _same_length(first, second)
    return first, second


def right(values: ArrayLike, name: str) -> NDArray[np.bool_]:
    """`values` as booleans, shape (n,), n ≥ 1; 0 and 1 stand for False and True.

    Raises:
        DataError: see `numbers`; or a value is neither 0 nor 1.
    """
    found = numbers(values, name)
    odd = np.flatnonzero((found != 0) & (found != 1))
    if odd.size:
        msg = f"{name}: value {odd[0]} is {found[odd[0]]:g}; it must be true or false (1 or 0)"
        raise DataError(msg)
    truth: NDArray[np.bool_] = found == 1
    return truth


def right_pairs(a: ArrayLike, b: ArrayLike) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Two rows of `right` of the same length.

    Raises:
        DataError: see `right`; or the lengths differ.
    """
    first, second = right(a, "a"), right(b, "b")
    _same_length(first, second)
    return first, second


def _same_length(a: Sized, b: Sized) -> None:
    if len(a) != len(b):
        msg = f"a has {len(a)} values and b has {len(b)}; pairs need as many of each, in the same order"
        raise DataError(msg)


def count(value: int, name: str, *, least: int = 0) -> int:
    """A whole number of at least `least`.

    Raises:
        DataError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        msg = f"{name} is {value!r}; it must be a whole number of at least {least}"
        raise DataError(msg)
    return int(value)


def share(value: float, name: str) -> float:
    """A setting strictly between 0 and 1.

    Raises:
        ConfigError: it is not.
    """
    if not (isinstance(value, Real) and 0 < value < 1):
        msg = f"{name} is {value!r}; it must lie between 0 and 1"
        raise ConfigError(msg)
    return float(value)


def positive(value: float, name: str) -> float:
    """A finite setting above 0.

    Raises:
        ConfigError: it is none.
    """
    if not (isinstance(value, Real) and 0 < value < math.inf):
        msg = f"{name} is {value!r}; it must be a finite number above 0"
        raise ConfigError(msg)
    return float(value)


def choice(value: str, name: str, known: Iterable[str]) -> None:
    """A setting that is one of a few names.

    Raises:
        ConfigError: it is none of them.
    """
    if value not in (names := tuple(known)):
        msg = f"{name} is {value!r}; it must be one of {', '.join(names)}"
        raise ConfigError(msg)


def p_values(ps: Iterable[float]) -> Floats:
    """p-values as float64, shape (m,), m ≥ 1.

    Raises:
        DataError: none at all, or one outside [0, 1].
    """
    found = numbers(list(ps), "p-values")
    wrong = np.flatnonzero((found < 0) | (found > 1))
    if wrong.size:
        msg = f"p-values: value {wrong[0]} is {found[wrong[0]]:g}; a p-value lies in [0, 1]"
        raise DataError(msg)
    return found


def at_least_one(value: int, name: str) -> None:
    """A setting that counts something.

    Raises:
        ConfigError: it is no whole number of at least 1.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        msg = f"{name} is {value!r}; it must be at least 1"
        raise ConfigError(msg)

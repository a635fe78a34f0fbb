"""Closed sets of answers in DSPy's types: which text means which value, read as personalink reads labels.

"Politics." is `politics`: DSPy's own parser refuses it, asks a second time and then raises. Knows no model.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from personalink.errors import ConfigError
from personalink.tasks.label import LabelTask
from personalink.tasks.rating import RatingTask
from personalink.text import one_line


@dataclass(frozen=True, slots=True)
class Space:
    """The answers that an output field may have.

    Attributes:
        values: what the program returns: texts, numbers, members of an enum. labels: the same as text, in that order.
        reader: reads a text as one of `labels`; a scale of whole numbers is read as a rating.
    """

    values: tuple[Any, ...]
    labels: tuple[str, ...]
    reader: LabelTask | RatingTask

    @classmethod
    def of(cls, values: Sequence[Any]) -> Space:
        """The space of some values.

        Raises:
            ConfigError: fewer than two, or two that read alike.
        """
        labels = tuple(one_line(str(v.value if isinstance(v, enum.Enum) else v)) for v in values)
        whole = sorted(v for v in values if isinstance(v, int) and not isinstance(v, bool))
        reader: LabelTask | RatingTask = (
            RatingTask("answer", "", whole[0], whole[-1])
            if len(whole) == len(values) > 1 and whole == list(range(whole[0], whole[-1] + 1))
            else LabelTask("answer", "", labels)
        )
        return cls(tuple(values), labels, reader)

    def read(self, said: Any) -> Any:
        """The value that `said` names; None where it names none."""
        if said in self.values:
            return self.values[self.values.index(said)]
        label = self.reader.parse(self.label(said) if isinstance(said, enum.Enum) else str(said)).label
        return None if label is None else self.values[self.labels.index(label)]

    def label(self, value: Any) -> str:
        """A value as text."""
        return one_line(str(value.value if isinstance(value, enum.Enum) else value))


@functools.lru_cache(maxsize=1024)
def space_of(annotation: Any) -> Space | None:
    """The space of a field's type: a Literal, an Enum or a bool; None for an open one, and for one whose values read
    alike ("A" and "a"), which is left to DSPy's own parser."""
    if get_origin(annotation) is Literal:
        values = get_args(annotation)
    elif isinstance(annotation, enum.EnumMeta):
        values = tuple(annotation)
    elif annotation is bool:
        values = (True, False)
    else:
        return None
    try:
        return Space.of(values) if len(values) > 1 else None
    except ConfigError:
        return None


def given_space(labels: Sequence[Any] | None) -> Space | None:
    """The space that a user gave.

    Raises:
        ConfigError: it is none.
    """
    if labels is None:
        return None
    values = (labels,) if isinstance(labels, str) else tuple(labels)
    if len(values) < 2 or not all(isinstance(value, str | int | float) for value in values):
        msg = f"labels is {labels!r:.60}; it must be a list of two texts or numbers at least, or a range of ratings"
        raise ConfigError(msg)
    return Space.of(values)

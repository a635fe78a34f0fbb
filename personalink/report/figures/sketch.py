"""What a figure is before it is drawn: its data, its caption and how to paint it from these data alone.

Knows no run and no drawing library. A figure shows nothing but its data, which are written
beside it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Data:
    """A small table.

    Attributes:
        columns: names, as they head the CSV. rows: one value a column each; None is unknown.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | float | None, ...], ...]

    @classmethod
    def of(cls, records: Sequence[Record]) -> Data:
        """From records that all have the same keys in the same order; at least one."""
        return cls(tuple(records[0]), tuple(tuple(record.values()) for record in records))

    def records(self) -> list[dict[str, Any]]:
        """One dictionary a row."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def as_csv(self) -> str:
        """A header row, then numbers at full precision; unknown is empty. Lone surrogates become "?"."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return file.getvalue().encode("utf-8", "replace").decode()


@dataclass(frozen=True, slots=True)
class Sketch:
    """A figure that the evidence allows.

    Attributes:
        data: all that it shows.
        caption: what is seen, over how many users and queries, and how its intervals were made.
        height: inches; the width is a column's.
        paint: draws the records of `data` into an empty figure of that size.
    """

    data: Data
    caption: str
    height: float
    paint: Callable[[Figure, list[dict[str, Any]]], None]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A figure that the evidence does not allow; `reason` is one line."""

    reason: str

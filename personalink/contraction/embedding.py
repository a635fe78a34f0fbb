"""Texts as vectors, each text encoded once; how far apart two rows of texts lie; their plane. Knows no persona."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from personalink.encoder import Encoder
from personalink.errors import DataError
from personalink.stats.records import Floats

DIGITS = 6
"""Decimals kept of a displacement or coordinate: float32 tells no finer, so that two texts that an encoder reads alike
(upper and lower case, say) lie 0 apart and not 1e-8, whose logarithm would rule the fit."""

_UNIT = 1e-3
"""Most that a vector's length may differ from 1."""


class Remembered:
    """An encoder that encodes each text once, however often it is asked; itself an `Encoder`.

    What is new in a call is encoded together, in the order of the texts themselves, so that the same calls give the
    same bytes whatever the order of users.

    Args:
        encoder: does the work.
    """

    def __init__(self, encoder: Encoder) -> None:
        self.id = encoder.id
        self.encoder = encoder
        self._vectors: dict[str, Any] = {}

    @classmethod
    def of(cls, encoder: Encoder) -> Remembered:
        """`encoder` itself where it remembers already."""
        return encoder if isinstance(encoder, Remembered) else cls(encoder)

    @property
    def texts(self) -> tuple[str, ...]:
        """Every text that was encoded."""
        return tuple(self._vectors)

    @property
    def overlong(self) -> int | None:
        """How many of `texts` are longer than the encoder reads; None where it cannot tell."""
        count = getattr(self.encoder, "overlong", None)
        return None if count is None else int(count(self.texts))

    def encode(self, texts: Sequence[str]) -> Floats:
        """The vectors of `texts`, shape (n, d), float64; raises as `remember`."""
        self.remember(texts)
        vectors: Floats = np.array([self._vectors[text] for text in texts], dtype=np.float64)
        return vectors

    def remember(self, texts: Iterable[str]) -> None:
        """Encode those of `texts` that are new.

        Raises:
            DataError: the encoder gave something else than one finite unit-length vector a text.
        """
        new = sorted(set(texts) - self._vectors.keys())
        if new:
            found = np.asarray(self.encoder.encode(new))
            if found.ndim != 2 or len(found) != len(new):
                msg = f"encoder {self.id} gave shape {found.shape} for {len(new)} texts; expected ({len(new)}, d)"
                raise DataError(msg)
            lengths = np.linalg.norm(found.astype(np.float64), axis=1)
            if not np.all(np.abs(lengths - 1) <= _UNIT):
                msg = f"encoder {self.id} gave a vector whose length is not 1; it must be scaled to unit length"
                raise DataError(msg)
            self._vectors.update(zip(new, found, strict=True))


def distances(before: Floats, after: Floats) -> Floats:
    """‖after − before‖ of each row, shape (n,), in [0, 2] between unit vectors, to `DIGITS` decimals."""
    apart: Floats = np.linalg.norm(after - before, axis=1)
    return apart.round(DIGITS)


@dataclass(frozen=True, slots=True)
class Plane:
    """Points in the plane of their two main directions.

    Attributes:
        points: shape (n, 2), to `DIGITS` decimals, around the mean of all points.
        explained: the share of all variance along each direction, in [0, 1]; 0 where no point differs.
    """

    points: Floats
    explained: tuple[float, float]


def plane(vectors: Floats) -> Plane:
    """Principal components (Pearson 1901) of `vectors`, shape (n, d), n ≥ 1.

    Sign: along each direction the coordinate of the encoder that counts most, the first of equals, counts positively
    (scikit-learn's rule of the largest loading), so that the same texts give the same picture.
    """
    centred = vectors - vectors.mean(axis=0)
    values, directions = np.linalg.eigh(centred.T @ centred)
    values, main = np.clip(values[::-1], 0, None), directions[:, ::-1][:, :2]
    rows = np.abs(main).argmax(axis=0)
    main = main * np.where(main[rows, range(main.shape[1])] < 0, -1, 1)
    points = np.zeros((len(vectors), 2))
    points[:, : main.shape[1]] = np.round(centred @ main, DIGITS) + 0.0
    total = float(values.sum())
    first, second, *_ = (round(float(value) / total, DIGITS) if total > 1e-12 else 0.0 for value in (*values[:2], 0, 0))
    return Plane(points, (first, second))

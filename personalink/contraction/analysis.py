"""From any users' texts at each depth to a `Contraction`. Knows an encoder, and nothing of personas, runs or files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from numbers import Real

import numpy as np

from personalink.contraction.decay import decay
from personalink.contraction.embedding import Remembered, distances, plane
from personalink.contraction.record import Contraction, FieldMotion, UserPath
from personalink.encoder import Encoder
from personalink.errors import ConfigError, DataError
from personalink.stats.records import Floats

EMPTY = "This user's choices:\nThis user's preferences:\nThis user's rules:"
"""What stands for the empty persona: its three headings with nothing below them. The paper does not say what it embeds;
personas of the bundled samples lie 1.0 to 1.3 from this, 1.2 to 1.4 from the empty text, and the paper's first step
is .90."""

TOLERANCE = 0.02
"""Displacement up to which a persona counts as fixed: the paper's last mean step, and half of what exchanging one word
of its printed persona comes to with the default encoder (.04)."""

Texts = Mapping[str, Sequence[str]]
"""User → that user's text at each depth 0…R."""


def analyse(
    sequences: Texts | Sequence[Sequence[str]],
    encoder: Encoder,
    *,
    seed: int,
    draws: int = 10_000,
    confidence: float = 0.95,
    tolerance: float = TOLERANCE,
    empty: str = EMPTY,
    accepted: Mapping[str, Sequence[bool]] | None = None,
    fields: Mapping[str, Texts] | None = None,
) -> Contraction:
    """How users' texts move from each to the next.

    Args:
        sequences: user → texts in order; or such sequences alone, whose users are then "0", "1", …. As many texts a
            user, at least two.
        encoder: see `encoder.Encoder`; each different text is encoded once.
        seed, draws, confidence: of the bootstrap over users.
        tolerance: displacement up to which a text counts as fixed, ≥ 0.
        empty: what is encoded in place of the empty text.
        accepted: user → whether each pass's candidate was kept.
        fields: field → the same users' texts of that field alone.

    Raises:
        DataError: no user, fewer than two texts, not as many for each user, or something that is no text; or the
            encoder gave no unit vectors.
        ConfigError: a setting is out of range.
    """
    _check_tolerance(tolerance)
    texts = _checked(sequences, empty)
    parts = {name: _checked({user: rows[user] for user in texts}, empty) for name, rows in (fields or {}).items()}
    memory = _remembered(encoder, [texts, *parts.values()])
    steps, moves = _steps(texts, memory), {name: _steps(rows, memory) for name, rows in parts.items()}
    shown = plane(memory.encode([text for row in texts.values() for text in row]))
    points = shown.points.reshape(len(texts), -1, 2).tolist()
    users = []
    for i, (user, row) in enumerate(texts.items()):
        own = {name: tuple(rows[i].tolist()) for name, rows in moves.items()}
        kept = None if accepted is None else tuple(accepted[user])
        users.append(_path(user, _changed(row), steps[i].tolist(), points[i], tolerance, kept, own))
    return Contraction(
        encoder=memory.id,
        empty=empty,
        tolerance=float(tolerance),
        seed=seed,
        draws=draws,
        users=tuple(users),
        decay=decay(steps, seed=seed, draws=draws, confidence=confidence),
        accepted=None if accepted is None else _shares(accepted[user] for user in texts),
        fields={name: _motion(rows, moves[name]) for name, rows in parts.items()},
        explained=shown.explained,
        texts=len(memory.texts),
        overlong=memory.overlong,
    )


def _path(
    user: str,
    changed: tuple[bool, ...],
    steps: list[float],
    points: list[list[float]],
    tolerance: float,
    accepted: tuple[bool, ...] | None,
    fields: Mapping[str, tuple[float, ...]],
) -> UserPath:
    return UserPath(
        user=user,
        displacement=tuple(steps),
        changed=changed,
        text_fixed=_still_from(changed),
        fixed=_still_from(step > tolerance for step in steps),
        points=tuple((x, y) for x, y in points),
        accepted=accepted,
        fields=fields,
    )


def _remembered(encoder: Encoder, parts: Iterable[Texts]) -> Remembered:
    memory = Remembered.of(encoder)
    memory.remember(text for rows in parts for row in rows.values() for text in row)
    return memory


def _check_tolerance(tolerance: float) -> None:
    if isinstance(tolerance, bool) or not isinstance(tolerance, Real) or not 0 <= tolerance < math.inf:
        msg = f"tolerance is {tolerance!r}; it must be a finite number of at least 0"
        raise ConfigError(msg)


def _checked(sequences: Texts | Sequence[Sequence[str]], empty: str) -> dict[str, tuple[str, ...]]:
    """The texts by user, `empty` in place of the empty one."""
    rows = sequences if isinstance(sequences, Mapping) else {str(i): row for i, row in enumerate(sequences)}
    found: dict[str, tuple[str, ...]] = {}
    for user, row in rows.items():
        if isinstance(row, str) or not all(isinstance(text, str) for text in row):
            msg = f"user {user!r}: expected a sequence of texts, one a depth"
            raise DataError(msg)
        found[user] = tuple(text or empty for text in row)
    if not found:
        msg = "there is no user; at least one is needed"
        raise DataError(msg)
    first, many = next((user, len(row)) for user, row in found.items())
    for user, row in found.items():
        if len(row) < 2 or len(row) != many:
            told = f"user {user!r} has {len(row)} texts, user {first!r} {many}"
            msg = f"{told}; as many are needed of each, at least two (repeat the last where one ended early)"
            raise DataError(msg)
    return found


def _steps(texts: Texts, memory: Remembered) -> Floats:
    """Displacements, shape (users, passes)."""
    depths = [memory.encode(column) for column in zip(*texts.values(), strict=True)]
    return np.stack([distances(a, b) for a, b in pairwise(depths)], axis=1)


def _changed(row: Sequence[str]) -> tuple[bool, ...]:
    return tuple(a != b for a, b in pairwise(row))


def _still_from(moved: Iterable[bool]) -> int | None:
    """The depth after the last pass that moved; None where that was the very last."""
    flags = list(moved)
    last = max((t for t, one in enumerate(flags, 1) if one), default=0)
    return last if last < len(flags) else None


def _motion(texts: Texts, steps: Floats) -> FieldMotion:
    means = tuple(math.fsum(column) / len(column) for column in steps.T)
    return FieldMotion(means, _shares(_changed(row) for row in texts.values()))


def _shares(flags: Iterable[Sequence[bool]]) -> tuple[float, ...]:
    return tuple(sum(column) / len(column) for column in zip(*flags, strict=True))

"""Cutting a user's history into slice (scores personas), audit slice (seen by no one) and pool (feeds the persona).

Knows nothing of models. Items with the same text belong together: a copy of a slice item never stands in the pool.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, Protocol

from personalink.data.types import Item, User
from personalink.errors import ConfigError
from personalink.seeding import stream
from personalink.text import normalised

SLICERS = ("random", "stratified", "recent")
MIN_HISTORY = 4
"""With fewer distinct items there is no loop: the persona stays empty and the user is flagged (SPEC §1)."""


@dataclass(frozen=True, slots=True)
class Split:
    """One user's history, cut; each part in the history's order.

    Attributes:
        slice: scores personas; its errors drive the rewrite.
        audit: scored for the record only; empty for short histories.
        pool: what drafts, rewrites and exemplars are made from.
    """

    slice: tuple[Item, ...]
    audit: tuple[Item, ...]
    pool: tuple[Item, ...]


class Slicer(Protocol):
    """Cuts a history; deterministic in (user, seed)."""

    def split(self, user: User, seed: int) -> Split:
        """Slice, audit and pool of one user."""
        ...


@dataclass(frozen=True, slots=True)
class HoldoutSlicer:
    """Hold out `size` items for the slice and, in long histories, `audit` more.

    Attributes:
        by: "random" without replacement, "stratified" by label, or "recent" (the last ones).
        size: items of the slice, at most half the history; below 1 it is a share of the history.
        audit: items of the audit slice, cut when the history has at least `audit_from` items.
        pool: "minus_slice", or "full", which lets slice items feed the persona (the audit slice never).
    """

    by: Literal["random", "stratified", "recent"] = "random"
    size: float = 8
    audit: int = 8
    audit_from: int = 24
    pool: Literal["minus_slice", "full"] = "minus_slice"

    def __post_init__(self) -> None:
        if self.by not in SLICERS:
            msg = f"slice.by is {self.by!r}; it must be one of {', '.join(SLICERS)}"
            raise ConfigError(msg)
        numeric = isinstance(self.size, int | float) and not isinstance(self.size, bool)
        if not numeric or not 0 < self.size < math.inf or (self.size >= 1 and self.size != int(self.size)):
            msg = f"holdout is {self.size!r}; it must be a whole number of items, or a share between 0 and 1"
            raise ConfigError(msg)
        if self.pool not in ("minus_slice", "full"):
            msg = f"pool is {self.pool!r}; it must be 'minus_slice' or 'full'"
            raise ConfigError(msg)
        for name in ("audit", "audit_from"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 0:
                msg = f"{name} is {getattr(self, name)!r}; it must be a whole number of at least 0"
                raise ConfigError(msg)

    def split(self, user: User, seed: int) -> Split:
        """Slice, audit and pool; all but the pool empty when the history has under four distinct items."""
        first = {normalised(item.input): item for item in reversed(user.history)}
        distinct = [item for item in user.history if first[normalised(item.input)] is item]
        m = len(distinct)
        if m < MIN_HISTORY:
            return Split((), (), user.history)
        size = int(self.size) if self.size >= 1 else max(1, int(Fraction(str(self.size)) * m))
        order = self._order(distinct, user.id, seed)
        chosen = {item.id for item in order[: min(size, m // 2)]}
        audit = {item.id for item in order[len(chosen) :][: self.audit]} if m >= self.audit_from else set()
        held = [item for item in distinct if item.id in audit or (self.pool == "minus_slice" and item.id in chosen)]
        texts = {normalised(item.input) for item in held}
        return Split(
            slice=tuple(item for item in distinct if item.id in chosen),
            audit=tuple(item for item in distinct if item.id in audit),
            pool=tuple(item for item in user.history if normalised(item.input) not in texts),
        )

    def _order(self, items: Sequence[Item], user: str, seed: int) -> list[Item]:
        """Items in the order in which they are held out."""
        if self.by == "recent":
            return list(reversed(items))
        shuffled = [items[i] for i in stream(seed, user, "slice").permutation(len(items))]
        return shuffled if self.by == "random" else stratified(shuffled)


def stratified(items: Sequence[Item]) -> list[Item]:
    """The same items, labels taking turns (the most common first), so that every prefix holds them in proportion.

    Within a label the given order stands. The k-th of a label with n items gets the position (k + ½) / n.
    """
    by_label: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        by_label[item.label].append(item)
    ranked = [
        ((k + 0.5) / len(group), -len(group), label, item)
        for label, group in by_label.items()
        for k, item in enumerate(group)
    ]
    return [item for *_, item in sorted(ranked, key=lambda entry: entry[:3])]

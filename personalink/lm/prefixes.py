"""The prefixes that a model has read and that are kept, so that a persona that comes back is not read again.

Pure logic over token ids. Knows no model: what is kept with a prefix is opaque, and whoever keeps it tells its size.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

S = TypeVar("S")
Tokens = tuple[int, ...]


def shared(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two prompts begin with together."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def shared_by_all(prompts: Sequence[Tokens]) -> Tokens:
    """The longest prefix of all prompts; of one prompt, the whole of it."""
    first, last = min(prompts), max(prompts)  # what the first and the last in order share, all between them share
    return first[: shared(first, last)]


class Known(NamedTuple, Generic[S]):
    """What is kept of a prefix: the first `length` tokens asked about are the first of those that `state` is of."""

    length: int
    state: S | None


class Prefixes(Generic[S]):
    """States by prefix; the ones longest unused make room. One thread at a time.

    Args:
        most_bytes: memory that all states together may take; 0 keeps none.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._kept: OrderedDict[Tokens, tuple[S, int]] = OrderedDict()

    @property
    def used_bytes(self) -> int:
        """Memory that the kept states take."""
        return sum(size for _, size in self._kept.values())

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, tokens: Tokens) -> Known[S]:
        """The kept state that shares most tokens with `tokens`; (0, None) where none shares any."""
        best = max(self._kept, key=lambda kept: shared(kept, tokens), default=())
        length = shared(best, tokens)
        if not length:
            return Known(0, None)
        self._kept.move_to_end(best)
        return Known(length, self._kept[best][0])

    def keep(self, tokens: Tokens, state: S, size_bytes: int) -> None:
        """Keep `state`, which takes `size_bytes`; one whose tokens are the first of `tokens` gives it its place."""
        for kept in [kept for kept in self._kept if tokens[: len(kept)] == kept]:
            del self._kept[kept]
        if size_bytes > self._most:
            return
        self._kept[tokens] = state, size_bytes
        while self.used_bytes > self._most:
            self._kept.popitem(last=False)

    def clear(self) -> None:
        """Give all memory back."""
        self._kept.clear()

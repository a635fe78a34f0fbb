"""Agreement of two raters on an ordered scale, over a fixed set of labels. Knows labels; knows no task."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from personalink.errors import ConfigError, DataError


def quadratic_kappa(a: Sequence[str], b: Sequence[str], *, labels: Sequence[str]) -> float | None:
    """Quadratic-weighted κ (Cohen 1968): 1 − Σ w·observed / Σ w·expected, w = (i − j)² of places in `labels`.

    Labels that do not occur still hold their place, so that 1 and 5 stay four apart in data without a 2, 3 and 4.

    Args:
        a, b: the two raters' labels, n ≥ 1 of each, in the same order.
        labels: the whole scale, in order, at least two.

    Returns:
        At most 1; higher is better, 0 is chance; None where it is undefined: both give one and the same label always.

    Raises:
        DataError: no ratings, lengths that differ, or a label outside the scale.
        ConfigError: a scale of fewer than two labels, or with one twice.
    """
    place = {label: i for i, label in enumerate(labels)}
    if len(place) < 2 or len(place) != len(labels):
        msg = f"labels is {list(labels)!r:.80}; a scale needs at least two labels, each once"
        raise ConfigError(msg)
    if not len(a) or len(a) != len(b):
        msg = f"a has {len(a)} ratings and b has {len(b)}; there must be as many of each, and at least one"
        raise DataError(msg)
    table = np.zeros((len(labels), len(labels)))
    for number, (x, y) in enumerate(zip(a, b, strict=True)):
        for rater, label in (("a", x), ("b", y)):
            if label not in place:
                msg = f"{rater}: rating {number} is {label!r}; it must be one of {', '.join(map(str, labels))}"
                raise DataError(msg)
        table[place[x], place[y]] += 1
    index = np.arange(len(labels))
    weights = (index[:, None] - index) ** 2
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / len(a)
    chance = float((weights * expected).sum())
    return 1 - float((weights * table).sum()) / chance if chance > 0 else None

"""Macro-F1 over a fixed list of labels, resampled by its confusion counts. Knows labels; knows no task."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from personalink.errors import ConfigError, DataError
from personalink.stats.bootstrap import Bootstrap
from personalink.stats.records import Floats, Interval, IntervalMethod, Ints, Paired, Statistic


def macro_f1_bootstrap(
    gold: Sequence[str],
    answers: Sequence[str | None],
    *,
    labels: Sequence[str],
    seed: int,
    draws: int = 10_000,
    confidence: float = 0.95,
    method: IntervalMethod = "percentile",
) -> Interval:
    """Macro-F1 with its bootstrap interval over items; in [0, 1], higher is better.

    The mean of F1 = 2·TP / (in gold + in answers) over *all* `labels`, 0 for a label in neither (scikit-learn's
    average="macro", zero_division=0, labels=`labels`). An answer outside the labels, or None, is wrong.

    Args:
        gold: the gold labels, n ≥ 1.
        answers: as many, in the same order.
        labels: the label space, in any order.
        seed, draws, confidence, method: see `bootstrap.Bootstrap`.

    Raises:
        DataError: no items, lengths that differ, or a gold label outside `labels`.
        ConfigError: a setting is out of range, or a label stands twice in `labels`.
    """
    bootstrap = Bootstrap(draws, seed, confidence, method)
    statistic = macro_f1_of(*_codes(gold, answers, labels), len(labels))
    return bootstrap.interval(statistic, len(gold), bootstrap.values(statistic, len(gold)))


def macro_f1_difference(
    gold: Sequence[str],
    a: Sequence[str | None],
    b: Sequence[str | None],
    *,
    labels: Sequence[str],
    seed: int,
    draws: int = 10_000,
    confidence: float = 0.95,
    method: IntervalMethod = "percentile",
) -> Paired:
    """Macro-F1 of a minus that of b on the same items, with interval and p as in `paired_bootstrap`.

    Arguments and errors as in `macro_f1_bootstrap`.
    """
    bootstrap = Bootstrap(draws, seed, confidence, method)
    first, second = (macro_f1_of(*_codes(gold, answers, labels), len(labels)) for answers in (a, b))
    return bootstrap.compare(lambda w: first(w) - second(w), len(gold), scale=1.0)


def macro_f1_of(gold: Ints, answers: Ints, n_labels: int) -> Statistic:
    """Macro-F1 as a statistic.

    Args:
        gold, answers: positions in the list of labels, shape (n,) each; −1 for an answer outside it.
        n_labels: its length.
    """
    labels = np.arange(n_labels)
    in_gold = (gold[:, None] == labels).astype(np.float64)
    in_answers = (answers[:, None] == labels).astype(np.float64)
    both, either = in_gold * in_answers, in_gold + in_answers

    def statistic(weights: Floats) -> Floats:
        hits, total = weights @ both, weights @ either
        means: Floats = np.mean(2 * hits / np.maximum(total, 1), axis=1)
        return means

    return statistic


def _codes(gold: Sequence[str], answers: Sequence[str | None], labels: Sequence[str]) -> tuple[Ints, Ints]:
    place: dict[str | None, int] = {label: i for i, label in enumerate(labels)}
    if len(place) != len(labels):
        twice = next(label for i, label in enumerate(labels) if place[label] != i)
        msg = f"labels: {twice!r} stands twice; each label must stand once"
        raise ConfigError(msg)
    if not len(gold):
        msg = "gold is empty; at least one item is needed"
        raise DataError(msg)
    if len(gold) != len(answers):
        msg = f"gold has {len(gold)} labels and there are {len(answers)} answers; there must be as many of each"
        raise DataError(msg)
    for number, label in enumerate(gold):
        if label not in place:
            msg = f"gold: item {number} is {label!r}, which is not one of the labels"
            raise DataError(msg)
    codes = ([place.get(label, -1) for label in row] for row in (gold, answers))
    first, second = (np.array(row, dtype=np.int64) for row in codes)
    return first, second

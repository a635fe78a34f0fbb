"""Floors: what a user's history predicts with no model at all. Whoever claims a gain states it over these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from personalink.contexts.base import index_of
from personalink.data.types import Query, User
from personalink.tasks.base import Task
from personalink.tasks.parsing import half_up

VOTE_K = 5


def majority_label(user: User, query: Query) -> str | None:
    """The user's most common label; ties to the one used last. None without a history."""
    return _most_common([item.label for item in reversed(user.history)])


def bm25_vote(user: User, query: Query) -> str | None:
    """The most common label among the five most relevant items; ties to the better ranked."""
    return _most_common([user.history[i].label for i in index_of(user, "lucene").rank(query.input, VOTE_K)])


def median_rating(user: User, query: Query) -> str | None:
    """The median of the user's ratings, halves up."""
    return _median([item.label for item in user.history])


def bm25_median(user: User, query: Query) -> str | None:
    """The median rating of the five most relevant items, halves up."""
    return _median([user.history[i].label for i in index_of(user, "lucene").rank(query.input, VOTE_K)])


def floors_for(task: Task) -> Mapping[str, Callable[[User, Query], str | None]]:
    """Row name → predictor, for a task's kind."""
    if task.kind == "label":
        return {"Floor: majority label": majority_label, f"Floor: BM25-{VOTE_K} vote": bm25_vote}
    return {
        "Floor: median rating": median_rating,
        "Floor: most common rating": majority_label,
        f"Floor: BM25-{VOTE_K} median": bm25_median,
    }


def _most_common(labels: Sequence[str]) -> str | None:
    """The most common label; among equals the one met first."""
    return Counter(labels).most_common(1)[0][0] if labels else None


def _median(labels: Sequence[str]) -> str | None:
    if not labels:
        return None
    values = sorted(int(label) for label in labels)
    middle = len(values) // 2
    return str(values[middle] if len(values) % 2 else half_up((values[middle - 1] + values[middle]) / 2))

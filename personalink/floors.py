"""Floors: what a user's history, or the question itself, predicts with no model. Whoever claims a gain states it over
these."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from personalink.bm25 import Bm25Index
from personalink.contexts.base import index_of
from personalink.data.types import Query, User
from personalink.tasks.base import Task
from personalink.tasks.choice import ChoiceTask
from personalink.tasks.parsing import half_up
from personalink.text import one_line

VOTE_K = 5
_SENTENCE = re.compile(r"(?<=[.!?])\s+")


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


def nearest_text(user: User, query: Query) -> str | None:
    """What the user wrote for the most relevant item. None without a history."""
    ranked = index_of(user, "lucene").rank(query.input, 1)
    return user.history[ranked[0]].label if ranked else None


def first_sentence(user: User, query: Query) -> str | None:
    """The input's own first sentence: what copying alone is worth."""
    return one_line(_SENTENCE.split(query.input.strip(), maxsplit=1)[0]) or None


def nearest_option(task: ChoiceTask) -> Callable[[User, Query], str | None]:
    """The option that is the most like one of the user's items, by BM25 over each item with its right option; ties to
    the first. None without a history, or where the question lists no option."""

    def predict(user: User, query: Query) -> str | None:
        options = task.options(query.input)
        if not user.history or not options:
            return None
        index = Bm25Index([_told(item.input, task.options(item.input), item.label) for item in user.history])
        return max(options, key=lambda mark: float(index.scores(options[mark]).max()))

    return predict


def _told(text: str, options: Mapping[str, str], label: str) -> str:
    """An item's input with its right option alone."""
    opening = text.split("\n", 1)[0] if options else text
    return f"{opening} {options.get(label, '')}"


def floors_for(task: Task) -> Mapping[str, Callable[[User, Query], str | None]]:
    """Row name → predictor, for a task's kind."""
    if isinstance(task, ChoiceTask):
        return {"Floor: nearest option": nearest_option(task)}
    if task.kind == "text":
        return {"Floor: BM25-1 text": nearest_text, "Floor: first sentence of the input": first_sentence}
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

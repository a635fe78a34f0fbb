"""Made-up users and scripts for logic tests. Texts are drawn from a word list, so no two items are alike."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from personalink.canonical import digest
from personalink.data.types import Dataset, Item, Query, User
from personalink.lm.base import Completion, Request
from personalink.seeding import stream
from personalink.tasks import LabelTask, RatingTask

LABELS = ("north", "south", "east", "west")
TASK = LabelTask("compass", "Say where it lies.", LABELS)
STARS = RatingTask("stars", "Say how much this person likes it.")
WORDS = (
    "amber basin cedar delta ember fjord grove harbor island jetty kiln lagoon meadow nectar orchard pebble quarry "
    "ridge summit thicket umber valley willow yonder zephyr"
).split()


def text(seed: int, user: str, purpose: str, length: int = 12) -> str:
    """A sentence of random words that nobody else has."""
    draw = stream(seed, user, purpose)
    return " ".join(WORDS[i] for i in draw.integers(0, len(WORDS), length)) + f" {user} {purpose}"


def person(name: str, m: int = 20, *, labels: Sequence[str] = LABELS, seed: int = 1, queries: int = 1) -> User:
    """A user with `m` items and some queries."""
    draw = stream(seed, name, "labels").integers(0, len(labels), m)
    items = tuple(Item(f"{name}-{i}", text(seed, name, f"item{i}"), labels[int(draw[i])]) for i in range(m))
    asked = tuple(Query(f"{name}-q{i}", text(seed, name, f"query{i}")) for i in range(queries))
    return User(name, "people", items, asked)


def people(n: int, m: int = 20, *, labels: Sequence[str] = LABELS) -> Dataset:
    """`n` such users as a dataset; the gold of a query is drawn."""
    users = tuple(person(f"u{i}", m, labels=labels) for i in range(n))
    golds = {
        (u.id, q.id): labels[int(stream(1, u.id, q.id).integers(0, len(labels)))] for u in users for q in u.queries
    }
    return Dataset("people", "", users, golds)


def is_rewrite(request: Request) -> bool:
    """Whether a request asks for a persona rather than for a label."""
    return request.messages[0].content.startswith("You keep a short profile")


def rewrite_reply(summary: str = "Prefers the north.", rules: Any = None, exemplars: Any = ("e1", "e2")) -> str:
    """A reply that the rewriter can use."""
    made = rules if rules is not None else [{"if": "it mentions amber", "then": "north"}]
    return json.dumps({"preference_summary": summary, "decision_rules": made, "exemplars": list(exemplars)})


def random_script(seed: int, labels: Sequence[str] = LABELS) -> Callable[[Request], str | Completion]:
    """Answers and rewrites by a hash of (seed, request): some rewrites are good, some broken in the usual ways."""

    def answer(request: Request) -> str | Completion:
        key = int(digest([seed, [m.content for m in request.messages], request.sample])[:8], 16)
        if not is_rewrite(request):
            return (*labels, "nonsense")[key % (len(labels) + 1)]
        kind = key % 10
        if kind < 6:
            rules = [{"if": f"it mentions {WORDS[key % len(WORDS)]}", "then": labels[key % len(labels)]}]
            return rewrite_reply(f"Likes {WORDS[key // 7 % len(WORDS)]}.", rules, [f"e{1 + key % 4}"])
        broken = (
            Completion(rewrite_reply()[:40], "truncated"),
            Completion("", "empty"),
            "I would rather not.",
            '{"preference_summary": "half"}',
        )
        return broken[kind - 6]

    return answer

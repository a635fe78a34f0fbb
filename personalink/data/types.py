"""Users, their labelled history and their queries. The gold labels of queries are kept apart, in the dataset.

Knows nothing of tasks or models. Identity is (source, user, kind, id): files reuse ids between questions and
history items, so an id alone identifies nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Item:
    """One past (input, label) pair of a user. `date` is ISO 8601 where known; `title` where the source has one."""

    id: str
    input: str
    label: str
    date: str | None = None
    title: str = ""


@dataclass(frozen=True, slots=True)
class Query:
    """A new input to answer. Its gold label is deliberately not here."""

    id: str
    input: str
    date: str | None = None


@dataclass(frozen=True, slots=True)
class User:
    """One user: `history` in order (oldest first where dates are known) and the queries to answer.

    `group` names users known to be one person (siblings): never each other's random user.
    """

    id: str
    source: str
    history: tuple[Item, ...]
    queries: tuple[Query, ...] = ()
    group: str = ""


@dataclass(frozen=True, slots=True)
class Dataset:
    """Users of one source with the gold labels of their queries.

    Attributes:
        source: what the records are, such as "lamp2-news/dev"; part of every identity.
        task: name of the task the labels belong to ("lamp2", "lamp2_tags", "lamp3", …), or "" when unknown.
        users: in the file's order.
        golds: (user id, query id) → gold label.
        sha256: digest of the files read, so that a manifest can name its data.
        dropped: what the loader left out and how often, e.g. {"query text in own history": 3}.
    """

    source: str
    task: str
    users: tuple[User, ...]
    golds: Mapping[tuple[str, str], str] = field(default_factory=dict)
    sha256: str = ""
    dropped: Mapping[str, int] = field(default_factory=dict)

    def gold(self, user: str, query: str) -> str | None:
        """The gold label of one query, or None where the file has none (official test splits)."""
        return self.golds.get((user, query))

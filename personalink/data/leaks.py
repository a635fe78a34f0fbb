"""Queries stay out: what tells a query's text apart from history, and the check that raises when it does not.

Loaders drop and count with `holds_query`; everything that builds from a history calls `check_user` first. Identity is
(source, user, kind, id), and normalised text within the user.
"""

from __future__ import annotations

from collections.abc import Iterable

from personalink.data.types import Item, Query, User
from personalink.errors import DataError, LeakError
from personalink.text import normalised

CONTAINED_FROM = 40
"""A query's text of at least this many normalised characters is also found inside a longer item."""


def holds_query(item: Item, queries: Iterable[Query]) -> bool:
    """Whether an item is one of the user's own queries: the same text, a long query's text inside it, or the same id.

    The item's title counts as text, and so does a long label (a tweet). Ids are compared within one user only, where a
    query's own id on a history item means the query itself was filed there.
    """
    texts = (normalised(item.input), normalised(item.title))
    for query in queries:
        wanted = normalised(query.input)
        if item.id == query.id or (wanted and wanted in texts):
            return True
        if len(wanted) >= CONTAINED_FROM and any(wanted in text for text in (*texts, normalised(item.label))):
            return True
    return False


def check_user(user: User) -> None:
    """Refuse a user whose history holds one of its queries, or the same item id twice.

    Raises:
        LeakError: a query reached the history.
        DataError: two items share an id, so exemplars could not be told apart.
    """
    seen: set[str] = set()
    for item in user.history:
        if item.id in seen:
            msg = f"user {user.id}: two history items have the id {item.id!r}; ids must be distinct within a user"
            raise DataError(msg)
        seen.add(item.id)
        if holds_query(item, user.queries):
            msg = f"user {user.id}: history item {item.id!r} is one of the user's own queries; take it out"
            raise LeakError(msg)

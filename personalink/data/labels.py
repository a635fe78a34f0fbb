"""Labels in the task's own spelling: done once, at the door, so that a score never turns on "Work" or "work".

Knows of a task only that it can check a label.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from personalink.data.types import Item, User
from personalink.errors import DataError


class ChecksLabels(Protocol):
    """What is needed of a task (see `tasks.base.Task`)."""

    def check_label(self, label: str) -> str:
        """The canonical spelling; DataError when it is none of the task's."""
        ...


def labelled(user: User, task: ChecksLabels) -> User:
    """`user` with every history label as the task spells it; the same object where they are already.

    Raises:
        DataError: this is no user, or a label is none of the task's; names user and item.
    """
    if not isinstance(user, User):
        msg = f"a user must be a personalink User, not {user!r:.60}; load_records and load_lamp make them"
        raise DataError(msg)
    history = tuple(_labelled(user.id, item, task) for item in user.history)
    return user if all(a is b for a, b in zip(history, user.history, strict=True)) else replace(user, history=history)


def _labelled(user: str, item: Item, task: ChecksLabels) -> Item:
    if not isinstance(item, Item):
        msg = f"user {user}: a history item must be a personalink Item, not {item!r:.60}"
        raise DataError(msg)
    try:
        label = task.check_label(item.label)
    except DataError as error:
        msg = f"user {user}, item {item.id}: {error}"
        raise DataError(msg) from None
    return item if label == item.label else replace(item, label=label)

"""Queries stay out: planted in every way, they are found; what only resembles one is left."""

import pytest

from personalink.data.leaks import CONTAINED_FROM, check_user, holds_query
from personalink.data.types import Item, Query, User
from personalink.errors import DataError, LeakError

LONG = "A long review of a kettle that boils quickly and never leaks."
QUERY = Query("q1", LONG)
SHORT = Query("q2", "A lamp.")


@pytest.mark.parametrize(
    "item",
    [
        Item("i", LONG, "5"),
        Item("i", LONG.upper(), "5"),
        Item("i", f"  {LONG.replace(' ', '   ')}\n", "5"),
        Item("i", LONG.replace(" ", "\u00a0"), "5"),
        Item("i", LONG.replace("kettle", "ket\u00adtle"), "5"),
        Item("i", f"\ufeff{LONG}\u200b", "5"),
        Item("i", "other", "5", title=LONG.lower()),
        Item("i", f"Before it. {LONG} After it.", "5"),
        Item("i", "other", "5", title=f"Title: {LONG}"),
        Item("q1", "other", "5"),
        Item("i", "a LAMP.", "5"),
        Item("i", "x", "5", title="A  lamp."),
        Item("q2", "x", "5"),
    ],
)
def test_planted_queries_are_found(item):
    assert holds_query(item, (QUERY, SHORT))
    user = User("u", "test", (Item("a", "fine", "5"), item), (Query("q0", "none of these"), QUERY, SHORT))
    with pytest.raises(LeakError, match=rf"^user u: history item '{item.id}' is one of the user's own queries; take"):
        check_user(user)


@pytest.mark.parametrize(
    "item",
    [
        Item("i", LONG.replace("never", "seldom"), "5"),
        Item("i", LONG[: len(LONG) // 2], "5"),
        Item("i", "A lamp. And a chair, a table and all that belongs to a room.", "5"),
        Item("i", "", "5"),
        Item("q", "x", "5"),
    ],
)
def test_what_only_resembles_a_query_is_left(item):
    assert not holds_query(item, (QUERY, SHORT, Query("q3", "")))
    check_user(User("u", "test", (item,), (QUERY, SHORT)))


def test_a_query_is_found_inside_a_text_from_forty_characters_on():
    for length in (CONTAINED_FROM - 1, CONTAINED_FROM):
        text = ("a review of " * 9)[:length].rstrip().ljust(length, "x")
        assert holds_query(Item("i", f"so {text} it is", "5"), (Query("q", text),)) == (length >= CONTAINED_FROM)


def test_no_queries_and_no_history():
    assert not holds_query(Item("i", LONG, "5"), ())
    check_user(User("u", "test", (), (QUERY,)))


def test_two_items_of_one_id():
    history = (Item("i", "a", "5"), Item("j", "b", "5"), Item("i", "c", "5"))
    with pytest.raises(
        DataError, match="user u: two history items have the id 'i'; ids must be distinct within a user"
    ):
        check_user(User("u", "test", history))

"""Floors: what a history predicts with no model."""

import pytest

from personalink.data.types import Item, Query, User
from personalink.floors import (
    bm25_median,
    bm25_vote,
    first_sentence,
    floors_for,
    majority_label,
    median_rating,
    nearest_option,
    nearest_text,
)
from personalink.tasks import task

QUERY = Query("q", "a football match")


def user(*pairs) -> User:
    return User("u", "test", tuple(Item(str(i), text, label) for i, (text, label) in enumerate(pairs)))


def rated(*ratings) -> User:
    return user(*((f"text {i}", str(rating)) for i, rating in enumerate(ratings)))


@pytest.mark.parametrize(
    ("labels", "most"),
    [("", None), ("a", "a"), ("ab", "b"), ("ba", "a"), ("abab", "b"), ("aab", "a"), ("abba", "a"), ("abc", "c")],
)
def test_majority_with_ties_to_the_one_used_last(labels, most):
    assert majority_label(user(*((f"t{i}", label) for i, label in enumerate(labels))), QUERY) == most


@pytest.mark.parametrize(
    ("ratings", "median"),
    [((), None), ((4,), "4"), ((4, 5), "5"), ((2, 3), "3"), ((1, 2), "2"), ((1, 5, 5), "5"), ((1, 1, 4, 5), "3")],
)
def test_median_with_halves_up(ratings, median):
    assert median_rating(rated(*ratings), QUERY) == median


def test_votes_look_at_the_five_best():
    votes = [("a football match", "sports")] * 3 + [("match point", "games")] * 2 + [("tax", "politics")] * 20
    assert bm25_vote(user(*votes), QUERY) == "sports"
    assert bm25_median(user(*((text, str(len(label))) for text, label in votes)), QUERY) == "6"


def test_a_tied_vote_goes_to_the_better_ranked():
    pairs = [("match", "b"), ("a football match", "a"), ("football match", "a"), ("match match", "b")]
    assert bm25_vote(user(*pairs), QUERY) == "a"


def test_no_history_and_no_overlap():
    assert bm25_vote(user(), QUERY) is None
    assert bm25_median(user(), QUERY) is None
    assert bm25_vote(user(("tax", "b"), ("law", "a")), QUERY) == "b"
    assert bm25_median(rated(1, 2, 3, 4, 5, 5, 5, 5), Query("q", "…")) == "3"


def test_which_floors_a_task_has():
    assert list(floors_for(task("lamp2"))) == ["Floor: majority label", "Floor: BM25-5 vote"]
    rows = floors_for(task("lamp3"))
    assert list(rows) == ["Floor: median rating", "Floor: most common rating", "Floor: BM25-5 median"]
    assert [row(rated(5, 1, 5), QUERY) for row in rows.values()] == ["5", "5", "5"]
    assert list(floors_for(task("lamp4"))) == ["Floor: BM25-1 text", "Floor: first sentence of the input"]
    assert list(floors_for(task("lamp1"))) == ["Floor: nearest option"]


def test_the_text_of_the_most_relevant_item():
    assert nearest_text(user(("tax", "On tax"), ("a football match", "Two goals")), QUERY) == "Two goals"
    assert nearest_text(user(("law", "On law"), ("tax", "On tax")), QUERY) == "On law"  # a tie: the earlier
    assert nearest_text(user(), QUERY) is None


@pytest.mark.parametrize(
    ("text", "first"),
    [("One. Two.", "One."), ("No end", "No end"), (" So!\nWhat? ", "So!"), ("a\nb. c", "a b."), ("", None)],
)
def test_the_first_sentence_of_the_input(text, first):
    assert first_sentence(user(), Query("q", text)) == first


def test_the_option_that_is_the_most_like_an_item_with_its_right_option():
    floor = nearest_option(task("lamp1"))
    papers = user(("Graph colouring\n[1] Sorting networks\n[2] Planar graphs", "[2]"))
    assert floor(papers, Query("q", "x\n[1] Sorting networks\n[2] Planar maps")) == "[2]"  # [1] was a stranger's
    assert floor(papers, Query("q", "x\n[1] Colouring maps\n[2] Sorting")) == "[1]"
    assert floor(papers, Query("q", "x\n[1] a\n[2] b")) == "[1]"
    assert floor(papers, Query("q", "no options")) is None
    assert floor(user(), Query("q", "x\n[1] a\n[2] b")) is None

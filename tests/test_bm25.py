"""BM25: the official package as an oracle, and a defined order for every degenerate collection."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_bm25 import BM25Okapi

from personalink.bm25 import Bm25Index, tokens_of

VOCABULARY = ("a", "b", "c", "dd", "Ee", "f.", "the", "of")
documents = st.lists(st.sampled_from(VOCABULARY), max_size=9).map(" ".join)
collections = st.lists(documents, min_size=1, max_size=14)
queries = st.lists(st.sampled_from((*VOCABULARY, "unseen")), max_size=5).map(" ".join)


@settings(max_examples=200, deadline=None)
@given(collections.filter(lambda texts: any(text.split() for text in texts)), queries, st.integers(0, 15))
def test_the_official_preset_is_rank_bm25_to_the_last_bit(texts, query, k):
    theirs = BM25Okapi([text.split() for text in texts])
    ours = Bm25Index(texts, "official")
    with np.errstate(all="ignore"):
        wanted = theirs.get_scores(query.split())
    assert np.array_equal(ours.scores(query), wanted)
    top = theirs.get_top_n(query.split(), list(range(len(texts))), n=k)
    assert ours.rank(query, k) == top


def test_other_parameters_equal_rank_bm25_too():
    texts = [f"a {'b ' * i}c{i % 3}" for i in range(20)]
    theirs = BM25Okapi([text.split() for text in texts], k1=1.2, b=0.3)
    ours = Bm25Index(texts, "official", k1=1.2, b=0.3)
    assert np.array_equal(ours.scores("b c1 c2"), theirs.get_scores(["b", "c1", "c2"]))


@pytest.mark.parametrize("preset", ["lucene", "official"])
@pytest.mark.parametrize(
    "texts", [[], [""], ["", " ", "\n"], ["a"], ["a", "a"], ["a", "b"], ["a", ""], ["the of the"] * 3, ["…!?", "a"]]
)
@pytest.mark.parametrize("query", ["", "a", "unseen", "the of", "a a b", "… !"])
def test_degenerate_collections_have_an_order_and_no_error(preset, texts, query):
    index = Bm25Index(texts, preset)
    scores = index.scores(query)
    assert scores.shape == (len(texts),)
    assert np.isfinite(scores).all()
    assert sorted(index.rank(query)) == list(range(len(texts)))
    assert index.rank(query) == Bm25Index(texts, preset).rank(query)
    assert index.rank(query, 0) == []
    assert len(index.rank(query, 2)) == min(2, len(texts))


@settings(max_examples=150, deadline=None)
@given(st.lists(documents, max_size=12), queries)
def test_lucene_is_never_negative_and_ties_go_to_the_earlier(texts, query):
    index = Bm25Index(texts)
    scores = index.scores(query)
    assert (scores >= 0).all()
    assert all(value > 0 for value in index._idf.values())
    order = index.rank(query)
    for one, next_one in itertools.pairwise(order):
        assert scores[one] > scores[next_one] or (scores[one] == scores[next_one] and one < next_one)
    wanted = set(tokens_of(query, "lucene"))
    for i, text in enumerate(texts):
        assert (scores[i] > 0) == bool(wanted & set(tokens_of(text, "lucene")))


def test_a_lucene_score_by_hand():
    texts = ["red car", "red red bus", "blue"]
    red = math.log(1 + (3 - 2 + 0.5) / 2.5)
    scores = Bm25Index(texts).scores("Red, unseen")
    assert scores == pytest.approx(
        [
            red * 2.5 / (1 + 1.5 * (0.25 + 0.75 * 2 / 2)),
            red * 2 * 2.5 / (2 + 1.5 * (0.25 + 0.75 * 3 / 2)),
            0,
        ]
    )
    assert Bm25Index(texts).scores("red red") == pytest.approx(2 * scores)
    assert Bm25Index(texts).rank("red") == [1, 0, 2]


def test_a_term_in_exactly_half_still_ranks():
    assert Bm25Index(["x", "a", "b", "x"]).rank("x") == [0, 3, 1, 2]
    assert Bm25Index(["x", "y"]).rank("y", 1) == [1]
    assert Bm25Index(["y", "y"]).rank("y") == [0, 1]


def test_tokens():
    assert tokens_of("Don't STOP, naïve 3.5", "lucene") == ["don", "t", "stop", "naïve", "3", "5"]
    assert tokens_of("Don't STOP,  naïve", "official") == ["Don't", "STOP,", "naïve"]

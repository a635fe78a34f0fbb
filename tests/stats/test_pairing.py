"""Methods are paired on what both answered; who is left out is listed, and other runs are refused."""

from __future__ import annotations

import pytest

from personalink.data import load_sample, make_manifest
from personalink.errors import DataError, IntegrityError
from personalink.stats import cluster_bootstrap, pair

MANIFEST = {
    "sha256": "abc",
    "entries": [
        {"user": "u9", "queries": ["q1", "q2"]},
        {"user": "u1", "queries": ["q1"]},
        {"user": "u5", "queries": ["q7"]},
    ],
}
A = {("u1", "q1"): 1, ("u9", "q1"): 2, ("u9", "q2"): 3}
B = {("u9", "q2"): 30, ("u1", "q1"): 10}


def test_the_intersection_in_the_manifests_order():
    found = pair(A, B, manifests=(MANIFEST, dict(MANIFEST)))
    assert found.keys == (("u9", "q2"), ("u1", "q1"))
    assert (found.a, found.b) == ((3, 1), (30, 10))
    assert found.incomplete == ("u9", "u5")
    assert found.by_user() == {"u9": [(3, 30)], "u1": [(1, 10)]}


def test_without_a_manifest_sorted_and_only_those_known_are_listed():
    found = pair(A, B)
    assert found.keys == (("u1", "q1"), ("u9", "q2"))
    assert found.incomplete == ("u9",)


def test_a_method_with_itself_is_whole():
    found = pair(A, A)
    assert found.a == found.b
    assert found.incomplete == ()


def test_pairs_go_into_a_bootstrap_over_users():
    users = {user: [x - y for x, y in both] for user, both in pair(A, B).by_user().items()}
    assert cluster_bootstrap(users, seed=1).difference == -18


def test_other_runs_are_refused():
    with pytest.raises(IntegrityError, match=r"different manifests \(they differ in sha256\); only runs with the same"):
        pair(A, B, manifests=(MANIFEST, {**MANIFEST, "sha256": "abd"}))
    with pytest.raises(IntegrityError, match=r"they differ in entries, seed"):
        pair(A, B, manifests=(MANIFEST, {"sha256": "abc", "entries": [], "seed": 1}))
    with pytest.raises(IntegrityError, match="user 'u8', query 'q1' is answered but does not stand in the manifest"):
        pair({**A, ("u8", "q1"): 0}, B, manifests=(MANIFEST, MANIFEST))
    with pytest.raises(IntegrityError, match="the manifest is damaged: KeyError 'queries'"):
        pair(A, B, manifests=({"entries": [{"user": "u"}]},) * 2)


def test_real_manifests_of_one_sample_pair_and_of_two_seeds_do_not():
    data = load_sample("news")
    one, other = (make_manifest(data, n_users=6, seed=seed).as_dict() for seed in (1, 2))
    answered = {(entry["user"], query): 1 for entry in one["entries"] for query in entry["queries"]}
    assert pair(answered, answered, manifests=(one, one)).incomplete == ()
    with pytest.raises(IntegrityError, match="different manifests"):
        pair(answered, answered, manifests=(one, other))


def test_nothing_in_common_is_refused():
    with pytest.raises(DataError, match="no query that both answered"):
        pair(A, {("u2", "q1"): 1})

"""The frozen choice of users: what it depends on, who lends to whom, and what it refuses."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from personalink.data import Dataset, Item, Manifest, Query, User, data_digest, make_manifest, top_label_share
from personalink.errors import ConfigError, DataError, IntegrityError


def user(id: str, labels: str = "ab", group: str = "", queries: int = 1) -> User:
    history = tuple(Item(f"{id}-{n}", f"text {n}", label) for n, label in enumerate(labels))
    asked = tuple(Query(f"{id}-q{n}", f"question {n}") for n in range(queries))
    return User(id, "made", history, asked, group)


def dataset(*users: User) -> Dataset:
    return Dataset("made", "lamp2", users, {(u.id, q.id): "a" for u in users for q in u.queries})


MANY = dataset(*(user(f"u{n}") for n in range(30)))

users_drawn = st.lists(
    st.tuples(st.integers(0, 99).map(str), st.sampled_from(["", "g1", "g2", "g3"])),
    min_size=1,
    max_size=25,
    unique_by=lambda pair: pair[0],
)


@given(users_drawn, st.randoms(), st.integers(1, 30), st.integers(0, 3))
def test_the_order_of_users_changes_nothing(drawn, random, n_users, seed):
    users = [user(id, group=group) for id, group in drawn]
    first = make_manifest(dataset(*users), n_users=n_users, seed=seed)
    random.shuffle(users)
    assert make_manifest(dataset(*users), n_users=n_users, seed=seed) == first


@given(users_drawn, st.integers(1, 30), st.integers(0, 3))
def test_donors_are_a_derangement_and_never_siblings(drawn, n_users, seed):
    data = dataset(*(user(id, group=group) for id, group in drawn))
    manifest = make_manifest(data, n_users=n_users, seed=seed)
    groups = {u.id: u.group or u.id for u in data.users}
    ids = [entry.user for entry in manifest.entries]
    assert len({groups[id] for id in ids}) == len(ids)
    if len(ids) == 1:
        assert manifest.entries[0].donor is None
        return
    assert sorted(entry.donor for entry in manifest.entries) == sorted(ids)
    assert all(groups[entry.donor] != groups[entry.user] for entry in manifest.entries)


@given(st.integers(1, 29), st.integers(0, 5))
def test_a_smaller_run_is_the_beginning_of_a_larger_one(n, seed):
    small, large = (make_manifest(MANY, n_users=k, seed=seed) for k in (n, n + 1))
    assert [e.user for e in small.entries] == [e.user for e in large.entries][:n]


def test_the_seed_decides_and_0_is_one():
    zero, one = (make_manifest(MANY, n_users=10, seed=seed) for seed in (0, 1))
    assert zero == make_manifest(MANY, n_users=10, seed=0)
    assert {e.user for e in zero.entries} != {e.user for e in one.entries}


def test_this_choice_is_frozen():
    manifest = make_manifest(MANY, n_users=5)
    assert [e.user for e in manifest.entries] == ["u6", "u20", "u1", "u25", "u10"]


def test_filters_leave_out_count_and_are_recorded():
    data = dataset(user("1", "ab"), user("2", "aab"), user("3", "aaab"), user("4", ""), user("5", "ab", queries=0))
    manifest = make_manifest(data, n_users=9, max_top_label_share=0.75, min_history=1, max_history=4)
    assert {e.user: e.history for e in manifest.entries} == {"1": 2, "2": 3}
    assert manifest.filters == {"max_top_label_share": 0.75, "min_history": 1, "max_history": 4}
    assert (manifest.asked, manifest.available) == (9, 2)
    assert manifest.dropped == {
        "history shorter than min_history=1": 1,
        "no query": 1,
        "top label share at or over max_top_label_share=0.75": 1,
    }
    assert make_manifest(data, n_users=9, max_history=2).dropped["history longer than max_history=2"] == 2


def test_a_filter_does_not_reshuffle_the_rest():
    data = dataset(*(user(f"u{n}", "ab" if n % 2 else "aa") for n in range(30)))
    all_, some = (make_manifest(data, n_users=None, max_top_label_share=share) for share in (None, 0.6))
    assert [e.user for e in some.entries] == [e.user for e in all_.entries if int(e.user[1:]) % 2]


def test_siblings_are_counted():
    data = dataset(user("1", group="1"), user("2", group="1"), user("3"), user("4"))
    assert make_manifest(data, n_users=None).dropped == {"sibling of a chosen user": 1}


def test_no_user_left_is_told_with_the_reason():
    with pytest.raises(DataError, match=r"no user is left of 30 .*min_history=3: 30"):
        make_manifest(MANY, n_users=5, min_history=3)
    with pytest.raises(DataError, match="it has no users"):
        make_manifest(dataset(), n_users=5)
    with pytest.raises(DataError, match="occurs twice"):
        make_manifest(dataset(user("1"), user("1")), n_users=5)


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_users": 0},
        {"n_users": True},
        {"n_users": 2.0},
        {"seed": "1"},
        {"max_top_label_share": 0},
        {"max_top_label_share": 60},
        {"max_top_label_share": float("nan")},
        {"min_history": -1},
        {"min_history": None},
        {"min_history": 5, "max_history": 4},
    ],
)
def test_arguments_out_of_range_are_named(wrong):
    with pytest.raises(ConfigError, match=list(wrong)[-1]):
        make_manifest(MANY, **({"n_users": 3} | wrong))


def test_select_gives_the_users_in_order_with_one_query():
    data = dataset(*(user(str(n), queries=3) for n in range(9)))
    manifest = make_manifest(data, n_users=4)
    chosen = manifest.select(data)
    assert [u.id for u in chosen] == [e.user for e in manifest.entries]
    assert [[q.id for q in u.queries] for u in chosen] == [[f"{u.id}-q0"] for u in chosen]


def test_select_refuses_other_data():
    manifest = make_manifest(MANY, n_users=3)
    with pytest.raises(IntegrityError, match="not those of the manifest"):
        manifest.select(dataset(*MANY.users[:-1]))
    gone = replace(MANY, users=(), sha256=data_digest(MANY))
    with pytest.raises(IntegrityError, match="is not in the data"):
        manifest.select(gone)


def test_round_trip_through_json():
    manifest = make_manifest(MANY, n_users=3, max_top_label_share=0.9)
    assert Manifest.from_dict(json.loads(json.dumps(manifest.as_dict()))) == manifest


@pytest.mark.parametrize("damage", [{"format": 2}, {"entries": None}, {"entries": [{}]}, {"filters": 3}, {"seed": ...}])
def test_a_damaged_manifest_is_refused(damage):
    value = make_manifest(MANY, n_users=3).as_dict() | damage
    value = {key: part for key, part in value.items() if part is not ...}
    with pytest.raises(IntegrityError, match="manifest"):
        Manifest.from_dict(value)


def test_top_label_share():
    assert [top_label_share(user("1", labels)) for labels in ("", "a", "ab", "aab")] == [0, 1, 0.5, 2 / 3]


def test_data_without_any_query_say_what_to_do():
    data = Dataset("mine", "", tuple(User(f"u{i}", "mine", (Item("1", "x", "a"),)) for i in range(3)))
    with pytest.raises(DataError, match="none of 3 users has a query; mark rows with split=query, or leave") as refused:
        make_manifest(data, n_users=None)
    assert "\n" not in str(refused.value)
    assert "filter" not in str(refused.value)

"""Slice, audit and pool: sizes, disjoint by text, seeded by name."""

import math
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from personalink.data.types import Item, User
from personalink.errors import ConfigError
from personalink.slicing import MIN_HISTORY, SLICERS, HoldoutSlicer, Split, stratified
from personalink.text import normalised
from tests.strategies import users


def user(n: int, name: str = "u", labels: str = "a") -> User:
    return User(name, "test", tuple(Item(f"i{i}", f"text {i}", labels[i % len(labels)]) for i in range(n)))


def ids(items) -> list[str]:
    return [item.id for item in items]


def texts(items) -> set[str]:
    return {normalised(item.input) for item in items}


@pytest.mark.parametrize("by", SLICERS)
@pytest.mark.parametrize("m", [0, 1, 3, 4, 5, 7, 8, 15, 16, 17, 23, 24, 25, 100])
def test_sizes(by, m):
    split = HoldoutSlicer(by).split(user(m), 12345)
    if m < MIN_HISTORY:
        assert split == Split((), (), user(m).history)
        return
    assert len(split.slice) == min(8, m // 2)
    assert len(split.audit) == (8 if m >= 24 else 0)
    assert len(split.pool) == m - len(split.slice) - len(split.audit)


@pytest.mark.parametrize(
    ("size", "m", "held"),
    [(3, 100, 3), (3, 5, 2), (50, 20, 10), (0.5, 9, 4), (0.29, 100, 29), (0.07, 100, 7), (0.01, 10, 1), (0.9, 10, 5)],
)
def test_sizes_as_a_number_and_as_a_share(size, m, held):
    assert len(HoldoutSlicer(size=size, audit=0).split(user(m), 0).slice) == held


def test_a_share_is_exact():
    for m in range(10, 200, 13):
        for hundredths in range(1, 50):
            held = len(HoldoutSlicer(size=hundredths / 100, audit=0, by="recent").split(user(m), 0).slice)
            assert held == max(1, hundredths * m // 100), (m, hundredths)


@settings(max_examples=80, deadline=None)
@given(users(), st.integers(0, 3), st.sampled_from(SLICERS), st.sampled_from(("minus_slice", "full")), st.data())
def test_the_parts_are_disjoint_by_text(one, seed, by, pool, data):
    slicer = HoldoutSlicer(by, data.draw(st.sampled_from((8, 3, 0.3))), 8, data.draw(st.sampled_from((24, 6))), pool)
    split = slicer.split(one, seed)
    assert split == slicer.split(one, seed)
    order = {item.id: i for i, item in enumerate(one.history)}
    for part in (split.slice, split.audit, split.pool):
        assert ids(part) == sorted(ids(part), key=order.__getitem__)
    assert not texts(split.slice) & texts(split.audit)
    assert not texts(split.audit) & texts(split.pool)
    assert len(texts(split.slice)) == len(split.slice)
    assert len(texts(split.audit)) == len(split.audit)
    if pool == "minus_slice":
        assert not texts(split.slice) & texts(split.pool)
        assert texts(split.slice) | texts(split.audit) | texts(split.pool) == texts(one.history)
    else:
        assert texts(split.pool) == texts(one.history) - texts(split.audit)


def test_a_copy_under_other_case_and_space_never_stands_in_the_pool():
    history = [Item(f"i{i}", f"text {i}", "a") for i in range(6)]
    history += [Item(f"c{i}", f"  TEXT   {i}\n", "b") for i in range(6)]
    for seed in range(20):
        split = HoldoutSlicer().split(User("u", "test", tuple(history)), seed)
        assert len(split.slice) == 3
        assert len(split.pool) == 6
        assert not texts(split.slice) & texts(split.pool)


def test_copies_do_not_make_a_long_history():
    copies = User("u", "test", tuple(Item(f"i{i}", f"same {i % 3}", "a") for i in range(30)))
    assert HoldoutSlicer().split(copies, 0) == Split((), (), copies.history)


def test_seeds_are_honoured_and_0_is_one():
    one = user(60)
    slices = [tuple(ids(HoldoutSlicer().split(one, seed).slice)) for seed in range(10)]
    assert len(set(slices)) == 10
    assert slices[0] == tuple(ids(HoldoutSlicer().split(one, 0).slice))
    assert ids(HoldoutSlicer().split(one, 0).slice) != ids(HoldoutSlicer().split(replace(one, id="v"), 0).slice)


def test_the_slice_of_seed_0_is_pinned():
    assert ids(HoldoutSlicer().split(user(30), 0).slice) == ["i1", "i2", "i5", "i6", "i9", "i15", "i17", "i23"]


def test_queries_and_group_change_nothing():
    assert HoldoutSlicer().split(user(30), 1) == HoldoutSlicer().split(replace(user(30), group="g", source="o"), 1)


def test_recent_holds_out_the_last_and_audits_those_before():
    split = HoldoutSlicer("recent").split(user(30), 5)
    assert ids(split.slice) == [f"i{i}" for i in range(22, 30)]
    assert ids(split.audit) == [f"i{i}" for i in range(14, 22)]
    assert split == HoldoutSlicer("recent").split(user(30), 6)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from("aabbbbc"), min_size=1, max_size=60))
def test_every_prefix_holds_the_labels_in_proportion(labels):
    items = [Item(str(i), str(i), label) for i, label in enumerate(labels)]
    order = stratified(items)
    assert sorted(ids(order)) == sorted(ids(items))
    shares = Counter(labels)
    for n in range(len(order) + 1):
        seen = Counter(item.label for item in order[:n])
        for label, total in shares.items():
            assert abs(seen[label] - n * total / len(items)) < len(shares)
    for label in shares:
        assert ids(i for i in order if i.label == label) == ids(i for i in items if i.label == label)


def test_a_stratified_slice_is_proportional():
    split = HoldoutSlicer("stratified").split(user(80, labels="aaab"), 3)
    assert Counter(item.label for item in split.slice) == {"a": 6, "b": 2}
    assert Counter(item.label for item in split.audit) == {"a": 6, "b": 2}
    assert split != HoldoutSlicer("stratified").split(user(80, labels="aaab"), 4)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"by": "latest"}, "slice.by is 'latest'; it must be one of random, stratified, recent"),
        ({"size": 0}, "holdout is 0; it must be a whole number of items, or a share between 0 and 1"),
        ({"size": -3}, "holdout is -3"),
        ({"size": 2.5}, "holdout is 2.5"),
        ({"size": math.nan}, "holdout is nan"),
        ({"size": math.inf}, "holdout is inf"),
        ({"size": True}, "holdout is True"),
        ({"size": "8"}, "holdout is '8'"),
        ({"pool": "all"}, "pool is 'all'; it must be 'minus_slice' or 'full'"),
        ({"audit": -1}, "audit is -1; it must be a whole number of at least 0"),
        ({"audit_from": 2.5}, "audit_from is 2.5"),
    ],
)
def test_settings_out_of_range(fields, told):
    with pytest.raises(ConfigError) as caught:
        HoldoutSlicer(**fields)
    assert told in str(caught.value)

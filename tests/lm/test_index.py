"""The index: what a dictionary would say, whenever it merges and however keys begin."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import personalink.lm.index
from personalink.lm.index import Index

KEYS = st.builds(lambda start, end: bytes([start] * 8 + [end] * 24), st.integers(0, 3), st.integers(0, 3))


@settings(max_examples=200)
@given(st.lists(KEYS, max_size=20), st.lists(KEYS, max_size=20), st.integers(1, 5))
def test_it_finds_what_was_put_newest_first(there: list[bytes], added: list[bytes], new: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(personalink.lm.index, "NEW", new)
        index = Index(b"".join(key[:8] for key in there), array("Q", range(len(there))))
        for offset, key in enumerate(added, len(there)):
            index.add(key, offset)
        everything = there + added
        for wanted in {*everything}:
            found = list(index.find(wanted))
            newest = max(offset for offset, key in enumerate(everything) if key == wanted)
            assert next(offset for offset in found if everything[offset] == wanted) == newest
            assert all(everything[offset][:8] == wanted[:8] for offset in found)
        assert len(index) == len({key[:8] for key in there + added})
        assert not list(index.find(b"\xff" * 32))


def test_what_is_dropped_is_gone() -> None:
    index = Index(b"", array("Q"))
    keys = [bytes([i]) * 32 for i in range(5)]
    for i, key in enumerate(keys):
        index.add(key, i)
    index.drop(keys[1:3])
    assert [list(index.find(key)) for key in keys] == [[0], [], [], [3], [4]]
    index.drop([])
    assert len(index) == 3

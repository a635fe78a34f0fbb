"""The fake server's tokens and its prefix cache: arithmetic by hand on small prompts, and bounds that always hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from personalink.errors import ConfigError
from personalink.testing import PrefixCache, pieces, prompt_pieces
from personalink.testing.prefix import first_pieces


def test_tokens_are_words_and_marks() -> None:
    assert pieces("Don't say “über-fast” twice, 3.5x!") == [
        "Don", "'", "t", "say", "“", "über", "-", "fast", "”", "twice", ",", "3", ".", "5x", "!"
    ]  # fmt: skip
    assert prompt_pieces([{"role": "user", "content": [{"type": "text", "text": "a b"}]}])[2:4] == ["a", "b"]


@given(st.text(), st.integers(1, 20))
def test_a_cut_text_has_as_many_tokens_as_were_allowed(text: str, most: int) -> None:
    kept = first_pieces(text, most)
    assert text.startswith(kept)
    assert pieces(kept) == pieces(text)[:most]
    assert (kept == text) == (len(pieces(text)) <= most)


# the prefix cache, by hand; blocks of 4 tokens


def run(cache: PrefixCache, text: str) -> int:
    """Hits of one prompt that is over before the next comes."""
    held = cache.hold(text.split())
    assert held is not None
    cache.release(held)
    return held.cached


def test_only_full_blocks_are_hits_and_never_the_last_token() -> None:
    cache = PrefixCache(block=4)
    assert run(cache, "a b c d e f g h i") == 0
    assert run(cache, "a b c d e f g h i") == 8
    assert run(cache, "a b c d e f g h") == 4  # its last token is computed, so its last block is
    assert run(cache, "a b c d e f g X h") == 4
    assert run(cache, "X a b c d e f g h") == 0  # a block counts behind the same blocks only
    assert run(cache, "a b c") == 0
    assert run(cache, "a b c d") == 0
    assert (cache.queries, cache.hits) == (9 + 9 + 8 + 9 + 9 + 3 + 4, 16)


def test_the_block_used_longest_ago_makes_room_and_a_prompts_end_before_its_start() -> None:
    cache = PrefixCache(kv_tokens=16, block=4)  # four blocks
    run(cache, "a b c d e f g h")
    run(cache, "p q r s t u v w")
    assert run(cache, "k l m n x") == 0  # its full block and its loose one push out both of a…h
    assert run(cache, "p q r s t u v w z") == 8
    assert run(cache, "a b c d e f g h i") == 0  # three blocks, which push out k…n and t…w
    assert run(cache, "p q r s t u v w z") == 4


def test_running_requests_are_pinned_and_others_wait_for_room() -> None:
    cache = PrefixCache(kv_tokens=16, block=4)
    first = cache.hold("a b c d e f g h i".split())
    assert first is not None  # three blocks
    assert cache.hold("p q r s t".split()) is None
    assert cache.queries == 9
    shared = cache.hold("a b c d e f g h".split())
    assert shared is not None  # nothing new to hold
    assert shared.cached == 4
    cache.release(shared)
    cache.release(first)
    assert run(cache, "p q r s t") == 0
    assert cache.fits(16)
    assert not cache.fits(17)


@given(st.lists(st.lists(st.sampled_from("ab"), max_size=14), max_size=30), st.integers(4, 40))
def test_a_bounded_cache_never_holds_more_than_its_room_and_never_hits_more(
    prompts: list[list[str]], kv_tokens: int
) -> None:
    bounded, free = PrefixCache(kv_tokens, block=4), PrefixCache(block=4)
    for prompt in prompts:
        if bounded.fits(len(prompt)):
            run(bounded, " ".join(prompt))
            run(free, " ".join(prompt))
            assert len(bounded._idle) <= kv_tokens // 4
    assert bounded.hits <= free.hits
    distinct = {tuple(p[: 4 * k]) for p in prompts if bounded.fits(len(p)) for k in range(1, len(p) // 4 + 1)}
    assert set(free._idle) == {_chained(prefix) for prefix in distinct}


def _chained(prefix: tuple[str, ...]) -> int:
    parent = 0
    for i in range(0, len(prefix), 4):
        parent = hash((parent, *prefix[i : i + 4]))
    return parent


def test_what_cannot_hold_one_block_is_no_cache() -> None:
    for arguments in ((15, 16), (None, 0)):
        with pytest.raises(ConfigError, match="room for one block"):
            PrefixCache(*arguments)

"""Tokens and the prefix cache of the fake server, counted as vLLM's V1 engine counts them.

Pure bookkeeping: knows no HTTP, no clock and no answer.
"""

from __future__ import annotations

import itertools
import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from personalink.errors import ConfigError

BLOCK = 16
"""Tokens of one cache block: vLLM's default on GPUs."""

_PIECE = re.compile(r"\w+|[^\w\s]")


def pieces(text: str) -> list[str]:
    """The fake tokenizer: every run of word characters and every other visible character is one token.

    English prose comes to about five characters a token, near what current vocabularies do.
    """
    return _PIECE.findall(text)


def spaced_pieces(text: str) -> list[str]:
    """The same tokens, each with the white space before it, as a server tells the tokens of an answer."""
    ends = [0, *(found.end() for found in _PIECE.finditer(text))]
    return [text[start:end] for start, end in itertools.pairwise(ends)]


@lru_cache(maxsize=128)  # every prompt of a run has the same system message
def _kept_pieces(text: str) -> list[str]:
    return pieces(text)


def first_pieces(text: str, most: int) -> str:
    """`text` up to the end of its `most`-th token; all of it where it has no more."""
    if len(text) <= most:
        return text
    for count, found in enumerate(_PIECE.finditer(text), 1):
        if count == most:
            return text if _PIECE.search(text, found.end()) is None else text[: found.end()]
    return text


def prompt_pieces(messages: Iterable[Mapping[str, Any]]) -> list[str]:
    """The prompt of a chat as tokens: each message costs three beyond its content, the opened answer two."""
    tokens: list[str] = []
    for message in messages:
        tokens += "<|im_start|>", str(message.get("role"))
        tokens += _kept_pieces(content_text(message.get("content")))
        tokens.append("<|im_end|>")
    tokens += "<|im_start|>", "assistant"
    return tokens


def content_text(content: Any) -> str:
    """A message's content as text, whether it came as text or in parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


@dataclass(frozen=True, slots=True)
class Held:
    """The blocks of one running request; `cached` is how many of its prompt tokens were found in the cache."""

    blocks: tuple[int, ...]
    loose: int
    cached: int


class PrefixCache:
    """Automatic prefix caching in blocks of `block` tokens, least recently used out first.

    As in vLLM: only full blocks are kept and found; a block is found only behind the same blocks; the last token of a
    prompt is always computed, so at most ⌊(n − 1) / block⌋ blocks of n tokens are hits; a request's blocks are pinned
    while it runs and are then given back last block first. Simplified: generated tokens take no room and are not kept,
    and a whole prompt computed twice is kept once.

    Args:
        kv_tokens: room in tokens, running requests included; None for no bound.
        block: tokens of a block, at least 1.

    Attributes:
        queries: prompt tokens looked up so far. hits: those that were found.

    Raises:
        ConfigError: a bound below one block.
    """

    def __init__(self, kv_tokens: int | None = None, block: int = BLOCK) -> None:
        if block < 1 or (kv_tokens is not None and kv_tokens < block):
            raise ConfigError(f"kv_tokens is {kv_tokens} and block {block}; there must be room for one block")
        self.block = block
        self.room = None if kv_tokens is None else kv_tokens // block
        self.queries = self.hits = 0
        self._pins: dict[int, int] = {}  # chained hash → requests that run on the block
        self._idle: OrderedDict[int, None] = OrderedDict()  # kept blocks that nobody runs on, oldest first
        self._loose = 0  # blocks of running requests that are not full and so cannot be shared

    def hold(self, tokens: Sequence[str]) -> Held | None:
        """Pin the blocks of a prompt and count its hits; None, and nothing counted, where there is no room now."""
        size, pins, idle = self.block, self._pins, self._idle
        chain, parent = [], 0
        for start in range(0, len(tokens) - size + 1, size):
            parent = hash((parent, *tokens[start : start + size]))
            chain.append(parent)
        loose = len(tokens) % size > 0
        if self.room is not None:
            new = sum(key not in pins for key in chain) + loose
            if len(pins) + self._loose + new > self.room:
                return None
        found = 0
        for key in chain[: max(0, len(tokens) - 1) // size]:
            if key not in pins and key not in idle:
                break
            found += 1
        for key in chain:
            idle.pop(key, None)
            pins[key] = pins.get(key, 0) + 1
        self._loose += loose
        if self.room is not None:
            while len(pins) + len(idle) + self._loose > self.room:
                idle.popitem(last=False)
        self.queries += len(tokens)
        self.hits += found * size
        return Held(tuple(chain), int(loose), found * size)

    def release(self, held: Held) -> None:
        """Unpin the blocks of a request that ended; they stay in the cache, its first block longest."""
        self._loose -= held.loose
        for key in reversed(held.blocks):
            left = self._pins[key] - 1
            if left:
                self._pins[key] = left
            else:
                del self._pins[key]
                self._idle[key] = None

    def fits(self, tokens: int) -> bool:
        """Whether a prompt of `tokens` could ever run."""
        return self.room is None or -(-tokens // self.block) <= self.room

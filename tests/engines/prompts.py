"""Prompts of the real engines' tests: real news items of a bundled user behind some of the user's own."""

from __future__ import annotations

from personalink import load_sample, task
from personalink.lm import Decoding, Message, Request

SCHEMA = {
    "type": "object",
    "properties": {"rules": {"type": "array", "items": {"enum": ["murn", "tave"]}, "maxItems": 2}},
    "required": ["rules"],
    "additionalProperties": False,
}


def ask(text: str, max_tokens: int = 24, system: str = "Answer briefly.", **more: object) -> Request:
    return Request((Message("system", system), Message("user", text)), Decoding(max_tokens), **more)  # type: ignore[arg-type]


def news(
    user: int, count: int, *, demonstrations: int = 5, start: str = "", item_first: bool = False, max_tokens: int = 8
) -> list[Request]:
    """`count` items of a user behind the same `demonstrations` of the user's own, or in front of them.

    A `start` of its own keeps what a test asks out of what another left in the cache.
    """
    asked, history = task("lamp2"), load_sample("news").users[user].history
    persona = "\n\n".join(asked.demonstration(item.input, item.label) for item in history[:demonstrations])
    made = []
    for item in history[demonstrations : demonstrations + count]:
        parts = [persona, asked.question(item.input)]
        made.append(ask("\n\n".join(parts[::-1] if item_first else parts), max_tokens, f"{start}{asked.system()}"))
    return made

"""The same request again: whether the answer is the same cold, warm and in a batch, and whether its prefix is reused.

Knows one long made-up request of the kind that a run sends. Knows no protocol.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence

from personalink.doctor.findings import Finding
from personalink.errors import PersonalinkError
from personalink.lm.base import LM, Completion, Decoding, Message, Request

AT_ONCE = 8
"""Requests that are sent at the same time, so that a server that batches answers them in one batch."""

_TOPICS = ("travel", "politics", "sports", "food", "science", "money")
_DETAILS = "vLLM: start it with --enable-prompt-tokens-details"
_NO_REUSE = "vLLM: start it without --no-enable-prefix-caching; elsewhere, every prompt is then read in full"
_SAME = {
    "embedded": "set lm.slots=1",
    "llama_cpp": "llama.cpp: start it with one slot (-np 1)",
    "vllm": "vLLM: start it with VLLM_BATCH_INVARIANT=1 (GPUs of compute capability 8.0 and up)",
}
_JOURNAL = "a run that goes on is exact either way (its journal keeps every answer), a second one may differ"


async def repetition(lm: LM) -> list[Finding]:
    """Ask one request cold, again at once, and eight times at the same time: cached tokens, prefix cache, repeatable.

    Raises:
        PersonalinkError: it was not answered cold or warm.
    """
    request = _request()
    cold, warm = await lm.complete(request), await lm.complete(request)
    batch = await asyncio.gather(*(lm.complete(request) for _ in range(AT_ONCE)), return_exceptions=True)
    answers, errors = [], []
    for one in batch:
        if isinstance(one, Completion):
            answers.append(one)
        elif isinstance(one, PersonalinkError):
            errors.append(one)
        else:
            raise one
    return [_counted(cold, warm), _reused(warm), _repeatable(lm, cold, warm, answers, errors)]


def _request() -> Request:
    """A label asked for behind fifteen items, over 300 tokens; its first words are new each time, so it is cold."""
    items = "\n\n".join(
        f"Text: note {i} about {_TOPICS[i * i % 6]}, written on day {7 * i % 31} of the month\nLabel: {_TOPICS[i % 6]}"
        for i in range(15)
    )
    system = f"Check {secrets.token_hex(4)}. Name the label of the last text and say in one sentence why it fits."
    question = f"{items}\n\nText: note 16 about the price of train tickets in the mountains\nLabel:"
    return Request((Message("system", system), Message("user", question)), Decoding(max_tokens=16))


def _counted(cold: Completion, warm: Completion) -> Finding:
    """Some servers tell of cached tokens only where there are any, so the second reply decides."""
    if warm.usage.cached is None:
        return Finding("cached tokens", None, "not in replies: prefix reuse will show as unknown", _DETAILS)
    since = "" if cold.usage.cached is not None else ", from the second identical request on"
    return Finding("cached tokens", True, f"counted in replies{since}")


def _reused(warm: Completion) -> Finding:
    cached, prompt = warm.usage.cached, warm.usage.prompt
    if cached is None:
        return Finding("prefix cache", None, "without cached tokens in replies it cannot be told")
    if not cached:
        return Finding(
            "prefix cache", None, f"none of {prompt or '?'} prompt tokens were reused by a repetition", _NO_REUSE
        )
    return Finding("prefix cache", True, f"{cached} of {prompt or '?'} prompt tokens were reused by a repetition")


def _repeatable(
    lm: LM, cold: Completion, warm: Completion, answers: Sequence[Completion], errors: Sequence[PersonalinkError]
) -> Finding:
    """Whether the warm answer is the cold one, and how many of those at once are the warm one.

    An engine that reads a cached prefix, or a batch, adds the same numbers in another order, and greedy decoding may
    then take another token where two are nearly as likely.
    """
    if errors:
        return Finding("repeatable", None, f"{len(errors)} of {AT_ONCE} at once were not answered: {errors[0]}")
    again, same = warm.text == cold.text, sum(one.text == warm.text for one in answers)
    detail = f"warm {'as' if again else 'not as'} cold, {same} of {AT_ONCE} at once as warm"
    if again and same == AT_ONCE:
        return Finding("repeatable", True, detail)
    facts = lm.describe()
    kind = "embedded" if facts.get("kind") == "embedded" else str(facts.get("dialect", ""))
    remedy = _SAME.get(kind, "") if same < AT_ONCE or kind == "vllm" else ""
    return Finding("repeatable", None, detail, "; ".join(filter(None, (remedy, _JOURNAL))))

"""`BorrowedLM`: any `dspy.LM` as a personalink model, so that a program's own LM passes queue, budget and ledger too.

Knows DSPy's call; the LM's own settings (address, key, temperature, retries) hold. DSPy's cache is not asked, since it
does not tell two servers of one model name apart. No constraint is sent: what comes back is checked as always.
"""

from __future__ import annotations

import asyncio
import contextvars
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from typing import Any

from dspy import lm15
from dspy.utils.exceptions import LMError as DSPyError

from personalink.background import Closes
from personalink.canonical import digest
from personalink.dspy.translate import CARRIED, to_completion, to_ours
from personalink.lm.base import Completion, Counter, Decoding, Request
from personalink.lm.counters import EstimateCounter

PLACE = ("api_base", "base_url")
CLIENT = (
    *PLACE, "api_key", "headers", "extra_headers", "timeout", "api_version", "azure_ad_token_provider", "organization",
    "project", "extra_query", "custom_llm_provider",
)  # fmt: skip
"""Settings of a `dspy.LM` that say how it is reached and not what is asked."""

CONTROL = ("n", "num_generations", "rollout_id", "prompt_cache")


class BorrowedLM(Closes):
    """A `dspy.LM` behind personalink's protocol.

    Args:
        lm: any DSPy model. base: the decoding that stands for "not given": it is not sent.
        concurrency: calls in flight at most, each on a thread.

    Tokens are counted by the estimate, and the window is unknown.
    """

    def __init__(self, lm: Any, base: Decoding, concurrency: int = 16) -> None:
        own = {name: repr(value) for name, value in lm.kwargs.items() if name not in set(CLIENT) - set(PLACE)}
        self.identity = f"dspy|{lm.model}|{digest([lm.model_type, own])[:16]}"
        self.model: str = lm.model
        self.api_url = str(next((lm.kwargs[name] for name in PLACE if lm.kwargs.get(name)), "dspy"))
        self.window: int | None = None
        self.counter: Counter = EstimateCounter()
        self.concurrency, self.users_in_flight = concurrency, concurrency
        self._lm, self._base = lm, base
        self._context = contextvars.copy_context()
        self._threads: ThreadPoolExecutor | None = None

    async def start(self) -> None:
        """Nothing to check: DSPy finds out with the first call."""

    async def complete(self, request: Request) -> Completion:
        """Ask the DSPy model.

        Raises:
            LMError: it could not be asked.
        """
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self.concurrency, "borrowed-lm")
        asked = lm15.request_from_openai_chat(self.body(request))
        loop = asyncio.get_running_loop()
        try:
            return to_completion(await loop.run_in_executor(self._threads, self._context.copy().run, self._ask, asked))
        except DSPyError as error:
            raise to_ours(error) from error

    def _ask(self, asked: Any) -> Any:
        return self._lm(request=asked, cache=False)

    def body(self, request: Request) -> dict[str, Any]:
        """What is asked, as an OpenAI body: the LM's own settings, and what this request changes of them."""
        left_out = {*CLIENT, *CONTROL}
        body = {name: value for name, value in self._lm.kwargs.items() if name not in left_out and value is not None}
        for f in fields(Decoding):
            value = getattr(request.decoding, f.name)
            if f.name in CARRIED and value != body.get(f.name, getattr(self._base, f.name)):
                body[f.name] = value
        messages = [{"role": m.role, "content": m.content} for m in request.messages]
        return {**body, "model": self.model, "messages": messages}

    async def aclose(self) -> None:
        """End the threads; the DSPy model stays its owner's. Idempotent."""
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False)

    def describe(self) -> dict[str, Any]:
        """Its name and kind; plain JSON, no key."""
        return {"kind": "dspy", "model": self.model}

"""`ScriptedLM`: a language model whose answers are a function of yours; for tests, never for a claim.

Knows no server and no clock but the latency that it is told to have.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from personalink.background import Closes
from personalink.canonical import canonical_json, digest
from personalink.lm.base import Completion, Counter, Request
from personalink.lm.counters import EstimateCounter
from personalink.lm.settings import check_seconds, check_whole

Answer = str | Completion | Exception
Script = Callable[[Request], Answer | Awaitable[Answer]]


class ScriptedLM(Closes):
    """Answers each request with `answer(request)`: a text, a whole `Completion`, or an exception, which is raised.

    `answer` may be async. A text that is empty or white space comes back with outcome "empty". `requests` holds every
    request in the order of arrival; `most_at_once` the largest number that were in flight together. At most
    `concurrency` are answered at a time, each after `latency_s` seconds.

    Raises:
        ConfigError: a number out of range.
    """

    def __init__(
        self,
        answer: Script,
        *,
        identity: str = "scripted",
        model: str = "scripted",
        window: int | None = None,
        counter: Counter | None = None,
        concurrency: int = 64,
        users_in_flight: int | None = None,
        latency_s: float = 0.0,
    ) -> None:
        check_whole(1, concurrency=concurrency, users_in_flight=users_in_flight, window=window)
        check_seconds({"latency_s": latency_s}, zero=True)
        self.identity, self.model, self.window = identity, model, window
        self.counter: Counter = counter or EstimateCounter()
        self.concurrency, self.users_in_flight = concurrency, users_in_flight or 4 * concurrency
        self.requests: list[Request] = []
        self.most_at_once = 0
        self._answer, self._latency_s, self._in_flight = answer, latency_s, 0
        self._gates: dict[asyncio.AbstractEventLoop, asyncio.Semaphore] = {}

    async def start(self) -> None:
        """Nothing to check."""

    async def complete(self, request: Request) -> Completion:
        """What `answer` says, or raise what it returns or raises."""
        gate = self._gates.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self.concurrency))
        async with gate:
            self.requests.append(request)
            self._in_flight += 1
            self.most_at_once = max(self.most_at_once, self._in_flight)
            try:
                await asyncio.sleep(self._latency_s)
                said = self._answer(request)
                answer: Answer = await said if inspect.isawaitable(said) else said
            finally:
                self._in_flight -= 1
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Completion):
            return answer
        return Completion(answer, "ok" if answer.strip() else "empty", model=self.model)

    async def aclose(self) -> None:
        """Nothing to give back."""

    def describe(self) -> dict[str, Any]:
        """Its names; plain JSON."""
        return {"kind": "scripted", "identity": self.identity, "model": self.model, "window": self.window}


def hashed_answers(labels: Sequence[str] = ()) -> Script:
    """Answers drawn from a hash of the request: the same for the same request, whatever came before.

    Under a schema: JSON that fits it. Under choices: one of them. Else one of `labels`, chosen by the messages alone;
    without labels "answer" and eight hexadecimal digits. It stands in for logic; its scores mean nothing.
    """

    def answer(request: Request) -> str:
        constraint = request.constraint
        if constraint is not None and constraint.schema is not None:
            return canonical_json(_value(constraint.schema, request.key("hashed")))
        spoken = digest([[m.role, m.content] for m in request.messages] + [["sample", str(request.sample)]])
        offered = constraint.choices if constraint is not None else labels
        return offered[int(spoken, 16) % len(offered)] if offered else f"answer {spoken[:8]}"

    return answer


def _value(schema: Mapping[str, Any], seed: str) -> Any:
    """A value that fits `schema`, drawn from `seed`; arrays have 1 to 3 entries where `maxItems` lets them."""
    number = int(digest([seed, dict(schema)])[:12], 16)
    if schema.get("enum"):
        return schema["enum"][number % len(schema["enum"])]
    match schema.get("type"):
        case "object":
            return {name: _value(sub, f"{seed}/{name}") for name, sub in schema.get("properties", {}).items()}
        case "array":
            most = min(1 + number % 3, schema.get("maxItems", 3))
            return [_value(schema.get("items", {}), f"{seed}/{i}") for i in range(most)]
        case "integer" | "number":
            return number % 100
        case "boolean":
            return number % 2 == 0
    return f"text {number:08x}"

"""Bounded spend: what a request can cost at most is reserved before it is sent, so that no limit is ever exceeded.

Calls, tokens and money; of a run and of a user; over all attempts. Where a limit is near, a request waits for
those in flight to tell what they really took. One budget may be shared by several event loops and threads. Knows
nothing of transports.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from personalink.errors import BudgetExceeded, ConfigError
from personalink.lm.base import Request, Usage

MESSAGE_MARGIN = 16
"""Tokens a message may cost beyond its text: role, marks, a template's own words."""


@dataclass(frozen=True, slots=True)
class Prices:
    """What a model costs in any one currency; 0 for what is not paid for.

    Attributes:
        prompt, cached, completion: of a million tokens; cached None: as `prompt`.
        gpu_hour, gpus: of one GPU for an hour, and how many serve the model; told in plans and cost tables, never
            counted against a limit.
        tokens_per_s: prompt and answer tokens that they take a second, for the plan; None: as measured in this run.

    Raises:
        ConfigError: a price that is negative or no finite number, fewer than one GPU, a speed that is not above 0.
    """

    prompt: float = 0.0
    cached: float | None = None
    completion: float = 0.0
    gpu_hour: float = 0.0
    gpus: int = 1
    tokens_per_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("prompt", "cached", "completion", "gpu_hour"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                msg = f"budget.prices.{name} is {value}; it must be a number of at least 0"
                raise ConfigError(msg)
        if self.gpus < 1:
            msg = f"budget.prices.gpus is {self.gpus}; it must be at least 1"
            raise ConfigError(msg)
        if self.tokens_per_s is not None and not 0 < self.tokens_per_s < math.inf:
            msg = f"budget.prices.tokens_per_s is {self.tokens_per_s}; it must be above 0, or null to measure it"
            raise ConfigError(msg)

    def of(self, usage: Usage) -> float:
        """Cost of an answer; unknown tokens cost nothing here and keep their reservation in `Budget`."""
        prompt, cached = usage.prompt or 0, usage.cached or 0
        cheaper = self.prompt if self.cached is None else self.cached
        return ((prompt - cached) * self.prompt + cached * cheaper + (usage.completion or 0) * self.completion) / 1e6


@dataclass(frozen=True, slots=True)
class Limits:
    """What may be spent; None for no limit.

    Attributes:
        calls, tokens, money: by the whole run, all attempts together. tokens: prompt and completion.
        user_calls, user_tokens: by any one user.
        seconds: of this attempt; nothing is sent after them (what is in flight is finished).
        prices: what money is counted by.
    """

    calls: int | None = None
    tokens: int | None = None
    money: float | None = None
    user_calls: int | None = None
    user_tokens: int | None = None
    seconds: float | None = None
    prices: Prices = field(default_factory=Prices)

    def __post_init__(self) -> None:
        for name in ("calls", "tokens", "money", "user_calls", "user_tokens", "seconds"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                msg = f"budget.{name} is {value}; it must be at least 0"
                raise ConfigError(msg)
        if self.money is not None and not (self.prices.prompt or self.prices.completion):
            msg = "budget.money is set and budget.prices are 0: nothing would ever be counted against it"
            raise ConfigError(msg)


@dataclass(slots=True)
class Spent:
    """Spent and reserved of one account."""

    calls: int = 0
    tokens: int = 0
    money: float = 0.0

    def add(self, calls: int, tokens: int, money: float) -> None:
        """Add (or, with negative numbers, give back)."""
        self.calls += calls
        self.tokens += tokens
        self.money += money


def most_tokens(request: Request) -> int:
    """An upper bound of what a request can take: a token of a byte-level vocabulary covers at least one byte."""
    prompt = sum(len(m.content.encode("utf-8", "replace")) + MESSAGE_MARGIN for m in request.messages)
    return prompt + MESSAGE_MARGIN + request.decoding.max_tokens


class Budget:
    """The accounts of a run, for any number of event loops and threads at once.

    Args:
        limits: what may be spent.
        clock: monotonic seconds.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.total = Spent()
        self.users: dict[str, Spent] = {}
        self._clock = clock
        self._began = clock()
        self._reserved: Counter[str] = Counter()
        self._lock = threading.Lock()  # held for arithmetic alone, never across an await
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def paid(self, user: str, usage: Usage) -> None:
        """Enter what an earlier attempt paid."""
        with self._lock:
            self._enter(user, 1, (usage.prompt or 0) + (usage.completion or 0), self.limits.prices.of(usage))

    def _enter(self, user: str, calls: int, tokens: int, money: float) -> None:
        self.total.add(calls, tokens, money)
        self.users.setdefault(user, Spent()).add(calls, tokens, money)

    @asynccontextmanager
    async def reserve(self, user: str, request: Request) -> AsyncIterator[Callable[[Usage], None]]:
        """Hold what a request can cost at most while it is out; tell the callable what it really took.

        A request that is never settled (it failed) is given back: nothing was paid that anybody told us of.

        Raises:
            BudgetExceeded: the request could take the run or the user over a limit.
        """
        tokens = most_tokens(request)
        prices = self.limits.prices
        money = max(prices.of(Usage(tokens, 0, 0)), prices.of(Usage(0, 0, tokens)))
        while (settled := self._reserve(user, tokens, money)) is not None:
            await settled.wait()
        told: list[Usage] = []
        try:
            yield told.append
        finally:
            self._settle(user, tokens, money, told)

    def _reserve(self, user: str, tokens: int, money: float) -> asyncio.Event | None:
        """Reserve (None), or say what to wait for before trying again: the next request of anybody that is settled."""
        with self._lock:
            refusal = self._refusal(user, tokens, money)
            if refusal is None:
                self._enter(user, 1, tokens, money)
                self._reserved[user] += 1
                return None
            out = self._reserved.total() if refusal.whole_run else self._reserved[user]
            if not out or refusal.hard:
                raise BudgetExceeded(refusal.why, whole_run=refusal.whole_run)
            settled = asyncio.Event()
            self._waiting.append((asyncio.get_running_loop(), settled))
            return settled

    def _settle(self, user: str, tokens: int, money: float, told: list[Usage]) -> None:
        """Give the reservation back, enter what was really taken, and wake whoever waits, on whichever loop."""
        with self._lock:
            self._reserved[user] -= 1
            self._enter(user, -1, -tokens, -money)
            if told:
                known = told[0].prompt is not None and told[0].completion is not None
                used = (told[0].prompt or 0) + (told[0].completion or 0)
                self._enter(user, 1, used if known else tokens, self.limits.prices.of(told[0]) if known else money)
            waiting, self._waiting = self._waiting, []
        for loop, settled in waiting:
            with suppress(RuntimeError):  # that loop was closed meanwhile: nobody waits there any more
                loop.call_soon_threadsafe(settled.set)

    def _refusal(self, user: str, tokens: int, money: float) -> _Refusal | None:
        limits, total, mine = self.limits, self.total, self.users.get(user, Spent())
        if limits.seconds is not None and self._clock() - self._began >= limits.seconds:
            return _Refusal(f"budget.seconds ({limits.seconds:g}) is used up", True, True)
        for name, limit, would, whole in (
            ("calls", limits.calls, total.calls + 1, True),
            ("tokens", limits.tokens, total.tokens + tokens, True),
            ("money", limits.money, total.money + money, True),
            ("user_calls", limits.user_calls, mine.calls + 1, False),
            ("user_tokens", limits.user_tokens, mine.tokens + tokens, False),
        ):
            if limit is not None and would > limit:
                return _Refusal(f"budget.{name} ({limit:g}) could be exceeded by the next request", whole, False)
        return None


@dataclass(frozen=True, slots=True)
class _Refusal:
    why: str
    whole_run: bool
    hard: bool

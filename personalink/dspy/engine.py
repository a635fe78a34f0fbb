"""`connect`: a `dspy.LM` whose calls go through personalink: its transport, queue, budget, cache, ledger, constraint.

DSPy's own cache is off for it, since that cache does not tell two servers of one model name apart, and so are DSPy's
retries, since the transport has retried already. Knows no program and no persona.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import dspy
from dspy import lm15

from personalink import background
from personalink import lm as models
from personalink.canonical import canonical_json
from personalink.dspy.translate import CARRIED, to_lm15, to_request, to_response
from personalink.errors import ConfigError, PersonalinkError
from personalink.lm.base import LM, Completion, Decoding, Request
from personalink.lm.budget import Budget, Limits
from personalink.lm.cache import Cache, cache_path
from personalink.lm.gateway import Gateway
from personalink.lm.journal import Journal
from personalink.lm.ledger import Bill, Ledger

T = TypeVar("T")
DECODING = Decoding(max_tokens=1024)
"""What is sent where DSPy says nothing: greedy, with room for a program's fields."""

_ASKING, _CHOICES = "personalink_asking", "personalink_choices"  # names in DSPy's settings, which its threads share
_paid: ContextVar[list[bool] | None] = ContextVar("paid", default=None)
_known: WeakValueDictionary[str, Engine] = WeakValueDictionary()
_knowing = threading.Lock()


@dataclass(slots=True)
class Asking:
    """Whom the calls below are for, and what went wrong with them, also where a program swallowed it."""

    bill: Bill
    failed: list[PersonalinkError] = field(default_factory=list)


@contextlib.contextmanager
def asking(asked: Asking) -> Iterator[None]:
    """Bill every call below, in this thread and in DSPy's own, to `asked`."""
    with dspy.context(**{_ASKING: asked}):
        yield


@contextlib.contextmanager
def allowing(choices: tuple[str, ...]) -> Iterator[None]:
    """Ask our engines below to allow nothing but `choices`; none for no constraint."""
    with dspy.context(**{_CHOICES: choices}):
        yield


class _Noting:
    """A model that notes, for whoever asks, that an answer was paid for now and did not come from memory."""

    def __init__(self, lm: LM) -> None:
        self._lm = lm

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lm, name)

    async def complete(self, request: Request) -> Completion:
        completion = await self._lm.complete(request)
        if (noted := _paid.get()) is not None:
            noted.append(True)
        return completion


class Engine(background.Closes):
    """An engine for `dspy.LM(engine=…)` over a personalink model; threads and event loops may share it.

    Args:
        lm: who answers. journal, ledger, budget, cache, scan: as `Gateway` takes them.
        decoding: what is sent where DSPy says nothing.

    Attributes:
        gateway: what its calls pass through. ledger: calls and tokens, equal to the server's count at any concurrency.

    A repeated draw (temperature above 0) is a new answer, the n-th of its prompt, with the seed `seed + n`: with a
    journal, a program that is run again gets the same draws again. A greedy answer that is known is not asked for
    again and has no usage.
    """

    supports_response_schema = True
    supported_params = frozenset({*CARRIED, "response_format", "logprobs", "top_logprobs"})

    def __init__(
        self,
        lm: LM,
        journal: Journal | None = None,
        ledger: Ledger | None = None,
        *,
        budget: Budget | None = None,
        cache: Cache | None = None,
        scan: bool = True,
        decoding: Decoding = DECODING,
    ) -> None:
        self.lm, self.decoding = lm, decoding
        noting: Any = _Noting(lm)
        self.gateway = Gateway(noting, journal, ledger, budget=budget, cache=cache, scan=scan)
        self._drawn: Counter[str] = Counter()
        self._recipe: dict[str, Any] | None = None

    @property
    def ledger(self) -> Ledger:
        """Calls and tokens by user, phase and depth."""
        return self.gateway.ledger

    def complete(self, request: Any) -> Any:
        """Answer a `dspy.lm15.Request` with a `dspy.lm15.Response`.

        Raises:
            dspy.lm15.LM15Error: the kind that tells DSPy what happened; our error is its cause.
        """
        return background.run(self.answer(request, *_asked()))

    def stream(self, request: Any) -> Iterator[Any]:
        """The same as events; the answer comes in one piece."""
        return iter(lm15.response_to_events(self.complete(request)))

    async def answer(self, request: Any, asked: Asking, choices: tuple[str, ...]) -> Any:
        """`complete` for somebody named, on the background loop."""
        try:
            completion, paid = await self.ask(request, asked.bill, choices)
        except PersonalinkError as error:
            asked.failed.append(error)
            theirs = to_lm15(error)
            if theirs is error:
                raise
            raise theirs from error
        return to_response(completion, request.model, paid=paid)

    async def ask(self, request: Any, bill: Bill, choices: tuple[str, ...]) -> tuple[Completion, bool]:
        """(the answer to a `dspy.lm15.Request`, whether it was paid for now), on the background loop.

        Raises:
            PersonalinkError: no answer could be had.
            dspy.lm15.UnsupportedFeatureError: see `to_request`.
        """
        await self.lm.start()
        noted: list[bool] = []
        _paid.set(noted)  # the gateway asks in a task of its own, which has this list too
        completion = await self.gateway.complete(self._one_draw(to_request(request, self.decoding, choices)), bill)
        return completion, bool(noted)

    def _one_draw(self, request: Request) -> Request:
        if request.decoding.temperature <= 0:
            return request
        key = request.key(self.lm.identity)
        self._drawn[key] += 1
        return replace(request, sample=self._drawn[key] - 1)

    async def aclose(self) -> None:
        """Give the model back. Idempotent; the next call starts it again."""
        await self.lm.aclose()

    def dump_state(self) -> dict[str, Any]:
        """What `connect` was given, as plain JSON without a key, so that a program that holds this can be saved.

        Raises:
            ConfigError: it was not made by `connect` with plain values.
        """
        if self._recipe is None:
            msg = "this engine cannot be saved: it was not made by connect(…) with plain values; set the LM after load"
            raise ConfigError(msg)
        return self._recipe

    @classmethod
    def load_state(cls, state: Mapping[str, Any]) -> Engine:
        """The engine that `dump_state` told; the same object where one is alive."""
        with _knowing:
            return _known.get(canonical_json(state)) or _engine(dict(state))

    def __deepcopy__(self, memo: Any) -> Engine:
        return self  # borrowed, like a connection

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).load_state, (self.dump_state(),)


class AsyncEngine:
    """The async twin of an `Engine`, for `dspy.LM(async_engine=…)`: the same gateway, ledger and connection."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def complete(self, request: Any) -> Any:
        """`Engine.complete`, awaited in any event loop."""
        return await on_background(self.engine.answer(request, *_asked()))

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        """The same as events; the answer comes in one piece."""
        for event in lm15.response_to_events(await self.complete(request)):
            yield event

    def dump_state(self) -> dict[str, Any]:
        """See `Engine.dump_state`."""
        return self.engine.dump_state()

    @classmethod
    def load_state(cls, state: Mapping[str, Any]) -> AsyncEngine:
        """The twin of `Engine.load_state(state)`."""
        return cls(Engine.load_state(state))

    def __deepcopy__(self, memo: Any) -> AsyncEngine:
        return self


def _asked() -> tuple[Asking, tuple[str, ...]]:
    """Who asks here, and what may be answered."""
    return dspy.settings.get(_ASKING) or Asking(Bill(phase="dspy")), dspy.settings.get(_CHOICES) or ()


async def on_background(work: Coroutine[Any, Any, T]) -> T:
    """Await work of the background loop in any loop; a cancelled waiter cancels it."""
    where = background.loop()
    if asyncio.get_running_loop() is where:
        return await work
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, where))


def connect(
    where: str | LM,
    *,
    model: str | None = None,
    decoding: Decoding = DECODING,
    budget: Limits | None = None,
    cache: bool | str | Path | None = None,
    **options: Any,
) -> Any:
    """A `dspy.LM` that asks `where` through personalink; nothing is asked or started yet.

    Args:
        where: what `personalink.connect` takes ("embedded", a URL, a .gguf file, …), or a model that it made.
        model: the model's name there. options: what `personalink.connect` passes on.
        decoding: what is sent where DSPy says nothing.
        budget: what may be spent through this LM. cache: answers kept across runs: True for the default file, or a
            path.

    `lm.engine.ledger` counts; `lm.engine.close()` gives the model back.

    Raises:
        ConfigError: see `personalink.connect`.
    """
    if isinstance(where, str):
        state = {"where": where, "model": model, "decoding": asdict(decoding), **options}
        engine = _engine(state, budget=budget, cache=cache)
    else:
        if model is not None or options:
            msg = "model and options belong to a place such as a URL; this model has been made already"
            raise ConfigError(msg)
        engine = Engine(where, budget=_budget(budget), cache=_cache(cache), decoding=decoding)
    return lm_over(engine, engine.lm.model or str(where))


def lm_over(engine: Engine, name: str, **settings: Any) -> Any:
    """A `dspy.LM` of that name over an engine, without DSPy's cache and retries."""
    twin = AsyncEngine(engine)
    return dspy.LM(name, engine=engine, async_engine=twin, cache=False, num_retries=0, **settings)


def _engine(state: dict[str, Any], *, budget: Limits | None = None, cache: bool | str | Path | None = None) -> Engine:
    """The engine of what `connect` was given; it can be saved where that is plain values and nothing else."""
    options = {name: value for name, value in state.items() if name not in ("where", "model", "decoding")}
    lm = models.connect(state["where"], model=state["model"], **options)
    engine = Engine(lm, budget=_budget(budget), cache=_cache(cache), decoding=Decoding(**state["decoding"]))
    if budget is None and cache is None:
        with contextlib.suppress(TypeError, ValueError):  # an option that is no plain value
            _known[canonical_json(state)] = engine
            engine._recipe = state
    return engine


def _budget(limits: Limits | None) -> Budget | None:
    return None if limits is None else Budget(limits)


def _cache(where: bool | str | Path | None) -> Cache | None:
    path = cache_path(where)
    return None if path is None else Cache(path)

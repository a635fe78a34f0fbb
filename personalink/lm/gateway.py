"""What every request passes through: journal, cache, ledger, the sharing of identical requests, the drain on Ctrl-C.

Knows nothing of tasks or personas; it wraps any `LM`. Two callers that ask the same question at once share one
request, and a question that the journal or the cache answers is not sent.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from personalink.errors import Interrupted, LMError, NotAnswered
from personalink.lm.answered import Answered
from personalink.lm.base import LM, Completion, Counter, Request, Usage, asking_for
from personalink.lm.budget import Budget
from personalink.lm.cache import Cache, Who, who_answers
from personalink.lm.journal import Journal
from personalink.lm.ledger import Bill, Ledger

_STOPPING = "stopping: no new requests are sent"
MEMORY = 16_384
"""Answers kept in memory where there is no journal: the last so many that were asked for, some 10 to 40 MB."""

_CACHED = "cached"  # stands behind the bill of a journal record whose answer the cache gave; others have the bill alone


@dataclass(slots=True)
class _Lane:
    """What belongs to one event loop: its queue (first come, first served, so a user's items stay in order) and what
    it is asking."""

    queue: asyncio.Semaphore
    asking: dict[str, asyncio.Task[Completion]] = field(default_factory=dict)


class Gateway:
    """One model behind a journal and a ledger.

    Args:
        lm: who answers.
        journal: the run's journal; None keeps the last `MEMORY` answers in memory only.
        ledger: counts; a new one by default.
        budget: what may be spent; None for no limit. Two gateways of one run share it.
        cache: answers of other runs, asked after the journal; its owner closes it. None asks for each.
        scan: enter into the ledger what the journal says was paid before; False for a second gateway on it.

    Attributes:
        sent: requests sent so far. cached: requests that the cache answered. in_flight: requests not answered yet.
        failed: requests that raised.
        draining: set it to send nothing more; requests in flight still finish and are kept.
    """

    def __init__(
        self,
        lm: LM,
        journal: Journal | None = None,
        ledger: Ledger | None = None,
        *,
        budget: Budget | None = None,
        cache: Cache | None = None,
        scan: bool = True,
    ) -> None:
        self.lm = lm
        self.journal = journal
        self.ledger = ledger or Ledger()
        self.budget = budget
        self.cache = cache
        self.sent = 0
        self.cached = 0
        self.in_flight = 0
        self.failed = 0
        self.tokens = 0
        self.draining = False
        self.on_answer: Callable[[], None] = lambda: None
        self._lanes: WeakKeyDictionary[asyncio.AbstractEventLoop, _Lane] = WeakKeyDictionary()
        self._memory: OrderedDict[str, Completion] = OrderedDict()
        self._who: Who | None = None
        self._answered = Answered(None if journal is None else journal.path.with_name("answered_by.json"))
        if journal is not None and scan:
            self._enter(journal)

    def _enter(self, journal: Journal) -> None:
        """Enter what was paid before."""
        own = len(Bill._fields)
        for written, usages, retries in journal.bills():
            bill = Bill(*written[:own])
            if written[own:] == [_CACHED]:
                self.ledger.cached(bill, len(usages))
                continue
            self.ledger.paid_before(bill, usages, retries)
            if self.budget is not None:
                for usage in usages:
                    self.budget.paid(bill.user, Usage(*usage))

    @property
    def counter(self) -> Counter:
        """The model's own counter of tokens."""
        return self.lm.counter

    @property
    def window(self) -> int | None:
        """The model's context length in tokens, None when unknown."""
        return self.lm.window

    async def complete(self, request: Request, bill: Bill) -> Completion:
        """Answer a request from the journal, from an identical one in flight, from the cache, or by asking.

        Raises:
            LMError: the model could not be asked.
            BudgetExceeded: the request could exceed a limit; it was not sent.
            Interrupted: the run is draining and the journal does not hold the answer.
            IntegrityError: another model answers than before; its answer is not kept.
        """
        key = request.key(self.lm.identity)
        known = self.journal.get(key) if self.journal is not None else self._remembered(key)
        if known is not None:
            self.ledger.replayed(bill)
            return known
        lane = self._lane()
        asking = lane.asking.get(key)
        if asking is not None:
            self.ledger.replayed(bill)
        else:
            if self.draining:
                raise Interrupted(_STOPPING)
            found = self.cache.get(key, self._answerer) if self.cache is not None else None
            if found is not None and self._answered.fits(self.lm.identity, found.model, self._dialect):
                self._cached(key, found, bill)
                return found
            asking = asyncio.create_task(self._ask(key, request, bill, lane.queue))
            lane.asking[key] = asking
            asking.add_done_callback(lambda done: _forget(lane, key, done))
        return await asyncio.shield(asking)

    def _lane(self) -> _Lane:
        """The running loop's own: a queue or a task of one loop cannot be waited for in another."""
        loop = asyncio.get_running_loop()
        if loop not in self._lanes:
            self._lanes[loop] = _Lane(asyncio.Semaphore(self.lm.concurrency))
        return self._lanes[loop]

    async def _ask(self, key: str, request: Request, bill: Bill, queue: asyncio.Semaphore) -> Completion:
        asking_for.set(bill.user)  # in this task alone
        async with queue:
            if self.draining:
                raise Interrupted(_STOPPING)
            if self.budget is None:
                completion = await self._send(request, bill)
            else:
                async with self.budget.reserve(bill.user, request) as settle:
                    completion = await self._send(request, bill)
                    settle(completion.usage)
        self._answered.hold(self.lm.identity, completion.model, self._dialect)
        self._keep(key, completion, list(bill))
        if self.cache is not None:
            self.cache.put(key, self._answerer, completion)
        self.ledger.paid(bill, completion.usage, completion.retries)
        self.tokens += (completion.usage.prompt or 0) + (completion.usage.completion or 0)
        self.on_answer()
        return completion

    async def _send(self, request: Request, bill: Bill) -> Completion:
        self.sent += 1
        self.in_flight += 1
        try:
            return await self.lm.complete(request)
        except BaseException as error:
            if isinstance(error, LMError) and not isinstance(error, NotAnswered):  # that was never sent
                self.ledger.failed(bill, error.retries)
            self.failed += 1
            raise
        finally:
            self.in_flight -= 1

    def _cached(self, key: str, completion: Completion, bill: Bill) -> None:
        """Make an answer of the cache the run's own, so that going on with the run needs no cache."""
        self._answered.hold(self.lm.identity, completion.model, self._dialect)
        self._keep(key, completion, [*bill, _CACHED])
        self.cached += 1
        self.ledger.cached(bill)
        self.on_answer()

    def _keep(self, key: str, completion: Completion, bill: list[Any]) -> None:
        if self.journal is not None:
            self.journal.put(key, completion, bill)
            return
        self._memory[key] = completion
        if len(self._memory) > MEMORY:
            self._memory.popitem(last=False)

    def _remembered(self, key: str) -> Completion | None:
        if key in self._memory:
            self._memory.move_to_end(key)
        return self._memory.get(key)

    @property
    def _answerer(self) -> Who:
        """Who answers, as the model describes itself when it is first asked for."""
        if self._who is None:
            self._who = who_answers(self.lm)
        return self._who

    @property
    def _dialect(self) -> str | None:
        """Of the server behind the model, where it is one."""
        return getattr(self.lm, "dialect", None)

    async def drain(self) -> None:
        """Send nothing more and wait for what is in flight."""
        self.draining = True
        if asking := self._lane().asking:
            await asyncio.wait(list(asking.values()))


def _forget(lane: _Lane, key: str, done: asyncio.Task[Completion]) -> None:
    lane.asking.pop(key, None)
    if not done.cancelled():
        done.exception()  # an asker that was cancelled leaves nobody to read it

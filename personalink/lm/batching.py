"""Requests that wait together are answered together: a queue in front of one worker thread.

First come, first served, up to `size` at once. Whatever was asked in one turn of an event loop waits together; nothing
waits for a clock. Knows no model: what a batch means is the `run` that it is given.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from personalink.errors import LMError

A = TypeVar("A")
B = TypeVar("B")


@dataclass(slots=True, eq=False)
class Job(Generic[A, B]):
    """One thing asked, and the place for its answer."""

    asked: A
    place: Future[B] = field(default_factory=Future)

    @property
    def wanted(self) -> bool:
        """False once it is answered or whoever asked has gone."""
        return not self.place.done()

    def answer(self, value: B) -> None:
        """Hand the answer over; nothing happens where nobody waits for it any more."""
        with suppress(InvalidStateError):
            self.place.set_result(value)

    def fail(self, error: BaseException) -> None:
        """Raise `error` where the answer was awaited; nothing happens where nobody waits any more."""
        with suppress(InvalidStateError):
            self.place.set_exception(error)


class Batcher(Generic[A, B]):
    """Answers jobs in batches on one thread.

    Args:
        run: answers every job of a batch, each as soon as it can, and ends early where none is `wanted` any more;
            called with one batch at a time. What it raises becomes the error of the jobs that it left unanswered, and
            the next batch goes on.
        size: jobs in a batch, at most.

    Any event loop may ask, several at once too.
    """

    def __init__(self, run: Callable[[list[Job[A, B]]], None], size: int) -> None:
        self._run, self._size = run, size
        self._waiting: deque[Job[A, B]] = deque()
        self._batch: list[Job[A, B]] = []
        self._thread = ThreadPoolExecutor(1, "personalink-batches")
        self._lock = threading.Lock()
        self._at_work = self._closed = False

    async def ask(self, asked: A) -> B:
        """The answer to `asked`.

        Raises:
            LMError: closed before it was answered.
            Exception: what `run` raised.
        """
        job: Job[A, B] = Job(asked)
        with self._lock:
            if self._closed:
                raise LMError("the model was closed")
            self._waiting.append(job)
        asyncio.get_running_loop().call_soon(self._wake)  # after all that this turn of the loop asks
        return await asyncio.wrap_future(job.place)

    def _wake(self) -> None:
        with self._lock:
            if self._at_work or self._closed or not self._waiting:
                return
            self._at_work = True
            self._thread.submit(self._work)

    def _work(self) -> None:
        while batch := self._next():
            try:
                self._run(batch)
            except Exception as error:  # noqa: BLE001 - where requests leave the process: each is told to its asker
                for job in batch:
                    job.fail(error)

    def _next(self) -> list[Job[A, B]]:
        """The oldest jobs that somebody still waits for; none ends the work."""
        with self._lock:
            self._batch = []
            while self._waiting and len(self._batch) < self._size:
                job = self._waiting.popleft()
                if job.wanted:
                    self._batch.append(job)
            self._at_work = bool(self._batch)
            return self._batch

    def close(self) -> None:
        """Fail whatever is not answered and end the thread. Idempotent; blocks until `run` sees that nobody waits."""
        with self._lock:
            self._closed = True
            left = [*self._batch, *self._waiting]
            self._waiting.clear()
        for job in left:
            job.fail(LMError("the model was closed before it answered"))
        self._thread.shutdown(wait=True)

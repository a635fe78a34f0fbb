"""How many requests may be in flight: a bound that shrinks when a server says it is too busy and grows back while that
brings throughput. First come, first served. Knows nothing of HTTP.

Additive-increase, multiplicative-decrease (Chiu and Jain 1989): 429 and 503 halve the bound, at most once a round; a
round of as many answers as the bound that was at least 2 % faster than the one before raises it by a quarter.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType

GAIN = 1.02
STEP = 4


class Pace:
    """An async context manager that lets at most `limit` bodies run at once.

    Args:
        most: the largest bound, at least 1; it is where it starts.
        clock: monotonic seconds.

    Attributes:
        limit: the bound now, in [1, most]. inside: bodies that run now.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.most = self.limit = most
        self.inside = 0
        self._clock = clock
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._answers = 0
        self._began = clock()
        self._rate = 0.0
        self._slowed = False

    @property
    def load(self) -> float:
        """Bodies that run or wait, as a share of the bound: 1 and more where there is no room."""
        return (self.inside + len(self._waiting)) / self.limit

    async def __aenter__(self) -> None:
        if self.inside < self.limit and not self._waiting:
            self.inside += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave()  # the turn had come already
            elif turn in self._waiting:
                self._waiting.remove(turn)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if kind is None:
            self._answered()
        self._leave()

    def _leave(self) -> None:
        self.inside -= 1
        while self._waiting and self.inside < self.limit:
            turn = self._waiting.popleft()
            if not turn.done():
                self.inside += 1
                turn.set_result(None)

    def slow_down(self) -> None:
        """The server said it is too busy: halve the bound, once a round."""
        if not self._slowed:
            self.limit = max(1, self.limit // 2)
            self._slowed = True
            self._new_round()

    def _answered(self) -> None:
        """Count an answer; at the end of a round, grow if it was faster than the last."""
        self._answers += 1
        if self._answers < self.limit:
            return
        spent = self._clock() - self._began
        rate = self._answers / spent if spent > 0 else float("inf")
        if self.limit < self.most and not self._slowed and rate >= GAIN * self._rate:
            self.limit = min(self.most, self.limit + max(1, self.limit // STEP))
            self._rate = rate
        elif self._slowed:
            self._rate = 0.0  # a new beginning: the next round sets the mark
        self._slowed = False
        self._new_round()

    def _new_round(self) -> None:
        self._answers = 0
        self._began = self._clock()

"""The gate before a server: open while it is there; when it is gone, all requests wait and one prober looks for it.

Knows neither HTTP nor what a server is; how to look is told. A gate belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from personalink.errors import PersonalinkError, Unreachable

FIRST_S, LONGEST_S = 0.1, 5.0
"""Seconds between two looks: the first, doubled each time, and the longest."""

HOLDS_S = 5.0
"""Seconds for which a failure holds: who asks meanwhile is told the same, and nothing is sent for it."""

_log = logging.getLogger(__name__)


class HealthGate:
    """Whether a server may be asked.

    Open at first. A doubt starts one prober, and whoever asks waits for it. The prober looks at once, which opens the
    gate again where nothing is wrong, and otherwise every few seconds until `patience_s` seconds are over. Then the
    gate is shut: everybody who waits is told the failure, and so is who comes within `HOLDS_S` seconds; after that the
    next one to ask has the prober look once more. An error other than `Unreachable` ends the prober at once.

    Args:
        look: returns where the server that we know answers. Raises `Unreachable` where none does (yet), and another
            error where waiting does not help.
        patience_s: at least 0.
        sleep, clock: of the event loop; monotonic seconds.

    Attributes:
        gone: the server was looked for and not found, and has not been found since.
        failure: why the gate is shut; None where it is not.
    """

    def __init__(
        self,
        look: Callable[[], Awaitable[None]],
        patience_s: float,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.gone = False
        self.failure: PersonalinkError | None = None
        self._look, self._patience_s, self._sleep, self._clock = look, patience_s, sleep, clock
        self._missed_in_a_row = self._outages = 0
        self._failed_at = 0.0
        self._seen = ""  # by the last look that did not find it
        self._prober: asyncio.Task[None] | None = None
        self._looked = asyncio.Event()  # once, by the prober of now

    @property
    def is_open(self) -> bool:
        """Whether a request may go at once."""
        return self._prober is None and self.failure is None

    @property
    def looking(self) -> bool:
        """Whether the prober is at work."""
        return self._prober is not None

    def heard(self) -> None:
        """An answer came: the server is there."""
        self._missed_in_a_row = 0

    def missed(self, doubt: int) -> None:
        """An attempt failed in a way that, `doubt` times in a row (0: never), makes one doubt the server is there."""
        self._missed_in_a_row += doubt > 0
        if doubt and self._missed_in_a_row >= doubt and self.is_open:
            self._start(self._patience_s)

    def shut(self, failure: PersonalinkError) -> None:
        """Nobody needs to ask any more: tell everybody this."""
        self.failure, self._failed_at = failure, self._clock()

    def absent(self, failure: Unreachable) -> None:
        """It was not there when it was first asked: gone and shut, and looked for again like one that was given up."""
        self._outages += not self.gone
        self.gone, self._seen = True, str(failure)
        self.shut(failure)

    def refresh(self) -> None:
        """Look once more, in the background, where the gate is shut and its failure an old one."""
        if self._prober is None and self.failure is not None and self._clock() - self._failed_at >= HOLDS_S:
            self._start(0.0)

    async def passes(self, *, patient: bool = True) -> bool:
        """Wait until the server may be asked; tells whether it was gone. Who is not patient waits for one look only.

        Raises:
            PersonalinkError: the failure for which the gate is shut.
            Unreachable: the server is gone, and `patient` is false.
        """
        before = self._outages - self.gone
        while not self.is_open:
            self.refresh()
            if self._prober is None and self.failure is not None:
                raise type(self.failure)(*self.failure.args)
            if not patient:
                await self._looked.wait()
                if self.gone:
                    raise Unreachable(self._seen)
            await self.settled()
        return self._outages > before

    async def settled(self) -> None:
        """Wait until the prober, where one is at work, has found the server or given up."""
        if self._prober is not None:
            await asyncio.wait({self._prober})

    def close(self) -> None:
        """Stop looking."""
        if self._prober is not None:
            self._prober.cancel()

    def _start(self, patience_s: float) -> None:
        self._looked.clear()
        self._prober = asyncio.create_task(self._probe(patience_s))

    async def _probe(self, patience_s: float) -> None:
        began, wait_s = self._clock(), FIRST_S
        try:
            while True:
                try:
                    await self._look()
                except PersonalinkError as error:
                    left = patience_s - (self._clock() - began)
                    self._lost(error, patience_s, first=wait_s == FIRST_S)
                    if left <= 0 or not isinstance(error, Unreachable):
                        return self._give_up(error, patience_s)
                else:
                    return self._found()
                await self._sleep(min(wait_s, left))
                wait_s = min(2 * wait_s, LONGEST_S)
        finally:
            self._prober = None
            self._looked.set()

    def _lost(self, error: PersonalinkError, patience_s: float, *, first: bool) -> None:
        """A look found nobody, or somebody else."""
        if first and patience_s and isinstance(error, Unreachable):
            _log.warning("%s; nothing is sent to it for up to %g s, until it is back", error, patience_s)
        self._outages += not self.gone
        self.gone, self._seen = True, str(error)
        self._looked.set()

    def _give_up(self, error: PersonalinkError, patience_s: float) -> None:
        if isinstance(error, Unreachable) and patience_s:
            error = Unreachable(f"{error}; it was not back within {patience_s:g} s (lm.down_timeout_s)")
        self.shut(error)

    def _found(self) -> None:
        if self.gone:
            _log.warning("back, and going on; before: %s", self._seen)
        self.gone, self.failure, self._missed_in_a_row = False, None, 0

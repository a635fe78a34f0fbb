"""Live progress on stderr: one redrawn line on a terminal, a plain line every ten seconds elsewhere.

Knows counts and a clock; knows nothing of runs or models. It draws when it is told something and never on its own, and
it never kills what it reports on: a stream that breaks is left alone from then on.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, TextIO

from personalink.text import one_line

KEEP: Final = -1
"""An argument of `Progress.update` that was left out: the count stays as it is."""

REDRAW_S: Final = 0.25
"""Least seconds between two redraws on a terminal."""

STALL_S: Final = 90.0
"""Seconds without an answer, while requests are in flight, from which on the line tells so."""


class Progress:
    """Progress of `total` answers; a context manager.

    Args:
        total: how many answers there will be, ≥ 0.
        stream: where to write; stderr by default, looked up when the object is made. None there: nothing is written.
        clock: seconds, monotonic.
        every_s: seconds between plain lines where the stream is no terminal.
        label: what stands first in the line.
    """

    def __init__(
        self,
        total: int,
        *,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        every_s: float = 10.0,
        label: str = "",
    ) -> None:
        self.total = total
        self.label = one_line(label)
        self.done = self.replayed = self.requests = self.cached = self.failures = self.in_flight = 0
        self.tokens: int | None = 0
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._live = _is_terminal(self._stream)
        self._every = REDRAW_S if self._live else every_s
        self._began = self._drawn_at = self._heard_at = clock()
        self._done_before = 0
        self._never_drawn = True
        self._width = 0
        self._closed = False

    def update(
        self,
        *,
        done: int = KEEP,
        requests: int = KEEP,
        tokens: int | None = KEEP,
        failures: int = KEEP,
        in_flight: int = KEEP,
        replayed: int = KEEP,
        cached: int = KEEP,
    ) -> None:
        """Tell how far the run is; all are totals so far, and what is left out stays. Draws when it is time to.

        Args:
            done: answers that are there, replayed ones included.
            requests: requests really sent; what a journal answered is not one. cached: what a cache across runs
                answered instead.
            tokens: tokens of their answers; None when the server does not tell.
            failures: answers that failed. in_flight: requests on their way.
            replayed: of `done`, those that a journal answered. When never told, what was done before the first
                request counts as replayed.
        """
        told = {"done": done, "requests": requests, "failures": failures, "in_flight": in_flight, "replayed": replayed}
        came = self._came()
        for name, value in (told | {"cached": cached}).items():
            if value != KEEP:
                setattr(self, name, value)
        if tokens != KEEP:
            self.tokens = tokens
        now = self._clock()
        if not self.in_flight or self._came() != came:
            self._heard_at = now
        if not self.requests and not self.in_flight:
            self._began, self._done_before = now, self.done
        first = self._live and self._never_drawn
        if not self._closed and (first or now - self._drawn_at >= self._every):
            self._draw(now)

    def close(self) -> None:
        """Draw the last state and end the line. Once; more calls do nothing."""
        if not self._closed:
            self._draw(self._clock())
            if self._live:
                self._write("\n")
            self._closed = True

    def line(self) -> str:
        """The line as it stands now: `label 12/68 answers · 3.2 req/s · 410 tok/s · 0 failed · 2 in flight · ETA 1:20`.

        Rates are over the time since the first request, so that replayed work is in neither of them; "--" is unknown.
        Answers of a cache are told apart (`· 7 cached ·`) where there are any; where nothing has come for `STALL_S`,
        `no answer for 95 s` stands in place of the ETA.
        """
        return self._line(self._clock())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _line(self, now: float) -> str:
        elapsed = now - self._began
        sent = f"{self.requests / elapsed:.1f}" if elapsed > 0 else "--"
        speed = f"{self.tokens / elapsed:.0f}" if elapsed > 0 and self.tokens is not None else "--"
        parts = [
            f"{self.label} {self.done}/{self.total} answers".strip(),
            f"{sent} req/s",
            f"{speed} tok/s",
            *([f"{self.cached} cached"] if self.cached else []),
            f"{self.failures} failed",
            f"{self.in_flight} in flight",
        ]
        silent = now - self._heard_at
        stalled = self.in_flight > 0 and silent >= STALL_S
        return " · ".join([*parts, f"no answer for {silent:.0f} s" if stalled else f"ETA {self._eta(elapsed)}"])

    def _came(self) -> tuple[int, int, int]:
        """What grows with each answer, whoever gave it."""
        return self.done, self.requests - self.in_flight, self.cached

    def _eta(self, elapsed: float) -> str:
        left = self.total - self.done
        if left <= 0:
            return _clock_time(0)
        fresh = self.done - max(self.replayed, self._done_before)
        return _clock_time(left * elapsed / fresh) if fresh > 0 and elapsed > 0 else "--"

    def _draw(self, now: float) -> None:
        self._drawn_at, self._never_drawn = now, False
        text = self._line(now)
        if self._live:
            room = max(1, _columns(self._stream) - 1)
            text = text[:room]
            before, self._width = self._width, len(text)
            self._write("\r" + text.ljust(min(before, room)))
        else:
            self._write(text + "\n")

    def _write(self, text: str) -> None:
        """Write, or never again: a closed pipe, a full disk or a stream that cannot spell it must not end a run."""
        if self._stream is None:
            return
        try:
            encoding = getattr(self._stream, "encoding", None) or "utf-8"
            self._stream.write(text.encode(encoding, "replace").decode(encoding))
            self._stream.flush()
        except (OSError, ValueError, LookupError):
            self._stream = None


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except (AttributeError, OSError, ValueError):
        return False


def _columns(stream: TextIO | None) -> int:
    """The terminal's width, 80 when it does not tell."""
    try:
        return (os.get_terminal_size(stream.fileno()).columns if stream is not None else 0) or 80
    except (AttributeError, OSError, ValueError):
        return 80


def _clock_time(seconds: float) -> str:
    """`1:20`, or `2:03:40` from an hour on."""
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, second = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{second:02}" if hours else f"{minutes}:{second:02}"

"""The sync face of an async core: one event loop on a thread of its own, so that it works in scripts and notebooks.

Knows nothing of what runs on it. The loop starts with the first call and ends with `stop()` (or the process).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")
_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def loop() -> asyncio.AbstractEventLoop:
    """The background loop, started when needed."""
    global _loop
    with _lock:
        if _loop is None or _loop.is_closed():
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_run, args=(_loop,), name="personalink", daemon=True).start()
        return _loop


def _run(running: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(running)
    running.run_forever()
    running.close()


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the background loop and wait for it; Ctrl-C cancels it.

    Raises:
        RuntimeError: called from the background loop itself, which would wait for ever.
    """
    where = loop()
    if threading.current_thread().name == "personalink":
        coroutine.close()
        msg = "this is the background loop: use the async twin of this call (afit_user, apredict, …)"
        raise RuntimeError(msg)
    future = asyncio.run_coroutine_threadsafe(coroutine, where)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def iterate(stream: AsyncIterator[T]) -> Iterator[T]:
    """The items of an async iterator, as they come."""
    nothing = object()

    async def step() -> Any:
        return await anext(stream, nothing)

    try:
        while (item := run(step())) is not nothing:
            yield item
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            run(close())


def stop() -> None:
    """End the background loop; the next call starts another. Idempotent."""
    global _loop
    with _lock:
        if _loop is not None and not _loop.is_closed():
            _loop.call_soon_threadsafe(_loop.stop)
        _loop = None


class Closes:
    """For what has `aclose`: the sync `close`, which also ends the background loop."""

    async def aclose(self) -> None:
        """Give back what is held. Idempotent."""
        raise NotImplementedError

    def close(self) -> None:
        """`aclose`, then end the background loop. Idempotent."""
        run(self.aclose())
        stop()

"""The sync face of an async core: one event loop on a thread of its own, so that it works in scripts and notebooks.

Knows nothing of what runs on it. The loop starts with the first call and ends with
`stop()` (or the process), which does nothing while anybody is at work on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")
_NAME = "personalink"
_lock = threading.RLock()
_loop: asyncio.AbstractEventLoop | None = None
_at_work = 0  # calls and streams that are on the loop: while there is one, nobody stops it


def loop() -> asyncio.AbstractEventLoop:
    """The background loop, started when needed."""
    with _lock:
        return _started()


def _started() -> asyncio.AbstractEventLoop:
    global _loop
    if _loop is None or _loop.is_closed():
        _loop = asyncio.new_event_loop()
        threading.Thread(target=_run, args=(_loop,), name=_NAME, daemon=True).start()
    return _loop


def _run(running: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(running)
    running.run_forever()
    left = asyncio.all_tasks(running)
    for task in left:
        task.cancel()
    if left:
        running.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    running.run_until_complete(running.shutdown_asyncgens())
    running.close()


@contextlib.contextmanager
def _working() -> Iterator[asyncio.AbstractEventLoop]:
    """The loop, kept going for as long as the body takes."""
    global _at_work
    with _lock:
        where = _started()
        _at_work += 1
    try:
        yield where
    finally:
        with _lock:
            _at_work -= 1


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the background loop and wait for it; Ctrl-C cancels it.

    Raises:
        RuntimeError: called from the background loop itself, which would wait for ever.
    """
    if threading.current_thread().name == _NAME:
        coroutine.close()
        msg = "this is the background loop: use the async twin of this call (afit_user, apredict, …)"
        raise RuntimeError(msg)
    with _working() as where:
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

    with _working():  # between two items too, since what makes the next one is at work
        try:
            while (item := run(step())) is not nothing:
                yield item
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                run(close())


def stop() -> None:
    """End the background loop, unless a call or a stream is still on it; the next call starts another. Idempotent."""
    global _loop
    with _lock:
        if _at_work:
            return
        if _loop is not None and not _loop.is_closed():
            _loop.call_soon_threadsafe(_loop.stop)
        _loop = None


class Closes:
    """For what has `aclose`: the sync `close`, which also ends the background loop where nobody else is on it."""

    async def aclose(self) -> None:
        """Give back what is held. Idempotent."""
        raise NotImplementedError

    def close(self) -> None:
        """`aclose`, then end the background loop, unless other calls are at work on it. Idempotent."""
        run(self.aclose())
        stop()

"""Many users at once: each advances on its own, results stream as they finish, one user's trouble stays its own.

There is no barrier between depths or users. Knows nothing of what is done for a user.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from personalink.data.types import User
from personalink.errors import ConfigError, Interrupted, LMError, PersonalinkError, Unreachable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    """A user who was finished."""

    user: User
    value: T


@dataclass(frozen=True, slots=True)
class Incomplete:
    """A user who could not be finished, and why; never a wrong answer or a zero."""

    user: User
    error: PersonalinkError


async def each_user(
    users: Iterable[User],
    work: Callable[[User], Awaitable[T]],
    *,
    at_once: int,
    stopping: Callable[[], bool] = lambda: False,
) -> AsyncIterator[Done[T] | Incomplete]:
    """Work on users, at most `at_once` of them, and yield each as it ends.

    A fatal error, or an outage that outlasted its retries, stops new users from being started; those at work end
    first and what they finished is yielded. Users never started are yielded as `Incomplete` with that same error.

    Args:
        users: taken one by one, so that an endless iterable needs no memory.
        work: what to do for one user.
        at_once: at least 1.
        stopping: asked before each start; True starts no more (a drain).

    Raises:
        PersonalinkError: what concerns no single user (a leak, an altered file, a context that does not work).
    """
    if at_once < 1:
        msg = f"users_in_flight is {at_once}; it must be at least 1"
        raise ConfigError(msg)
    waiting = iter(users)
    running: dict[asyncio.Task[T], User] = {}
    halt: PersonalinkError | None = None
    try:
        while True:
            while halt is None and len(running) < at_once and not stopping():
                user = next(waiting, None)
                if user is None:
                    break
                running[asyncio.create_task(_call(work, user))] = user
            if not running:
                break
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=lambda t: running[t].id):
                user = running.pop(task)
                ended = _ended(task, user)
                if isinstance(ended, Incomplete) and _stops_all(ended.error):
                    halt = halt or ended.error
                yield ended
        for user in waiting if halt is not None or stopping() else ():
            yield Incomplete(user, halt or Interrupted("not started: the run was stopped"))
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _call(work: Callable[[User], Awaitable[T]], user: User) -> T:
    return await work(user)


def _ended(task: asyncio.Task[T], user: User) -> Done[T] | Incomplete:
    """The outcome of a task; only what a user can cause alone is kept with the user, a fault of ours is raised."""
    error = task.exception()
    if error is None:
        return Done(user, task.result())
    ours = isinstance(error, PersonalinkError) and not isinstance(error, ConfigError)
    if isinstance(error, PersonalinkError) and ours and (not error.fatal or isinstance(error, LMError)):
        return Incomplete(user, error)
    raise error


def _stops_all(error: PersonalinkError) -> bool:
    return error.fatal or isinstance(error, Unreachable | Interrupted) or getattr(error, "whole_run", False)

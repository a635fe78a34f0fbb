"""The fleet: results as they finish, one user's trouble its own, an outage asked about once."""

from __future__ import annotations

import asyncio

import pytest

from personalink.data.types import User
from personalink.errors import BadRequest, IntegrityError, PersonalinkError, Unauthorized, Unreachable
from personalink.fleet import Done, Incomplete, each_user

USERS = [User(f"u{i}", "people", ()) for i in range(12)]


async def collect(work, **options) -> list[Done[str] | Incomplete]:
    return [ended async for ended in each_user(USERS, work, at_once=options.pop("at_once", 3), **options)]


async def test_results_come_as_they_finish_and_no_more_than_asked_are_at_work() -> None:
    at_work, most = 0, 0

    async def work(user: User) -> str:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await asyncio.sleep(0.05 if user.id == "u0" else 0.001)
        at_work -= 1
        return user.id.upper()

    ended = await collect(work)
    assert most == 3
    assert ended[-1].user.id == "u0" or ended.index(next(e for e in ended if e.user.id == "u0")) > 3
    assert {e.value for e in ended if isinstance(e, Done)} == {u.id.upper() for u in USERS}


async def test_one_users_trouble_is_its_own() -> None:
    async def work(user: User) -> str:
        if user.id == "u5":
            raise BadRequest("this one only")
        return user.id

    ended = await collect(work)
    assert [e.user.id for e in ended if isinstance(e, Incomplete)] == ["u5"]
    assert len(ended) == 12


@pytest.mark.parametrize("error", [Unreachable("gone"), Unauthorized("no")])
async def test_an_outage_starts_no_more_users_and_leaves_none_out(error: PersonalinkError) -> None:
    started = []

    async def work(user: User) -> str:
        started.append(user.id)
        if len(started) > 4:
            raise error
        return user.id

    ended = await collect(work)
    assert len(started) <= 7
    assert len(ended) == 12
    assert sum(isinstance(e, Done) for e in ended) == 4
    assert {str(e.error) for e in ended if isinstance(e, Incomplete)} == {str(error)}


async def test_what_no_user_can_cause_is_raised_and_the_rest_is_cancelled() -> None:
    cancelled = []

    async def work(user: User) -> str:
        if user.id == "u1":
            raise IntegrityError("altered")
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            cancelled.append(user.id)
            raise
        return user.id

    with pytest.raises(IntegrityError):
        await collect(work)
    assert sorted(cancelled) == ["u0", "u2"]


async def test_a_bug_is_raised_as_it_is() -> None:
    async def work(user: User) -> str:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await collect(work)


async def test_a_drain_starts_no_more() -> None:
    started: list[str] = []

    async def work(user: User) -> str:
        started.append(user.id)
        await asyncio.sleep(0.001)
        return user.id

    ended = await collect(work, stopping=lambda: len(started) >= 5)
    assert 5 <= len(started) <= 7  # those just made had not said so yet
    assert sum(isinstance(e, Incomplete) for e in ended) == 12 - len(started)


async def test_users_are_taken_one_by_one() -> None:
    taken = 0

    def endless():
        nonlocal taken
        while True:
            taken += 1
            yield User(f"u{taken}", "people", ())

    async def work(user: User) -> str:
        return user.id

    fleet = each_user(endless(), work, at_once=2)
    for _ in range(10):
        await anext(fleet)
    await fleet.aclose()
    assert taken < 20

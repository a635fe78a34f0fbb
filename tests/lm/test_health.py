"""The gate by itself, on a clock of its own: who waits, who looks, how often, and what everybody is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from personalink.errors import IntegrityError, PersonalinkError, Unauthorized, Unreachable
from personalink.lm.health import HOLDS_S, LONGEST_S, HealthGate


class World:
    """A server that is looked for: `answers` says what a look finds, by how often it was looked for."""

    def __init__(self, answers: Callable[[int], PersonalinkError | None], patience_s: float = 120.0) -> None:
        self.answers, self.looks, self.now = answers, 0, 0.0
        self.slept: list[float] = []
        self.gate = HealthGate(self.look, patience_s, sleep=self.sleep, clock=lambda: self.now)

    async def look(self) -> None:
        self.looks += 1
        error = self.answers(self.looks)
        await asyncio.sleep(0)
        if error is not None:
            raise error

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)

    async def wait(self, many: int, **how: bool) -> list[object]:
        return await asyncio.gather(*(self.gate.passes(**how) for _ in range(many)), return_exceptions=True)


def never(_: int) -> PersonalinkError:
    return Unreachable("nobody there")


async def test_a_doubt_that_is_unfounded_opens_at_once() -> None:
    world = World(lambda n: None)
    world.gate.missed(1)
    assert not world.gate.is_open
    assert await world.wait(100) == [False] * 100
    assert (world.looks, world.slept, world.gate.is_open) == (1, [], True)


async def test_doubt_takes_so_many_misses_in_a_row_and_an_answer_ends_it() -> None:
    world = World(lambda n: None)
    for _ in range(50):
        world.gate.missed(0)
    for _ in range(50):
        world.gate.missed(2)
        world.gate.heard()
    assert world.gate.is_open
    world.gate.missed(2)
    world.gate.missed(2)
    assert not world.gate.is_open
    await world.gate.settled()


@pytest.mark.parametrize("waiting", [1, 1000])
async def test_one_prober_however_many_wait(waiting: int) -> None:
    world = World(lambda n: Unreachable("nobody there") if n < 9 else None)
    world.gate.missed(1)
    assert await world.wait(waiting) == [True] * waiting
    assert world.looks == 9
    assert world.slept == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, LONGEST_S, LONGEST_S]


async def test_patience_ends_and_everybody_is_told_the_same() -> None:
    world = World(never)
    world.gate.missed(1)
    told = await world.wait(300)
    assert {str(error) for error in told} == {"nobody there; it was not back within 120 s (lm.down_timeout_s)"}
    assert len({id(error) for error in told}) == 300  # each its own, so that tracebacks do not pile up
    assert world.now == pytest.approx(120.0)
    assert world.looks < 35
    looks = world.looks
    assert all(isinstance(error, Unreachable) for error in await world.wait(2000))
    assert world.looks == looks  # nothing is sent for those who come a moment later


async def test_patience_may_be_a_day() -> None:
    world = World(never, patience_s=86400.0)
    world.gate.missed(1)
    assert [type(error) for error in await world.wait(1)] == [Unreachable]
    assert world.now == pytest.approx(86400.0)
    assert max(world.slept) == LONGEST_S


async def test_after_a_while_one_more_look_is_taken() -> None:
    world = World(lambda n: Unreachable("nobody there") if n < 3 else None, patience_s=0.0)
    world.gate.missed(1)
    assert all(isinstance(error, Unreachable) for error in await world.wait(5))
    world.now += HOLDS_S
    assert all(isinstance(error, Unreachable) for error in await world.wait(5))
    assert world.looks == 2
    world.now += HOLDS_S
    assert await world.wait(5) == [True] * 5
    assert (world.looks, world.gate.gone, world.gate.is_open) == (3, False, True)


async def test_another_server_is_told_at_once_and_waits_for_nothing() -> None:
    world = World(lambda n: Unreachable("nobody there") if n < 3 else IntegrityError("another one"))
    world.gate.missed(1)
    assert {repr(error) for error in await world.wait(20)} == {"IntegrityError('another one')"}
    assert world.looks == 3


async def test_who_is_not_patient_waits_for_one_look() -> None:
    world = World(lambda n: Unreachable("nobody there") if n < 5 else None)
    world.gate.missed(1)
    assert {repr(error) for error in await world.wait(20, patient=False)} == {"Unreachable('nobody there')"}
    assert world.gate.gone
    assert world.looks < 5
    assert await world.wait(1) == [True]
    assert await world.wait(1, patient=False) == [False]


async def test_what_nobody_can_get_past_is_told_to_all() -> None:
    world = World(lambda n: None)
    world.gate.shut(Unauthorized("no"))
    assert {repr(error) for error in await world.wait(20)} == {"Unauthorized('no')"}
    assert world.looks == 0
    world.now += HOLDS_S
    assert await world.wait(20) == [False] * 20
    assert world.looks == 1


async def test_closing_lets_go_of_those_who_wait() -> None:
    world = World(never)
    world.gate._sleep = lambda seconds: asyncio.sleep(3600)
    world.gate.missed(1)
    waiting = asyncio.create_task(world.wait(5))
    while not world.gate.gone:
        await asyncio.sleep(0)
    world.gate.close()
    await asyncio.wait_for(waiting, 5)

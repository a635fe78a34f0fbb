"""The pace: first come first served, halved when too busy, grown back while that helps."""

from __future__ import annotations

import asyncio

import pytest

from personalink.errors import IntegrityError
from personalink.lm.base import Decoding, Message, Request
from personalink.lm.endpoint import EndpointLM
from personalink.lm.pace import Pace

from .double import Double, reply, status


async def test_no_more_than_the_limit_and_in_order() -> None:
    pace, order, most = Pace(3), [], 0

    async def work(n: int) -> None:
        nonlocal most
        async with pace:
            order.append(n)
            most = max(most, pace.inside)
            await asyncio.sleep(0.001)

    await asyncio.gather(*(work(n) for n in range(20)))
    assert order == list(range(20))
    assert most == 3
    assert pace.inside == 0


async def rounds(pace: Pace, now: dict[str, float], seconds_a_round: float, n: int = 1) -> None:
    """Answer `n` rounds, each as many answers as the bound."""
    for _ in range(n):
        size = pace.limit
        now["t"] += seconds_a_round
        for _ in range(size):
            async with pace:
                pass


async def test_busy_halves_once_a_round_and_throughput_grows_it_back() -> None:
    now = {"t": 0.0}
    pace = Pace(64, lambda: now["t"])
    pace.slow_down()
    pace.slow_down()
    assert pace.limit == 32
    await rounds(pace, now, 1.0)
    pace.slow_down()
    assert pace.limit == 16
    await rounds(pace, now, 1.0, 12)  # a round takes as long whatever its size: more at once is more a second
    assert pace.limit == 64


async def test_it_does_not_grow_where_that_brings_nothing() -> None:
    now = {"t": 0.0}
    pace = Pace(64, lambda: now["t"])
    pace.slow_down()
    for _ in range(12):
        await rounds(pace, now, pace.limit / 10)  # ten a second whatever is in flight
    assert pace.limit <= 40


async def test_it_never_falls_below_one_and_failures_count_as_no_answers() -> None:
    now = {"t": 0.0}
    pace = Pace(2, lambda: now["t"])
    for _ in range(5):
        pace.slow_down()
        await rounds(pace, now, 1.0)
    assert pace.limit >= 1
    with pytest.raises(ZeroDivisionError):
        async with pace:
            raise ZeroDivisionError
    assert pace.inside == 0


async def test_one_that_waits_and_goes_away_leaves_no_gap() -> None:
    pace = Pace(1)
    async with pace:
        waiting = [asyncio.create_task(pace.__aenter__()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.sleep(0)
    await asyncio.wait_for(waiting[1], 1)
    assert pace.inside == 1


def ask(text: str = "a") -> Request:
    return Request((Message("user", text),), Decoding(4))


@pytest.mark.parametrize(("code", "shrinks"), [(429, True), (503, True), (500, False), (502, False)])
async def test_a_server_that_is_too_busy_is_asked_less_at_once(code: int, shrinks: bool) -> None:
    with Double(faults={3: status(code)}) as double:
        lm = EndpointLM(double.url, model="m", concurrency=8, backoff_s=0.001)
        await asyncio.gather(*(lm.complete(ask(str(i))) for i in range(6)))
        (lane,) = lm.servers[0].transport._lanes.values()
        assert (lane.pace.limit < 8) is shrinks
        await lm.aclose()


async def test_another_model_behind_the_same_name_stops_the_run() -> None:
    with Double(faults={2: reply(model="another")}) as double:
        lm = EndpointLM(double.url, model="m", concurrency=1)
        await lm.complete(ask("a"))
        await lm.complete(ask("b"))
        with pytest.raises(IntegrityError, match="now come from 'another'"):
            await lm.complete(ask("c"))
        await lm.aclose()

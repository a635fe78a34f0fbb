"""Waiting, giving up, queueing, loops, closing, and the key that is shown nowhere."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable
from typing import Any

import pytest

from personalink.errors import (
    BadRequest,
    LMError,
    Unreachable,
)

from .asking import KEY, ask, client, one
from .double import Double, hang, status

# -- waiting ----------------------------------------------------------------------------------------------------------


async def test_waits_follow_the_schedule_and_retry_after() -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    faults = {
        0: status(503),
        1: status(503),
        2: status(429, "", {"Retry-After": "7"}),
        3: status(503, "", {"Retry-After": "900"}),
    }
    with Double(faults=faults) as double:
        lm = client(double, backoff_s=0.5)
        lm._transport.sleep = sleep
        assert (await lm.complete(ask())).text == "hello"
        assert waits == [0.5, 2.0, 7.0, 60.0]
        await lm.aclose()


async def test_an_outage_is_given_up_for_all_after_a_while() -> None:
    with Double() as double:
        lm = client(double, retries=3, down_timeout_s=0.15, backoff_s=0.02)
        await lm.start()
    told = await asyncio.gather(*(lm.complete(ask(str(i))) for i in range(100)), return_exceptions=True)
    assert all(isinstance(t, Unreachable) for t in told)
    assert lm.requests_sent <= 1  # the connection kept alive, at most
    before = lm.retries_made
    with pytest.raises(Unreachable):
        await lm.complete(ask())
    assert lm.retries_made == before
    await lm.aclose()


async def test_the_server_comes_back() -> None:
    with Double(faults=dict.fromkeys(range(3), status(503))) as double:
        lm = client(double, down_timeout_s=0.0)
        for _ in range(3):
            with pytest.raises(Unreachable):
                await lm.complete(ask())
        assert (await lm.complete(ask())).text == "hello"
        assert lm._transport._down_since is None
        await lm.aclose()


async def test_no_more_in_flight_than_allowed_and_first_come_first_served() -> None:
    with Double(answer=lambda body: body["messages"][-1]["content"]) as double:
        double.pause_s = 0.005
        lm = client(double, concurrency=4)
        done = await asyncio.gather(*(lm.complete(ask(str(i))) for i in range(40)))
        assert [d.text for d in done] == [str(i) for i in range(40)]
        assert double.most_at_once == 4
        order = [int(b["messages"][-1]["content"]) for b in double.bodies]
        assert all(abs(i - seen) < 8 for i, seen in enumerate(order))
        await lm.aclose()


def test_one_client_on_several_loops(caplog: pytest.LogCaptureFixture) -> None:
    with Double() as double:
        lm = client(double)
        for _ in range(3):
            assert asyncio.run(lm.complete(ask())).text == "hello"
        asyncio.run(lm.aclose())
    gc.collect()
    assert "Unclosed" not in caplog.text


async def test_a_cancelled_request_leaves_the_client_usable() -> None:
    with Double(faults={0: hang}) as double:
        lm = client(double, concurrency=1)
        await lm.start()
        task = asyncio.create_task(lm.complete(ask()))
        await asyncio.to_thread(double.arrived.wait, 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await lm.complete(ask())).text == "hello"
        await lm.aclose()


# -- the key ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [200, 400, 401, 404, 429, 500, 501])
@pytest.mark.parametrize("shape", [lambda k: {"error": {"message": f"key {k}"}}, lambda k: f"<html>{'.' * 50} {k} {k}"])
async def test_the_key_is_shown_nowhere(
    code: int, shape: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", f" {KEY}\n")
    caplog.set_level(logging.DEBUG)
    with Double(key=KEY, faults=dict.fromkeys(range(9), status(code, shape(KEY)))) as double:
        lm = client(double, retries=1)
        with pytest.raises(LMError) as caught:
            await lm.complete(ask())
        error: BaseException | None = caught.value
        while error is not None:
            assert KEY[:12] not in f"{error!r} {error}"
            error = error.__cause__ or error.__context__
        shown = f"{lm!r} {lm.describe()} {lm._transport!r} {lm.counter!r} {caplog.text}"
        assert KEY[:12] not in shown
        await lm.aclose()


async def test_an_error_body_with_a_label_word_is_an_error() -> None:
    with pytest.raises(BadRequest, match="politics"):
        await one(status(400, {"error": {"message": "politics"}}))
    with pytest.raises(Unreachable):
        await one(status(500, {"choices": [{"message": {"content": "politics"}}]}))


async def test_closing_lets_go_of_what_waits(caplog: pytest.LogCaptureFixture) -> None:
    with Double(faults=dict.fromkeys(range(99), hang)) as double:
        lm = client(double, concurrency=2)
        tasks = [asyncio.create_task(lm.complete(ask(str(i)))) for i in range(6)]
        await asyncio.to_thread(double.arrived.wait, 5)
        while sum(len(lane.gate._waiting) for lane in lm._transport._lanes.values()) < 4:
            await asyncio.sleep(0.001)  # all of them have come as far as they can
        await lm.aclose()
        told = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
        assert all(isinstance(t, Unreachable) for t in told)
        assert lm.retries_made == 0
    gc.collect()
    assert "Unclosed" not in caplog.text

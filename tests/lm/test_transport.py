"""Waiting, giving up, queueing, loops, closing, and the key that is shown nowhere."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
from collections.abc import Callable
from typing import Any, get_args

import pytest

from personalink.errors import (
    BadRequest,
    DeadlineExceeded,
    LMError,
    Unreachable,
)
from personalink.lm import EndpointLM
from personalink.lm.base import completion_from_dict, completion_to_dict
from personalink.lm.retry import RULES, Kind, Reply, wait_s

from .asking import KEY, ask, client, one
from .double import Double, Fault, drip, hang, reset, status

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
        lm.servers[0].transport.sleep = sleep
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


async def test_a_lost_connection_is_made_anew_at_once_and_only_once_at_once() -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    with Double(faults={0: reset, 1: reset, 2: status(500)}) as double:
        lm = client(double, backoff_s=0.5)
        lm.servers[0].transport.sleep = sleep
        assert (await lm.complete(ask())).retries == 3
        assert waits == [0.0, 2.0, 8.0]
        await lm.aclose()


def test_the_table_says_what_each_failure_leads_to() -> None:
    kinds = {code: Reply(code).kind for code in (200, 308, 400, 401, 403, 404, 413, 422, 429, 500, 501, 502, 503, 504)}
    again = {code for code, kind in kinds.items() if kind != "answered" and RULES[kind].again}
    assert again == {429, 500, 502, 503, 504}
    assert {code for code in again if RULES[kinds[code]].slower} == {429, 503}
    assert {kind for kind, rule in RULES.items() if rule.doubt} == {"unconnected", "lost", "busy", "broken"}
    assert not RULES["late"].doubt  # slow is not gone
    assert set(RULES) | {"answered"} == set(get_args(Kind))
    assert [wait_s(RULES["late"], k, {}, 0.5) for k in range(5)] == [0.5, 2.0, 8.0, 32.0, 60.0]
    assert wait_s(RULES["late"], 5000, {}, 0.5) == 60.0
    date = {"Retry-After": "Wed, 21 Oct 2026 07:28:09 GMT"}
    now = [
        {"Date": f"Wed, 21 Oct 2026 07:{at} {zone}"} for at, zone in (("28:00", "GMT"), ("29:00", "GMT"), ("28:00", ""))
    ]
    assert [wait_s(RULES["busy"], 0, date | at, 0.5) for at in now] == [9.0, 0.5, 0.5]
    assert [wait_s(RULES["busy"], 0, {"Retry-After": odd}, 0.5) for odd in ("soon", "nan", "-1", "")] == [0.5] * 4
    assert wait_s(RULES["busy"], 0, date, 0.5) == 0.5  # a date without the server's own says nothing


@pytest.mark.parametrize("why", [hang, drip, status(503, "", {"Retry-After": "30"})])
async def test_no_request_outlives_its_deadline(why: Fault) -> None:
    with Double(faults=dict.fromkeys(range(99), why)) as double:
        lm = client(double, deadline_s=0.25, timeout_s=0.1, retries=50)
        told = await asyncio.wait_for(
            asyncio.gather(*(lm.complete(ask(str(i))) for i in range(3)), return_exceptions=True), 5
        )
        for error in told:
            assert type(error) is DeadlineExceeded
            assert "lm.deadline_s (0.25 s)" in str(error)
            assert error.retries == double_attempts(error) - 1
            assert (error.exit_code, error.fatal) == (3, False)
        await lm.aclose()


def double_attempts(error: BaseException) -> int:
    found = re.search(r"in (\d+) attempts; the last one", str(error))
    assert found
    return int(found[1])


async def test_waiting_for_a_turn_is_no_part_of_the_deadline() -> None:
    with Double() as double:
        double.pause_s = 0.05
        lm = client(double, concurrency=1, deadline_s=0.2)
        told = await asyncio.gather(*(lm.complete(ask(str(i))) for i in range(8)))
        assert [t.text for t in told] == ["hello"] * 8
        await lm.aclose()


async def test_retries_are_told_with_the_answer_and_with_the_error() -> None:
    with Double(faults={0: status(500), 1: status(200, "<html>"), 5: status(500), 6: status(400)}) as double:
        lm = client(double)
        told = [await lm.complete(ask(str(i))) for i in range(3)]
        with pytest.raises(BadRequest) as caught:
            await lm.complete(ask("3"))
        assert [t.retries for t in told] == [2, 0, 0]
        assert caught.value.retries == 1
        await lm.aclose()
    plain = completion_to_dict(told[0])
    assert plain["retries"] == 2
    assert completion_from_dict(plain) == told[0]
    assert "retries" not in completion_to_dict(told[1])
    assert completion_from_dict(completion_to_dict(told[1])) == told[1]


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
        shown = f"{lm!r} {lm.describe()} {lm.servers[0].transport!r} {lm.counter!r} {caplog.text}"
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
        while sum(len(lane.pace._waiting) for lane in lm.servers[0].transport._lanes.values()) < 4:
            await asyncio.sleep(0.001)  # all of them have come as far as they can
        await lm.aclose()
        told = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
        assert all(isinstance(t, Unreachable) for t in told)
        assert lm.retries_made == 0
    gc.collect()
    assert "Unclosed" not in caplog.text


def test_closing_from_another_thread_just_before_the_loop_ends(caplog: pytest.LogCaptureFixture) -> None:
    async def main(lm: EndpointLM) -> None:
        await lm.complete(ask())
        lm.close()

    with Double() as double:
        asyncio.run(main(client(double)))
    gc.collect()
    assert "Unclosed" not in caplog.text

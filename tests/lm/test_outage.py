"""A server that dies under load: what is sent while it is gone, what happens when it is back, and when it never is."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from personalink.errors import IntegrityError, ModelNotFound, PersonalinkError, Unauthorized, Unreachable
from personalink.lm import EndpointLM
from personalink.lm.retry import Reply
from personalink.testing import FakeVLLM, Fault

from .asking import ask
from .double import Double, hang, status


def client(server: FakeVLLM, **options: Any) -> EndpointLM:
    return EndpointLM(server.url, **{"backoff_s": 0.01, "timeout_s": 5.0, "down_timeout_s": 10.0, **options})


def refused(lm: EndpointLM) -> list[str]:
    """The paths of what nobody accepted a connection for, from now on."""
    transport, seen = lm.servers[0].transport, list[str]()
    send: Callable[..., Awaitable[Reply]] = transport._exchange

    async def exchange(lane: Any, method: str, url: str, *more: Any) -> Reply:
        reply = await send(lane, method, url, *more)
        if reply.kind == "unconnected":
            seen.append(url.removeprefix(lm.root_url))
        return reply

    transport._exchange = exchange  # type: ignore[method-assign]
    return seen


async def ask_all(lm: EndpointLM, many: int) -> list[Any]:
    try:
        return await asyncio.gather(*(lm.complete(ask(str(i))) for i in range(many)), return_exceptions=True)
    finally:
        await lm.aclose()


# -- gone and back ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("many", "concurrency"), [(20, 4), (400, 64)])
async def test_it_comes_back_and_everything_is_answered(many: int, concurrency: int) -> None:
    with FakeVLLM(faults={10: "die:0.4"}, latency_s=0.002) as server:
        lm = client(server, concurrency=concurrency)
        await lm.start()
        in_vain = refused(lm)
        told = await ask_all(lm, many)
        assert [t.outcome for t in told] == ["ok"] * many
        assert server.most_at_once <= concurrency
        retried = sum(t.retries for t in told)
        assert retried == lm.retries_made >= 1
        assert retried <= 2 * concurrency  # what was in flight, and no more
        assert server.requests <= many + concurrency
        assert (
            in_vain.count("/v1/chat/completions") <= 8
        )  # what found out, however many wait; a busy machine lets a few by
        assert 1 <= in_vain.count("/health") <= 8  # further and further apart


async def test_it_comes_back_as_another_model() -> None:
    faults = {10: Fault("die", seconds=0.2, model="other-7b")}
    with FakeVLLM(faults=faults, latency_s=0.002) as server:
        told = await ask_all(client(server, concurrency=8), 60)
        assert server.requests <= 18  # nothing was sent to the other one
        wrong = [t for t in told if isinstance(t, PersonalinkError)]
        assert {type(t) for t in wrong} == {IntegrityError}
        (words,) = {str(t) for t in wrong}
        assert "'fake-7b'" in words
        assert "'other-7b'" in words
        assert "\n" not in words
        assert wrong[0].exit_code == 5


@pytest.mark.parametrize(
    ("change", "told"), [({"root": "/models/b"}, "root 'fake-7b' → '/models/b'"), ({"fingerprint": "x9"}, "'x9'")]
)
async def test_it_comes_back_from_other_weights_under_the_same_name(change: dict[str, str], told: str) -> None:
    with FakeVLLM() as server:
        lm = client(server, concurrency=4)
        await lm.complete(ask())
        await asyncio.to_thread(server.stop)
        asking = asyncio.create_task(lm.complete(ask("again")))
        while not lm.servers[0].transport.health.gone:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(server.start, **change)
        with pytest.raises(IntegrityError, match=told):
            await asking
        await lm.aclose()


async def test_it_comes_back_with_a_shorter_window_or_another_version() -> None:
    with Double() as double:
        pages = double.pages
        lm = EndpointLM(double.url)
        await lm.start()
        server = lm.servers[0]
        await server.look()
        double.window = 2048
        with pytest.raises(IntegrityError, match="max_model_len 4096 → 2048"):
            await server.look()
        double.window = 4096
        pages["/version"] = status(200, {"version": "0.34.0"})
        with pytest.raises(IntegrityError, match=r"version '0.33.0' → '0.34.0'"):
            await server.look()
        pages["/version"] = status(404)  # what it does not tell is no difference
        await server.look()
        for page, error in (
            (status(502), Unreachable),
            (status(404), Unreachable),
            (status(200, "<html>one moment"), Unreachable),
            (status(401), Unauthorized),
        ):
            pages["/v1/models"] = page
            with pytest.raises(error):
                await server.look()
        await lm.aclose()


async def test_llama_cpp_is_looked_for_by_its_props() -> None:
    with Double(dialect="llama_cpp") as double:
        lm = EndpointLM(double.url)
        await lm.start()
        await lm.servers[0].look()
        double.window = 512
        with pytest.raises(IntegrityError, match="n_ctx 4096 → 512"):
            await lm.servers[0].look()
        double.pages["/health"] = status(503, {"error": {"message": "Loading model"}})
        with pytest.raises(Unreachable, match="503"):
            await lm.servers[0].look()
        await lm.aclose()


# -- gone for good ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("many", [60, 600])
async def test_it_never_comes_back(many: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with FakeVLLM(faults={10: "die"}, latency_s=0.02) as server:
        lm = client(server, concurrency=16, down_timeout_s=0.5)
        await lm.start()
        in_vain = refused(lm)
        began = time.monotonic()
        told = await ask_all(lm, many)
        assert time.monotonic() - began < 5.0
        failed = [t for t in told if not hasattr(t, "text")]
        assert len(failed) >= many - 20
        assert {type(t) for t in failed} == {Unreachable}
        assert sum("not back within 0.5 s (lm.down_timeout_s)" in str(t) for t in failed) >= len(failed) - 1
        assert in_vain.count("/v1/chat/completions") <= 2
        assert in_vain.count("/health") <= 6
        said = [r.message for r in caplog.records if r.name.startswith("personalink")]
        assert [words.count("nothing is sent to it for up to 0.5 s") for words in said] == [1]


async def test_5xx_on_everything_is_an_outage_too() -> None:
    with Double() as double:
        pages = double.pages
        lm = EndpointLM(double.url, backoff_s=0.001, down_timeout_s=0.2)
        await lm.start()
        for page in ("/v1/chat/completions", "/health", "/v1/models"):
            pages[page] = status(502, "<html>Bad gateway</html>")
        before = len(double.paths)
        told = await ask_all(lm, 500)
        assert {type(t) for t in told} == {Unreachable}
        assert len(double.paths) - before <= 64 + 5  # the first round of 64, then looks


# -- not gone ---------------------------------------------------------------------------------------------------------


async def test_slow_requests_and_one_that_fails_close_nothing() -> None:
    faults = {3: hang, 9: status(500), 14: status(500), 21: status(503)}
    with Double(faults=faults) as double:
        double.pause_s = 0.01
        lm = EndpointLM(double.url, concurrency=8, timeout_s=0.3, backoff_s=0.001)
        told = await asyncio.gather(*(lm.complete(ask(str(i))) for i in range(60)))
        assert [t.text for t in told] == ["hello"] * 60
        assert sum(t.retries for t in told) == lm.retries_made == 4
        assert "/health" not in double.paths
        await lm.aclose()


async def test_a_healthy_server_that_fails_one_prompt_goes_on_with_the_others() -> None:
    async def bad(double: Double, request: Any) -> Any:
        return await status(500)(double, request)

    with Double(faults=dict.fromkeys(range(5), bad)) as double:
        lm = EndpointLM(double.url, concurrency=1, backoff_s=0.001, down_timeout_s=60.0)
        with pytest.raises(Unreachable, match="after 5 attempts") as caught:
            await lm.complete(ask())
        assert caught.value.retries == 4
        assert (await lm.complete(ask())).text == "hello"
        await lm.aclose()


@pytest.mark.parametrize(("code", "kind"), [(401, Unauthorized), (403, Unauthorized), (404, ModelNotFound)])
async def test_what_no_request_can_get_past_ends_all_at_once(code: int, kind: type[PersonalinkError]) -> None:
    first = {64: status(code, {"error": {"message": "no"}})}
    faults = first | dict.fromkeys(range(65, 2000), hang)
    with Double(faults=faults) as double:
        lm = EndpointLM(double.url, concurrency=64, backoff_s=0.001, timeout_s=0.5, retries=0)
        told = await asyncio.gather(*(lm.complete(ask(str(i))) for i in range(1000)), return_exceptions=True)
        assert {type(t) for t in told if isinstance(t, PersonalinkError)} == {kind, Unreachable}
        assert len(double.bodies) <= 128 + 1  # those in flight when the word came
        before = len(double.bodies)
        assert {type(t) for t in await ask_all(lm, 200)} == {kind}
        assert len(double.bodies) == before


async def test_each_loop_of_one_client_waits_for_itself() -> None:
    with FakeVLLM(faults={10: "die:0.3"}, latency_s=0.002) as server:
        lm = client(server, concurrency=8)
        await lm.start()

        async def ask_many() -> list[Any]:
            return await asyncio.gather(*(lm.complete(ask(str(i))) for i in range(60)))

        here, there = await asyncio.gather(ask_many(), asyncio.to_thread(asyncio.run, ask_many()))
        assert [t.outcome for t in here + there] == ["ok"] * 120
        await lm.aclose()

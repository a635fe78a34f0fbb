"""Several servers of one model: who goes where, what a death costs, and what is refused at the start."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from personalink.errors import ConfigError, IntegrityError, ModelNotFound, Unreachable
from personalink.lm import EndpointLM
from personalink.lm.base import Decoding, Message, Request, asking_for
from personalink.testing import FakeVLLM

from .asking import ask, dead_url
from .double import Double, reply, status

USERS, ITEMS = 48, 10
SYSTEM = "Answer with one word. " * 8


@contextlib.contextmanager
def fakes(many: int, **options: Any) -> Iterator[list[FakeVLLM]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(FakeVLLM(**{"latency_s": 0.005, **options})) for _ in range(many)]


def client(servers: list[FakeVLLM], **options: Any) -> EndpointLM:
    urls = [server.url for server in servers]
    return EndpointLM(urls, **{"backoff_s": 0.01, "timeout_s": 5.0, "down_timeout_s": 10.0, **options})


def question(user: int, item: int) -> Request:
    persona = " ".join(f"w{user}x{i}" for i in range(96))
    return Request((Message("system", SYSTEM), Message("user", f"{persona} item {item}")), Decoding(8))


async def one_user(lm: EndpointLM, user: int, items: range) -> list[Any]:
    """A user's items, one after the other as a refinement asks them, two at a time."""
    asking_for.set(f"user-{user}")
    told: list[Any] = []
    for i in items[::2]:
        told += await asyncio.gather(*(lm.complete(question(user, j)) for j in (i, i + 1)))
    return told


async def run(lm: EndpointLM, items: range = range(ITEMS), users: range = range(USERS)) -> list[Any]:
    told = await asyncio.gather(*(asyncio.create_task(one_user(lm, user, items)) for user in users))
    return [t for several in told for t in several]


def hit_rate(completions: list[Any]) -> float:
    return sum(t.usage.cached for t in completions) / sum(t.usage.prompt for t in completions)


async def test_a_user_stays_on_one_replica_and_finds_the_prefix_there() -> None:
    with fakes(1) as servers:
        lm = client(servers, concurrency=96)
        alone = hit_rate(await run(lm))
        await lm.aclose()
    with fakes(3) as servers:
        lm = client(servers, concurrency=64)
        told = await run(lm)
        assert (lm.concurrency, lm.users_in_flight) == (192, 768)
        assert hit_rate(told) >= 0.95 * alone
        share = [server.requests for server in servers]
        assert sum(share) == len(told) == USERS * ITEMS
        assert min(share) >= USERS * ITEMS / 16
        await lm.aclose()
    with fakes(3) as servers:  # nobody in particular: wherever there is room, and the prefixes are lost
        lm = client(servers, concurrency=32)
        spread = await asyncio.gather(*(lm.complete(question(u, i)) for i in range(ITEMS) for u in range(USERS)))
        assert hit_rate(spread) < 0.9 * alone
        await lm.aclose()


async def test_where_users_go_depends_on_nothing_but_the_user_and_the_addresses() -> None:
    with fakes(3, record=True) as servers:
        homes: list[dict[str, str]] = []
        for order in (servers, servers[::-1], servers[:2]):
            for server in servers:
                server.bodies.clear()
            lm = client(order)
            await run(lm, range(2))
            homes.append({b["messages"][1]["content"][:4]: s.url for s in order for b in s.bodies})
            await lm.aclose()
        assert homes[0] == homes[1]
        kept = [user for user, url in homes[0].items() if url != servers[2].url]
        assert all(homes[2][user] == homes[0][user] for user in kept)  # who was elsewhere stays


async def test_a_full_replica_hands_on_to_the_least_loaded() -> None:
    with fakes(3, latency_s=0.05) as servers:
        lm = client(servers, concurrency=4)
        await lm.start()
        asking_for.set("one user")
        told = await asyncio.gather(*(lm.complete(question(0, i)) for i in range(12)))
        assert [server.requests for server in servers] == [4, 4, 4]
        assert len(told) == 12
        await lm.aclose()


async def test_one_dies_and_comes_back_and_nothing_is_lost_or_asked_twice() -> None:
    with fakes(3) as servers:
        lm = client(servers, concurrency=64)
        before = hit_rate(await run(lm))
        living = [servers[0], servers[2]]
        asking = asyncio.create_task(run(lm, range(ITEMS, 3 * ITEMS)))
        while servers[1].in_flight == 0:
            await asyncio.sleep(0.001)
        asked = sum(server.requests for server in servers)
        await asyncio.to_thread(servers[1].stop)
        told = await asyncio.wait_for(asking, 30)
        assert [t.outcome for t in told] == ["ok"] * (2 * USERS * ITEMS)
        retried = sum(t.retries for t in told)
        assert 1 <= retried == lm.retries_made <= 40
        assert sum(s.requests for s in servers) <= USERS * ITEMS + len(told) + 40  # twice only what was in flight
        assert asked < sum(s.requests for s in living)

        again = await run(lm, range(3 * ITEMS, 4 * ITEMS))
        assert hit_rate(again) >= 0.95 * before  # its users are at home elsewhere by now
        assert sum(t.retries for t in again) == 0

        gone = servers[1].requests
        await asyncio.to_thread(servers[1].start)
        while lm.servers[1].transport.health.gone:
            await asyncio.sleep(0.01)
        back = await run(lm, range(4 * ITEMS, 5 * ITEMS))
        assert servers[1].requests > gone + USERS * ITEMS / 16
        assert [t.outcome for t in back] == ["ok"] * (USERS * ITEMS)
        await lm.aclose()


async def test_one_that_was_given_up_is_asked_again_once_it_is_back() -> None:
    with fakes(2) as servers:
        lm = client(servers, down_timeout_s=0.0)
        await run(lm, range(2))
        await asyncio.to_thread(servers[0].stop)
        told = await run(lm, range(2, 4))
        assert [t.outcome for t in told] == ["ok"] * (2 * USERS)
        health, gone = lm.servers[0].transport.health, servers[0].requests
        assert health.gone
        await asyncio.to_thread(servers[0].start)
        await run(lm, range(4, 6))
        assert servers[0].requests == gone  # what was found holds for a while
        health._clock = lambda: 1e9
        await run(lm, range(6, 8))  # looks in the background
        await run(lm, range(8, 10))
        assert servers[0].requests > gone
        await lm.aclose()


async def test_all_die_and_the_first_that_is_back_is_asked() -> None:
    with fakes(3) as servers:
        lm = client(servers)
        await run(lm, range(2))
        for server in servers:
            await asyncio.to_thread(server.stop)
        asking = asyncio.create_task(run(lm, range(2, 4)))
        while not all(server.transport.health.gone for server in lm.servers):
            await asyncio.sleep(0.01)
        await asyncio.to_thread(servers[2].start)
        told = await asyncio.wait_for(asking, 20)
        assert [t.outcome for t in told] == ["ok"] * (2 * USERS)
        await lm.aclose()


async def test_all_die_for_good() -> None:
    with fakes(2) as servers:
        lm = client(servers, down_timeout_s=0.3)
        await run(lm, range(2), range(4))
        for server in servers:
            await asyncio.to_thread(server.stop)
        told = await asyncio.wait_for(
            asyncio.gather(*(lm.complete(ask(str(i))) for i in range(200)), return_exceptions=True), 10
        )
        assert {type(t) for t in told} == {Unreachable}
        await lm.aclose()


async def test_closing_lets_go_of_those_who_wait_for_any() -> None:
    with fakes(2) as servers:
        lm = client(servers)
        await lm.start()
        for server in servers:
            await asyncio.to_thread(server.stop)
        asking = asyncio.gather(*(lm.complete(ask(str(i))) for i in range(20)), return_exceptions=True)
        while not all(server.transport.health.gone for server in lm.servers):
            await asyncio.sleep(0.01)
        await lm.aclose()
        assert {type(t) for t in await asyncio.wait_for(asking, 5)} == {Unreachable}


async def test_one_that_comes_back_as_another_stops_the_run() -> None:
    with fakes(2) as servers:
        lm = client(servers)
        await run(lm, range(2))
        await asyncio.to_thread(servers[0].stop)
        await run(lm, range(2, 4))
        await asyncio.to_thread(servers[0].start, "other-7b")
        with pytest.raises(IntegrityError, match=r"'fake-7b'.*'other-7b'"):
            for i in range(4, 200, 2):
                await run(lm, range(i, i + 2))
        assert servers[0].requests <= 2 * USERS
        await lm.aclose()


# -- at the start -----------------------------------------------------------------------------------------------------


async def test_identity_and_description_tell_nothing_of_where_and_how_many() -> None:
    with fakes(3) as servers:
        ways = [client(servers), client(servers[1:]), EndpointLM(servers[0].url)]
        for lm in ways:
            await lm.start()
        assert len({lm.identity for lm in ways}) == 1
        assert len({str(lm.describe()) for lm in ways}) == 1
        for lm in ways:
            await lm.aclose()


async def test_a_dead_one_at_the_start_is_left_out_until_it_is_there(caplog: pytest.LogCaptureFixture) -> None:
    with fakes(2) as servers:
        await asyncio.to_thread(servers[0].stop)
        lm = client(servers)
        told = await run(lm, range(2))
        assert [t.outcome for t in told] == ["ok"] * (2 * USERS)
        assert [r.message.count("going on without it") for r in caplog.records] == [1]
        assert (lm.model, lm.dialect, lm.counter.id) == ("fake-7b", "vllm", "endpoint:vllm:fake-7b")
        await asyncio.to_thread(servers[0].start)
        lm.servers[0].transport.health._clock = lambda: 1e9
        await run(lm, range(2, 4))  # looks in the background
        while lm.servers[0].transport.health.gone:
            await asyncio.sleep(0.01)
        await run(lm, range(4, 6))
        assert servers[0].requests > 0
        await lm.aclose()


async def test_one_that_is_there_later_as_another_stops_the_run() -> None:
    with fakes(1) as servers, FakeVLLM(root="other weights") as other:
        await asyncio.to_thread(other.stop)
        lm = client([*servers, other])
        await lm.start()
        await asyncio.to_thread(other.start)
        await lm.complete(ask())
        lm.servers[1].transport.health._clock = lambda: 1e9
        with pytest.raises(IntegrityError, match="is there now and no replica of") as caught:
            for i in range(200):
                await lm.complete(ask(str(i)))
        assert "\n" not in str(caught.value)
        await lm.aclose()


async def test_all_dead_at_the_start_is_told_plainly() -> None:
    urls = [dead_url(), dead_url()]
    with pytest.raises(Unreachable) as caught:
        await EndpointLM(urls).start()
    assert urls[0] in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_answers_of_two_models_under_one_name_are_not_mixed() -> None:
    named = [dict.fromkeys(range(99), reply(model=f"model-{x}")) for x in "AB"]
    with Double(faults=named[0]) as a, Double(faults=named[1]) as b:
        lm = EndpointLM([a.url, b.url], backoff_s=0.01)
        with pytest.raises(IntegrityError, match=r"answers came from 'model-.' and now come from 'model-.'"):
            await asyncio.gather(*(lm.complete(ask(str(i))) for i in range(8)))
        await lm.aclose()
    unnamed = dict.fromkeys(range(99), reply(model=None))
    with Double(faults=named[0]) as a, Double(faults=unnamed) as b:
        lm = EndpointLM([a.url, b.url], backoff_s=0.01)
        await asyncio.gather(*(lm.complete(ask(str(i))) for i in range(8)))
        await lm.aclose()


@pytest.mark.parametrize("other", ["http://h.example/", "http://H.Example", "HTTP://h.example/v1/chat/completions",
                                   "http://h.example:80/v1", " http://h.example/v1/ "])  # fmt: skip
def test_one_server_under_two_addresses_is_one(other: str) -> None:
    assert [s.api_url for s in EndpointLM(["http://h.example/v1", other]).servers] == ["http://h.example/v1"]


@pytest.mark.parametrize("url", ["http://[::1/v1", "http://h:99999", "http://h:abc/v1", "http://h:0", "http://a b/v1",
                                 "http://h/a\tb", "http://u:secret@h:abc"])  # fmt: skip
def test_a_url_that_is_none_is_named_in_one_line(url: str) -> None:
    with pytest.raises(ConfigError, match=r"lm\.base_url: 'http://") as caught:
        EndpointLM(url)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


async def test_one_that_serves_something_else_is_refused_in_one_line() -> None:
    with FakeVLLM() as one, FakeVLLM(model="other-7b") as other, FakeVLLM(window=100) as shorter:
        with pytest.raises(ConfigError) as caught:
            await EndpointLM([one.url, other.url]).start()
        words = str(caught.value)
        assert words.startswith(f"lm.base_url: {other.url}/v1 is no replica of {one.url}/v1 (id 'fake-7b' → 'other-7b'")
        assert "\n" not in words
        with pytest.raises(ConfigError, match="max_model_len 32768 → 100"):
            await EndpointLM([one.url, shorter.url]).start()
        with pytest.raises(ModelNotFound, match=other.url):
            await EndpointLM([one.url, other.url], model="fake-7b").start()


async def test_urls_as_a_list_a_text_or_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    for given in (["http://a", "http://b/v1"], "http://a, http://b/v1", ("http://a,http://b",)):
        assert [server.root_url for server in EndpointLM(given).servers] == ["http://a", "http://b"]
    monkeypatch.setenv("OPENAI_BASE_URL", "http://a,http://b,")
    assert [server.api_url for server in EndpointLM().servers] == ["http://a/v1", "http://b/v1"]
    assert len(EndpointLM(["http://a", "http://a"]).servers) == 1
    for wrong in ([], ["http://a", 7], 7, [None]):
        with pytest.raises(ConfigError, match=r"lm\.base_url"):
            monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
            EndpointLM(wrong)  # type: ignore[arg-type]


# -- counting ---------------------------------------------------------------------------------------------------------


async def test_tokens_are_counted_by_whichever_answers() -> None:
    with fakes(3) as servers:
        lm = client(servers, down_timeout_s=0.3)
        await lm.start()
        assert lm.counter.id == "endpoint:vllm:fake-7b"
        assert await asyncio.to_thread(lm.counter.count, "a b c") == 3
        await asyncio.to_thread(servers[0].stop)
        assert await asyncio.to_thread(lm.counter.count, "a b c d") == 4
        for server in servers[1:]:
            await asyncio.to_thread(server.stop)
        with pytest.raises(Unreachable):
            await asyncio.to_thread(lm.counter.count, "a b c d e")
        counting = asyncio.create_task(asyncio.to_thread(lm.counter.count, "a b c d e f"))
        await asyncio.to_thread(servers[1].start)
        assert await counting == 6  # it waits as requests do
        await lm.aclose()


async def test_where_one_does_not_count_tokens_are_estimated() -> None:
    with Double() as one, Double(pages={"/tokenize": status(404)}) as other:
        lm = EndpointLM([one.url, other.url])
        await lm.start()
        assert lm.counter.id.startswith("estimate:")
        assert Counter(one.paths)["/v1/models"] == Counter(other.paths)["/v1/models"] == 1
        await lm.aclose()

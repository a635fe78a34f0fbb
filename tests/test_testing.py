"""The fake server: vLLM's shapes, its cache arithmetic by hand, its counters, its faults, and its life as a process."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from typing import Any

import pytest

from personalink.doctor import diagnose
from personalink.errors import ConfigError, MalformedReply, ModelNotFound, PersonalinkError, PromptTooLong, Unreachable
from personalink.lm import Constraint, Decoding, EndpointLM, Message, Request, ScriptedLM, hashed_answers
from personalink.lm.gateway import Gateway
from personalink.lm.ledger import Bill
from personalink.testing import FakeVLLM, Fault, fake_vllm_process
from personalink.testing.process import main

LABELS = ("north", "south", "east", "west")


def call(url: str, body: Any = None) -> tuple[int, Any]:
    """(status, JSON or text) of a GET, or of a POST where there is a body."""
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data), timeout=10) as reply:
            status, raw = reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        status, raw = error.code, error.read().decode()
    return status, json.loads(raw) if raw.startswith("{") else raw


def chat(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "fake-7b", "messages": [{"role": "user", "content": text}], "max_tokens": 16, **more}


def ask(text: str = "hi", constraint: Constraint | None = None, max_tokens: int = 16) -> Request:
    messages = (Message("system", "Answer."), Message("user", text))
    return Request(messages, Decoding(max_tokens=max_tokens), constraint)


def metric(server: FakeVLLM, name: str) -> int:
    """The sum of a metric's samples."""
    text = call(f"{server.url}/metrics")[1]
    values = re.findall(rf"^vllm:{name}\{{[^}}]*\}} ([\d.]+)$", text, re.MULTILINE)
    assert values, name
    return int(sum(map(float, values)))


async def ask_all(server: FakeVLLM, requests: list[Request], **options: Any) -> list[Any]:
    """Completions, or the errors raised."""
    lm = EndpointLM(server.url, **{"backoff_s": 0.001, "timeout_s": 5.0, **options})
    try:
        return await asyncio.gather(*(lm.complete(r) for r in requests), return_exceptions=True)
    finally:
        await lm.aclose()


# what it says


def test_the_pages_have_vllms_shapes() -> None:
    with FakeVLLM(window=500, model="m", root="/models/m") as server:
        (entry,) = call(f"{server.url}/v1/models")[1]["data"]
        assert (entry["id"], entry["root"], entry["max_model_len"], entry["owned_by"]) == (
            "m",
            "/models/m",
            500,
            "vllm",
        )
        assert call(f"{server.url}/health") == (200, "")
        assert re.fullmatch(r"\d+\.\d+\.\d+", call(f"{server.url}/version")[1]["version"])
        told = call(f"{server.url}/tokenize", {"prompt": "two words, please"})[1]
        assert (told["count"], len(told["tokens"]), told["max_model_len"]) == (4, 4, 500)
        messages = [{"role": "user", "content": "hi"}]
        assert call(f"{server.url}/tokenize", {"messages": messages})[1]["count"] == 6
        assert call(f"{server.url}/elsewhere")[0] == 404


def test_a_reply_has_vllms_shape() -> None:
    with FakeVLLM(lambda body: "well met, all", model="m") as server:
        status, reply = call(f"{server.url}/v1/chat/completions", chat("hello there", model="m"))
    assert status == 200
    assert reply["object"] == "chat.completion"
    assert reply["model"] == "m"
    assert reply["system_fingerprint"]
    (choice,) = reply["choices"]
    assert choice["message"]["content"] == "well met, all"
    assert choice["finish_reason"] == "stop"
    assert reply["usage"] == {
        "prompt_tokens": 7, "completion_tokens": 4, "total_tokens": 11, "prompt_tokens_details": {"cached_tokens": 0}
    }  # fmt: skip


def test_without_token_details_cached_tokens_are_unknown() -> None:
    with FakeVLLM(token_details=False) as server:
        (completion,) = asyncio.run(ask_all(server, [ask()]))
    assert completion.usage.cached is None
    assert completion.usage.prompt == 11


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        (chat("hi", model="other"), 404, "does not exist"),
        ({"model": "fake-7b"}, 400, "messages"),
        ({"model": "fake-7b", "messages": []}, 400, "messages"),
        (chat("hi", stream=True), 400, "stream"),
        (chat("hi", n=2), 400, "several"),
        ([1], 400, "object"),
        (chat("word " * 100), 400, "context length"),
    ],
)
def test_what_vllm_refuses_is_refused_in_its_form(body: Any, status: int, word: str) -> None:
    with FakeVLLM(window=100) as server:
        found, reply = call(f"{server.url}/v1/chat/completions", body)
    assert (found, reply["error"]["code"]) == (status, status)
    assert word in reply["error"]["message"]


async def test_refusals_are_the_errors_they_should_be() -> None:
    with FakeVLLM(window=100) as server:
        (long,) = await ask_all(server, [ask("word " * 95)])
        (unknown,) = await ask_all(server, [ask()], model="elsewhere")
    assert isinstance(long, PromptTooLong)
    assert "121 tokens asked, 100 fit" in str(long)
    assert isinstance(unknown, ModelNotFound)


async def test_the_doctor_finds_nothing_wrong() -> None:
    with FakeVLLM() as server:
        lm = EndpointLM(server.url)
        findings = await diagnose(lm)
        await lm.aclose()
    assert [f.name for f in findings if f.ok is False] == []
    assert {f.name for f in findings if f.ok is None} <= {"greedy"}  # it has no logprobs


# what it answers

SCHEMA = {
    "type": "object",
    "properties": {"why": {"type": "string"}, "n": {"type": "array", "items": {"type": "integer"}, "maxItems": 2}},
    "required": ["why", "n"],
}


@pytest.mark.parametrize("constraint", [None, Constraint(choices=("yes", "no")), Constraint(schema=SCHEMA)])
async def test_its_answers_are_those_of_the_scripted_model(constraint: Constraint | None) -> None:
    requests = [ask(f"question {i}", constraint, 60) for i in range(8)]
    with FakeVLLM(labels=LABELS) as server:
        first = await ask_all(server, requests)
        again = await ask_all(server, requests[::-1], concurrency=2)
    scripted = ScriptedLM(hashed_answers(LABELS))
    assert [c.text for c in first] == [(await scripted.complete(r)).text for r in requests]
    assert [c.text for c in again] == [c.text for c in first[::-1]]
    assert len({c.text for c in first}) > 1


async def test_an_answer_of_ones_own_is_held_to_the_constraint_and_cut_at_max_tokens() -> None:
    with FakeVLLM(lambda body: "a very long answer") as server:
        free, chosen, cut = await ask_all(
            server, [ask(), ask(constraint=Constraint(choices=("x", "y"))), ask(max_tokens=2)]
        )
    assert free.text == "a very long answer"
    assert chosen.text in ("x", "y")
    assert (cut.text, cut.outcome, cut.usage.completion) == ("a very", "truncated", 2)


def test_removed_constraint_fields_are_ignored_as_vllm_does() -> None:
    with FakeVLLM(lambda body: "prose") as server:
        reply = call(f"{server.url}/v1/chat/completions", chat("hi", guided_choice=["a"]))[1]
    assert reply["choices"][0]["message"]["content"] == "prose"


async def test_a_shared_prefix_is_found_across_requests_in_flight() -> None:
    start = " ".join(f"word{i}" for i in range(40))  # 40 tokens behind 7 of system message and marks
    with FakeVLLM(latency_s=0.02) as server:
        found = await ask_all(server, [ask(f"{start} {i}") for i in range(5)])
    assert sorted(c.usage.cached for c in found) == [0, 32, 32, 32, 32]  # 47 shared tokens are two full blocks
    assert server.cached_tokens == 128


# what it counts


async def test_metrics_the_ledger_and_the_sums_of_usage_agree() -> None:
    with FakeVLLM(labels=LABELS, latency_s=0.001, max_num_seqs=8, kv_tokens=1024) as server:
        lm = EndpointLM(server.url, concurrency=32)
        await lm.start()
        gateway = Gateway(lm)
        prompts = [ask("the same start of every prompt " * 4 + f"{i % 40}") for i in range(200)]
        found = await asyncio.gather(*(gateway.complete(p, Bill(str(i))) for i, p in enumerate(prompts)))
        await lm.aclose()
        total = gateway.ledger.total()
        assert len(found) == 200
        assert server.requests == total.calls == metric(server, "request_success_total") == 40
        assert server.prompt_tokens == total.prompt_tokens == metric(server, "prompt_tokens_total")
        assert metric(server, "prefix_cache_queries_total") == server.prompt_tokens
        assert server.cached_tokens == total.cached_tokens == metric(server, "prefix_cache_hits_total") > 0
        assert server.completion_tokens == total.completion_tokens == metric(server, "generation_tokens_total")
        assert metric(server, "num_requests_running") == metric(server, "num_requests_waiting") == 0


async def test_more_than_it_runs_at_once_wait_in_their_order() -> None:
    order: list[str] = []

    def answer(body: dict[str, Any]) -> str:
        order.append(body["messages"][-1]["content"])
        return "x"

    with FakeVLLM(answer, max_num_seqs=2, latency_s=0.03, record=True) as server:
        began = time.monotonic()
        asking = asyncio.create_task(ask_all(server, [ask(str(i)) for i in range(8)]))
        await asyncio.sleep(0.06)
        assert 0 < server.running <= 2
        await asking
        assert time.monotonic() - began >= 4 * 0.03
        assert server.most_at_once > 2
        assert order == [body["messages"][-1]["content"] for body in server.bodies]


async def test_requests_wait_for_room_in_the_cache() -> None:
    with FakeVLLM(kv_tokens=64, latency_s=0.01) as server:
        found = await ask_all(server, [ask(f"{i} " * 40) for i in range(6)])
        assert [c.outcome for c in found] == ["ok"] * 6
        (long,) = await ask_all(server, [ask("word " * 80)])
    assert isinstance(long, PromptTooLong)


async def test_a_client_that_hangs_up_leaves_its_place() -> None:
    with FakeVLLM(max_num_seqs=1, latency_s=0.2) as server:
        given_up = await ask_all(server, [ask(str(i)) for i in range(3)], timeout_s=0.05, retries=0)
        assert all(isinstance(error, Unreachable) for error in given_up)
        (last,) = await ask_all(server, [ask("last")])
        assert last.outcome == "ok"
        assert (server.running, server.waiting) == (0, 0)
        assert metric(server, "request_success_total") == 1


# what goes wrong


async def test_each_fault_is_met_once_and_mended_by_a_retry() -> None:
    faults = {0: "503", 1: "429:0", 2: "reset", 3: "half", 4: "html", 5: Fault("status", 500)}
    with FakeVLLM(lambda body: "fine", faults=faults) as server:
        found = await ask_all(server, [ask(str(i)) for i in range(4)], retries=6, concurrency=1)
    assert [c.text for c in found] == ["fine"] * 4
    assert server.requests == 10


async def test_faults_that_are_answers_are_told_apart() -> None:
    with FakeVLLM(lambda body: "one two three four", faults={0: "empty", 1: "truncated", 2: "slow:0.05"}) as server:
        found = await ask_all(server, [ask(str(i)) for i in range(4)], concurrency=1)
    assert [(c.outcome, c.text) for c in found] == [
        ("empty", ""), ("truncated", "one two"), ("ok", "one two three four"), ("ok", "one two three four")
    ]  # fmt: skip


async def test_faults_that_last_are_outages() -> None:
    with FakeVLLM(faults=dict.fromkeys(range(9), "hang")) as server:
        (hung,) = await ask_all(server, [ask()], timeout_s=0.05, retries=1)
    with FakeVLLM(faults=dict.fromkeys(range(9), "html")) as server:
        (page,) = await ask_all(server, [ask()], retries=1)
    with FakeVLLM(faults={0: "400"}) as server:
        assert call(f"{server.url}/v1/chat/completions", chat("hi"))[0] == 400
    assert isinstance(hung, Unreachable)
    assert isinstance(page, MalformedReply)


def test_retry_after_is_sent_only_where_it_was_asked_for() -> None:
    with FakeVLLM(faults={0: "429:2", 1: "429"}) as server:
        told = []
        for _ in range(2):
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(f"{server.url}/v1/chat/completions", b"{}", timeout=5)
            told.append(caught.value.headers["Retry-After"])
            caught.value.close()
    assert told == ["2", None]


@pytest.mark.parametrize("text", ["", "200", "503:soon", "slow", "reset:1", "die:soon", "explode"])
def test_a_fault_that_is_none_is_said(text: str) -> None:
    with pytest.raises(ConfigError, match="fault"):
        FakeVLLM(faults={0: text})


async def test_a_restart_empties_the_cache_and_metrics_and_keeps_the_address_and_the_sums() -> None:
    with FakeVLLM(latency_s=0.01) as server:
        url = server.url
        await ask_all(server, [ask("word " * 40)])
        await ask_all(server, [ask("word " * 40)])
        assert server.cached_tokens == 48
        before = server.prompt_tokens
        await asyncio.to_thread(server.restart, "other-7b", down_s=0.01)
        assert server.url == url
        assert metric(server, "prompt_tokens_total") == 0
        (there,) = await ask_all(server, [ask("word " * 40)])
        assert (there.model, there.usage.cached) == ("other-7b", 0)
        assert server.prompt_tokens == before + there.usage.prompt
        assert server.requests == 3


async def test_a_client_outlives_a_restart() -> None:
    with FakeVLLM(latency_s=0.3) as server:
        asking = asyncio.create_task(ask_all(server, [ask(str(i)) for i in range(4)], backoff_s=0.05))
        await asyncio.sleep(0.1)
        await asyncio.to_thread(server.restart, down_s=0.05)
        found = await asking
        assert [c.outcome for c in found] == ["ok"] * 4
        assert (server.running, metric(server, "request_success_total")) == (0, 4)


async def test_it_is_stopped_and_started_at_the_same_address_as_itself_or_another() -> None:
    with FakeVLLM(lambda body: "x") as server:
        url = server.url
        (before,) = await ask_all(server, [ask("word " * 40)])
        for _ in range(2):
            await asyncio.to_thread(server.stop)
            assert not server.alive
            with pytest.raises(urllib.error.URLError):
                call(f"{url}/health")
        for _ in range(2):
            await asyncio.to_thread(server.start, root="/models/b", fingerprint="another build")
        assert (server.alive, server.url) == (True, url)
        assert call(f"{url}/v1/models")[1]["data"][0]["root"] == "/models/b"
        reply = call(f"{url}/v1/chat/completions", chat("hi"))[1]
        assert (reply["model"], reply["system_fingerprint"]) == ("fake-7b", "another build")
        await asyncio.to_thread(server.restart, "other-7b", fingerprint="a third")
        assert call(f"{url}/v1/models")[1]["data"][0]["id"] == "other-7b"
        assert server.prompt_tokens > before.usage.prompt
        assert server.requests == 2


@pytest.mark.parametrize(
    ("fault", "alive", "model"),
    [("die", False, "fake-7b"), ("die:0.05", True, "fake-7b"), (Fault("die", seconds=0.05, model="b"), True, "b")],
)
async def test_a_scripted_death_breaks_off_what_runs_and_may_end(fault: Fault | str, alive: bool, model: str) -> None:
    with FakeVLLM(faults={2: fault}, latency_s=5.0) as server:
        asking = asyncio.create_task(ask_all(server, [ask(str(i)) for i in range(3)], retries=0, down_timeout_s=0))
        broken = await asyncio.wait_for(asking, 4)
        assert [type(error) for error in broken] == [Unreachable] * 3
        for _ in range(200):
            if server.alive == alive:
                break
            await asyncio.sleep(0.01)
        assert (server.alive, server.running, server.waiting, server.model) == (alive, 0, 0, model)


# as a process


async def test_it_runs_as_a_process_of_its_own() -> None:
    with fake_vllm_process(labels=LABELS, latency=0.001, model="m", kv_tokens=4096, faults={0: "503"}) as url:
        lm = EndpointLM(url, backoff_s=0.001)
        told = await lm.complete(ask("a question"))
        await lm.aclose()
        assert call(f"{url}/v1/models")[1]["data"][0]["id"] == "m"
    assert told.text == (await ScriptedLM(hashed_answers(LABELS)).complete(ask("a question"))).text
    with pytest.raises(OSError, match="refused"):
        call(f"{url}/health")
    with fake_vllm_process(answer="always this") as url:
        assert call(f"{url}/v1/chat/completions", chat("hi"))[1]["choices"][0]["message"]["content"] == "always this"


def test_a_process_that_cannot_start_says_why() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "personalink.testing", "--fault", "0=explode"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("personalink.testing: fault 'explode' is none of")
    with pytest.raises(PersonalinkError, match="did not start"), fake_vllm_process(window=0):
        pass


@pytest.mark.parametrize("words", ["--port=99999", "--port=-5", "--fault=x=503", "--fault=reset"])
def test_a_word_that_is_wrong_is_told_in_one_line(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        assert main([words]) == 2
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    told = capsys.readouterr().err
    assert told.startswith(f"personalink.testing: {words.split('=')[0]}")
    assert told.count("\n") == 1

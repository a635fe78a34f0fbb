"""`EndpointLM` and the whole of `personalink run` against a real vLLM server, one test a trap.

The servers are started once a session, as scripts/serve_vllm.sh starts them on a machine without a GPU; `foreign` is one
that somebody else set up.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import chain
from pathlib import Path

import pytest

from personalink.doctor import diagnose
from personalink.errors import PromptTooLong
from personalink.lm import Completion, Constraint, EndpointLM, Request, TokenizerCounter
from personalink.lm.constraints import satisfies
from personalink.lm.gateway import Gateway
from personalink.lm.journal import Journal
from personalink.lm.ledger import Bill

from .prompts import SCHEMA, ask, news
from .serving import BLOCK, MODEL, Served

pytestmark = pytest.mark.model
Tell = Callable[[str], None]
ODD = ("vexil-quorn-41", "tramp-oddle-87")


@asynccontextmanager
async def asking(server: Served, **options: object) -> AsyncIterator[EndpointLM]:
    lm = EndpointLM(server.url, **options)  # type: ignore[arg-type]
    await lm.start()
    try:
        yield lm
    finally:
        await lm.aclose()


async def in_order(lm: EndpointLM, requests: Sequence[Request]) -> list[Completion]:
    return [await lm.complete(request) for request in requests]


async def test_it_is_known_for_what_it_is(server: Served, vllm_folder: Path) -> None:
    async with asking(server) as lm:
        assert (lm.dialect, lm.model, lm.window) == ("vllm", MODEL, 8192)
        assert lm.counter.id == f"endpoint:vllm:{MODEL}"
        local = TokenizerCounter(vllm_folder)
        for text in ("hello world", "  two\nlines\n", "naïve — 日本語 😀", "<|im_start|>"):
            assert lm.counter.count(text) == local.count(text)
        told = json.dumps(lm.describe())
    assert '"version": "0.' in told
    assert "127.0.0.1" not in told


async def test_trap_2_guided_choice_is_ignored_silently_and_our_constraints_bite(server: Served) -> None:
    status, reply = server.bare("Say hello.", guided_choice=list(ODD), temperature=0, max_tokens=16)
    assert status == 200
    assert reply["choices"][0]["message"]["content"].strip() not in ODD
    async with asking(server) as lm:
        for choices in (ODD, ('say "é"', "two\nlines\tand a tab"), ("[a-z]*", "(b | c)")):
            done = await lm.complete(ask("Say hello.", 32, constraint=Constraint(choices=choices)))
            assert done.text in choices
            assert (done.outcome, done.constrained) == ("ok", "structured_outputs")
        wanted = Constraint(schema=SCHEMA)
        done = await lm.complete(ask("Say hello.", 64, constraint=wanted))
        assert satisfies(wanted, done.text)
        assert done.constrained == "response_format"
        assert " " not in done.text  # the server was started without white space between fields


async def test_trap_3_the_models_own_generation_config_reaches_bare_requests_and_not_ours(
    server: Served, foreign: Served
) -> None:
    text = "Write the word tick twenty times: tick tick tick tick tick tick tick tick"
    _, capped = foreign.bare(text, temperature=0)
    assert capped["usage"]["completion_tokens"] == 5  # its max_new_tokens
    said = [where.bare(text, temperature=0, max_tokens=24)[1]["choices"][0]["message"] for where in (server, foreign)]
    assert said[0]["content"] != said[1]["content"]  # its penalty
    ours = []
    for where in (server, foreign):
        async with asking(where) as lm:
            ours.append(await lm.complete(ask(text, 24)))
    assert ours[0].text == ours[1].text
    async with asking(foreign) as lm:
        found = {finding.name: finding for finding in await diagnose(lm)}
    assert "personalink overrides them in every request" in found["server defaults"].detail
    assert found["greedy"].ok, found["greedy"]


async def test_trap_4_cold_warm_and_batched(server: Served, measured: Tell) -> None:
    prompts = news(2, 6, demonstrations=9)
    async with asking(server) as lm:
        cold = await in_order(lm, prompts)
        warm = await in_order(lm, prompts)
        batched = await asyncio.gather(*map(lm.complete, prompts))
    assert cold[0].usage.cached == 0
    assert all((done.usage.cached or 0) >= BLOCK for done in [*cold[1:], *warm])
    same = [sum(a.text == b.text for a, b in zip(cold, other, strict=True)) for other in (warm, batched)]
    measured(f"{same[0]} of {len(prompts)} warm and {same[1]} of {len(prompts)} at once as cold")
    assert all(done.outcome in ("ok", "truncated") for done in [*cold, *warm, *batched])


def _personas(start: str, **layout: bool) -> list[list[Request]]:
    return [news(user, 2, demonstrations=17, start=f"{start}. ", max_tokens=1, **layout) for user in range(1, 7)]


async def test_trap_11_hits_hang_on_layout_and_order(foreign: Served, measured: Tell) -> None:
    """Six users, two items each, behind 17 demonstrations, which are more blocks than the cache has."""
    orders = {
        "persona first, user by user": list(chain(*_personas("A"))),
        "persona first, item by item": list(chain(*zip(*_personas("B"), strict=True))),
        "item first, user by user": list(chain(*_personas("C", item_first=True))),
    }
    hits, asked = {}, {}
    for label, requests in orders.items():
        before = foreign.counters()
        async with asking(foreign) as lm:
            answers = await in_order(lm, requests)
        moved = foreign.since(before)
        hits[label], asked[label] = moved["prefix_cache_hits"], moved["prefix_cache_queries"]
        assert hits[label] == sum(done.usage.cached or 0 for done in answers)
        assert asked[label] == sum(done.usage.prompt or 0 for done in answers)
    for label in hits:
        measured(f"{label}: {hits[label]} of {asked[label]} prompt tokens were hits ({hits[label] / asked[label]:.0%})")
    ours = hits.pop("persona first, user by user")
    assert ours % BLOCK == 0
    assert ours >= 6 * 3 * BLOCK  # each second item finds its persona
    assert max(hits.values()) < ours / 2


async def test_a_prompt_too_long_is_told_with_both_counts(server: Served) -> None:
    async with asking(server) as lm:
        with pytest.raises(PromptTooLong, match=r"\d{4,5} tokens asked, 8192 fit"):
            await lm.complete(ask("word " * 9000))


async def test_the_gateway_pays_once_and_the_journal_for_good(server: Served, tmp_path: Path) -> None:
    prompts = news(3, 4)
    bills = [Bill("3", "answer", row=f"{i % 2}") for i in range(len(prompts))]
    before = server.counters()
    for _ in range(2):  # the second time from the journal alone
        async with asking(server, concurrency=4) as lm:
            with Journal(tmp_path / "journal") as journal:
                gateway = Gateway(lm, journal)
                twice = zip(prompts * 2, bills * 2, strict=True)
                answers = await asyncio.gather(*(gateway.complete(*one) for one in twice))
                total = gateway.ledger.total()
        assert answers[:4] == answers[4:]
        assert total.calls == len(prompts)
    moved = server.since(before)
    assert moved["request_success"] == len(prompts)
    assert (total.prompt_tokens, total.completion_tokens) == (moved["prompt_tokens"], moved["generation_tokens"])
    assert total.cached_tokens == moved["prefix_cache_hits"]


def personalink(*words: str, where: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "personalink.cli", *words]
    return subprocess.run(command, cwd=where, capture_output=True, text=True, timeout=300, check=False)


def test_the_doctor_finds_nothing_wrong(server: Served, tmp_path: Path) -> None:
    done = personalink("doctor", "--lm", server.url, where=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAIL" not in done.stdout
    assert "leave greedy decoding as it is" in done.stdout
    for found in ("prefix cache", "constraint: choices", "greedy"):
        assert any(line.startswith("ok") and found in line for line in done.stdout.splitlines()), done.stdout


def test_a_whole_run_and_its_ledger_is_the_servers_own_count(server: Served, tmp_path: Path, measured: Tell) -> None:
    words = (
        "experiment=quickstart", "lm=vllm", f"lm.base_url={server.url}", "data.n_users=2", "optimizer.depth=1",
        "context=[nopers,rag_1,personalink_r1]", "optimizer.holdout=4", "optimizer.audit=0",
        "optimizer.rewrite_tokens=128",
    )  # fmt: skip
    before = server.counters()
    done = personalink("run", *words, where=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "PersonaLink" in done.stdout
    moved = server.since(before)
    (ledger,) = tmp_path.glob("runs/quickstart/*/log/ledger.json")
    total = json.loads(ledger.read_text())["total"]
    assert total["calls"] == moved["request_success"] > 0
    assert total["prompt_tokens"] == moved["prompt_tokens"]
    assert total["completion_tokens"] == moved["generation_tokens"]
    assert total["cached_tokens"] == moved["prefix_cache_hits"]
    share = moved["prefix_cache_hits"] / moved["prefix_cache_queries"]
    measured(f"{total['calls']} calls, {total['prompt_tokens']} prompt tokens, {share:.0%} of them hits")
    again = personalink("run", *words, where=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "(0 requests sent)" in again.stdout
    assert server.since(before) == moved

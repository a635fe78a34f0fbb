"""`VLLMEngine` with real weights, beside a server of the same model; the last test lets its engine die."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import personalink as pl
from personalink.errors import BadRequest, LMError, PromptTooLong, Unreachable
from personalink.lm import Completion, Constraint, Decoding, Message, Request, VLLMEngine, connect
from personalink.lm.constraints import satisfies
from personalink.lm.gateway import Gateway
from personalink.lm.ledger import Bill
from personalink.logprobs import margin

from .prompts import SCHEMA, ask, news
from .serving import BLOCK, SHARE, Served
from .test_vllm_server import ODD, asking

pytestmark = pytest.mark.model
Tell = Callable[[str], None]


@pytest.fixture(scope="module")
def engine(vllm_folder: Path) -> Iterator[VLLMEngine]:
    lm = connect(f"vllm:{vllm_folder}", concurrency=32, window=4096, gpu_memory_utilization=SHARE)
    assert isinstance(lm, VLLMEngine)
    asyncio.run(lm.start())
    yield lm
    asyncio.run(lm.aclose())
    asyncio.run(lm.aclose())


async def test_it_names_itself(engine: VLLMEngine, vllm_folder: Path) -> None:
    assert (engine.model, engine.window, engine.concurrency) == (vllm_folder.name, 4096, 32)
    kind, digest, dtype, version = engine.identity.split("|")
    assert (kind, len(digest), dtype) == ("vllm_engine", 16, "float32" if BLOCK == 128 else "float16")
    assert version.startswith("vllm 0.")
    assert engine.counter.count("hello world") == 2
    assert not engine.counter.remote
    told = engine.describe()
    assert told["batch_invariant"] is False
    assert str(vllm_folder.parent) not in json.dumps(told)


async def test_the_same_prompts_and_words_as_over_http(engine: VLLMEngine, server: Served, measured: Tell) -> None:
    prompts = news(4, 4, demonstrations=9)
    ours = await asyncio.gather(*map(engine.complete, prompts))
    async with asking(server) as lm:
        theirs = await asyncio.gather(*map(lm.complete, prompts))
    assert [done.usage.prompt for done in ours] == [done.usage.prompt for done in theirs]
    same = sum(a.text == b.text for a, b in zip(ours, theirs, strict=True))
    measured(f"{same} of {len(prompts)} answers as over HTTP")
    assert all((done.usage.completion or 0) > 0 for done in ours)


async def test_the_same_logprobs_as_over_http(engine: VLLMEngine, server: Served, measured: Tell) -> None:
    prompts = [replace(request, logprobs=5) for request in news(7, 4, demonstrations=9)]
    ours = await asyncio.gather(*map(engine.complete, prompts))
    async with asking(server) as lm:
        theirs = await asyncio.gather(*map(lm.complete, prompts))
    apart = []
    for mine, yours in zip(ours, theirs, strict=True):
        assert mine.tokens
        assert yours.tokens
        assert "".join(token.text for token in mine.tokens).startswith(mine.text)
        assert margin(mine.tokens) is not None
        first, second = mine.tokens[0], yours.tokens[0]
        assert (first.text, len(first.others)) == (second.text, len(second.others))
        apart += [
            abs(a.logprob - b.logprob) for a, b in zip(mine.tokens, yours.tokens, strict=False) if a.text == b.text
        ]
    measured(f"log-probabilities of the same tokens as over HTTP within {max(apart):.4f} nats")
    assert max(apart) < 0.05


async def test_constraints_bite(engine: VLLMEngine) -> None:
    done = await engine.complete(ask("Say hello.", 32, constraint=Constraint(choices=ODD)))
    assert done.text in ODD
    assert (done.outcome, done.constrained) == ("ok", "structured_outputs")
    wanted = Constraint(schema=SCHEMA)
    done = await engine.complete(ask("Say hello.", 64, constraint=wanted))
    assert satisfies(wanted, done.text)
    with pytest.raises(BadRequest, match="vLLM refused the request: "):
        await engine.complete(ask("Say hello.", constraint=Constraint(schema={"type": "nonsense"})))


async def test_what_does_not_fit_is_not_computed(engine: VLLMEngine) -> None:
    with pytest.raises(PromptTooLong, match=r"^the prompt .* \d{4} tokens asked, 4096 fit$"):
        await engine.complete(ask("word " * 5000))


async def test_a_prefix_is_read_once_and_counted(engine: VLLMEngine) -> None:
    prompts = news(5, 3, demonstrations=17, max_tokens=1)
    cached = [(await engine.complete(prompt)).usage.cached or 0 for prompt in prompts]
    assert cached[0] == 0
    assert min(cached[1:]) >= 2 * BLOCK
    assert {done % BLOCK for done in cached} == {0}


async def test_a_draw_hangs_on_its_seed_alone(engine: VLLMEngine) -> None:
    def drawn(sample: int) -> Request:
        return Request((Message("user", "Invent a name."),), Decoding(12, temperature=1.5), sample=sample)

    answers = [await engine.complete(drawn(sample)) for sample in (0, 1, 0, 2)]
    assert answers[0].text == answers[2].text
    assert len({answer.text for answer in answers}) > 1


async def test_a_penalty_is_passed_on(engine: VLLMEngine) -> None:
    messages = (Message("user", "Write the word tick twenty times: tick tick tick tick tick tick tick tick"),)
    asked = [Request(messages, Decoding(24, repetition_penalty=value)) for value in (1.0, 1.8)]
    plain, penalised = [await engine.complete(request) for request in asked]
    assert plain.text != penalised.text


def test_several_event_loops_may_ask(engine: VLLMEngine) -> None:
    answers: dict[int, list[Completion]] = {}

    def work(user: int) -> None:
        async def all_of_them() -> list[Completion]:
            return list(await asyncio.gather(*map(engine.complete, news(user, 3, max_tokens=2))))

        answers[user] = asyncio.run(all_of_them())

    threads = [threading.Thread(target=work, args=(user,)) for user in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert [len(answers[user]) for user in (1, 2)] == [3, 3]


async def test_one_who_gives_up_disturbs_nobody(engine: VLLMEngine) -> None:
    long = asyncio.create_task(engine.complete(ask("Tell a long story.", 1000)))
    short = await engine.complete(ask("Say hello.", 4))
    long.cancel()
    with pytest.raises(asyncio.CancelledError):
        await long
    assert (await engine.complete(ask("Say hello.", 4))).text == short.text


async def test_the_gateway_counts_what_it_took(engine: VLLMEngine) -> None:
    gateway = Gateway(engine)
    prompts = news(6, 3)
    answers = await asyncio.gather(*(gateway.complete(p, Bill("6", "answer")) for p in prompts * 2))
    total = gateway.ledger.total()
    assert total.calls == 3
    assert total.prompt_tokens == sum(done.usage.prompt or 0 for done in answers[:3])


def test_a_persona_is_fitted_through_the_sync_face(engine: VLLMEngine) -> None:
    user = pl.load_sample("news").users[2]
    optimizer = pl.PersonaLink(
        pl.task("lamp2"), engine, depth=1, holdout=4, audit=0, sample_tokens=300, rewrite_tokens=128, constrain="line"
    )
    refinement = optimizer.fit_user(user)
    assert len(refinement.passes) == 1
    assert refinement.score_at(1).total >= refinement.score_at(0).total


async def test_an_engine_that_dies_is_an_outage_in_one_line(engine: VLLMEngine) -> None:
    long = asyncio.create_task(engine.complete(ask("Tell a long story.", 1000)))
    await engine.complete(ask("Say hello.", 4))
    (core,) = (child for child in multiprocessing.active_children() if "EngineCore" in child.name)
    assert core.pid is not None
    os.kill(core.pid, signal.SIGKILL)
    for asked in (long, asyncio.create_task(engine.complete(ask("Say hello.", 4)))):
        with pytest.raises(Unreachable, match=r"^the vLLM engine of .* died; its own log stands above$"):
            await asked
    await engine.aclose()


async def test_a_folder_that_is_none_is_told_in_one_line(vllm_folder: Path) -> None:
    with pytest.raises(LMError, match=r"^vLLM could not start /nowhere/model \(.*\)"):
        await VLLMEngine("/nowhere/model").start()

"""The scripted model that users get too, and `connect`."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from personalink.errors import ConfigError, Unreachable
from personalink.lm import Completion, Decoding, EmbeddedLM, EndpointLM, Message, Request, ScriptedLM, connect
from personalink.lm.base import LM


def ask(text: str = "hi", **more: Any) -> Request:
    return Request((Message("user", text),), Decoding(max_tokens=16), **more)


async def test_answers_of_every_kind() -> None:
    async def later(request: Request) -> str:
        await asyncio.sleep(0)
        return request.messages[0].content.upper()

    def broken(request: Request) -> str:
        raise Unreachable("down")

    lm: LM = ScriptedLM(later)
    assert (await lm.complete(ask("abc"))).text == "ABC"
    assert (await ScriptedLM(lambda r: " ").complete(ask())).outcome == "empty"
    whole = Completion("x", "truncated")
    assert await ScriptedLM(lambda r: whole).complete(ask()) is whole
    for failing in (ScriptedLM(broken), ScriptedLM(lambda r: Unreachable("down"))):
        with pytest.raises(Unreachable, match="down"):
            await failing.complete(ask())
        assert failing.requests == [ask()]
    assert lm.describe()["kind"] == "scripted"


async def test_it_answers_no_more_at_once_than_told() -> None:
    lm = ScriptedLM(lambda r: "x", concurrency=3, latency_s=0.002)
    await asyncio.gather(*(lm.complete(ask(str(i))) for i in range(20)))
    assert lm.most_at_once == 3
    assert [r.messages[0].content for r in lm.requests] == [str(i) for i in range(20)]


async def test_hashed_answers_depend_on_the_request_alone() -> None:
    first, second = connect("scripted", labels=["yes", "no"]), connect("scripted", labels=["yes", "no"])
    texts = [str(i) for i in range(40)]
    one = [(await first.complete(ask(t))).text for t in texts]
    two = [(await second.complete(ask(t))).text for t in reversed(texts)]
    assert one == two[::-1]
    assert set(one) == {"yes", "no"}
    assert (await connect("scripted").complete(ask())).text.startswith("answer ")
    draws = {(await first.complete(ask(sample=i))).text for i in range(20)}
    assert draws == {"yes", "no"}


def test_connect_finds_the_right_one() -> None:
    assert isinstance(connect("http://host:1", model="m"), EndpointLM)
    replicas = connect(["http://host:1", "http://other:1"], model="m")
    assert isinstance(replicas, EndpointLM)
    for wrong in ([], ["http://host:1", "embedded"], ["http://host:1", 3], 3):
        with pytest.raises(ConfigError, match="is none of"):
            connect(wrong)  # type: ignore[arg-type]
    assert isinstance(connect("embedded", slots=2), EmbeddedLM)
    assert connect("/some/Model-1B.gguf").model == "Model-1B"
    assert connect("embedded", model="/some/Model-1B.gguf").model == "Model-1B"
    assert connect("scripted", model="n").model == "n"
    with pytest.raises(ConfigError, match="did you mean 'embedded'"):
        connect("embeded")
    with pytest.raises(ConfigError, match="'gpt'"):
        connect("gpt")
    with pytest.raises(ConfigError, match="did you mean 'concurrency'"):
        connect("http://host:1", concurency=3)
    with pytest.raises(ConfigError, match="at least 1"):
        connect("embedded", slots=0)


def test_importing_the_room_loads_no_client_and_no_engine() -> None:
    code = (
        "import sys, personalink.lm; print([m for m in ('aiohttp', 'xllamacpp', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

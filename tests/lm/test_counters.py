"""Counters: the stated estimate, a local tokenizer (a stand-in for transformers), the server's /tokenize."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from personalink.errors import ConfigError, Unreachable
from personalink.lm import Counter, EndpointCounter, EndpointLM, EstimateCounter, TokenizerCounter

from .double import Double, status


def test_estimate_is_a_third_of_the_bytes_rounded_up() -> None:
    counter = EstimateCounter()
    assert isinstance(counter, Counter)
    assert [counter.count(t) for t in ("", "a", "abc", "abcd", "é", "日本", "😀", "\ud800")] == [0, 1, 1, 2, 1, 2, 2, 1]
    assert (counter.id, counter.remote) == ("estimate:utf8/3", False)


@given(st.text(), st.text())
def test_estimate_grows_with_the_text(a: str, b: str) -> None:
    counter = EstimateCounter()
    assert max(counter.count(a), counter.count(b)) <= counter.count(a + b) <= counter.count(a) + counter.count(b)


class FakeTokenizer:
    def __init__(self, vocab: dict[str, int]) -> None:
        self.vocab = vocab

    def get_vocab(self) -> dict[str, int]:
        return self.vocab

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        assert add_special_tokens is False
        return [1] * len(text.split())


def fake_transformers(monkeypatch: pytest.MonkeyPatch, calls: list[Any]) -> None:
    class AutoTokenizer:
        @staticmethod
        def from_pretrained(name: str, **options: Any) -> FakeTokenizer:
            calls.append((name, options))
            if "missing" in name:
                raise OSError("no such tokenizer\nsecond line")
            return FakeTokenizer({"a": len(name) if "other" in name else 0})

    module = types.ModuleType("transformers")
    module.AutoTokenizer = AutoTokenizer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "transformers", module)


def test_tokenizer_counter_is_named_by_what_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls: list[Any] = []
    fake_transformers(monkeypatch, calls)
    (tmp_path / "qwen").mkdir()
    local, named = TokenizerCounter(tmp_path / "qwen"), TokenizerCounter("org/other")
    assert local.count("one two") == 2
    assert local.count("") == 0
    assert local.id.startswith("tokenizer:qwen:")
    assert str(tmp_path) not in local.id
    assert named.id.startswith("tokenizer:org/other:")
    assert local.id[-12:] != named.id[-12:]
    assert calls[0][1] == {"local_files_only": True}


def test_tokenizer_counter_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_transformers(monkeypatch, [])
    with pytest.raises(ConfigError, match=r"missing.*no such tokenizer$"):
        TokenizerCounter("missing")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConfigError, match=r"personalink\[transformers\]"):
        TokenizerCounter("x")


@pytest.mark.parametrize("dialect", ["vllm", "llama_cpp"])
def test_endpoint_counter_asks_once_for_each_text(dialect: Any) -> None:
    with Double(dialect=dialect) as double:
        counter = EndpointCounter(double.url, dialect, "m")
        assert [counter.count("a b c"), counter.count("a b c"), counter.count("")] == [3, 3, 0]
        own = {
            "vllm": {"model": "m", "prompt": "a b c", "add_special_tokens": False},
            "llama_cpp": {"content": "a b c"},
        }
        assert double.tokenized == [own[dialect]]
        assert counter.remote
        assert isinstance(counter, Counter)
        counter.close()
        assert counter.count("new text") == 2
        counter.close()


def test_endpoint_counter_forgets_what_was_used_least() -> None:
    with Double() as double:
        counter = EndpointCounter(double.url, "vllm", "m", cache_size=2)
        for text in ("a", "b", "a", "c", "a", "b"):
            counter.count(text)
        assert [b["prompt"] for b in double.tokenized] == ["a", "b", "c", "b"]
        counter.close()


def test_endpoint_counter_from_many_threads() -> None:
    with Double() as double:
        counter = EndpointCounter(double.url, "vllm", "m")
        texts = [" ".join(["w"] * (i % 7 + 1)) for i in range(200)]
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(counter.count, texts)) == [i % 7 + 1 for i in range(200)]
        assert len(double.tokenized) == 7
        counter.close()


def test_endpoint_counter_outlives_a_connection_that_the_server_closed() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    answer = b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{"count": 4}'

    def serve() -> None:
        for _ in range(2):  # each connection answers once and is closed
            peer, _address = listener.accept()
            peer.recv(65536)
            peer.sendall(answer)
            peer.close()

    thread = threading.Thread(target=serve)
    thread.start()
    counter = EndpointCounter(f"http://127.0.0.1:{listener.getsockname()[1]}", "vllm", "m")
    assert [counter.count("a"), counter.count("b")] == [4, 4]
    thread.join()
    listener.close()
    with pytest.raises(Unreachable, match="is the server up"):
        counter.count("c")


@pytest.mark.parametrize("body", [{"tokens": [1]}, "prose", "[]", {"count": True}])
def test_endpoint_counter_refuses_what_is_no_count(body: Any) -> None:
    with Double(pages={"/tokenize": status(200, body)}) as double:
        counter = EndpointCounter(double.url, "vllm", "m")
        with pytest.raises(Unreachable, match=r"lm\.tokenizer"):
            counter.count("a")
        counter.close()


async def test_an_endpoint_picks_its_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_transformers(monkeypatch, [])
    with Double() as double:
        counted = EndpointLM(double.url)
        await counted.start()
        assert await asyncio.to_thread(counted.counter.count, "a b") == 2
        named = EndpointLM(double.url, tokenizer="org/name")
        await named.start()
        assert named.counter.id.startswith("tokenizer:org/name:")
        given_one = EndpointLM(double.url, counter=EstimateCounter())
        assert given_one.counter.id == "estimate:utf8/3"
        for lm in (counted, named, given_one):
            await lm.aclose()
    with Double(pages={"/tokenize": status(404)}) as double:
        lm = EndpointLM(double.url)
        await lm.start()
        assert isinstance(lm.counter, EstimateCounter)
        await lm.aclose()

"""`BatchLM` and the results it reads: what is answered, what is pending, what is refused in one line."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from personalink.errors import ConfigError, DataError, IntegrityError, NotAnswered, PromptTooLong
from personalink.lm.base import Completion, Constraint, Decoding, Message, Request
from personalink.lm.batch import BatchLM, Results
from personalink.lm.endpoint import EndpointLM
from personalink.lm.gateway import Gateway
from personalink.lm.ledger import Bill
from personalink.testing import FakeVLLM


def request(text: str = "one", **fields: Any) -> Request:
    return Request((Message("system", "be short"), Message("user", text)), Decoding(8), **fields)


def key(asked: Request, lm: BatchLM | None = None) -> str:
    return asked.key((lm or BatchLM("m")).identity)


def answer(custom_id: str, text: str = "yes", model: str = "m", finish: str = "stop") -> dict[str, Any]:
    """A line of results, as `vllm run-batch` writes it."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
    usage = {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 4}}
    body = {"model": model, "choices": [choice], "usage": usage}
    return {"id": "1", "custom_id": custom_id, "response": {"status_code": 200, "body": body}, "error": None}


def failure(custom_id: str, status: int, message: str) -> dict[str, Any]:
    """A line that failed, as vLLM writes it: the error stands beside a response without a body."""
    error = {"error": {"message": message, "type": "BadRequestError", "code": status}}
    return {"id": "1", "custom_id": custom_id, "response": {"status_code": status, "body": None}, "error": error}


def write(path: Path, *lines: Any) -> Path:
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path


def ask(lm: BatchLM, asked: Request) -> Completion:
    return asyncio.run(lm.complete(asked))


def test_what_is_answered_comes_back_as_a_server_would_give_it(tmp_path: Path) -> None:
    free, held = request(), request("two", constraint=Constraint(choices=("a", "b")))
    file = write(tmp_path / "r.jsonl", answer(key(held), "b"), answer(key(free), "so", finish="length"))
    lm = BatchLM("m", Results.read([file]))
    cut = ask(lm, free)
    assert (cut.text, cut.outcome, cut.model, cut.constrained) == ("so", "truncated", "m", "")
    assert (cut.usage.prompt, cut.usage.cached, cut.usage.completion) == (9, 4, 1)
    assert ask(lm, held).constrained == "structured_outputs"
    assert lm.pending == {}


def test_the_identity_and_the_bodies_are_the_endpoints() -> None:
    with FakeVLLM(model="m") as server:
        live = EndpointLM(server.url, model="m", revision="r2", dialect="vllm")
        asyncio.run(live.start())
        lm = BatchLM("m", revision="r2")
        assert lm.identity == live.identity
        with pytest.raises(NotAnswered):
            ask(lm, request())
        assert lm.pending == {key(request(), lm): live.chat_body(request())[0]}
        asyncio.run(live.aclose())


async def test_what_waits_for_a_batch_is_no_failed_call() -> None:
    gateway = Gateway(BatchLM("m"))
    with pytest.raises(NotAnswered):
        await gateway.complete(request(), Bill("u", "answer"))
    assert (gateway.ledger.total().calls, gateway.ledger.total().failed) == (0, 0)


def test_pending_requests_are_written_sorted_by_prompt(tmp_path: Path) -> None:
    lm = BatchLM("m")
    for text in ("persona B\n\nitem 1", "persona A\n\nitem 2", "persona B\n\nitem 0", "persona A\n\nitem 2", "\ud800"):
        with pytest.raises(NotAnswered, match="no results file yet"):
            ask(lm, request(text))
    lm.write(tmp_path / "new" / "q.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "new" / "q.jsonl").read_text().splitlines()]
    asked = [line["body"]["messages"][1]["content"] for line in lines]
    assert asked == ["persona A\n\nitem 2", "persona B\n\nitem 0", "persona B\n\nitem 1", "\ud800"]
    assert {(line["method"], line["url"], line["body"]["model"]) for line in lines} == {
        ("POST", "/v1/chat/completions", "m")
    }
    assert lines[0]["custom_id"] == key(request(asked[0]))


@pytest.mark.parametrize(
    "line",
    [
        failure("", 500, "the engine died"),
        failure("", 400, "no such parameter"),
        {"response": None, "error": {"code": "batch_expired", "message": "expired"}},
        {"response": {"status_code": 400}, "error": "Request must not be sent in stream mode"},
        {"response": {"status_code": 200, "body": None}, "error": None},
        {"response": {"status_code": 200, "body": {"choices": []}}, "error": None},
        answer("", finish="abort"),
    ],
)
def test_a_failed_line_is_not_an_answer(tmp_path: Path, line: dict[str, Any]) -> None:
    lm = BatchLM("m", Results.read([write(tmp_path / "r.jsonl", line | {"custom_id": key(request())})]))
    with pytest.raises(NotAnswered, match=r"^the batch "):
        ask(lm, request())
    assert list(lm.pending) == [key(request())]


def test_a_prompt_refused_as_too_long_is_refused_as_live(tmp_path: Path) -> None:
    told = "This model's maximum context length is 8 tokens. However, you requested 12 tokens"
    lm = BatchLM("m", Results.read([write(tmp_path / "r.jsonl", failure(key(request()), 400, told))]))
    with pytest.raises(PromptTooLong, match="12 tokens asked, 8 fit"):
        ask(lm, request())
    assert lm.pending == {}


def test_a_later_answer_mends_a_failure_and_the_first_answer_stands(tmp_path: Path) -> None:
    one, two = key(request()), key(request("two"))
    first = write(tmp_path / "1.jsonl", failure(one, 500, "x"), answer(two, "first"), answer(two, "second"))
    later = write(tmp_path / "2.jsonl", answer(one, "mended"), failure(two, 500, "y"), "")
    results = Results.read([first, later])
    assert (results.answered[one].text, results.answered[two].text) == ("mended", "first")
    assert (results.failed, results.repeated) == ({}, 1)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"custom_id": "a", "resp', "it is not JSON"),
        ("[1]", "no custom_id"),
        ({"response": {}}, "no custom_id"),
        ({"custom_id": "a", "method": "POST", "url": "/v1", "body": {}}, "is it the file of requests?"),
    ],
)
def test_a_line_that_is_no_result_is_named(tmp_path: Path, line: Any, message: str) -> None:
    file = write(tmp_path / "r.jsonl", answer("a"), line)
    with pytest.raises(DataError, match=f"r.jsonl, line 2: .*{message[:20]}") as raised:
        Results.read([file])
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none.jsonl: No such file"):
        Results.read([tmp_path / "none.jsonl"])


def test_another_model_is_refused(tmp_path: Path) -> None:
    results = Results.read([write(tmp_path / "r.jsonl", answer("a", model="gpt-x-2026-01-01"))])
    with pytest.raises(IntegrityError, match=r"'gpt-x-2026-01-01' and lm.model is 'gpt-x'"):
        BatchLM("gpt-x", results)
    assert BatchLM("gpt-x", results, dialect="openai").identity == "openai-chat|openai|gpt-x|"
    with pytest.raises(IntegrityError, match="line 2: answered by 'n' and the lines before by 'm'"):
        Results.read([write(tmp_path / "mixed.jsonl", answer("a"), answer("b", model="n"))])


def test_a_batch_needs_a_model() -> None:
    with pytest.raises(ConfigError, match=r"lm\.model is missing"):
        BatchLM("")
    with pytest.raises(ConfigError, match=r"lm\.window"):
        BatchLM("m", window=0)

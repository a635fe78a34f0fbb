"""`EndpointLM` against a server double: every fault that a server or a proxy is known for."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from personalink.errors import (
    BadRequest,
    ConfigError,
    LMError,
    MalformedReply,
    ModelNotFound,
    PromptTooLong,
    Unauthorized,
    Unreachable,
)
from personalink.lm import Constraint, EndpointLM, EstimateCounter, ScriptedLM
from personalink.lm.base import LM

from .asking import KEY, ask, client, dead_url, one
from .double import Double, Fault, half, hang, reply, reset, status

# -- starting ---------------------------------------------------------------------------------------------------------


async def test_start_learns_what_the_server_is() -> None:
    with Double(models=("Qwen/Qwen2.5-7B",), window=2048) as double:
        lm: LM = client(double, revision="abc")
        await lm.start()
        assert lm.identity == "openai-chat|vllm|Qwen/Qwen2.5-7B|abc"
        assert (lm.model, lm.window, lm.users_in_flight) == ("Qwen/Qwen2.5-7B", 2048, 256)
        assert lm.counter.id == "endpoint:vllm:Qwen/Qwen2.5-7B"
        facts = lm.describe()
        assert facts["version"] == "0.33.0"
        assert "created" not in facts["model_entry"]
        assert double.url not in json.dumps(facts)
        await lm.aclose()


async def test_start_knows_llama_cpp_and_plain_openai() -> None:
    for dialect, window in (("llama_cpp", 4096), ("openai", None)):
        with Double(dialect=dialect) as double:
            lm = client(double)
            await lm.start()
            assert (lm.dialect, lm.window) == (dialect, window)
            assert isinstance(lm.counter, EstimateCounter) == (dialect == "openai")
            await lm.aclose()


async def test_start_once_however_often_and_however_many_call_it() -> None:
    with Double() as double:
        lm = client(double)
        await asyncio.gather(*(lm.start() for _ in range(20)))
        await lm.start()
        assert double.paths.count("/v1/models") == 1
        await lm.aclose()
        await lm.aclose()
        assert (await lm.complete(ask())).text == "hello"
        assert double.paths.count("/v1/models") == 2
        await lm.aclose()


@pytest.mark.parametrize("tail", ["", "/", "/v1", "/v1/", "/v1/chat/completions"])
async def test_base_url_in_any_form(tail: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Double() as double:
        monkeypatch.setenv("OPENAI_BASE_URL", double.url + tail)
        lm = EndpointLM()
        assert (await lm.complete(ask())).text == "hello"
        await lm.aclose()


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("", "OPENAI_BASE_URL"),
        ("localhost:8000", "http://localhost:8000"),
        ("ftp://x", "http://"),
        ("http://me:secret@host/v1", "OPENAI_API_KEY"),
        ("http://host/v1?version=3", "without ?"),
    ],
)
def test_base_url_that_cannot_be_used(url: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ConfigError) as caught:
        EndpointLM(url)
    assert told in str(caught.value)
    assert "secret" not in str(caught.value)


def test_identity_is_not_known_before_start() -> None:
    lm = EndpointLM("http://localhost:1")
    with pytest.raises(AttributeError, match="start"):
        _ = lm.identity
    with pytest.raises(AttributeError, match="start"):
        _ = lm.counter
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = lm.nothing
    assert lm.describe()["dialect"] == "auto"


async def test_dead_port_is_one_line_with_a_remedy() -> None:
    url = dead_url()
    with pytest.raises(Unreachable) as caught:
        await EndpointLM(url).start()
    message = str(caught.value)
    assert url in message
    assert "vllm serve" in message
    assert "\n" not in message


async def test_model_that_is_not_served_names_what_is_and_the_nearest() -> None:
    with Double(models=("llama-3-8b", "qwen2.5-7b")) as double:
        with pytest.raises(ModelNotFound, match=r"'llama-3-8b', 'qwen2.5-7b'; did you mean 'qwen2.5-7b'\?"):
            await client(double, model="qwen2.5-8b").start()
        with pytest.raises(ConfigError, match=r"lm.model.*'llama-3-8b', 'qwen2.5-7b'"):
            await client(double).start()


async def test_keys_refused_name_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    with Double(key="another") as double:
        with pytest.raises(Unauthorized, match="MY_KEY") as caught:
            await client(double, api_key_env="MY_KEY").start()
        assert KEY not in str(caught.value)
    with (
        Double(pages={"/v1/models": status(403, {"detail": "no"})}) as double,
        pytest.raises(Unauthorized, match="403"),
    ):
        await client(double).start()


async def test_html_instead_of_models_hints_at_the_proxy() -> None:
    page = "<html><body>" + "Welcome to the gateway " * 20
    with Double(pages={"/v1/models": status(200, page)}) as double:
        with pytest.raises(MalformedReply, match=r"Welcome.*/v1, or a proxy") as caught:
            await client(double).start()
        assert len(str(caught.value)) < 300


async def test_a_server_without_a_model_list_is_tolerated_when_the_model_is_named() -> None:
    with Double(pages={"/v1/models": status(404)}) as double:
        lm = client(double, model="m")
        assert (await lm.complete(ask())).text == "hello"
        assert lm.describe()["models_listed"] is False
        await lm.aclose()
        with pytest.raises(ConfigError, match=r"lm\.model"):
            await client(double).start()


async def test_a_server_that_is_still_loading_is_waited_for() -> None:
    seen: list[int] = []

    async def loading(double: Double, request: Any) -> Any:
        seen.append(1)
        if len(seen) < 3:
            return await status(503, {"error": {"message": "Loading model"}})(double, request)
        del double.pages["/v1/models"]
        return await double._route(request)

    with Double(pages={"/v1/models": loading}) as double:
        lm = client(double)
        await lm.start()
        assert len(seen) == 3
        await lm.aclose()


# -- what is sent -----------------------------------------------------------------------------------------------------

COMMON = {
    "model": "m",
    "messages": [{"role": "system", "content": "Answer."}, {"role": "user", "content": "hi"}],
    "temperature": 0.0,
    "top_p": 1.0,
    "n": 1,
    "seed": 12345,
    "max_tokens": 16,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "stream": False,
}
OWN = {
    "vllm": {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0},
    "llama_cpp": {
        "top_k": 0,
        "min_p": 0.0,
        "repeat_penalty": 1.0,
        "cache_prompt": True,
        "typical_p": 1.0,
        "top_n_sigma": -1.0,
        "dynatemp_range": 0.0,
        "xtc_probability": 0.0,
        "dry_multiplier": 0.0,
        "mirostat": 0,
    },
    "openai": {},
}


@pytest.mark.parametrize("dialect", ["vllm", "llama_cpp", "openai"])
async def test_every_decoding_parameter_is_sent(dialect: Any) -> None:
    with Double() as double:
        lm = client(double, dialect=dialect)
        await lm.complete(ask())
        await lm.complete(ask(sample=2))
        assert double.bodies[0] == COMMON | OWN[dialect]
        assert double.bodies[1] == COMMON | OWN[dialect] | {"seed": 12347}
        await lm.aclose()


async def test_constraints_go_out_in_the_servers_words() -> None:
    with Double() as double:
        lm = client(double)
        done = await lm.complete(ask(constraint=Constraint(choices=("a", "b"))))
        assert (done.text, done.constrained) == ("a", "structured_outputs")
        assert double.bodies[0]["structured_outputs"] == {"choice": ["a", "b"]}
        assert not any(name.startswith("guided") for name in double.bodies[0])
        await lm.aclose()


async def test_broken_unicode_is_a_bad_request_and_sends_nothing() -> None:
    with Double() as double:
        lm = client(double)
        with pytest.raises(BadRequest, match="surrogate"):
            await lm.complete(ask("\ud83d"))
        assert double.bodies == []
        await lm.aclose()


# -- what comes back --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "outcome", "text"),
    [
        (reply({"content": "politics"}), "ok", "politics"),
        (reply({"content": [{"type": "text", "text": "pol"}, {"type": "text", "text": "itics"}]}), "ok", "politics"),
        (reply({"content": ""}), "empty", ""),
        (reply({"content": "  \n"}), "empty", "  \n"),
        (reply({"content": None}), "empty", ""),
        (reply({"content": None, "reasoning_content": "hmm"}), "empty", ""),
        (reply({"content": "yes", "reasoning_content": "hmm"}), "ok", "yes"),
        (reply({"content": "poli"}, "length"), "truncated", "poli"),
        (reply({"content": ""}, "length"), "truncated", ""),
        (reply({"content": "x"}, "content_filter"), "refused", "x"),
        (reply({"content": None, "refusal": "I cannot"}), "refused", ""),
    ],
)
async def test_outcomes(fault: Fault, outcome: str, text: str) -> None:
    done = await one(fault)
    assert (done.outcome, done.text) == (outcome, text)


@pytest.mark.parametrize(
    ("fields", "usage"),
    [
        ({"usage": {"prompt_tokens": 5, "completion_tokens": 0}}, (5, None, 0)),
        ({"usage": {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 3}}}, (5, 3, None)),
        ({"usage": {"prompt_tokens": 5, "prompt_tokens_details": None}, "timings": {"cache_n": 2}}, (5, 2, None)),
        ({"usage": None}, (None, None, None)),
        ({"usage": "many"}, (None, None, None)),
        ({"usage": {"prompt_tokens": "5", "completion_tokens": True}}, (None, None, None)),
    ],
)
async def test_unknown_usage_is_none(fields: dict[str, Any], usage: tuple[Any, ...]) -> None:
    got = (await one(reply(**fields))).usage
    assert (got.prompt, got.cached, got.completion) == usage


@pytest.mark.parametrize(
    "fault",
    [
        status(200, "<html>Bad gateway</html>"),
        status(200, '{"choices": [{"message": {"con'),
        status(200, "[]"),
        status(200, {"error": {"message": "politics: engine is dead"}}),
        status(200, {"choices": []}),
        status(200, {"choices": [{"text": "politics"}]}),
        reply({"content": "poli"}, "abort"),
        status(200, "[" * 100_000),
    ],
)
async def test_what_is_no_reply_is_retried_and_then_told(fault: Fault) -> None:
    with pytest.raises(MalformedReply, match="after 2 attempts"):
        await one(fault)
    with Double(faults={0: fault}) as double:
        lm = client(double)
        assert (await lm.complete(ask())).text == "hello"
        assert (lm.retries_made, lm.requests_sent, len(double.bodies)) == (1, 2, 2)
        await lm.aclose()


@pytest.mark.parametrize("fault", [status(500, "{}"), status(502), status(503), status(504), status(429), reset, half])
async def test_outages_are_retried_and_then_told(fault: Fault) -> None:
    with pytest.raises(Unreachable, match="after 2 attempts"):
        await one(fault)
    with Double(faults={0: fault, 1: fault}) as double:
        lm = client(double)
        assert (await lm.complete(ask())).text == "hello"
        assert (lm.retries_made, lm.requests_sent, len(double.bodies)) == (2, 3, 3)
        await lm.aclose()


async def test_a_hang_ends_at_the_timeout() -> None:
    with pytest.raises(Unreachable, match=r"no answer in 0.1 s.*after 2 attempts"):
        await one(hang, timeout_s=0.1)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (status(400, {"error": {"message": "top_p must be in (0, 1]"}}), BadRequest),
        (status(422, {"detail": [{"msg": "politics"}]}), BadRequest),
        (status(501, {}), Unreachable),
        (status(404, {"error": {"message": "The model `x` does not exist."}}), ModelNotFound),
        (status(401, {"error": {"message": "bad key"}}), Unauthorized),
        (status(403, "<html>Forbidden"), Unauthorized),
        (status(308, "", {"Location": "https://elsewhere/"}), MalformedReply),
    ],
)
async def test_refusals_are_never_retried(fault: Fault, kind: type[LMError]) -> None:
    with Double(faults={0: fault}) as double:
        lm = client(double)
        with pytest.raises(kind) as caught:
            await lm.complete(ask())
        assert type(caught.value) is kind
        assert (len(double.bodies), lm.retries_made) == (1, 0)
        assert "\n" not in str(caught.value)
        await lm.aclose()


VLLM = "This model's maximum context length is 2048 tokens. However, you requested {} tokens (2990 in the messages)."
VLLM_NEW = "This model's maximum context length is 2048 tokens. However, your request has 3000 input tokens. Reduce it."
VLLM_TOTAL = (
    "This model's maximum context length is 2048 tokens. However, you requested 1000 output tokens and your prompt "
    "contains at least 2000 input tokens, for a total of at least 3000 tokens."
)
VLLM_ROOM = (
    "'max_tokens' is too large: 1000. This model's maximum context length is 2048 tokens and your request has "
    "2000 input tokens (1000 > 2048 - 2000)."
)
LLAMA = {"code": 400, "message": "too big", "type": "exceed_context_size_error", "n_prompt_tokens": 3000, "n_ctx": 2048}


@pytest.mark.parametrize(
    "body",
    [
        {"object": "error", "message": VLLM.format(3000), "code": 400},
        {"error": {"message": VLLM_NEW, "type": "BadRequestError", "code": 400}},
        {"error": {"message": VLLM_TOTAL}},
        {"error": {"message": VLLM_ROOM}},
        {"error": LLAMA},
        {"error": {"message": "The input (3000 tokens) is longer than the model's context length (2048 tokens)."}},
    ],
)
async def test_too_long_in_every_wording_with_both_counts(body: dict[str, Any]) -> None:
    with pytest.raises(PromptTooLong, match=r"3000.*2048"):
        await one(status(400, body))


async def test_too_long_without_counts() -> None:
    with pytest.raises(PromptTooLong, match=r"do not fit the window: please reduce"):
        await one(status(400, {"error": {"message": "please reduce it", "code": "context_length_exceeded"}}))


# -- what must not get out, and what must not get in ------------------------------------------------------------------


async def test_a_key_that_is_echoed_in_an_answer_is_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with Double(key=KEY, answer=lambda body: f"Authorization: Bearer {KEY}, yes {KEY}") as double:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        lm = client(double)
        completion = await lm.complete(ask())
        await lm.aclose()
    assert completion.text == "Authorization: Bearer [key], yes [key]"
    assert KEY not in repr(completion)


@pytest.mark.parametrize("key", ["", "EMPTY", "science"])
async def test_a_placeholder_is_a_word_like_any_other(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said = f"EMPTY {key} science"
    with Double(answer=lambda body: said) as double:
        monkeypatch.setenv("OPENAI_API_KEY", key)
        lm = client(double)
        assert (await lm.complete(ask())).text == said
        await lm.aclose()


@pytest.mark.parametrize(
    "options",
    [
        {"users_in_flight": 0}, {"window": 0}, {"concurrency": 0}, {"concurrency": 1.5}, {"concurrency": True},
        {"timeout_s": 0}, {"timeout_s": "x"}, {"connect_timeout_s": -1}, {"down_timeout_s": -0.1}, {"retries": -1},
        {"backoff_s": -1}, {"timeout_s": float("nan")}, {"window": "4096"}, {"latency_s": -1},
    ],
)  # fmt: skip
def test_numbers_out_of_range_are_refused_in_one_line(options: dict[str, Any]) -> None:
    name = next(iter(options))
    makes = [lambda: EndpointLM("http://host:1", **options)] if name != "latency_s" else []
    if name in ("users_in_flight", "window", "concurrency", "latency_s"):
        makes.append(lambda: ScriptedLM(lambda request: "x", **options))
    for make in makes:
        with pytest.raises(ConfigError, match=f"^lm.{name} is [^\n]*; it must be [^\n]*$"):
            make()


async def test_a_model_name_that_cannot_be_sent_is_named() -> None:
    page = status(200, '{"data": [{"id": "m\\ud800"}]}')
    words = r"the model's name 'm\\ud800' at .* holds half of a surrogate pair"
    with Double(pages={"/v1/models": page}) as double, pytest.raises(ConfigError, match=words):
        await client(double).start()


async def test_a_moved_list_of_models_says_where_to() -> None:
    page = status(302, headers={"Location": "http://elsewhere/v1/models"})
    words = r"/v1/models answered 302: moved to http://elsewhere/v1/models; put"
    with Double(pages={"/v1/models": page}) as double, pytest.raises(MalformedReply, match=words):
        await client(double).start()


async def test_a_reply_whose_model_is_broken_unicode_is_kept() -> None:
    assert (await one(reply(model="m\ud800"))).model == "m?"

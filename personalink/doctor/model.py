"""What can be told of a language model before money and hours are spent on it, by asking it.

A server's word is not taken where a proof can be had: that a constraint bites is shown by an answer that nobody would
give freely, that greedy is greedy by the probabilities of the tokens chosen. Knows `EndpointLM`, `EmbeddedLM` (which
has one inside) and, less closely, any other `LM`. Two dozen short requests at most; nothing is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from personalink.doctor.findings import Finding
from personalink.doctor.repetition import repetition
from personalink.errors import (
    ConfigError,
    MalformedReply,
    ModelNotFound,
    PersonalinkError,
    Unauthorized,
    Unreachable,
)
from personalink.lm.base import LM, Completion, Constraint, Decoding, Message, Request
from personalink.lm.constraints import satisfies
from personalink.lm.wire import read_reply, read_usage

START_S = 4.0
"""Seconds that a server may take to say what it is; one that loads its weights does not listen yet."""

SMALL_WINDOW = 8192
_ODD = Constraint(choices=("vexil-quorn-41", "tramp-oddle-87"))
_SCHEMA = Constraint(
    schema={
        "type": "object",
        "properties": {"zorp": {"type": "integer"}, "quil": {"enum": ["murn", "tave"]}},
        "required": ["zorp", "quil"],
        "additionalProperties": False,
    }
)
_TIE = 1e-4  # natural log; two tokens closer than this are equally likely
_SERVE = "start the server (`vllm serve MODEL`) or correct lm.base_url; lm=embedded needs none"
_DEFAULTS = "vLLM: start it with --generation-config vllm, for other clients of this server"


async def diagnose(lm: LM, start_s: float = START_S) -> list[Finding]:
    """Start `lm` and look at it, one finding a check, in a fixed order; never raises for what the model's server does.

    Checks that need what an earlier one found missing are left out: a server that is not there gives one finding, after
    at most `start_s` seconds (a model that is loaded into this process takes the time it takes).
    """
    try:
        async with asyncio.timeout(start_s if hasattr(lm, "api_url") else None):
            await lm.start()
    except TimeoutError:
        return [Finding("reachable", False, f"{getattr(lm, 'api_url', '')} gave no answer in {start_s:g} s", _SERVE)]
    except PersonalinkError as error:
        return [_broken(error)]
    findings = [Finding("reachable", True, _who(lm)), _window(lm), _counter(lm)]
    try:
        plain = await lm.complete(_ask("Say hello.", 24))
    except PersonalinkError as error:
        return [*findings, _broken(error)]
    findings += [Finding("auth", True, "no key was refused"), _model(lm, plain), _answers(plain), _usage(plain)]
    checks: list[tuple[str, Callable[[], Awaitable[Finding]]]] = [
        ("constraint: choices", lambda: _constraint(lm, "constraint: choices", _ODD)),
        ("constraint: schema", lambda: _constraint(lm, "constraint: schema", _SCHEMA)),
    ]
    try:
        findings += await repetition(lm)
    except PersonalinkError as error:
        findings.append(_unanswered("repeatable", error))
    raw = _raw(lm)
    if raw is not None:
        checks += [
            ("greedy", lambda: _greedy(raw)),
            ("server defaults", lambda: _defaults(raw)),
            ("template", lambda: _template(raw)),
        ]
    for name, check in checks:
        try:
            findings.append(await check())
        except PersonalinkError as error:
            findings.append(_unanswered(name, error))
    return findings


def _unanswered(name: str, error: PersonalinkError) -> Finding:
    return Finding(name, None, f"the probe was not answered: {error}")


def _broken(error: PersonalinkError) -> Finding:
    """The finding for an error at start or at the first request; what its message advises becomes the remedy."""
    kinds: dict[type[PersonalinkError], tuple[str, str]] = {
        Unreachable: ("reachable", _SERVE),
        Unauthorized: ("auth", "set the key in the environment variable of lm.api_key_env"),
        ModelNotFound: ("model", "set lm.model to one that is served"),
        MalformedReply: ("protocol", "lm.base_url must be an OpenAI-compatible server's, up to /v1"),
    }
    if isinstance(error, ConfigError):
        return Finding("setting", False, str(error))
    name, advice = kinds.get(type(error), ("chat", ""))
    detail, _, told = str(error).partition("; ")
    return Finding(name, False, detail, told or advice)


def _who(lm: LM) -> str:
    facts = lm.describe()
    version = facts.get("version") or facts.get("xllamacpp") or facts.get("build_info") or ""
    dialect = facts.get("dialect", "")
    return " ".join(
        str(part) for part in (facts.get("kind", type(lm).__name__), dialect, version, facts.get("name")) if part
    )


def _window(lm: LM) -> Finding:
    if lm.window is None:
        return Finding("window", None, "the server does not say how long a prompt may be", "set lm.window")
    short = lm.window < SMALL_WINDOW
    remedy = "contexts of many items may not fit; serve the model with a longer one" if short else ""
    return Finding("window", True, f"{lm.window} tokens", remedy)


def _counter(lm: LM) -> Finding:
    if lm.counter.id.startswith("estimate:"):
        return Finding("counter", None, f"tokens are estimated ({lm.counter.id})", "set lm.tokenizer to a local folder")
    return Finding("counter", True, f"tokens are counted by {lm.counter.id}")


def _model(lm: LM, plain: Completion) -> Finding:
    if plain.model and plain.model != lm.model:
        detail = f"asked for {lm.model!r}, answered by {plain.model!r}"
        return Finding("model", None, detail, "an alias? otherwise correct lm.model")
    return Finding("model", True, f"{lm.model!r} answers")


def _answers(plain: Completion) -> Finding:
    if plain.outcome in ("empty", "refused"):
        remedy = "a model that thinks first needs its thinking switched off in the server's chat template"
        return Finding("chat", False, f'"Say hello." came back {plain.outcome}', remedy)
    return Finding("chat", True, f'"Say hello." was answered ({plain.outcome})')


def _usage(plain: Completion) -> Finding:
    usage = plain.usage
    if usage.prompt is None or usage.completion is None:
        return Finding("usage", None, "no token counts in replies", "token budgets will rest on estimates")
    return Finding("usage", True, f"{usage.prompt} prompt and {usage.completion} completion tokens")


def _ask(text: str, max_tokens: int, constraint: Constraint | None = None) -> Request:
    return Request((Message("user", text),), Decoding(max_tokens=max_tokens), constraint)


async def _constraint(lm: LM, name: str, constraint: Constraint) -> Finding:
    """Ask for a greeting under a constraint that no greeting meets."""
    reply = await lm.complete(_ask("Say hello.", 64, constraint))
    if not reply.constrained and not satisfies(constraint, reply.text):
        return Finding(name, None, "this kind of server has none", "answers are free text and parsed; nothing to do")
    if satisfies(constraint, reply.text):
        return Finding(name, True, f"obeyed ({reply.constrained or 'of its own accord'})")
    detail = f"sent as {reply.constrained} and ignored: answered {reply.text[:40]!r}"
    if reply.outcome == "truncated" and constraint.schema is not None and reply.text.lstrip().startswith("{"):
        return Finding(name, None, f"begun and not finished in 64 tokens: {reply.text[:40]!r}")
    return Finding(name, False, detail, "set lm.dialect to what the server is, or upgrade it (vLLM ≥ 0.12)")


def _raw(lm: LM) -> Any:
    """The `EndpointLM` to send raw bodies through: `lm` itself or the one inside it; None where there is none."""
    inner = getattr(lm, "endpoint", lm)
    return inner if hasattr(inner, "post_chat") and hasattr(inner, "chat_body") else None


def _repeating(raw: Any) -> dict[str, Any]:
    body, _ = raw.chat_body(_ask("Write the word tick twenty times: tick tick tick tick tick tick tick tick", 24))
    return dict(body)


async def _greedy(raw: Any) -> Finding:
    """At temperature 0 with neutral penalties every chosen token must be a most likely one."""
    reply = await raw.post_chat(_repeating(raw) | {"logprobs": True, "top_logprobs": 5})
    logprobs = reply["choices"][0].get("logprobs")
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not isinstance(content, list) or not content:
        return Finding("greedy", None, "the server gives no logprobs, so it cannot be told")
    try:
        gaps = [max(t["logprob"] for t in e["top_logprobs"]) - e["logprob"] for e in content if e["top_logprobs"]]
    except (KeyError, TypeError):
        return Finding("greedy", None, "the server's logprobs are not in OpenAI's form")
    if not gaps:
        return Finding("greedy", None, "the server gives logprobs without alternatives")
    off = sum(gap > _TIE for gap in gaps)
    if off == 0:
        return Finding("greedy", True, f"{len(gaps)} of {len(gaps)} tokens were a most likely one")
    detail = f"{off} of {len(gaps)} tokens were not the most likely one: a penalty or a sampler is at work"
    return Finding(
        "greedy", False, detail, "look for penalties and samplers on the server's command line or in a proxy"
    )


async def _defaults(raw: Any) -> Finding:
    """What the server would do for a client that leaves the decoding parameters out."""
    full = _repeating(raw)
    bare = {name: full[name] for name in ("model", "messages", "temperature", "max_tokens", "stream")}
    ours, theirs = read_reply(await raw.post_chat(full)), read_reply(await raw.post_chat(bare))
    if ours.text == theirs.text:
        return Finding("server defaults", True, "leave greedy decoding as it is")
    detail = "the server's own defaults change greedy decoding; personalink overrides them in every request"
    return Finding("server defaults", True, detail, _DEFAULTS)


async def _template(raw: Any) -> Finding:
    """A template with a system prompt of its own makes a prompt longer than an empty system message does."""
    body, _ = raw.chat_body(_ask("Say hello.", 1))
    without = read_usage(await raw.post_chat(body)).prompt
    empty = {"role": "system", "content": ""}
    with_empty = read_usage(await raw.post_chat(body | {"messages": [empty, *body["messages"]]})).prompt
    if without is None or with_empty is None:
        return Finding("template", None, "without token counts a hidden system prompt cannot be told")
    if without <= with_empty:
        return Finding("template", True, "adds no system prompt of its own")
    detail = f"adds {without - with_empty} tokens of a system prompt of its own where none is sent"
    return Finding("template", True, f"{detail}; personalink always sends one, which replaces it")

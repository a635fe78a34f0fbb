"""The bodies that the fake server sends, in vLLM's shapes, and the answer it gives when it is told no other.

Pure functions over plain JSON: knows no socket and no cache.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from personalink.lm.base import Constraint, Decoding, Message, Request
from personalink.lm.constraints import satisfies
from personalink.lm.scripted import hashed_answers
from personalink.testing.prefix import content_text, pieces, spaced_pieces

Body = dict[str, Any]
Answer = Callable[[Body], str]
VERSION = "0.33.0"
"""The vLLM whose shapes these are."""

_DECODING = tuple(f.name for f in fields(Decoding) if f.name != "max_tokens")


@dataclass(frozen=True, slots=True)
class Totals:
    """What a server has counted since it started; tokens unless said otherwise.

    `queries` and `hits` are of the prefix cache, counted when a request is admitted; `stop` and `length` are requests
    by how they ended.
    """

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    queries: int = 0
    hits: int = 0
    stop: int = 0
    length: int = 0


def constraint_of(body: Body) -> Constraint | None:
    """What a body asks vLLM to enforce. The removed `guided_*` fields are ignored without a word, as vLLM does."""
    structured = body.get("structured_outputs")
    if isinstance(structured, dict) and structured.get("choice"):
        return Constraint(choices=tuple(map(str, structured["choice"])))
    schema = structured.get("json") if isinstance(structured, dict) else None
    form = body.get("response_format")
    if schema is None and isinstance(form, dict) and isinstance(form.get("json_schema"), dict):
        schema = form["json_schema"].get("schema")
    return Constraint(schema=schema) if isinstance(schema, dict) else None


def hashed(labels: Sequence[str] = ()) -> Answer:
    """The answers of `personalink.lm.hashed_answers(labels)` to the same prompts, so that both give the same run."""
    script = hashed_answers(labels)

    def answer(body: Body) -> str:
        messages = tuple(Message(m.get("role", "user"), content_text(m.get("content"))) for m in body["messages"])
        told = {name: body[name] for name in _DECODING if body.get(name) is not None}
        request = Request(messages, Decoding(body.get("max_tokens") or 16, **told), constraint_of(body))
        return str(script(request))

    return answer


def obeying(answer: Answer, labels: Sequence[str] = ()) -> Answer:
    """`answer`, held to the constraint of each body as a grammar would: where it breaks it, a hashed one instead."""
    fallback = hashed(labels)

    def held(body: Body) -> str:
        text, constraint = answer(body), constraint_of(body)
        return text if constraint is None or satisfies(constraint, text) else fallback(body)

    return held


def model_list(model: str, root: str, window: int) -> Body:
    """/v1/models."""
    entry = {"id": model, "object": "model", "created": 1_700_000_000, "owned_by": "vllm", "root": root}
    return {"object": "list", "data": [entry | {"parent": None, "max_model_len": window, "permission": []}]}


def usage(prompt: int, completion: int, cached: int | None) -> Body:
    """Token counts of one reply; `cached` None leaves the details out."""
    details = None if cached is None else {"cached_tokens": cached}
    total = {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}
    return total | {"prompt_tokens_details": details}


def logprobs(body: Body, text: str, labels: Sequence[str] = ()) -> Body | None:
    """The field `logprobs` of an answer, drawn from a hash of its text; None where the body asks for none.

    Each token is the likeliest at its place. The others there are those of the body's choices, else of `labels`, each
    less likely than the one before it by the same gap of 0 to 2 nats.
    """
    if not body.get("logprobs"):
        return None
    constraint = constraint_of(body)
    offered = [spaced_pieces(each) for each in (constraint.choices if constraint else ()) or labels]
    content = []
    for place, token in enumerate(spaced_pieces(text)):
        gap = zlib.crc32(f"{place} {text}".encode("utf-8", "surrogatepass")) % 2001 / 1000
        tokens = list(dict.fromkeys([token, *(each[place] for each in offered if len(each) > place)]))
        tokens = tokens[: body.get("top_logprobs") or 0]
        scale = math.log(math.fsum(math.exp(-gap * rank) for rank in range(len(tokens))))
        told = [_token(each, -gap * rank - scale) for rank, each in enumerate(tokens)]
        content.append(_token(token, -scale) | {"top_logprobs": told})
    return {"content": content}


def _token(text: str, logprob: float) -> Body:
    return {"token": text, "logprob": logprob, "bytes": list(text.encode("utf-8", "replace"))}


def chat_completion(
    index: int, model: str, text: str, finish: str, counts: Body, mark: str = "", told: Body | None = None
) -> Body:
    """/v1/chat/completions; `mark` is its `system_fingerprint`, by default the model's; `told` its `logprobs`."""
    message: Body = {"role": "assistant", "content": text, "refusal": None, "reasoning": None, "tool_calls": []}
    choice = {"index": 0, "message": message, "logprobs": told, "finish_reason": finish, "stop_reason": None}
    return {
        "id": f"chatcmpl-{index}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": model,
        "choices": [choice],
        "system_fingerprint": mark or fingerprint(model),
        "usage": counts,
    }


def fingerprint(model: str) -> str:
    """The field `system_fingerprint`: another one for another model."""
    return f"vllm-{VERSION}-fake-{zlib.crc32(model.encode()):08x}"


def tokenized(tokens: Sequence[str], window: int) -> Body:
    """/tokenize."""
    numbers = [zlib.crc32(token.encode("utf-8", "surrogatepass")) for token in tokens]
    return {"count": len(tokens), "max_model_len": window, "tokens": numbers, "token_strs": None}


def prompt_of(body: Mapping[str, Any]) -> list[str]:
    """The tokens of a /tokenize body's `prompt`."""
    return pieces(content_text(body.get("prompt")))


def metrics(model: str, totals: Totals, running: int, waiting: int) -> str:
    """/metrics: Prometheus' text form with vLLM's names."""
    labels = f'engine="0",model_name="{model}"'
    lines: list[str] = []

    def add(name: str, kind: str, *values: tuple[str, int]) -> None:
        lines.append(f"# TYPE vllm:{name.removesuffix('_total')} {kind}")
        lines.extend(f"vllm:{name}{{{labels}{more}}} {value}.0" for more, value in values)

    add("num_requests_running", "gauge", ("", running))
    add("num_requests_waiting", "gauge", ("", waiting))
    add("prefix_cache_queries_total", "counter", ("", totals.queries))
    add("prefix_cache_hits_total", "counter", ("", totals.hits))
    add("prompt_tokens_total", "counter", ("", totals.prompt))
    add("prompt_tokens_cached_total", "counter", ("", totals.cached))
    add("generation_tokens_total", "counter", ("", totals.completion))
    ended = ((',finished_reason="stop"', totals.stop), (',finished_reason="length"', totals.length))
    add("request_success_total", "counter", *ended)
    return "\n".join(lines) + "\n"

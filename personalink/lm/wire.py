"""The OpenAI-compatible chat protocol as three kinds of server speak it: bodies out, replies in, refusals told apart.

Pure functions over plain JSON. Knows no socket, no retry and no key; what to quote of a server's words is passed
through the caller's `scrub`. Every function that judges a reply *returns* its error, so that the one place that
raises can clean the message and leave no chained exception behind.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

from personalink.errors import (
    BadRequest,
    ConfigError,
    LMError,
    MalformedReply,
    ModelNotFound,
    PromptTooLong,
    Unauthorized,
)
from personalink.lm.base import Completion, Outcome, Request, Usage
from personalink.lm.constraints import translate
from personalink.logprobs import TokenLogprobs, Tokens, as_logprob
from personalink.text import nearest, one_line

Dialect = Literal["vllm", "llama_cpp", "openai"]
Scrub = Callable[[str], str]

_QUOTED = 80  # characters of a server's words that an error repeats
_LONG = re.compile(
    r"context[ _](length|size|window)|maximum model length|exceed_context_size|prompt is too long", re.IGNORECASE
)
_WINDOW = re.compile(
    r"(?:context length is (?:only )?|context size \(|context length \(|model length of )(\d+)", re.IGNORECASE
)
_TOTAL = re.compile(r"total of (?:at least )?(\d+)|requested (\d+) tokens|resulted in (\d+) tokens", re.IGNORECASE)
_PROMPT = re.compile(
    r"(\d+) input tokens|request \((\d+) tokens|input \((\d+) tokens|total length (\d+)", re.IGNORECASE
)
_OUTPUT = re.compile(r"requested (\d+) output tokens|is too large: (\d+)", re.IGNORECASE)


def split_base_url(url: str) -> tuple[str, str]:
    """(server root, API root ending in /v1) of a base URL given with or without a trailing slash and /v1.

    One server has one root: scheme and host are in lower case, and the scheme's own port is left out.

    Raises:
        ConfigError: no scheme or host, no such port, a space in the URL, or a user name, password, query or fragment.
    """
    text = url.strip()
    shown = re.sub(r"//[^/]*@", "//…@", text)[:_QUOTED]  # without a password
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:  # an unclosed [, or a port that is no number up to 65535
        raise ConfigError(f"lm.base_url: {shown!r} is no URL: {one_line(str(error))}") from None
    if any(c.isspace() or not c.isprintable() for c in text):
        raise ConfigError(f"lm.base_url: {shown!r} holds a space or a control character, which no URL does")
    if parts.scheme not in ("http", "https"):
        hint = f"http://{text}" if re.match(r"[\w.-]+(:\d+)?(/|$)", text) else "http://localhost:8000"
        raise ConfigError(f"lm.base_url: {text[:_QUOTED]!r} has no http:// or https://; write e.g. {hint!r}")
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            "lm.base_url: a user name or password in the URL is not supported; put the key in OPENAI_API_KEY"
        )
    if not parts.hostname or port == 0 or parts.query or parts.fragment:
        raise ConfigError(f"lm.base_url: {text[:_QUOTED]!r} must be scheme://host[:port][/path], without ? or #")
    path = parts.path.rstrip("/")
    for tail in ("/chat/completions", "/v1"):
        path = path.removesuffix(tail).rstrip("/")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    own = 443 if parts.scheme == "https" else 80
    root = f"{parts.scheme}://{host}{'' if port in (None, own) else f':{port}'}{path}"
    return root, f"{root}/v1"


def base_urls(given: str | Iterable[str] | None) -> list[str]:
    """The base URLs in a setting: one, several separated by commas, or a list of them, each server once.

    Raises:
        ConfigError: there is none, what is given is no text, or one cannot be used.
    """
    listed = [given] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)
    if any(not isinstance(url, str) for url in listed if url is not None):
        raise ConfigError(f"lm.base_url is {given!r:.60}; it must be a URL or a list of URLs")
    urls = [url.strip() for text in listed if text for url in text.split(",") if url.strip()]
    if not urls:
        raise ConfigError("lm.base_url is missing: give it or set OPENAI_BASE_URL, e.g. http://localhost:8000/v1")
    first: dict[str, str] = {}
    for url in urls:
        first.setdefault(split_base_url(url)[0], url)
    return list(first.values())


def identity(dialect: Dialect | None, model: str, revision: str | None) -> str:
    """Who answers, as it enters every key: the same whether asked live or by a batch, at one address or another."""
    return f"openai-chat|{dialect}|{model}|{revision or ''}"


def chat_body(request: Request, dialect: Dialect, model: str) -> tuple[dict[str, Any], str]:
    """(request body, what constrains the answer or ""), with every decoding parameter explicit.

    What a body leaves out a server fills from its own defaults, and some of those are penalties. Repeated draws
    (`request.sample`) differ in their seed: `seed + sample`.
    """
    d = request.decoding
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": m.role, "content": m.content} for m in request.messages],
        "temperature": d.temperature,
        "top_p": d.top_p,
        "n": 1,
        "seed": d.seed + request.sample,
        "max_tokens": d.max_tokens,
        "presence_penalty": d.presence_penalty,
        "frequency_penalty": d.frequency_penalty,
        "stream": False,
    }
    if dialect == "vllm":
        body |= {"top_k": d.top_k, "min_p": d.min_p, "repetition_penalty": d.repetition_penalty}
    elif dialect == "llama_cpp":
        body |= {
            "top_k": d.top_k,  # 0 is "all tokens" here too
            "min_p": d.min_p,
            "repeat_penalty": d.repetition_penalty,
            "seed": body["seed"] % (2**32 - 1),  # 2**32 - 1 asks for a random one
            "cache_prompt": True,
            # samplers that a server's command line can switch on, each at its neutral value
            "typical_p": 1.0,
            "top_n_sigma": -1.0,
            "dynatemp_range": 0.0,
            "xtc_probability": 0.0,
            "dry_multiplier": 0.0,
            "mirostat": 0,
        }
    if request.logprobs:
        body |= {"logprobs": True, "top_logprobs": request.logprobs}
    if request.constraint is None:
        return body, ""
    fields, name = translate(request.constraint, dialect)
    return body | fields, name


def parse_reply(raw: bytes, scrub: Scrub) -> dict[str, Any] | MalformedReply:
    """The chat reply of a 200, or why it is none: not JSON, an error object, no choice, a generation broken off."""
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError):
        return MalformedReply(f"answered 200 with something else than JSON: {quoted(raw, scrub)}")
    if not isinstance(data, dict):
        return MalformedReply(f"answered 200 with JSON that is no object: {quoted(raw, scrub)}")
    if data.get("error"):
        return MalformedReply(f"answered 200 with an error in it: {server_words(raw, scrub)}")
    choices = data.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(first, dict) or not isinstance(first.get("message"), dict):
        return MalformedReply(f"answered 200 without a choice in it: {quoted(raw, scrub)}")
    if first.get("finish_reason") in ("abort", "error"):
        return MalformedReply(f"broke the answer off (finish_reason {first['finish_reason']!r})")
    return data


def read_reply(data: Mapping[str, Any], constrained: str = "") -> Completion:
    """The completion in a reply that `parse_reply` let through. Text is kept whole; reasoning fields are left out."""
    choice = data["choices"][0]
    message = choice["message"]
    text = _visible(message.get("content"))
    reason = choice.get("finish_reason")
    outcome: Outcome = "ok"
    if reason == "content_filter" or message.get("refusal"):
        outcome = "refused"
    elif reason == "length":
        outcome = "truncated"
    elif not text.strip():
        outcome = "empty"
    return Completion(text, outcome, read_usage(data), constrained, answering_model(data), tokens=read_logprobs(choice))


def answering_model(data: Mapping[str, Any]) -> str:
    """The model that a reply names, "" for none; half of a surrogate pair becomes "?", as in records."""
    model = data.get("model")
    return model.encode("utf-8", "replace").decode() if isinstance(model, str) else ""


def _visible(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):  # a few servers answer in parts
        return "".join(p["text"] for p in content if isinstance(p, dict) and isinstance(p.get("text"), str))
    return ""


def read_logprobs(choice: Mapping[str, Any]) -> Tokens | None:
    """The tokens of a choice's `logprobs.content` (OpenAI's form, as vLLM and llama.cpp give it); None where there is
    none, or anything in it is not of that form."""
    content = _object(choice.get("logprobs")).get("content")
    if not isinstance(content, list):
        return None
    try:
        return tuple(
            TokenLogprobs(*_token(entry), tuple(_token(other) for other in entry.get("top_logprobs") or ()))
            for entry in content
        )
    except (TypeError, KeyError, AttributeError, ValueError, OverflowError):
        return None


def _token(entry: Mapping[str, Any]) -> tuple[str, float]:
    """Text and log-probability of an entry.

    Raises:
        TypeError, KeyError, ValueError, OverflowError: it has not both, or the number is no log-probability.
    """
    text = entry["token"]
    if not isinstance(text, str):
        raise TypeError("no token")
    return text, as_logprob(entry["logprob"])


def read_usage(data: Mapping[str, Any]) -> Usage:
    """Token counts of a reply; each that is missing or no count is None, never 0."""
    usage, timings = _object(data.get("usage")), _object(data.get("timings"))
    cached = count_or_none(_object(usage.get("prompt_tokens_details")).get("cached_tokens"))
    if cached is None:
        cached = count_or_none(timings.get("cache_n"))
    return Usage(count_or_none(usage.get("prompt_tokens")), cached, count_or_none(usage.get("completion_tokens")))


def count_or_none(value: Any) -> int | None:
    """`value` where it is a whole number of at least 0, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def refusal(status: int, raw: bytes, model: str, key_hint: str, scrub: Scrub) -> LMError:
    """Which error a 4xx is. `key_hint` says which environment variable holds the key."""
    words = server_words(raw, scrub)
    if status in (401, 403):
        return Unauthorized(f"refused the key ({status}): {words}; set {key_hint}")
    if status in (400, 413, 422) and (long := too_long(raw, scrub)) is not None:
        return long
    if status == 404:
        return ModelNotFound(f"answered 404 for model {model!r}: {words}; check lm.model and lm.base_url")
    return BadRequest(f"the server refused the request ({status}): {words}")


def too_long(raw: bytes, scrub: Scrub) -> PromptTooLong | None:
    """The error when a refusal is about the context length (vLLM's and llama.cpp's wordings and kin), else None."""
    try:
        data = _object(json.loads(raw))
    except (ValueError, RecursionError):
        data = {}
    error = _object(data.get("error")) or data
    words = server_words(raw, scrub, limit=400)
    if not _LONG.search(f"{error.get('type', '')} {error.get('code', '')} {words}"):
        return None
    asked, window = count_or_none(error.get("n_prompt_tokens")), count_or_none(error.get("n_ctx"))
    if asked is None:
        prompt = _first_number(_PROMPT, words)
        room = _first_number(_OUTPUT, words) or 0
        asked = _first_number(_TOTAL, words) or (None if prompt is None else prompt + room)
    if window is None:
        window = _first_number(_WINDOW, words)
    if asked is None or window is None:
        return PromptTooLong(f"the prompt and its answer do not fit the window: {words[:200]}")
    return PromptTooLong(f"the prompt and its answer do not fit the window: {asked} tokens asked, {window} fit")


def _first_number(pattern: re.Pattern[str], words: str) -> int | None:
    found = pattern.search(words)
    return int(next(group for group in found.groups() if group)) if found else None


def server_words(raw: bytes, scrub: Scrub, limit: int = 200) -> str:
    """The message in a server's error body on one line, at most `limit` characters; its start where it is no JSON."""
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError):
        return quoted(raw, scrub)
    found: Any = data
    for name in ("error", "message", "detail"):
        if isinstance(found, dict) and found.get(name):
            found = found[name]
    text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    return one_line(scrub(text))[:limit] or "no reason given"


def quoted(raw: bytes, scrub: Scrub) -> str:
    """The first characters of a body on one line, in quotes; "nothing" for an empty one."""
    text = one_line(scrub(raw[:20_000].decode("utf-8", "replace")))
    return repr(text[:_QUOTED]) if text else "nothing"


def moved(status: int, to: str) -> str:
    """What a redirect comes to."""
    return f"answered {status}: moved to {to or '?'}; put that in lm.base_url"


def read_models(raw: bytes) -> list[dict[str, Any]] | None:
    """The entries of a /v1/models reply that have an id; None where it is no such list."""
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    entries = data.get("data") if isinstance(data, dict) else None
    if not isinstance(entries, list):
        return None
    return [e for e in entries if isinstance(e, dict) and isinstance(e.get("id"), str)]


def aliases(entry: Mapping[str, Any]) -> list[str]:
    """Further names under which llama.cpp serves the model of a list entry."""
    listed = entry.get("aliases")
    return [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []


def stable_entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A list entry without what changes from one call to the next."""
    return {name: value for name, value in entry.items() if name not in ("created", "permission")}


_TELLING = ("version", "build_info", "n_ctx")
_TELLING_ENTRY = ("id", "root", "parent", "max_model_len", "owned_by", "meta")


def difference(then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What tells two servers apart by their facts, as "root 'a' → 'b', …"; "" for nothing. What one of the two does
    not tell is no difference."""
    old, new = _object(then.get("model_entry")), _object(now.get("model_entry"))
    pairs = [(name, old.get(name), new.get(name)) for name in _TELLING_ENTRY]
    pairs += [(name, then.get(name), now.get(name)) for name in _TELLING]
    return ", ".join(f"{n} {a!r} → {b!r}" for n, a, b in pairs if a is not None and b is not None and a != b)


def choose_model(wanted: str | None, entries: list[dict[str, Any]], where: str) -> str:
    """The model to ask: `wanted` where it is served, or the only one served when nothing is wanted.

    Raises:
        ModelNotFound: `wanted` is not served; the message names what is, and the nearest.
        ConfigError: nothing wanted, and not exactly one served.
    """
    served = [entry["id"] for entry in entries]
    known = [*served, *(name for entry in entries for name in aliases(entry))]
    if wanted is not None and wanted in known:
        return wanted
    if wanted is None and len(served) == 1:
        return str(served[0])
    if wanted is None:
        raise ConfigError(f"lm.model: say which one to ask; {where} serves {_some(served)}")
    near = nearest(wanted, known) or next((name for name in known if wanted.lower() in name.lower()), None)
    hint = f"; did you mean {near!r}?" if near else ""
    raise ModelNotFound(f"{where} does not serve {wanted!r}; it serves {_some(served)}{hint}")


def _some(names: Iterable[str], most: int = 10) -> str:
    listed = sorted(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return (", ".join(repr(n) for n in listed[:most]) + more) or "no model"

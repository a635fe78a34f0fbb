"""DSPy's canonical requests and errors as personalink's, and back. Pure; asks nobody and knows no program.

What personalink cannot carry (tools, images, stop sequences, reasoning settings) is refused by name and never dropped.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from dspy import lm15
from dspy.utils import exceptions as told

from personalink.errors import (
    BadRequest,
    BudgetExceeded,
    DeadlineExceeded,
    LMError,
    MalformedReply,
    ModelNotFound,
    PersonalinkError,
    PromptTooLong,
    Unauthorized,
    Unreachable,
)
from personalink.lm.base import Completion, Constraint, Decoding, Message, Outcome, Request, Usage

CARRIED = ("max_tokens", "temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty")
"""Settings of a DSPy request that are a `Decoding`'s; where one is not given, the engine's own value is sent."""

REFUSED = (
    "stop", "tool_choice", "reasoning", "cache", "service_tier", "user_id", "store", "probabilities", "extensions",
)  # fmt: skip

_OUTCOMES: dict[str, Outcome] = {"stop": "ok", "length": "truncated", "content_filter": "refused"}
_FINISHED = {"ok": "stop", "empty": "stop", "truncated": "length", "refused": "content_filter"}
_ERRORS: tuple[tuple[type[PersonalinkError], type[Exception]], ...] = (
    (PromptTooLong, lm15.ContextLengthError),
    (Unauthorized, lm15.AuthError),
    (ModelNotFound, lm15.UnsupportedModelError),
    (DeadlineExceeded, lm15.TimeoutError),
    (BudgetExceeded, lm15.BillingError),
    (BadRequest, lm15.InvalidRequestError),
    (MalformedReply, lm15.ServerError),
    (LMError, lm15.TransportError),
)
_TOLD: tuple[tuple[type[Exception], type[LMError]], ...] = (
    (told.ContextWindowExceededError, PromptTooLong),
    (told.LMAuthError, Unauthorized),
    (told.LMNotConfiguredError, Unauthorized),
    (told.LMUnsupportedModelError, ModelNotFound),
    (told.LMTimeoutError, DeadlineExceeded),
    (told.LMInvalidRequestError, BadRequest),
    (told.LMUnsupportedFeatureError, BadRequest),
)


def to_request(asked: Any, base: Decoding, choices: tuple[str, ...] = ()) -> Request:
    """The request that a `dspy.lm15.Request` is.

    Args:
        asked: the canonical request. base: what holds where it says nothing. choices: the only answers allowed, if any;
            they win over its response format.

    Raises:
        dspy.lm15.UnsupportedFeatureError: it holds what personalink cannot carry.
    """
    config = asked.config
    for name in REFUSED:
        if getattr(config, name) not in (None, (), {}):
            _refuse(f"config.{name}")
    if asked.tools:
        _refuse("tools")
    given = {name: value for name in CARRIED if (value := getattr(config, name)) is not None}
    messages = [Message("system", text)] if (text := _system(asked.system)) is not None else []
    messages += [_message(message, i) for i, message in enumerate(asked.messages)]
    constraint = Constraint(choices=choices) if choices else _schema(config.response_format)
    return Request(tuple(messages), replace(base, **given), constraint, logprobs=config.logprobs or 0)


def _refuse(feature: str) -> None:
    msg = f"personalink's engine does not carry {feature}; ask this through a plain dspy.LM"
    raise lm15.UnsupportedFeatureError(msg, feature=feature)


def _system(system: Any) -> str | None:
    if system is None or isinstance(system, str):
        return system
    if not all(isinstance(part, lm15.TextPart) for part in system):
        _refuse("a system message that is not text")
    return "\n".join(part.text for part in system)


def _message(message: Any, place: int) -> Message:
    if message.role not in ("user", "assistant") or message.text is None:
        _refuse(f"messages[{place}]: role {message.role}, {', '.join(part.type for part in message.parts)}")
    return Message(message.role, message.text)


def _schema(form: Any) -> Constraint | None:
    """What a response format asks for; "any JSON object" is a schema too."""
    return None if form is None else Constraint(schema=form.get("schema") or {"type": "object"})


def to_response(completion: Completion, model: str, *, paid: bool) -> Any:
    """The `dspy.lm15.Response` that a completion is. An answer that was not paid for now has no usage."""
    usage = completion.usage if paid else Usage()
    tokens = [
        lm15.TokenLogprob(t.text, t.logprob, top=tuple(lm15.TopLogprob(text, p) for text, p in t.others))
        for t in completion.tokens or ()
    ]
    return lm15.Response(
        id=None,
        model=completion.model or model,
        message=lm15.Message.assistant([lm15.TextPart(completion.text)]),
        finish_reason=_FINISHED[completion.outcome],
        usage=lm15.Usage(input_tokens=usage.prompt, output_tokens=usage.completion, cache_read_tokens=usage.cached),
        logprobs=tokens or None,
    )


def to_completion(response: Any) -> Completion:
    """The completion that a `dspy.lm15.Response` is: its text and data, thinking left out."""
    parts = response.message.parts
    text = "".join(
        part.text if isinstance(part, lm15.TextPart) else json.dumps(part.value, ensure_ascii=False)
        for part in parts
        if isinstance(part, lm15.TextPart | lm15.DataPart)
    )
    outcome = _OUTCOMES.get(response.finish_reason, "ok")
    u = response.usage
    usage = Usage(u.input_tokens, u.cache_read_tokens, u.output_tokens)
    return Completion(text, outcome if text.strip() or outcome != "ok" else "empty", usage, model=response.model)


def to_lm15(error: PersonalinkError) -> Exception:
    """An error as DSPy's engines tell it; the same object where DSPy has no name for it (a full disk, Ctrl-C)."""
    kind = next((theirs for ours, theirs in _ERRORS if isinstance(error, ours)), None)
    return error if kind is None else kind(str(error))


def to_ours(error: BaseException) -> PersonalinkError:
    """The personalink error behind one of DSPy's: its cause where that is ours, else by its kind."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, PersonalinkError):
            return cause
        cause = cause.__cause__
    kind = next((ours for theirs, ours in _TOLD if isinstance(error, theirs)), Unreachable)
    return kind(" ".join(str(error).split())[:300])

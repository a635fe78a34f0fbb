"""What is asked of a language model and what comes back. Knows no transport and no task.

A `Request` is everything that decides an answer; its key is what the journal and the cache are keyed by. Decoding
parameters are all explicit, since a server's own `generation_config` otherwise leaks penalties into "greedy".
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args, runtime_checkable

from personalink.canonical import digest
from personalink.logprobs import Tokens, logprobs_from_plain, logprobs_to_plain

Outcome = Literal["ok", "empty", "truncated", "refused"]

asking_for: ContextVar[str] = ContextVar("asking_for", default="")
"""The user whom the running task asks for; "" for nobody in particular. A model on several servers keeps a user's
prompts on one of them, where their common start is in its cache; every other model may leave it unread."""


@runtime_checkable
class Counter(Protocol):
    """Counts tokens of a text: sync, deterministic, named. `remote` says that a count may cost a round trip."""

    id: str
    remote: bool

    def count(self, text: str) -> int:
        """Number of tokens of `text`, without special tokens; 0 for the empty text."""
        ...


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a prompt."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Decoding:
    """How the answer is drawn; the defaults are greedy with every penalty neutral, and each value is sent.

    `max_tokens` bounds the answer in tokens. `seed` is sent where the server takes one.
    """

    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 12345


@dataclass(frozen=True, slots=True)
class Constraint:
    """What the answer must be: one of `choices`, or JSON under `schema` (exactly one of the two is set)."""

    choices: tuple[str, ...] = ()
    schema: Mapping[str, Any] | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON for keys and records."""
        return {"choices": list(self.choices)} if self.choices else {"schema": self.schema}


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt with everything that decides its answer. `sample` tells repeated draws apart.

    `logprobs` is how many alternatives a token are told with the answer; 0 asks for none.
    """

    messages: tuple[Message, ...]
    decoding: Decoding
    constraint: Constraint | None = None
    sample: int = 0
    logprobs: int = 0

    def key(self, identity: str) -> str:
        """SHA-256 over the whole canonical request and who answers it (`LM.identity`)."""
        d = self.decoding
        asked = {
            "schema": 1,
            "identity": identity,
            "messages": [[m.role, m.content] for m in self.messages],
            "decoding": {name: getattr(d, name) for name in Decoding.__slots__},
            "constraint": self.constraint.as_dict() if self.constraint else None,
            "sample": self.sample,
        }
        return digest(asked | ({"logprobs": self.logprobs} if self.logprobs else {}))


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the server counted them. Unknown is None, never 0."""

    prompt: int | None = None
    cached: int | None = None
    completion: int | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer as it came. An outage is not here: it is an exception.

    `outcome` is "ok", "empty" (no visible text), "truncated" (stopped at max_tokens) or "refused" (content filter or
    refusal field). `constrained` says by what the answer was constrained ("grammar", "structured_outputs",
    "response_format") or "" for not at all. `model` is what the server says answered. `retries` is how many further
    attempts it took after the first. `tokens` are the answer's tokens with their log-probabilities, None where they
    were not asked for or the server gives none.
    """

    text: str
    outcome: Outcome = "ok"
    usage: Usage = field(default_factory=Usage)
    constrained: str = ""
    model: str = ""
    retries: int = 0
    tokens: Tokens | None = None


def completion_to_dict(completion: Completion) -> dict[str, Any]:
    """A completion as plain JSON, as journal and cache keep it; a lone surrogate in its text becomes "?".

    `retries` and `tokens` stand there only where there are any.
    """
    usage = completion.usage
    plain: dict[str, Any] = {
        "text": completion.text.encode("utf-8", "replace").decode(),
        "outcome": completion.outcome,
        "usage": [usage.prompt, usage.cached, usage.completion],
        "constrained": completion.constrained,
        "model": completion.model,
    }
    if completion.retries:
        plain["retries"] = completion.retries
    if completion.tokens is not None:
        plain["tokens"] = logprobs_to_plain(completion.tokens)
    return plain


def completion_from_dict(plain: Mapping[str, Any]) -> Completion:
    """The completion of `completion_to_dict`.

    Raises:
        KeyError: a field is missing.
        TypeError, ValueError: a field is none that `completion_to_dict` writes, such as a negative count.
    """
    prompt, cached, completion = plain["usage"]
    done = Completion(
        text=plain["text"],
        outcome=plain["outcome"],
        usage=Usage(prompt, cached, completion),
        constrained=plain["constrained"],
        model=plain["model"],
        retries=plain.get("retries", 0),
        tokens=logprobs_from_plain(plain["tokens"]) if "tokens" in plain else None,
    )
    texts = (done.text, done.outcome, done.constrained, done.model)
    whole = (
        all(isinstance(text, str) for text in texts)
        and done.outcome in get_args(Outcome)
        and _is_count(done.retries)
        and all(count is None or _is_count(count) for count in (prompt, cached, completion))
        and all(isinstance(text, str) for t in done.tokens or () for text in (t.text, *(a for a, _ in t.alternatives)))
    )
    if not whole:
        raise ValueError("it is no completion")
    return done


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


class KnownOnceStarted:
    """For an LM that learns its `identity` and `counter` in `start()`: read before, they are an error, since requests
    keyed by half an identity would be answered from another model's records."""

    identity: str
    counter: Counter
    learnt_when = "start() has loaded the model"

    def __getattr__(self, name: str) -> Any:
        kind = type(self).__name__
        if name in ("identity", "counter"):
            raise AttributeError(f"{kind}.{name} is known once {self.learnt_when}")
        raise AttributeError(f"{kind!r} object has no attribute {name!r}")

    @property
    def counter_id(self) -> str | None:
        """The counter's id; None until it is known."""
        return self.counter.id if "counter" in self.__dict__ else None


class LM(Protocol):
    """Where completions come from.

    `identity` says who answers (kind, model, revision) and enters every key; `window` is the context length in
    tokens, None when unknown; `concurrency` is how many requests may be in flight; `users_in_flight` how many users
    should be worked on at once (1 where a prefix lives in one slot).
    """

    identity: str
    model: str
    counter: Counter
    window: int | None
    concurrency: int
    users_in_flight: int

    async def start(self) -> None:
        """Check that the model can be asked (reachable, right model) and learn window and counter. Idempotent.

        Raises:
            LMError: it cannot be asked; the message names endpoint and remedy.
        """
        ...

    async def complete(self, request: Request) -> Completion:
        """Answer one request.

        Raises:
            LMError: no answer could be had; which kind tells whether others may still succeed.
        """
        ...

    async def aclose(self) -> None:
        """Give back sessions, servers and threads. Idempotent."""
        ...

    def describe(self) -> dict[str, Any]:
        """What the endpoint says it is (versions, model entry, window, dialect): plain JSON, no key, no secret."""
        ...

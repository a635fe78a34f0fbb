"""`EndpointLM`: any OpenAI-compatible chat server as an `LM`.

Knows what to learn of a server at start (its kind, model, window, tokenizer) and how to ask it one request. How bytes
travel is `transport`'s, what they mean is `wire`'s. Proxies named in the environment are not used.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from personalink.background import Closes
from personalink.errors import ConfigError, IntegrityError, MalformedReply, Unauthorized, Unreachable
from personalink.lm import wire
from personalink.lm.base import Completion, Counter, Request
from personalink.lm.counters import EndpointCounter, EstimateCounter, TokenizerCounter, tokenize_body, tokens_in
from personalink.lm.settings import check_seconds, check_whole
from personalink.lm.transport import Reply, Transport

SHORTEST_KEY = 8
"""Characters: a shorter key is a placeholder, such as "EMPTY", and may be a word of an answer."""


class EndpointLM(Closes):
    """A chat client for vLLM, llama.cpp's server, or anything else that speaks OpenAI's chat completions.

    Args:
        base_url: with or without a trailing slash and /v1; default: the environment's OPENAI_BASE_URL.
        model: default: the only one that the server lists.
        api_key_env: the environment variable that holds the key, read at start ("EMPTY" where unset); None for no key.
            The key itself is in no repr, description, log, error or answer.
        dialect: what else than plain OpenAI the server understands; "auto" finds out.
        concurrency: requests in flight at most, first come first served.
        users_in_flight: users worked on at once; default 4 · `concurrency`.
        timeout_s, connect_timeout_s: seconds for one attempt, and for connecting.
        retries, backoff_s: further attempts after an outage, 429, 500, 502, 503, 504 or a malformed reply; before the
            k-th (from 0) `backoff_s` · 4ᵏ seconds are waited, or what Retry-After says, 60 s at most.
        down_timeout_s: seconds without one good answer of the server after which nothing is retried any more.
        window: context length in tokens; default: what the server says, None where it does not.
        counter, tokenizer: how tokens are counted; default: the server's /tokenize, else an estimate. `tokenizer` is a
            folder or name for `TokenizerCounter`.
        revision: what tells two versions of the model under one name apart; enters `identity`.

    `identity` and, unless given, `counter` are known from `start()` on; until then reading them is an error, since
    requests keyed by half an identity would be answered from another model's records.

    Attributes:
        retries_made: attempts made beyond each request's first.
        requests_sent: chat requests that reached a connection, retries included.

    Raises:
        ConfigError: no base URL, or one that cannot be used, or a number out of range.
    """

    identity: str
    counter: Counter

    def __init__(
        self,
        base_url: str | None = None,
        *,
        model: str | None = None,
        api_key_env: str | None = "OPENAI_API_KEY",
        dialect: Literal["auto", "vllm", "llama_cpp", "openai"] = "auto",
        concurrency: int = 64,
        users_in_flight: int | None = None,
        timeout_s: float = 600.0,
        connect_timeout_s: float = 5.0,
        retries: int = 4,
        backoff_s: float = 0.5,
        down_timeout_s: float = 120.0,
        window: int | None = None,
        counter: Counter | None = None,
        tokenizer: str | None = None,
        revision: str | None = None,
    ) -> None:
        url = base_url or os.environ.get("OPENAI_BASE_URL")
        if not url or not isinstance(url, str):
            raise ConfigError("lm.base_url is missing: give it or set OPENAI_BASE_URL, e.g. http://localhost:8000/v1")
        if dialect not in ("auto", "vllm", "llama_cpp", "openai"):
            raise ConfigError(f"lm.dialect: {dialect!r} is none of auto, vllm, llama_cpp, openai")
        check_whole(1, concurrency=concurrency, users_in_flight=users_in_flight, window=window)
        check_whole(0, retries=retries)
        check_seconds({"timeout_s": timeout_s, "connect_timeout_s": connect_timeout_s}, zero=False)
        check_seconds({"backoff_s": backoff_s, "down_timeout_s": down_timeout_s}, zero=True)
        self.root_url, self.api_url = wire.split_base_url(url)
        self.model = model or ""
        self.window = window
        self.concurrency = concurrency
        self.users_in_flight = users_in_flight or 4 * concurrency
        self.dialect: wire.Dialect | None = None if dialect == "auto" else dialect
        self._wanted, self._revision, self._api_key_env = model or None, revision, api_key_env
        self._given_window, self._tokenizer, self._own_counter = window, tokenizer, False
        if counter is not None:
            self.counter = counter
        self._facts: dict[str, Any] = {}
        self._started = False
        self._answers_as = ""
        self._secret = ""
        self._transport = Transport(
            concurrency=concurrency,
            timeout_s=timeout_s,
            connect_timeout_s=connect_timeout_s,
            retries=retries,
            backoff_s=backoff_s,
            down_timeout_s=down_timeout_s,
        )

    def __repr__(self) -> str:
        return f"EndpointLM({self.api_url!r}, model={self.model!r}, dialect={self.dialect or 'auto'!r})"

    def __getattr__(self, name: str) -> Any:
        if name in ("identity", "counter"):
            raise AttributeError(f"EndpointLM.{name} is known once start() has asked the server")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def requests_sent(self) -> int:
        """Chat requests that reached a connection, retries included."""
        return self._transport.requests_sent

    @property
    def retries_made(self) -> int:
        """Attempts made beyond each request's first."""
        return self._transport.retries_made

    @property
    def key_hint(self) -> str:
        """Where the key belongs, for messages."""
        return f"the environment variable {self._api_key_env}" if self._api_key_env else "lm.api_key_env"

    async def start(self) -> None:
        """Ask the server what it is. Idempotent; any number of tasks may call it at once.

        Raises:
            Unreachable: nobody listens at the URL, or no answer came after the retries.
            Unauthorized: the key was refused.
            ModelNotFound: `model` is not among those served; the message names them.
            MalformedReply: something else than this protocol answers at the URL.
            ConfigError: no `model` was given and the server does not list exactly one.
        """
        if self._started:
            return
        async with self._transport.starting():
            if not self._started:
                try:
                    await self._discover()
                except BaseException:
                    await self._transport.aclose()
                    raise
                self._started = True

    async def _discover(self) -> None:
        key = self._read_key()
        self._transport.use_key(key)
        self._secret = key if len(key) >= SHORTEST_KEY else ""
        reply = await self._transport.get(f"{self.api_url}/models")
        entries = self._listed(reply)
        if entries is None and self._wanted is None:
            raise ConfigError(f"lm.model: say which one to ask; {self.api_url} lists none (404 for /models)")
        if entries is not None:
            self.model = wire.choose_model(self._wanted, entries, self.api_url)
        entry = next((e for e in entries or [] if self.model in (e["id"], *wire.aliases(e))), {})
        told = self._transport.scrub(json.dumps(wire.stable_entry(entry)))
        self._facts = {"models_listed": entries is not None, "model_entry": json.loads(told)}
        dialect = self.dialect or await self._find_dialect(reply, entry)
        self.dialect = dialect
        if dialect == "llama_cpp":
            await self._read_props()
        if self._given_window is None:
            self.window = wire.count_or_none(entry.get("max_model_len")) or self._facts.get("n_ctx")
        self.identity = f"openai-chat|{dialect}|{self.model}|{self._revision or ''}"
        if "counter" not in self.__dict__:
            self.counter = await self._find_counter(dialect)

    def _read_key(self) -> str:
        key = os.environ.get(self._api_key_env or "", "").strip() or "EMPTY"
        if not key.isascii() or not key.isprintable():
            raise ConfigError(f"{self._api_key_env} holds characters that no key has; set it anew")
        return key

    def _listed(self, reply: Reply) -> list[dict[str, Any]] | None:
        """The models in the reply to /models; None where the server has no such page (404).

        Raises:
            LMError: what `start` says.
        """
        where, scrub = f"{self.api_url}/models", self._transport.scrub
        if reply.status == 0:
            raise Unreachable(
                f"{self.api_url} {reply.fault}; start the server (e.g. `vllm serve MODEL`) or check lm.base_url; "
                "lm=embedded needs none"
            )
        if reply.status in (401, 403):
            words = wire.server_words(reply.body, scrub)
            raise Unauthorized(f"{where} refused the key ({reply.status}): {words}; set {self.key_hint}")
        if reply.status == 429 or reply.status >= 500:
            raise Unreachable(f"{where} answered {reply.status}: {wire.server_words(reply.body, scrub)}")
        if reply.status == 404:
            return None
        entries = wire.read_models(reply.body)
        if reply.status != 200 or entries is None:
            raise MalformedReply(
                f"{where} answered {reply.status} with something else than a list of models: "
                f"{wire.quoted(reply.body, scrub)}; is lm.base_url the server's own, up to /v1, or a proxy's?"
            )
        return entries

    async def _find_dialect(self, models: Reply, entry: Mapping[str, Any]) -> wire.Dialect:
        if "llama.cpp" in models.headers.get("Server", ""):
            return "llama_cpp"
        version = await self._ask_root("/version")
        if isinstance(version.get("version"), str) and entry.get("owned_by") != "sglang":
            self._facts["version"] = self._transport.scrub(version["version"])
            return "vllm"
        return "llama_cpp" if "default_generation_settings" in await self._ask_root("/props") else "openai"

    async def _ask_root(self, path: str) -> dict[str, Any]:
        reply = await self._transport.exchange("GET", self.root_url + path, timeout_s=10.0)
        try:
            data = json.loads(reply.body) if reply.status == 200 else {}
        except (ValueError, RecursionError):
            data = {}
        return data if isinstance(data, dict) else {}

    async def _read_props(self) -> None:
        props = await self._ask_root("/props")
        settings = props.get("default_generation_settings")
        self._facts["n_ctx"] = wire.count_or_none(settings.get("n_ctx")) if isinstance(settings, dict) else None
        for name in ("build_info", "total_slots"):
            if isinstance(props.get(name), str | int):
                self._facts[name] = props[name]

    async def _find_counter(self, dialect: wire.Dialect) -> Counter:
        if self._tokenizer is not None:
            return await asyncio.to_thread(TokenizerCounter, self._tokenizer)
        if dialect != "openai":
            body = tokenize_body("hello", dialect, self.model)
            reply = await self._transport.exchange("POST", f"{self.root_url}/tokenize", body, timeout_s=10.0)
            if reply.status == 200 and tokens_in(reply.body, dialect):
                self._own_counter = True
                return EndpointCounter(self.root_url, dialect, self.model, api_key_env=self._api_key_env)
        return EstimateCounter()

    async def complete(self, request: Request) -> Completion:
        """Answer one request; starts first where `start` was not called.

        Raises:
            LMError: `Unreachable` and `MalformedReply` after the retries, `PromptTooLong`, `BadRequest`,
                `Unauthorized` and `ModelNotFound` at once.
            IntegrityError: another model answers than before; answers of two are not mixed.
        """
        await self.start()
        body, constrained = self.chat_body(request)
        completion = wire.read_reply(await self.post_chat(body), constrained)
        if completion.model and self._answers_as and completion.model != self._answers_as:
            msg = (
                f"{self.api_url}: answers came from {self._answers_as!r} and now come from {completion.model!r}; "
                "start the same model again, or a new run"
            )
            raise IntegrityError(msg)
        self._answers_as = self._answers_as or completion.model
        return self._without_key(completion)

    def _without_key(self, completion: Completion) -> Completion:
        """The completion as it may be journalled: a key that a server or proxy echoed is taken out."""
        if not self._secret or self._secret not in completion.text + completion.model:
            return completion
        text, model = (part.replace(self._secret, "[key]") for part in (completion.text, completion.model))
        return replace(completion, text=text, model=model)

    def chat_body(self, request: Request) -> tuple[dict[str, Any], str]:
        """(the body that `complete` sends for `request`, what constrains the answer or ""); known from `start` on."""
        return wire.chat_body(request, self.dialect or "openai", self.model)

    async def post_chat(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send `body` to /chat/completions as it stands and return the parsed reply: for probes that need raw fields.

        Counted, queued and retried like `complete`. Raises the same errors.
        """
        await self.start()
        return await self._transport.post_chat(f"{self.api_url}/chat/completions", body, self.key_hint)

    async def aclose(self) -> None:
        """Close the sessions. Idempotent; a later request starts anew."""
        self._started = False
        await self._transport.aclose()
        if self._own_counter and isinstance(self.counter, EndpointCounter):
            self.counter.close()

    def describe(self) -> dict[str, Any]:
        """What the server says it is: plain JSON without key, URL or clock. Fuller after `start`."""
        return {
            "kind": "openai-chat",
            "dialect": self.dialect or "auto",
            "model": self.model,
            "revision": self._revision,
            "window": self.window,
            "counter": self.counter.id if "counter" in self.__dict__ else None,
            **self._facts,
        }

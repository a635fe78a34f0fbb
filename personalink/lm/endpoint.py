"""`EndpointLM`: any OpenAI-compatible chat server, or several that serve the same model, as an `LM`.

Knows how a request becomes a body and a reply a completion. What a server is, is `server`'s; which of several is asked,
`replicas`'; how bytes travel, `transport`'s; what they mean, `wire`'s. Proxies named in the environment are not used.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from personalink.background import Closes
from personalink.errors import ConfigError
from personalink.lm import wire
from personalink.lm.base import Completion, Counter, KnownOnceStarted, Request, asking_for
from personalink.lm.counters import EstimateCounter, TokenizerCounter
from personalink.lm.replicas import Replicas, ServersCounter
from personalink.lm.server import Server
from personalink.lm.settings import check_seconds, check_whole

SHORTEST_KEY = 8
"""Characters: a shorter key is a placeholder, such as "EMPTY", and may be a word of an answer."""


class EndpointLM(KnownOnceStarted, Closes):
    """A chat client for vLLM, llama.cpp's server, or anything else that speaks OpenAI's chat completions.

    Args:
        base_url: with or without a trailing slash and /v1; default: the environment's OPENAI_BASE_URL. Several servers
            of one model: a list, or one text with commas. Then a user's requests go to the same server, whose cache
            has the start of their prompts, as long as it is there and has room; a server that goes is left out until
            it is back.
        model: default: the only one that the server lists.
        api_key_env: the environment variable that holds the key, read at start ("EMPTY" where unset); None for no key.
            The key itself is in no repr, description, log, error or answer.
        dialect: what else than plain OpenAI the server understands; "auto" finds out.
        concurrency: requests in flight at most, at each server, first come first served.
        users_in_flight: users worked on at once; default 4 · `concurrency` a server.
        timeout_s, connect_timeout_s: seconds for one attempt, and for connecting.
        deadline_s: seconds for all attempts of one request together, counted from when its turn comes.
        retries, backoff_s: further attempts after a reset, a time-out, 429, 500, 502, 503, 504 or a malformed reply;
            before the k-th (from 0) `backoff_s` · 4ᵏ seconds are waited, or what Retry-After says, 60 s at most.
        down_timeout_s: seconds to wait for a server that is gone, during which nothing is sent; then every request
            that waits fails. One that is back must serve the same model.
        window: context length in tokens; default: what the server says, None where it does not.
        counter, tokenizer: how tokens are counted; default: the server's /tokenize, else an estimate. `tokenizer` is a
            folder or name for `TokenizerCounter`.
        revision: what tells two versions of the model under one name apart; enters `identity`.

    `identity` and, unless given, `counter` are known from `start()` on; until then reading them is an error, since
    requests keyed by half an identity would be answered from another model's records. `identity` says nothing of where
    and how many the servers are.

    Attributes:
        servers: one for each URL. api_url, root_url: the first one's address, with and without /v1.
        concurrency: requests in flight at most, all servers together.
        retries_made: attempts made beyond each request's first.
        requests_sent: chat requests that reached a connection, retries included.

    Raises:
        ConfigError: no base URL, or one that cannot be used, or a number out of range.
    """

    learnt_when = "start() has asked the server"

    def __init__(
        self,
        base_url: str | Sequence[str] | None = None,
        *,
        model: str | None = None,
        api_key_env: str | None = "OPENAI_API_KEY",
        dialect: Literal["auto", "vllm", "llama_cpp", "openai"] = "auto",
        concurrency: int = 64,
        users_in_flight: int | None = None,
        timeout_s: float = 600.0,
        connect_timeout_s: float = 5.0,
        deadline_s: float = 3600.0,
        retries: int = 4,
        backoff_s: float = 0.5,
        down_timeout_s: float = 120.0,
        window: int | None = None,
        counter: Counter | None = None,
        tokenizer: str | None = None,
        revision: str | None = None,
    ) -> None:
        urls = wire.base_urls(base_url or os.environ.get("OPENAI_BASE_URL"))
        if dialect not in ("auto", "vllm", "llama_cpp", "openai"):
            raise ConfigError(f"lm.dialect: {dialect!r} is none of auto, vllm, llama_cpp, openai")
        check_whole(1, concurrency=concurrency, users_in_flight=users_in_flight, window=window)
        check_whole(0, retries=retries)
        limits = {"timeout_s": timeout_s, "connect_timeout_s": connect_timeout_s, "deadline_s": deadline_s}
        waits = {"backoff_s": backoff_s, "down_timeout_s": down_timeout_s}
        check_seconds(limits, zero=False)
        check_seconds(waits, zero=True)
        asked: Any = {"model": model, "api_key_env": api_key_env, "dialect": None if dialect == "auto" else dialect}
        pace: Any = {"concurrency": concurrency, "retries": retries, **limits, **waits}
        self._replicas = Replicas([Server(url, **asked, **pace) for url in urls])
        self.servers = self._replicas.servers
        self.model = model or ""
        self.window = window
        self.concurrency = concurrency * len(urls)
        self.users_in_flight = users_in_flight or 4 * self.concurrency
        self._revision, self._given_window, self._tokenizer = revision, window, tokenizer
        if counter is not None:
            self.counter = counter
        self._started = False

    def __repr__(self) -> str:
        where = ", ".join(repr(server.api_url) for server in self.servers)
        return f"EndpointLM({where}, model={self.model!r}, dialect={self.dialect or 'auto'!r})"

    @property
    def api_url(self) -> str:
        """The first server's address, ending in /v1."""
        return self.servers[0].api_url

    @property
    def root_url(self) -> str:
        """The first server's address, without /v1."""
        return self.servers[0].root_url

    @property
    def dialect(self) -> wire.Dialect | None:
        """What the servers understand; None until that is known."""
        return self._replicas.first.dialect

    @property
    def requests_sent(self) -> int:
        """Chat requests that reached a connection, retries included."""
        return sum(server.transport.requests_sent for server in self.servers)

    @property
    def retries_made(self) -> int:
        """Attempts made beyond each request's first."""
        return sum(server.transport.retries_made for server in self.servers)

    async def start(self) -> None:
        """Ask the servers what they are. Idempotent; any number of tasks may call it at once.

        Raises:
            Unreachable: nobody listens at any URL, or no answer came after the retries.
            Unauthorized: the key was refused.
            ModelNotFound: `model` is not among those served; the message names them.
            MalformedReply: something else than this protocol answers at the URL.
            ConfigError: no `model` was given and the server does not list exactly one; or several servers differ.
        """
        if self._started:
            return
        async with self.servers[0].transport.starting():
            if not self._started:
                try:
                    await self._discover()
                except BaseException:
                    await self._replicas.aclose()
                    raise
                self._started = True

    async def _discover(self) -> None:
        await self._replicas.start()
        first = self._replicas.first
        self.model = first.model
        if self._given_window is None:
            self.window = first.window
        self.identity = wire.identity(first.dialect, self.model, self._revision)
        if "counter" not in self.__dict__:
            self.counter = await self._find_counter()

    async def _find_counter(self) -> Counter:
        if self._tokenizer is not None:
            return await asyncio.to_thread(TokenizerCounter, self._tokenizer)
        return await self._replicas.counter() or EstimateCounter()

    async def complete(self, request: Request) -> Completion:
        """Answer one request; starts first where `start` was not called.

        Raises:
            LMError: `Unreachable`, `MalformedReply` and `DeadlineExceeded` after the retries, `PromptTooLong`,
                `BadRequest`, `Unauthorized` and `ModelNotFound` at once.
            IntegrityError: another model answers than before; answers of two are not mixed.
        """
        await self.start()
        body, constrained = self.chat_body(request)
        data, retries = await self._replicas.post_chat(body, asking_for.get())
        return self._without_key(replace(wire.read_reply(data, constrained), retries=retries))

    def _without_key(self, completion: Completion) -> Completion:
        """The completion as it may be journalled: a key that a server or proxy echoed is taken out."""
        key = self.servers[0].key
        if len(key) < SHORTEST_KEY or key not in completion.text + completion.model:
            return completion
        text, model = (part.replace(key, "[key]") for part in (completion.text, completion.model))
        return replace(completion, text=text, model=model, tokens=None)  # they spell the key

    def chat_body(self, request: Request) -> tuple[dict[str, Any], str]:
        """(the body that `complete` sends for `request`, what constrains the answer or ""); known from `start` on."""
        return wire.chat_body(request, self.dialect or "openai", self.model)

    async def post_chat(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send `body` to /chat/completions as it stands and return the parsed reply: for probes that need raw fields.

        Counted, queued and retried like `complete`. Raises the same errors.
        """
        await self.start()
        return (await self._replicas.post_chat(body, asking_for.get()))[0]

    async def aclose(self) -> None:
        """Close the sessions. Idempotent; a later request starts anew."""
        self._started = False
        await self._replicas.aclose()
        if isinstance(self.__dict__.get("counter"), ServersCounter):
            self.__dict__["counter"].close()

    def describe(self) -> dict[str, Any]:
        """What the server says it is: plain JSON without key, URL or clock. Fuller after `start`."""
        return {
            "kind": "openai-chat",
            "dialect": self.dialect or "auto",
            "model": self.model,
            "revision": self._revision,
            "window": self.window,
            "counter": self.counter_id,
            **self._replicas.first.facts,
        }

"""`FakeVLLM`: a server of vLLM's shape on loopback, without a model.

Knows HTTP, the queue of running requests and the script of faults. What it sends is `replies`', how tokens are counted
is `prefix`'s. It keeps no prompt once it has answered it, unless it is told to.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

from aiohttp import web

from personalink.errors import ConfigError
from personalink.testing import replies
from personalink.testing.faults import Fault, cut, fault_reply, half_reply, status_reply
from personalink.testing.prefix import BLOCK, Held, PrefixCache, first_pieces, pieces, prompt_pieces
from personalink.testing.replies import Answer, Body, Totals

_START_S = 10.0


class FakeVLLM:
    """Use as a context manager; it then serves on a thread of its own, and `url` is its address, without /v1.

    Args:
        answer: (request body) → text; default: `personalink.lm.hashed_answers(labels)`. Either is held to the body's
            `structured_outputs.choice`, `structured_outputs.json` or `response_format`, and cut at its max_tokens.
            `logprobs` are drawn from a hash of the text.
        labels: what default answers without a constraint are drawn from.
        model, root: the model's name and what /v1/models says it was loaded from.
        window: `max_model_len`, tokens of prompt and answer together; more is refused as vLLM refuses it.
        latency_s: seconds that an answer takes once it runs.
        max_num_seqs: requests that run at once; the others wait, first come first served. None for no bound.
        kv_tokens: room of the prefix cache in tokens (see `PrefixCache`); requests also wait for room. None for no
            bound.
        block: tokens of a cache block.
        token_details: tell cached tokens in replies, as vLLM does with --enable-prompt-tokens-details.
        faults: index of a chat request, from 0, → what goes wrong with it, as a `Fault` or in words ("429:2").
        record: keep the bodies of chat requests in `bodies`.
        port: 0 finds a free one.

    Attributes:
        alive: whether it is listening.
        requests: chat requests that arrived. running: those that run now. waiting: those that wait to.
        most_at_once: the largest number that had arrived and were not answered, at any time.
        prompt_tokens, completion_tokens, cached_tokens: sums over the replies' usage, restarts included.
        bodies: with `record`, what was asked, in the order of arrival.

    Raises:
        ConfigError: a bound that is not positive, or a fault that is none.
    """

    def __init__(
        self,
        answer: Answer | None = None,
        *,
        labels: Sequence[str] = (),
        model: str = "fake-7b",
        root: str | None = None,
        window: int = 32768,
        latency_s: float = 0.0,
        max_num_seqs: int | None = None,
        kv_tokens: int | None = None,
        block: int = BLOCK,
        token_details: bool = True,
        faults: Mapping[int, Fault | str] | None = None,
        record: bool = False,
        port: int = 0,
    ) -> None:
        if window < 1 or latency_s < 0 or (max_num_seqs is not None and max_num_seqs < 1):
            raise ConfigError("window and max_num_seqs must be at least 1, latency_s at least 0")
        self.model, self.window, self.latency_s, self.max_num_seqs = model, window, latency_s, max_num_seqs
        self.url, self.alive = "", False
        self._fingerprint = ""
        self._death: asyncio.Task[None] | None = None
        self.requests = self.running = self.in_flight = self.most_at_once = 0
        self.bodies: list[Body] = []
        self._root, self._port, self._details, self._record = root or model, port, token_details, record
        self._labels = labels
        self._answer = replies.obeying(answer, labels) if answer else replies.hashed(labels)
        self._faults = {i: Fault.parse(f) if isinstance(f, str) else f for i, f in (faults or {}).items()}
        self._cache_size = (kv_tokens, block)
        self._cache = PrefixCache(*self._cache_size)
        self._since_start = Totals()
        self._before = Totals()
        self._waiting: deque[tuple[asyncio.Future[Held], list[str]]] = deque()

    @property
    def waiting(self) -> int:
        """Requests that wait for a place or for room in the cache."""
        return len(self._waiting)

    @property
    def prompt_tokens(self) -> int:
        """Prompt tokens of all replies."""
        return self._before.prompt + self._since_start.prompt

    @property
    def completion_tokens(self) -> int:
        """Tokens of all answers."""
        return self._before.completion + self._since_start.completion

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens of all replies that were found in the prefix cache."""
        return self._before.cached + self._since_start.cached

    def __enter__(self) -> FakeVLLM:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake-vllm", daemon=True)
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._open(self._port), self._loop).result(_START_S)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        asyncio.run_coroutine_threadsafe(self._finish(), self._loop).result(_START_S)
        self._end()

    async def _finish(self) -> None:
        if self._death is not None:
            self._death.cancel()
            await asyncio.wait({self._death})
        await self._close()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_START_S)
        self._loop.close()

    def stop(self) -> None:
        """Break off what runs and be gone: nobody listens at `url` until `start`. Idempotent."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(_START_S)

    def start(self, model: str | None = None, *, root: str | None = None, fingerprint: str | None = None) -> None:
        """Be back at the same address with an empty cache and /metrics at 0, serving `model` loaded from `root` and
        answering with this `system_fingerprint` (default: the same as before). The attributes go on counting, and so
        do the indices of faults. Nothing happens where it is alive.
        """
        again = self._start_again(model, root, fingerprint)
        asyncio.run_coroutine_threadsafe(again, self._loop).result(_START_S)

    def restart(
        self,
        model: str | None = None,
        *,
        down_s: float = 0.0,
        root: str | None = None,
        fingerprint: str | None = None,
    ) -> None:
        """`stop`, stay away for `down_s` seconds, `start`."""
        self.stop()
        time.sleep(down_s)
        self.start(model, root=root, fingerprint=fingerprint)

    async def _start_again(self, model: str | None, root: str | None = None, fingerprint: str | None = None) -> None:
        if self.alive:
            return
        if model is not None:
            self._root = model if self._root == self.model else self._root
            self.model = model
        self._root, self._fingerprint = root or self._root, fingerprint or self._fingerprint
        told, past = self._totals(), self._before
        self._before = Totals(*(getattr(past, n) + getattr(told, n) for n in Totals.__slots__))
        self._since_start, self._cache = Totals(), PrefixCache(*self._cache_size)
        await self._open(int(self.url.rpartition(":")[2]))

    async def _die(self, fault: Fault) -> None:
        """The fault "die"."""
        await self._close()
        if fault.seconds is not None:
            await asyncio.sleep(fault.seconds)
            await self._start_again(fault.model or None)

    async def _open(self, port: int) -> None:
        self._closing = asyncio.Event()
        self._server = web.Server(self._route, access_log=None, handler_cancellation=True)
        self._runner = web.ServerRunner(self._server, shutdown_timeout=0.01)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port, backlog=2048, reuse_address=True).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        self.alive = True

    async def _close(self) -> None:
        self.alive = False
        self._closing.set()
        for ready, _ in self._waiting:
            ready.cancel()
        self._waiting.clear()
        for connection in self._server.connections:
            if connection.transport is not None:
                connection.transport.abort()
        await asyncio.sleep(0)  # the handlers are cancelled, so that nothing is left to be shut down gracefully
        await self._runner.cleanup()

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        """One request to its page."""
        try:
            match request.method, request.path:
                case "POST", "/v1/chat/completions":
                    return await self._chat(request)
                case "POST", "/tokenize":
                    return await self._tokenize(request)
                case "GET", "/v1/models":
                    return web.json_response(replies.model_list(self.model, self._root, self.window))
                case "GET", "/version":
                    return web.json_response({"version": replies.VERSION})
                case "GET", "/health":
                    return web.Response()
                case "GET", "/metrics":
                    text = replies.metrics(self.model, self._totals(), self.running, self.waiting)
                    return web.Response(text=text, content_type="text/plain")
        except _Refused as refused:
            return status_reply(refused.code, str(refused))
        return status_reply(404, "Not Found")

    def _totals(self) -> Totals:
        return replace(self._since_start, queries=self._cache.queries, hits=self._cache.hits)

    async def _tokenize(self, request: web.BaseRequest) -> web.Response:
        body = await _read(request)
        tokens = prompt_pieces(body["messages"]) if "messages" in body else replies.prompt_of(body)
        return web.json_response(replies.tokenized(tokens, self.window))

    async def _chat(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await _read(request)
        index, self.requests = self.requests, self.requests + 1
        if self._record:
            self.bodies.append(body)
        self.in_flight += 1
        self.most_at_once = max(self.most_at_once, self.in_flight)
        try:
            fault = self._faults.get(index)
            match fault.kind if fault else "":
                case "status" | "html":
                    return fault_reply(fault)  # type: ignore[arg-type]
                case "reset":
                    return cut(request)
                case "half":
                    return await half_reply(request)
                case "hang" | "die" as kind:
                    if kind == "die":
                        self._death = asyncio.create_task(self._die(fault))  # type: ignore[arg-type]
                    await self._closing.wait()
                    return cut(request)
            return await self._answered(index, body, fault)
        finally:
            self.in_flight -= 1

    async def _answered(self, index: int, body: Body, fault: Fault | None) -> web.Response:
        """Run one request: wait for a place, take as long as it takes, and count."""
        tokens, cache = self._checked(body), self._cache
        held = await self._admitted(tokens)
        try:
            delay = self.latency_s + (fault.seconds or 0.0 if fault else 0.0)
            if delay:
                await asyncio.sleep(delay)
            text, finish = self._text(body, fault)
            completion = len(pieces(text))
            cached = held.cached if self._details else None
            counts = replies.usage(len(tokens), completion, cached)
            told = replies.logprobs(body, text, self._labels)
            data = replies.chat_completion(index, self.model, text, finish, counts, self._fingerprint, told)
            self._count(len(tokens), completion, held.cached, finish)
            return web.Response(body=json.dumps(data).encode(), content_type="application/json")
        finally:
            self.running -= 1
            cache.release(held)
            self._admit()

    def _checked(self, body: Body) -> list[str]:
        """The prompt's tokens; refuses what vLLM refuses."""
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
            raise _Refused(400, "messages: a list of at least one message is required")
        if body.get("model") not in (None, self.model):
            raise _Refused(404, f"The model `{body['model']}` does not exist.")
        if body.get("stream") or body.get("n") not in (None, 1):
            raise _Refused(400, "this fake server neither streams nor draws several answers")
        tokens, room = prompt_pieces(messages), body.get("max_tokens") or 1
        if len(tokens) + room > self.window or not self._cache.fits(len(tokens)):
            raise _Refused(
                400,
                f"You passed {len(tokens)} input tokens and requested {room} output tokens. However, the model's "
                f"context length is only {self.window} tokens, resulting in a maximum input length of "
                f"{self.window - room} tokens. Please reduce the length of the input prompt.",
            )
        return tokens

    async def _admitted(self, tokens: list[str]) -> Held:
        """The prompt's blocks, once there is a place to run and room for them."""
        ready: asyncio.Future[Held] = self._loop.create_future()
        cache = self._cache
        self._waiting.append((ready, tokens))
        self._admit()
        if ready.done():
            return ready.result()
        try:
            return await ready
        except asyncio.CancelledError:  # the client hung up; it may have been admitted at that very moment
            if ready.done() and not ready.cancelled():
                self.running -= 1
                cache.release(ready.result())
            self._admit()
            raise

    def _admit(self) -> None:
        """Let those that wait run, in their order, as long as there is place and room."""
        while self._waiting and (self.max_num_seqs is None or self.running < self.max_num_seqs):
            ready, tokens = self._waiting[0]
            if ready.cancelled():
                self._waiting.popleft()
                continue
            held = self._cache.hold(tokens)
            if held is None:
                return
            self._waiting.popleft()
            self.running += 1
            ready.set_result(held)

    def _text(self, body: Body, fault: Fault | None) -> tuple[str, str]:
        """The answer and its finish_reason."""
        if fault is not None and fault.kind == "empty":
            return "", "stop"
        text = self._answer(body)
        most = body.get("max_tokens")
        if fault is not None and fault.kind == "truncated":
            most = max(1, len(pieces(text)) // 2)
            return first_pieces(text, most), "length"
        kept = text if most is None else first_pieces(text, most)
        return kept, "stop" if kept == text else "length"

    def _count(self, prompt: int, completion: int, cached: int, finish: str) -> None:
        t = self._since_start
        stop, length = t.stop + (finish == "stop"), t.length + (finish == "length")
        self._since_start = Totals(t.prompt + prompt, t.completion + completion, t.cached + cached, 0, 0, stop, length)


class _Refused(Exception):
    """A request that is answered with an error of this code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


async def _read(request: web.BaseRequest) -> Any:
    """The JSON object of a body.

    Raises:
        _Refused: it is none.
    """
    try:
        body = json.loads(await request.read())
    except ValueError as error:
        raise _Refused(400, f"the body is no JSON: {error}") from None
    if not isinstance(body, dict):
        raise _Refused(400, "the body is no JSON object")
    return body

"""A server double on loopback: vLLM- or llama.cpp-shaped, with faults scripted by request index. Runs in a thread.

It tokenizes by white space, records every chat body, and answers with `answer(body)`. Knows nothing of personalink.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

Body = dict[str, Any]
Fault = Callable[["Double", web.Request], Awaitable[web.StreamResponse]]


def status(code: int, body: Any = "", headers: dict[str, str] | None = None) -> Fault:
    """Answer with `code`; a body that is no text goes out as JSON."""

    async def fault(_: Double, __: web.Request) -> web.StreamResponse:
        text = body if isinstance(body, str) else json.dumps(body)
        kind = "text/html" if text.startswith("<") else "application/json"
        return web.Response(status=code, text=text, content_type=kind, headers=headers)

    return fault


def reply(message: Body | None = None, finish: str = "stop", **fields: Any) -> Fault:
    """Answer 200 with this message and finish_reason; `fields` replace those of the reply (None takes one away)."""

    async def fault(double: Double, _: web.Request) -> web.StreamResponse:
        data = double.chat_reply("x") | fields
        data["choices"][0] |= {"message": message or {"role": "assistant", "content": "x"}, "finish_reason": finish}
        return web.json_response({k: v for k, v in data.items() if v is not None})

    return fault


async def reset(_: Double, request: web.Request) -> web.StreamResponse:
    """Cut the connection."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def hang(double: Double, _: web.Request) -> web.StreamResponse:
    """Answer nothing until the double is closed."""
    await double.closing.wait()
    return web.Response(status=503)


async def half(_: Double, request: web.Request) -> web.StreamResponse:
    """Promise more bytes than are sent, then hang up."""
    response = web.StreamResponse(headers={"Content-Length": "500", "Content-Type": "application/json"})
    await response.prepare(request)
    await response.write(b'{"choices": [{"mess')
    assert request.transport is not None
    request.transport.close()
    return response


async def drip(double: Double, request: web.Request) -> web.StreamResponse:
    """Send a byte now and then, for ever."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    while not double.closing.is_set():
        await response.write(b" ")
        await asyncio.sleep(0.01)
    return response


class Double:
    """Use as a context manager; `url` is known inside. `faults` maps the index of a chat request to what goes wrong.

    `leak` is "" (greedy), "defaults" (a penalty where the body names none) or "always" (a penalty whatever it names).
    """

    def __init__(
        self,
        *,
        models: tuple[str, ...] = ("m",),
        dialect: str = "vllm",
        answer: Callable[[Body], str] = lambda body: "hello",
        faults: dict[int, Fault] | None = None,
        key: str | None = None,
        window: int = 4096,
        constrains: bool = True,
        logprobs: bool = True,
        leak: str = "",
        hidden_system: int = 0,
        pages: dict[str, Fault] | None = None,
    ) -> None:
        self.models, self.dialect, self.answer, self.key, self.window = models, dialect, answer, key, window
        self.faults, self.pages = faults or {}, pages or {}
        self.constrains, self.logprobs, self.leak, self.hidden_system = constrains, logprobs, leak, hidden_system
        self.bodies: list[Body] = []
        self.paths: list[str] = []
        self.tokenized: list[Body] = []
        self.in_flight = self.most_at_once = 0
        self.pause_s = 0.0
        self.url = ""
        self.arrived = threading.Event()  # set with the first chat request

    def __enter__(self) -> Double:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _open(self) -> None:
        self.closing = asyncio.Event()
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._route)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _close(self) -> None:
        self.closing.set()
        await self._runner.cleanup()

    async def _route(self, request: web.Request) -> web.StreamResponse:
        self.paths.append(request.path)
        if request.path in self.pages:
            return await self.pages[request.path](self, request)
        if request.path.startswith("/v1/") and self.key is not None:
            given = request.headers.get("Authorization", "")
            if given != f"Bearer {self.key}":
                return web.json_response({"error": {"message": f"Invalid key: {given}"}}, status=401)
        match (request.path, self.dialect):
            case ("/v1/models", _):
                return web.json_response({"object": "list", "data": [self._entry(m) for m in self.models]})
            case ("/v1/chat/completions", _):
                return await self._chat(request)
            case ("/version", "vllm"):
                return web.json_response({"version": "0.33.0"})
            case ("/tokenize", "vllm"):
                self.tokenized.append(await request.json())
                return web.json_response({"count": len(self.tokenized[-1]["prompt"].split())})
            case ("/props", "llama_cpp"):
                return web.json_response({"default_generation_settings": {"n_ctx": self.window}, "total_slots": 1})
            case ("/tokenize", "llama_cpp"):
                self.tokenized.append(await request.json())
                return web.json_response({"tokens": list(range(len(self.tokenized[-1]["content"].split())))})
        return web.json_response({"error": {"message": "Not Found"}}, status=404)

    def _entry(self, model: str) -> Body:
        entry: Body = {"id": model, "object": "model", "created": 1}
        return entry | ({"owned_by": "vllm", "max_model_len": self.window} if self.dialect == "vllm" else {})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        index = len(self.bodies)
        self.bodies.append(body)
        self.arrived.set()
        self.in_flight += 1
        self.most_at_once = max(self.most_at_once, self.in_flight)
        try:
            await asyncio.sleep(self.pause_s)
            if index in self.faults:
                return await self.faults[index](self, request)
            return web.json_response(self.chat_reply(self._text(body), body))
        finally:
            self.in_flight -= 1

    def _text(self, body: Body) -> str:
        choice = body.get("structured_outputs", {}).get("choice")
        schema = body.get("response_format", {}).get("json_schema", {}).get("schema")
        if self.constrains and choice:
            return choice[0]
        if self.constrains and schema:
            return json.dumps({n: s["enum"][0] if "enum" in s else 7 for n, s in schema["properties"].items()})
        if "tick tick" in body["messages"][-1]["content"]:
            return " ".join(self._ticks(body))
        return self.answer(body)

    def _ticks(self, body: Body) -> list[str]:
        leaks = self.leak == "always" or (self.leak == "defaults" and "repetition_penalty" not in body)
        return ["tick", "tock"] * 4 if leaks else ["tick"] * 8

    def chat_reply(self, text: str, body: Body | None = None) -> Body:
        """A reply of vLLM's shape for `text`."""
        body = body or {"messages": []}
        roles = [m["role"] for m in body["messages"]]
        prompt = sum(len(m["content"].split()) + 4 for m in body["messages"])
        prompt += 0 if "system" in roles else self.hidden_system
        choice: Body = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        if body.get("logprobs") and self.logprobs:
            tops = [{"token": "tick", "logprob": -0.1}, {"token": "tock", "logprob": -2.5}]
            values = {"tick": -0.1, "tock": -2.5}
            content = [{"token": t, "logprob": values.get(t, -0.1), "top_logprobs": tops} for t in text.split()]
            choice["logprobs"] = {"content": content}
        usage = {"prompt_tokens": prompt, "completion_tokens": len(text.split())}
        return {
            "id": "c",
            "object": "chat.completion",
            "model": body.get("model", "m"),
            "choices": [choice],
            "usage": usage | {"prompt_tokens_details": {"cached_tokens": 0}},
        }

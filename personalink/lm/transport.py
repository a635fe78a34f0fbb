"""JSON over one pooled HTTP session: bounded retries, one shared clock for an outage, and a key that never leaves it.

Knows HTTP and when to try again; which error a reply *means* is `wire`'s business. This is the one boundary where
requests leave the process. A session belongs to an event loop, so each loop that asks gets its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from personalink.errors import BadRequest, LMError, MalformedReply, PromptTooLong, Unreachable
from personalink.lm import wire
from personalink.lm.pace import Pace

BUSY = (429, 503)  # too much at once: the bound on requests in flight shrinks; a 500 is no sign of that
RETRIED = frozenset({429, 500, 502, 503, 504})
_LONGEST_WAIT_S = 60.0
_LET_GO = "was let go of: this client was closed meanwhile"
_KEEP_ALIVE_S = 4.0  # shorter than common servers' five seconds, so that they do not hang up first


@dataclass(frozen=True, slots=True)
class Reply:
    """One HTTP exchange. `status` 0: no answer came, `fault` says why and `sent` whether a connection was made."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    fault: str = ""
    sent: bool = True


@dataclass(slots=True)
class _Lane:
    """What belongs to one event loop: its session, its queue, its start-up lock, the clocks of what is in flight."""

    session: aiohttp.ClientSession
    gate: Pace
    starting: asyncio.Lock = field(default_factory=asyncio.Lock)
    clocks: set[asyncio.Timeout] = field(default_factory=set)
    closing: bool = False

    async def close(self) -> None:
        """End what is in flight and close the session; called on the lane's own loop, or when that is closed."""
        self.closing = True
        for clock in self.clocks:
            with contextlib.suppress(RuntimeError):  # it has just run out by itself
                clock.reschedule(0.0)
        await self.session.close()


class Transport:
    """A pooled client for one server.

    `concurrency` requests at most are in flight, first come first served, and fewer while the server is too busy (see
    `Pace`). An attempt may take `timeout_s` seconds,
    connecting `connect_timeout_s`. Up to `retries` further attempts follow an outage, 429, 500, 502, 503, 504 or a
    malformed reply, after `backoff_s` · 4ᵏ seconds or what Retry-After says (60 s at most). Once the server has given
    no good answer for `down_timeout_s` seconds of failing, a request gets one attempt and no retry.

    `requests_sent` counts the chat requests that reached a connection, retries included; `retries_made` the retries.
    """

    def __init__(
        self,
        *,
        concurrency: int,
        timeout_s: float,
        connect_timeout_s: float,
        retries: int,
        backoff_s: float,
        down_timeout_s: float,
    ) -> None:
        self.requests_sent = 0
        self.retries_made = 0
        self.sleep: Callable[[float], Any] = asyncio.sleep
        self.use_key("EMPTY")
        self._concurrency = concurrency
        self._timeout_s, self._connect_timeout_s = timeout_s, connect_timeout_s
        self._limits = aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout_s)
        self._retries, self._backoff_s, self._down_timeout_s = retries, backoff_s, down_timeout_s
        self._down_since: float | None = None
        self._lanes: dict[asyncio.AbstractEventLoop, _Lane] = {}
        self._left: list[_Lane] = []  # of loops that are closed

    def __repr__(self) -> str:
        return f"Transport(concurrency={self._concurrency}, retries={self._retries})"

    def use_key(self, key: str) -> None:
        """Send `key` as the bearer token from now on."""
        self._key = key
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def scrub(self, text: str) -> str:
        """`text` with the key taken out (a word of under six letters is a placeholder, like "EMPTY", and no key)."""
        return text.replace(self._key, "***") if len(self._key) >= 6 else text

    def starting(self) -> asyncio.Lock:
        """The lock under which this loop's caller starts up."""
        return self._lane().starting

    def _lane(self) -> _Lane:
        loop = asyncio.get_running_loop()
        lane = self._lanes.get(loop)
        if lane is None or lane.closing:
            for other in [known for known in self._lanes if known.is_closed()]:
                self._left.append(self._lanes.pop(other))
            session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
            lane = _Lane(session, Pace(self._concurrency))
            self._lanes[loop] = lane
        return lane

    async def aclose(self) -> None:
        """Close every session. Idempotent; the next request opens a new one."""
        here = asyncio.get_running_loop()
        lanes, self._lanes = self._lanes, {}
        for loop, lane in lanes.items():
            if loop is here:
                await lane.close()
            elif loop.is_running():
                asyncio.run_coroutine_threadsafe(lane.close(), loop)
            elif loop.is_closed():
                self._left.append(lane)
            else:
                lane.session.detach()
        await self._sweep()

    async def _sweep(self) -> None:
        """Close the sessions whose loops were closed under them."""
        left, self._left = self._left, []
        for lane in left:
            lane.clocks.clear()
            await lane.close()

    async def exchange(self, method: str, url: str, body: Any = None, timeout_s: float | None = None) -> Reply:
        """One attempt, never raising for what the network or the server does."""
        payload = None if body is None else encoded(body)
        return await self._exchange(self._lane(), method, url, payload, timeout_s)

    async def _exchange(
        self, lane: _Lane, method: str, url: str, payload: bytes | None, timeout_s: float | None = None
    ) -> Reply:
        if self._left:
            await self._sweep()
        if lane.closing:
            return Reply(0, fault=_LET_GO, sent=False)
        seconds = self._timeout_s if timeout_s is None else min(timeout_s, self._timeout_s)
        clock = asyncio.timeout(seconds)
        lane.clocks.add(clock)
        try:
            async with (
                clock,
                lane.session.request(
                    method, url, data=payload, headers=self._headers, timeout=self._limits, allow_redirects=False
                ) as response,
            ):
                return Reply(response.status, await response.read(), response.headers)
        except aiohttp.ClientConnectorError as error:
            return Reply(0, fault=f"cannot be connected to ({_reason(error)})", sent=False)
        except aiohttp.ServerTimeoutError:
            return Reply(0, fault=f"did not accept a connection in {self._connect_timeout_s:g} s", sent=False)
        except TimeoutError:
            return Reply(0, fault=_LET_GO if lane.closing else f"gave no answer in {seconds:g} s")
        except (aiohttp.ClientError, OSError) as error:
            return Reply(0, fault=f"broke the connection off ({type(error).__name__})")
        finally:
            lane.clocks.discard(clock)

    async def get(self, url: str, timeout_s: float = 30.0) -> Reply:
        """A GET that waits out 429 and 5xx like a chat request does; a server that is not there is told at once."""
        for attempt in range(self._retries + 1):
            reply = await self.exchange("GET", url, timeout_s=timeout_s)
            if reply.status not in RETRIED or attempt == self._retries:
                break
            await self.sleep(self._wait_s(reply, attempt))
        return reply

    async def post_chat(self, url: str, body: Mapping[str, Any], key_hint: str) -> dict[str, Any]:
        """Send a chat request until it is answered, refused, or not worth another try.

        Raises:
            LMError: of the kind that the last attempt ended with.
        """
        payload, model = encoded(body), str(body.get("model", ""))
        lane = self._lane()
        async with lane.gate:
            for attempt in range(self._retries + 1):
                reply = await self._exchange(lane, "POST", url, payload)
                self.requests_sent += reply.sent
                verdict = self._judged(reply, model, key_hint)
                if isinstance(verdict, dict):
                    return verdict
                error, again = verdict
                if reply.status in BUSY:
                    lane.gate.slow_down()
                wait_s = self._wait_s(reply, attempt)
                if not again or attempt == self._retries or lane.closing or self._given_up(wait_s):
                    break
                self.retries_made += 1
                await self.sleep(wait_s)
        tries = f" (after {attempt + 1} attempts)" if attempt else ""
        # what concerns one prompt names no URL: it may be recorded, and a port may differ the next time
        told = str(error) if isinstance(error, BadRequest | PromptTooLong) else f"{url} {error}"
        raise type(error)(f"{self.scrub(told)}{tries}")

    def _judged(self, reply: Reply, model: str, key_hint: str) -> dict[str, Any] | tuple[LMError, bool]:
        """The parsed reply, or the error and whether another attempt may help."""
        if reply.status == 0 or reply.status >= 500:
            if self._down_since is None and self._lanes:  # not when it is we who closed
                self._down_since = time.monotonic()
            words = reply.fault or f"answered {reply.status}: {wire.server_words(reply.body, self.scrub)}"
            return Unreachable(words), reply.status == 0 or reply.status in RETRIED
        self._down_since = None
        if reply.status == 429:
            return Unreachable(f"answered 429 (too busy): {wire.server_words(reply.body, self.scrub)}"), True
        if 200 <= reply.status < 300:
            parsed = wire.parse_reply(reply.body, self.scrub)
            return (parsed, True) if isinstance(parsed, MalformedReply) else parsed
        if reply.status < 400:
            to = reply.headers.get("Location", "?")
            return MalformedReply(f"answered {reply.status}: moved to {to}; put that in lm.base_url"), False
        return wire.refusal(reply.status, reply.body, model, key_hint, self.scrub), False

    def _given_up(self, wait_s: float) -> bool:
        """Whether the next attempt would start later than `down_timeout_s` into an outage."""
        return self._down_since is not None and (time.monotonic() + wait_s - self._down_since > self._down_timeout_s)

    def _wait_s(self, reply: Reply, attempt: int) -> float:
        told = reply.headers.get("Retry-After", "")
        with contextlib.suppress(ValueError):
            seconds = float(told)
            if seconds >= 0:
                return min(seconds, _LONGEST_WAIT_S)
        return float(min(self._backoff_s * 4**attempt, _LONGEST_WAIT_S))


def encoded(body: Any) -> bytes:
    """`body` as UTF-8 JSON.

    Raises:
        BadRequest: the text holds half of a surrogate pair, which is not Unicode and which no server accepts.
    """
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    try:
        return text.encode()
    except UnicodeEncodeError:
        pass
    raise BadRequest("the prompt holds half of a surrogate pair (broken Unicode); clean the text it comes from")


def _reason(error: aiohttp.ClientConnectorError) -> str:
    return error.strerror or type(error.os_error).__name__

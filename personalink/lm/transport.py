"""JSON over one pooled HTTP session: bounded attempts, one gate for an outage, and a key that never leaves it.

Knows HTTP. When to try again is `retry`'s table, how an outage is waited out is `health`'s, which error a reply *means*
is `wire`'s. This is the one boundary where requests leave the process. A session belongs to an event loop, so each loop
that asks gets its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from personalink.errors import BadRequest, DeadlineExceeded, LMError, MalformedReply, PromptTooLong, Unreachable
from personalink.lm import wire
from personalink.lm.health import HealthGate
from personalink.lm.pace import Pace
from personalink.lm.retry import RULES, Kind, Reply, Tries, wait_s

LET_GO = "was let go of: this client was closed meanwhile"
_KEEP_ALIVE_S = 4.0  # shorter than common servers' five seconds, so that they do not hang up first


@dataclass(slots=True)
class _Lane:
    """What belongs to one event loop: its session, queue, gate and start-up lock, the clocks of what is in flight."""

    session: aiohttp.ClientSession
    pace: Pace
    health: HealthGate
    starting: asyncio.Lock = field(default_factory=asyncio.Lock)
    clocks: set[asyncio.Timeout] = field(default_factory=set)
    closing: bool = False

    async def close(self) -> None:
        """End what is in flight and close the session; called on the lane's own loop, or when that is closed."""
        self._end()
        await self.session.close()

    def let_go(self) -> None:
        """`close` as far as it goes without waiting, for a loop that may be about to end: all but the goodbyes."""
        self._end()
        closing = self.session.close()
        with contextlib.suppress(StopIteration):
            closing.send(None)
        closing.close()

    def _end(self) -> None:
        self.closing = True
        for clock in self.clocks:
            with contextlib.suppress(RuntimeError):  # it has just run out by itself
                clock.reschedule(0.0)
        with contextlib.suppress(RuntimeError):  # its loop is closed, and it with it
            self.health.close()


class Transport:
    """A pooled client for one server.

    `concurrency` requests at most are in flight, first come first served, and fewer while the server is too busy (see
    `Pace`). An attempt may take `timeout_s` seconds, connecting `connect_timeout_s`, and all attempts of a request
    together `deadline_s`, counted from when its turn comes. Up to `retries` further attempts follow what `retry.RULES`
    says; before the k-th (from 0) `backoff_s` · 4ᵏ seconds are waited, or what Retry-After says (60 s at most). Where
    the server seems to be gone, nothing is sent until `look` has found it again, for `down_timeout_s` seconds and the
    time of one look at most (see `HealthGate`). What no other request can get past either ends all that wait.

    `requests_sent` counts the chat requests that reached a connection, retries included; `retries_made` the retries.
    """

    def __init__(
        self,
        look: Callable[[], Awaitable[None]],
        *,
        concurrency: int,
        timeout_s: float,
        connect_timeout_s: float,
        deadline_s: float,
        retries: int,
        backoff_s: float,
        down_timeout_s: float,
    ) -> None:
        self.requests_sent = 0
        self.retries_made = 0
        self.retries, self.down_timeout_s = retries, down_timeout_s
        self.sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
        self.use_key("EMPTY")
        self._look = look
        self._concurrency = concurrency
        self._timeout_s, self._connect_timeout_s, self._deadline_s = timeout_s, connect_timeout_s, deadline_s
        self._limits = aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout_s)
        self._backoff_s = backoff_s
        self._lanes: dict[asyncio.AbstractEventLoop, _Lane] = {}
        self._left: list[_Lane] = []  # of loops that are closed

    def __repr__(self) -> str:
        return f"Transport(concurrency={self._concurrency}, retries={self.retries})"

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

    @property
    def health(self) -> HealthGate:
        """This loop's gate."""
        return self._lane().health

    @property
    def pace(self) -> Pace:
        """This loop's queue."""
        return self._lane().pace

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
            health = HealthGate(self._look, self.down_timeout_s, sleep=lambda seconds: self.sleep(seconds))
            lane = _Lane(session, Pace(self._concurrency), health)
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
                loop.call_soon_threadsafe(lane.let_go)
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
            return Reply(0, fault=LET_GO)
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
            return Reply(0, fault=f"cannot be connected to ({_reason(error)})", without="unconnected")
        except aiohttp.ServerTimeoutError:
            words = f"did not accept a connection in {self._connect_timeout_s:g} s"
            return Reply(0, fault=words, without="unconnected")
        except TimeoutError:
            return Reply(0, fault=LET_GO if lane.closing else f"gave no answer in {seconds:g} s", without="late")
        except (aiohttp.ClientError, OSError) as error:
            return Reply(0, fault=f"broke the connection off ({type(error).__name__})", without="lost")
        finally:
            lane.clocks.discard(clock)

    async def get(self, url: str, timeout_s: float = 30.0) -> Reply:
        """A GET that waits out 429 and 5xx like a chat request does; a server that is not there is told at once."""
        for attempt in range(self.retries + 1):
            reply = await self.exchange("GET", url, timeout_s=timeout_s)
            rule = RULES.get(reply.kind)
            if reply.status == 0 or rule is None or not rule.again or attempt == self.retries:
                break
            await self.sleep(wait_s(rule, attempt, reply.headers, self._backoff_s))
        return reply

    async def post_chat(
        self, url: str, body: Mapping[str, Any], key_hint: str, tries: Tries | None = None, *, patient: bool = True
    ) -> dict[str, Any]:
        """Send a chat request until it is answered, refused, or not worth another try.

        `tries` is what the request has come to elsewhere and is kept up to date; who is not `patient` does not wait
        for a server that is gone.

        Raises:
            LMError: of the kind that the last attempt ended with; `DeadlineExceeded` where it was given no time for
                another; its `retries` are those of `tries`.
            PersonalinkError: what `look` found.
        """
        chat = _Chat(url, encoded(body), str(body.get("model", "")), key_hint, tries or Tries())
        lane = self._lane()
        async with lane.pace:
            chat.tries.ends_at = chat.tries.ends_at or asyncio.get_running_loop().time() + self._deadline_s
            clock = asyncio.timeout_at(chat.tries.ends_at)
            lane.clocks.add(clock)
            failure: LMError
            try:
                async with clock:
                    return await self._attempts(lane, chat, patient)
            except TimeoutError:
                failure = Unreachable(LET_GO) if lane.closing else self._too_late(chat)
            except LMError as error:
                failure = error
            finally:
                lane.clocks.discard(clock)
            failure.retries = chat.tries.retries
            raise failure.with_traceback(None) from None

    async def _attempts(self, lane: _Lane, chat: _Chat, patient: bool) -> dict[str, Any]:
        tries, health = chat.tries, lane.health
        while True:
            if not health.is_open:
                await health.passes(patient=patient)
            tries.attempts += 1
            self.retries_made += tries.attempts > 1
            reply = await self._exchange(lane, "POST", chat.url, chat.payload)
            self.requests_sent += reply.sent
            verdict = self._judged(reply, chat)
            if isinstance(verdict, dict):
                health.heard()
                return verdict
            rule = RULES[verdict[1]]
            if 0 < reply.status < 500:
                health.heard()
            health.missed(rule.doubt)
            if rule.slower:
                lane.pace.slow_down()
            chat.error = verdict[0]
            if chat.error.fatal:
                health.shut(chat.told(self.scrub))
            if not rule.again or tries.attempts > self.retries or lane.closing:
                raise chat.told(self.scrub)
            if health.is_open or not await health.passes(patient=patient):
                await self.sleep(wait_s(rule, tries.attempts - 1, reply.headers, self._backoff_s))

    def _judged(self, reply: Reply, chat: _Chat) -> dict[str, Any] | tuple[LMError, Kind]:
        """The parsed reply, or the error and its kind."""
        kind = reply.kind
        if kind == "answered":
            parsed = wire.parse_reply(reply.body, self.scrub)
            return (parsed, "malformed") if isinstance(parsed, MalformedReply) else parsed
        if reply.status == 0:
            return Unreachable(reply.fault), kind
        if 300 <= reply.status < 400:
            return MalformedReply(wire.moved(reply.status, reply.headers.get("Location", ""))), kind
        if reply.status >= 500 or kind == "limited":
            busy = " (too busy)" if kind == "limited" else ""
            return Unreachable(f"answered {reply.status}{busy}: {wire.server_words(reply.body, self.scrub)}"), kind
        return wire.refusal(reply.status, reply.body, chat.model, chat.key_hint, self.scrub), kind

    def _too_late(self, chat: _Chat) -> DeadlineExceeded:
        last = f"; the last one {chat.error}" if chat.error else ""
        words = f"gave no answer within lm.deadline_s ({self._deadline_s:g} s) in {chat.tries.attempts} attempts{last}"
        return DeadlineExceeded(f"{chat.url} {self.scrub(words)}")


@dataclass(slots=True)
class _Chat:
    """One chat request on its way, and the last error that it met."""

    url: str
    payload: bytes
    model: str
    key_hint: str
    tries: Tries
    error: LMError | None = None

    def told(self, scrub: Callable[[str], str]) -> LMError:
        """The last error with where and how often. What concerns one prompt names no URL: it may be recorded, and a
        port may differ the next time."""
        error = self.error or Unreachable("was not asked")
        where = "" if isinstance(error, BadRequest | PromptTooLong) else f"{self.url} "
        tries = f" (after {self.tries.attempts} attempts)" if self.tries.retries else ""
        return type(error)(f"{scrub(where + str(error))}{tries}")


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

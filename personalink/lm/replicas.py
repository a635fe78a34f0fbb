"""Several servers of one model: a user's prompts go to the one that has their start in its cache.

Users are placed by rendezvous hashing (Thaler and Ravishankar 1998): each user ranks the servers by a hash of both and
belongs to the first, so that a server that goes or comes moves its own users only. Knows no HTTP.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from personalink.errors import ConfigError, IntegrityError, Unreachable
from personalink.lm import wire
from personalink.lm.answered import GONE, is_another_model
from personalink.lm.base import Counter
from personalink.lm.counters import EndpointCounter
from personalink.lm.health import FIRST_S, LONGEST_S
from personalink.lm.retry import Tries
from personalink.lm.server import Server
from personalink.lm.transport import LET_GO

_log = logging.getLogger(__name__)


class Replicas:
    """One server or several, each at its own address.

    Args:
        servers: at least one.

    Attributes:
        first: the first that was there at start, which speaks for all.
    """

    def __init__(self, servers: Sequence[Server]) -> None:
        self.servers = tuple(servers)
        self.first = self.servers[0]
        self._closes = 0
        self._absent: dict[Server, Unreachable] = {}
        self._answers_as = ""

    async def start(self) -> None:
        """Ask every server what it is. One that is not there is left out until it is; so are not all.

        Raises:
            Unreachable: none is there; the message names the first.
            LMError: one of them cannot be asked for another reason; the message names it.
            ConfigError: they do not serve the same model.
        """
        self._answers_as = ""
        told = await asyncio.gather(*(server.start() for server in self.servers), return_exceptions=True)
        for error in told:
            if isinstance(error, BaseException) and not isinstance(error, Unreachable):
                raise error
        ended = dict(zip(self.servers, told, strict=True))
        self._absent = {server: error for server, error in ended.items() if isinstance(error, Unreachable)}
        there = [server for server in self.servers if server not in self._absent]
        if not there:
            raise self._absent[self.first]
        self.first = there[0]
        for server, error in self._absent.items():
            server.facts, server.replica_of = {}, self.first
            _log.warning("%s; going on without it until it is there", error)
        for other in there[1:]:
            if difference := self.first.differs_from(other.facts):
                raise ConfigError(
                    f"lm.base_url: {other.api_url} is no replica of {self.first.api_url} ({difference}); "
                    "give only servers of one and the same model"
                )

    async def post_chat(self, body: Mapping[str, Any], user: str) -> tuple[dict[str, Any], int]:
        """(the parsed reply to `body`, the further attempts that it took).

        A server that goes is left for another; where all are gone, the first that is back is asked.

        Raises:
            LMError, IntegrityError: as `Server.post_chat` says; of a server that is gone only when all are.
            IntegrityError: another model answers than before, here or at another of the servers.
        """
        tries, closes = Tries(), self._closes
        if len(self.servers) == 1:
            return self._same_model(self.first, await self.first.post_chat(body, tries)), tries.retries
        while True:
            server = await self._choose(user, closes)
            try:
                return self._same_model(server, await server.post_chat(body, tries, patient=False)), tries.retries
            except Unreachable as error:
                failure = error
            if closes != self._closes or not server.transport.health.gone or tries.attempts > server.transport.retries:
                raise failure

    def _same_model(self, server: Server, data: dict[str, Any]) -> dict[str, Any]:
        """The reply, where it names the model that those before it name."""
        model, before = wire.answering_model(data), self._answers_as
        if is_another_model(before, model, server.dialect):
            raise IntegrityError(f"{server.api_url}: answers came from {before!r} and now come from {model!r}; {GONE}")
        self._answers_as = before or model
        return data

    async def _choose(self, user: str, closes: int) -> Server:
        """The user's own server where it is there and has room, else the least loaded; waits while all are gone.

        Raises:
            PersonalinkError: a server that came back is another one, or all have been given up.
        """
        while closes == self._closes:
            gates = [server.transport.health for server in self.servers]
            for server, gate in zip(self.servers, gates, strict=True):
                if not server.facts and not gate.gone:
                    gate.absent(self._absent[server])
                gate.refresh()
                if gate.failure is not None and not isinstance(gate.failure, Unreachable):
                    await gate.passes()  # raises it
            there = [server for server, gate in zip(self.servers, gates, strict=True) if not gate.gone]
            if there:
                return _placed(there, user)
            looking = [asyncio.create_task(gate.settled()) for gate in gates if gate.looking]
            if not looking:
                await gates[0].passes()  # raises why it was given up
                continue
            try:
                await asyncio.wait(looking, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for settled in looking:
                    settled.cancel()
        raise Unreachable(LET_GO)

    async def counter(self) -> Counter | None:
        """A counter that asks the servers that are there; None where one of them does not count."""
        counters = [await server.counter() for server in self.servers if server not in self._absent]
        known = [counter for counter in counters if counter is not None]
        return ServersCounter(known, self.first.transport.down_timeout_s) if len(known) == len(counters) else None

    async def aclose(self) -> None:
        """Close every session. Idempotent."""
        self._closes += 1
        for server in self.servers:
            await server.transport.aclose()


def _placed(there: Sequence[Server], user: str) -> Server:
    """The user's own among `there`, or the least loaded where that is full or nobody in particular asks."""
    own = max(there, key=lambda server: _weight(server, user))
    least = min(there, key=lambda server: server.transport.pace.load)
    return own if user and (own.transport.pace.load < 1 or least.transport.pace.load >= 1) else least


def _weight(server: Server, user: str) -> bytes:
    return hashlib.blake2b(f"{server.root_url}\0{user}".encode("utf-8", "surrogatepass"), digest_size=8).digest()


class ServersCounter:
    """Tokens as the servers of one model count them: the first that answers, and patiently while none does.

    While no server answers, `count` waits as requests do, for `patience_s` seconds at most and until `close`; not on
    the thread of an event loop, which has other work.
    """

    remote = True

    def __init__(self, counters: Sequence[EndpointCounter], patience_s: float) -> None:
        self.id = counters[0].id
        self._counters, self._patience_s = tuple(counters), patience_s
        self._first = 0
        self._closed = threading.Event()

    def count(self, text: str) -> int:
        """Tokens of `text` without special tokens; 0 for the empty text, which is not asked.

        Raises:
            Unreachable: no server answered with a count.
        """
        closed, wait_s = self._closed, FIRST_S
        ends = time.monotonic() + (0.0 if _on_a_loop() else self._patience_s)
        while True:
            for _ in self._counters:
                try:
                    return self._counters[self._first].count(text)
                except Unreachable as error:
                    failure = error
                self._first = (self._first + 1) % len(self._counters)
            if time.monotonic() + wait_s > ends or closed.wait(wait_s):
                raise failure
            wait_s = min(2 * wait_s, LONGEST_S)

    def close(self) -> None:
        """Close the kept connections and let go of what waits. Idempotent; the next count opens them anew."""
        closed, self._closed = self._closed, threading.Event()
        closed.set()
        for counter in self._counters:
            counter.close()

    def __repr__(self) -> str:
        return f"ServersCounter({self.id!r})"


def _on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True

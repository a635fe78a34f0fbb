"""`TransformersLM`: a Hugging Face model inside this process, for machines where vLLM does not run.

Knows how to find, check and load the model and who it is; `generation` computes and `batching` queues. Importing this
needs neither torch nor transformers; `start` does.

Requests that wait together are answered together, and what their prompts share is read once. A batch goes on until its
longest answer ends, so this is slower than vLLM wherever that runs.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from personalink.background import Closes
from personalink.errors import LMError
from personalink.lm.base import Completion, KnownOnceStarted, Request
from personalink.lm.batching import Batcher
from personalink.lm.counters import TokenizerCounter
from personalink.lm.hub_model import check_model, folder_digest, no_chat_template, without_progress_bars
from personalink.lm.settings import check_whole
from personalink.text import one_line

if TYPE_CHECKING:
    from personalink.lm.generation import Generation

REPRODUCIBILITY = (
    "the same requests asked together give the same answers; a sampled answer hangs on its own seed; in other company "
    "the last bits of the numbers differ, so that a near tie may fall the other way"
)
_REMEDY = 'pip install "personalink[transformers]"'


class TransformersLM(KnownOnceStarted, Closes):
    """A Hugging Face causal language model that runs inside this process.

    Args:
        path: a folder (config.json, tokenizer, weights as safetensors), or the name of a model on the hub, which
            transformers fetches or finds in its own cache.
        device: "auto" (the GPU where torch sees one, else the CPU), or torch's name of one, such as "cuda:1".
        dtype: "auto" (as the weights were saved; float32 on a CPU), "float32", "bfloat16" or "float16".
        batch_size: requests answered at once, at most.
        window: tokens that a prompt and its answer may have together; default: what the model's configuration says.
        cache_mib: memory in MiB for prefixes that were read, so that a persona that comes back is not read again; 0 for
            none. A token takes 45 KiB with SmolLM2-135M in float32 and 56 KiB with Qwen2.5-7B in bfloat16.
        users_in_flight: users worked on at once; default: one, so that a user's requests wait together and share their
            persona.

    Choices are kept to by a mask over the model's own tokens; a JSON schema by xgrammar, where that is installed, and
    else not at all (`Completion.constrained` tells). `identity` and `counter` are known from `start()` on.

    Raises:
        ConfigError: no path, an unknown dtype, or a number out of range.
    """

    def __init__(
        self,
        path: str | Path,
        device: str = "auto",
        dtype: str = "auto",
        batch_size: int = 16,
        window: int | None = None,
        cache_mib: int = 512,
        users_in_flight: int | None = None,
    ) -> None:
        check_model(path, dtype)
        check_whole(1, batch_size=batch_size, window=window, users_in_flight=users_in_flight)
        check_whole(0, cache_mib=cache_mib)
        self.path, self.window = str(path), window
        self.model = Path(path).name if _is_place(self.path) else self.path
        self.concurrency = 2 * batch_size  # so that the next batch is waiting, whole, when one ends
        self.users_in_flight = users_in_flight or 1
        self._device, self._dtype, self._batch_size = device, dtype, batch_size
        self._given_window, self._cache_bytes = window, cache_mib << 20
        self._generation: Generation | None = None
        self._batcher: Batcher[Request, Completion] | None = None
        self._lock = threading.Lock()
        self._facts: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"TransformersLM(path={self.path!r}, device={self._device!r}, batch_size={self._batch_size})"

    async def start(self) -> None:
        """Load the model. Idempotent.

        Raises:
            LMError: torch or transformers is not installed, there is no usable model at `path`, or no such device.
        """
        if self._batcher is None:
            await asyncio.to_thread(self._load)

    def _load(self) -> None:
        with self._lock:
            if self._batcher is not None:
                return
            place = _checked(Path(self.path).expanduser()) if _is_place(self.path) else None
            torch, transformers, generation = _engine()
            device = _device(torch, self._device)
            name = str(place or self.path)
            wanted = "float32" if self._dtype == "auto" and device.type == "cpu" else self._dtype
            model, tokenizer = _loaded(torch, transformers, name, wanted)
            window = getattr(model.config.get_text_config(), "max_position_embeddings", None)
            self.window = self._given_window or window
            try:
                model.to(device).eval()
            except RuntimeError as error:
                msg = f"{name} does not fit {device} ({one_line(str(error))[:200]}); a smaller lm.dtype or model may"
                raise LMError(msg) from None
            answering = generation.Generation(model, tokenizer, self.model, self.window, self._cache_bytes)
            revision = folder_digest(place)[:16] if place else str(model.config._commit_hash)
            dtype = str(model.dtype).removeprefix("torch.")
            version = f"{transformers.__version__}, torch {torch.__version__}"
            who = (revision if place else f"{self.path}@{revision}", dtype, device.type, version)
            self.identity = "|".join(("transformers", *who))
            self.counter = TokenizerCounter(name)
            self._facts = {
                "revision": revision,
                "version": version,
                "device": str(device),
                "device_name": torch.cuda.get_device_name(device) if device.type == "cuda" else "",
                "dtype": dtype,
                "schemas": "xgrammar" if answering.schemas.available else "",
            }
            self._generation = answering
            self._batcher = Batcher(answering.run, self._batch_size)

    async def complete(self, request: Request) -> Completion:
        """Answer one request together with whatever else is waiting; starts first where `start` was not called.

        Raises:
            PromptTooLong: prompt and answer do not fit the window; nothing was computed.
            BadRequest: the model's chat template refuses the messages.
            LMError: the model failed or was closed; the message says what may help.
        """
        await self.start()
        batcher = self._batcher
        if batcher is None:
            raise LMError("the model was closed")
        return await batcher.ask(request)

    async def aclose(self) -> None:
        """Drop what waits, free the model's memory. Idempotent; a later `start` loads it again."""
        await asyncio.to_thread(self._free)

    def _free(self) -> None:
        with self._lock:
            batcher, self._batcher = self._batcher, None
            generation, self._generation = self._generation, None
            if batcher is None or generation is None:
                return
            batcher.close()
            device = generation.model.device
            del batcher, generation
            gc.collect()
            if device.type == "cuda":
                _engine()[0].cuda.empty_cache()

    def describe(self) -> dict[str, Any]:
        """Model, device, dtype, versions, and how far answers repeat: plain JSON. Fuller after `start`."""
        return {
            "kind": "transformers",
            "model": self.model,
            "window": self.window,
            "batch_size": self._batch_size,
            "counter": self.counter_id,
            "reproducibility": REPRODUCIBILITY,
            **self._facts,
        }


def _engine() -> tuple[Any, Any, Any]:
    """torch, transformers, and the module that computes with them."""
    try:
        import torch
        import transformers

        from personalink.lm import generation
    except ImportError as error:
        raise LMError(f"lm=transformers needs torch and transformers ({error}); {_REMEDY}") from None
    return torch, transformers, generation


def _is_place(path: str) -> bool:
    """Whether a path means a place on this machine and no name on the hub (`name` or `owner/name`)."""
    return Path(path).expanduser().exists() or path.startswith(("/", "./", "../", "~")) or path.count("/") > 1


def _checked(path: Path) -> Path:
    """`path`, when it is a folder that looks like a model's.

    Raises:
        LMError: it does not.
    """
    if path.suffix.lower() == ".gguf" and path.is_file():
        raise LMError(f"lm.path: {path} is a GGUF file; lm=embedded runs it")
    if not path.is_dir():
        raise LMError(f"lm.path: {path} is no folder; give one with config.json, a tokenizer and weights")
    if not (path / "config.json").is_file():
        raise LMError(f"lm.path: {path} has no config.json, so it is no Hugging Face model's folder")
    return path.resolve()


def _device(torch: Any, wanted: str) -> Any:
    try:
        device = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if wanted == "auto" else wanted)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # torch built without CUDA asserts
        msg = (
            f"lm.device is {wanted!r}, which torch cannot use ({one_line(str(error))[:120]}); auto takes what is there"
        )
        raise LMError(msg) from None
    return device


def _loaded(torch: Any, transformers: Any, name: str, dtype: str) -> tuple[Any, Any]:
    """(model, tokenizer) on the CPU.

    Raises:
        LMError: a file is missing or damaged, there is no chat template, the architecture is unknown, or its memory is
            no plain attention cache.
    """
    from safetensors import SafetensorError

    kind = dtype if dtype == "auto" else getattr(torch, dtype)
    try:
        with without_progress_bars(transformers):
            tokenizer = transformers.AutoTokenizer.from_pretrained(name)
            if not getattr(tokenizer, "chat_template", None):
                raise LMError(no_chat_template(name))
            model, told = transformers.AutoModelForCausalLM.from_pretrained(name, dtype=kind, output_loading_info=True)
    except (OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError) as error:
        raise LMError(f"lm.path: {name} could not be loaded ({one_line(str(error))[:300]})") from None
    if told["missing_keys"]:
        missing = sorted(told["missing_keys"])
        raise LMError(f"lm.path: {name} lacks {len(missing)} weights ({missing[0]}, …); fetch the model again")
    plain = (transformers.cache_utils.DynamicLayer, transformers.cache_utils.DynamicSlidingWindowLayer)
    if any(type(layer) not in plain for layer in transformers.DynamicCache(config=model.config).layers):
        raise LMError(f"{name} keeps more than keys and values of its prompt (a recurrent state); lm=vllm serves it")
    return model, tokenizer

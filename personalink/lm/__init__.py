"""Where completions come from: `connect` finds the right one; each can also be made by name.

Importing this loads no HTTP client and no engine; those come with the first `EndpointLM` or `EmbeddedLM`.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from personalink.errors import ConfigError
from personalink.lm.base import LM, Completion, Constraint, Counter, Decoding, Message, Outcome, Request, Usage
from personalink.lm.counters import EndpointCounter, EstimateCounter, TokenizerCounter
from personalink.lm.scripted import ScriptedLM, hashed_answers
from personalink.text import nearest

if TYPE_CHECKING:
    from personalink.lm.embedded import EmbeddedLM
    from personalink.lm.endpoint import EndpointLM
    from personalink.lm.transformers_engine import TransformersLM
    from personalink.lm.vllm_engine import VLLMEngine

__all__ = [
    "LM",
    "Completion",
    "Constraint",
    "Counter",
    "Decoding",
    "EmbeddedLM",
    "EndpointCounter",
    "EndpointLM",
    "EstimateCounter",
    "Message",
    "Outcome",
    "Request",
    "ScriptedLM",
    "TokenizerCounter",
    "TransformersLM",
    "Usage",
    "VLLMEngine",
    "connect",
    "hashed_answers",
]

_LAZY = {
    "EmbeddedLM": "personalink.lm.embedded",
    "EndpointLM": "personalink.lm.endpoint",
    "TransformersLM": "personalink.lm.transformers_engine",
    "VLLMEngine": "personalink.lm.vllm_engine",
}
_PLACES = '"embedded", a URL (http://…), a .gguf file, "vllm:MODEL", "transformers:MODEL", "scripted"'


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def connect(where: str | Sequence[str], *, model: str | None = None, **options: Any) -> LM:
    """The language model at `where`; nothing is asked or started yet.

    - "embedded": the small model that runs inside this process; `model` may be the path of another GGUF file;
    - a path ending in .gguf: that model inside this process;
    - http://… or https://…: the OpenAI-compatible server there; `model` is its name; a list of these: its replicas;
    - "vllm:MODEL": vLLM inside this program, on a Hugging Face folder or the name of a model on the hub;
    - "transformers:MODEL": the same inside this process with transformers, where vLLM does not run;
    - "scripted": a stand-in for tests; `answer` or `labels` among the options.

    `options` are the arguments of the class: `EmbeddedLM`, `EndpointLM`, `VLLMEngine`, `TransformersLM`,
    `ScriptedLM`.

    Raises:
        ConfigError: `where` is none of these, or an option is unknown.
    """
    if model is not None and not isinstance(model, str):
        raise ConfigError(f"lm.model is {model!r:.60}; it must be text")
    urls = [where] if isinstance(where, str) else list(where) if isinstance(where, Sequence) else []
    if urls and all(isinstance(url, str) and url.lower().startswith(("http://", "https://")) for url in urls):
        from personalink.lm.endpoint import EndpointLM

        return EndpointLM(**_known(EndpointLM, {"base_url": where, "model": model, **options}))
    if not isinstance(where, str):
        raise ConfigError(f"lm: {where!r} is none of {_PLACES}")
    if where == "embedded" or where.lower().endswith(".gguf"):
        from personalink.lm.embedded import EmbeddedLM

        path = model if where == "embedded" else where
        return EmbeddedLM(**_known(EmbeddedLM, {"path": path, **options}))
    if where.startswith("vllm:"):
        from personalink.lm.vllm_engine import VLLMEngine

        return VLLMEngine(**_known(VLLMEngine, {"path": where.removeprefix("vllm:"), **options}))
    if where.startswith("transformers:"):
        from personalink.lm.transformers_engine import TransformersLM

        return TransformersLM(**_known(TransformersLM, {"path": where.removeprefix("transformers:"), **options}))
    if where == "scripted":
        labels = options.pop("labels", ())
        options.setdefault("answer", hashed_answers(labels))
        return ScriptedLM(**_known(ScriptedLM, options | ({"model": model} if model else {})))
    near = nearest(where, ("embedded", "scripted"))
    hint = f"; did you mean {near!r}?" if near else ""
    raise ConfigError(f"lm: {where!r} is none of {_PLACES}{hint}")


def _known(kind: Callable[..., LM], options: dict[str, Any]) -> dict[str, Any]:
    names = list(inspect.signature(kind).parameters)
    for name in options:
        if name not in names:
            near = nearest(name, names)
            hint = f"did you mean {near!r}?" if near else f"known are {', '.join(names)}"
            raise ConfigError(f"lm.{name} is no option of {kind.__name__}; {hint}")
    return options

"""The configuration of a run as frozen dataclasses: plain values in, one line out for whatever is wrong with them.

Knows nothing of Hydra, which only produces the plain values; the same mapping gives the same run from Python.
"""

from __future__ import annotations

import importlib
import math
import os
import types
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from personalink.agent import Constrain
from personalink.canonical import digest
from personalink.contexts.base import Context
from personalink.errors import ConfigError, PersonaError
from personalink.lm.budget import Limits
from personalink.lm.settings import check_seed
from personalink.logprobs import MOST
from personalink.optimizer import OptimizerConfig
from personalink.tasks import Task, task_from
from personalink.text import nearest, one_line

C = TypeVar("C")
OPERATIONAL = (
    *("base_url", "concurrency", "users_in_flight", "timeout_s", "deadline_s", "retries", "down_timeout_s"),
    "api_key_env",
    "gpu_memory_utilization",
)
"""Settings of a model that change how it is asked and never what it answers."""

TRACKERS = ("mlflow", "wandb", "tensorboard")
"""The experiment trackers there are; the extra `trackers` installs their libraries."""


@dataclass(frozen=True, slots=True)
class DataConfig:
    """Which users a run is about.

    Attributes:
        kind: "sample" (bundled; `name`), "lamp" (official files under `root`) or "records" (your own file at `path`).
        split, split_kind: of LaMP files: train, dev or test; "user" or "time".
        columns: names of your own file's columns, e.g. {"user": "author"}.
        n_users: at most so many, chosen by the seed. max_top_label_share: leave out users whose most common label has
            at least this share of their history. min_history, max_history: bounds of a user's items.
    """

    kind: Literal["sample", "lamp", "records"] = "sample"
    name: str = "news"
    root: str = ""
    path: str = ""
    split: str = "dev"
    split_kind: Literal["user", "time"] = "user"
    columns: Mapping[str, str] = field(default_factory=dict)
    n_users: int = 200
    max_top_label_share: float | None = None
    min_history: int = 0
    max_history: int | None = None

    def __post_init__(self) -> None:
        _typed(self, "data")
        for name in ("root", "path"):
            object.__setattr__(self, name, _expanded(getattr(self, name)))
        columns = {ours: theirs for ours, theirs in self.columns.items() if theirs is not None}
        for ours, theirs in columns.items():
            if not isinstance(theirs, str) or not theirs:
                raise ConfigError(f"data.columns.{ours} is {theirs!r:.60}; it must be the name of a column, as text")
        object.__setattr__(self, "columns", columns)
        _at_least("data.n_users", self.n_users, 1)
        _at_least("data.min_history", self.min_history, 0)
        _at_least("data.max_history", self.max_history, 0)
        share = self.max_top_label_share
        if share is not None and not 0 < share <= 1:
            raise ConfigError(f"data.max_top_label_share is {share}; it must be above 0 and at most 1, or null")


@dataclass(frozen=True, slots=True)
class LMConfig:
    """Which model answers.

    Attributes:
        kind: "endpoint" (any OpenAI-compatible server), "embedded" (a GGUF file in this process), "transformers" (a
            Hugging Face folder in this process), "vllm_engine" (the same on vLLM) or "scripted" (for logic only).
        base_url, model, api_key_env, dialect, revision, tokenizer, window: see `lm.endpoint.EndpointLM`; a list of
            base_urls is of servers of one model, and an absent one the environment's OPENAI_BASE_URL; the key is read
            from the environment and written nowhere.
        path, context, threads, slots, cache_mib: see `lm.embedded.EmbeddedLM`.
        path, device, dtype, batch_size, window, cache_mib: see `lm.transformers_engine.TransformersLM`.
        path, dtype, window, concurrency, tensor_parallel_size, gpu_memory_utilization: see `lm.vllm_engine.VLLMEngine`.
        concurrency, users_in_flight, timeout_s, deadline_s, retries, down_timeout_s: how it is asked; they change no
            answer.
    """

    kind: Literal["endpoint", "embedded", "transformers", "vllm_engine", "scripted"] = "embedded"
    base_url: str | tuple[str, ...] | None = None
    model: str | None = None
    api_key_env: str = "OPENAI_API_KEY"
    dialect: Literal["auto", "vllm", "llama_cpp", "openai"] = "auto"
    revision: str | None = None
    tokenizer: str | None = None
    window: int | None = None
    path: str | None = None
    context: int = 8192
    threads: int | None = None
    slots: int = 1
    device: str = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    batch_size: int = 16
    cache_mib: int = 512
    tensor_parallel_size: int = 1
    gpu_memory_utilization: float = 0.9
    concurrency: int = 64
    users_in_flight: int | None = None
    timeout_s: float = 600.0
    deadline_s: float = 3600.0
    retries: int = 4
    down_timeout_s: float = 120.0

    def __post_init__(self) -> None:
        _typed(self, "lm")
        if self.path is not None:
            object.__setattr__(self, "path", _expanded(self.path))
        if self.kind == "endpoint" and self.base_url is None:
            object.__setattr__(self, "base_url", os.environ.get("OPENAI_BASE_URL") or None)
        for name in ("window", "context", "threads", "slots", "batch_size", "concurrency", "users_in_flight"):
            _at_least(f"lm.{name}", getattr(self, name), 1)
        _at_least("lm.cache_mib", self.cache_mib, 0)
        _at_least("lm.retries", self.retries, 0)
        for name in ("timeout_s", "deadline_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"lm.{name} is {getattr(self, name)}; it must be a number of seconds above 0")
        if not 0 <= self.down_timeout_s < math.inf:
            raise ConfigError(f"lm.down_timeout_s is {self.down_timeout_s}; it must be a number of seconds, at least 0")


@dataclass(frozen=True, slots=True)
class ShardConfig:
    """Which part of the users this run does: those whose id hashes to `index` among `count`.

    Every shard keeps the whole manifest, so that `personalink merge` can prove that together they are complete.
    """

    index: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        _typed(self, "shard")
        if self.count < 1 or not 0 <= self.index < self.count:
            msg = f"shard.index is {self.index} of shard.count {self.count}; it must be from 0 to count − 1"
            raise ConfigError(msg)

    def holds(self, user: str) -> bool:
        """Whether a user is in this shard: by a stable hash of the id alone."""
        return int(digest(user)[:15], 16) % self.count == self.index


@dataclass(frozen=True, slots=True)
class RunConfig:
    """One experiment.

    Attributes:
        name: of the experiment; names its folder under `runs_dir`.
        task: settings of the task (see `tasks.task_from`). context: row name → context settings with `_target_`.
        rows: order of the rows in the table; those of `context` by default.
        rewriter: another model for drafts and rewrites; None for the agent's own.
        shard: which part of the users this run does.
        seed: of every random choice. constrain: what the server is asked to allow (see `agent.Agent`).
        logprobs: alternatives a token that are told with each answer, 0 to 20: margins and expected ratings.
        max_failed: largest share of answers that may be empty, refused, cut off or too long before the run is called
            incomplete (exit 4); in [0, 1].
        notes: what a reader of the table has to know (such as what was shortened); printed under it.
        budget: what may be spent (see `lm.budget.Limits`); what it stops is incomplete and goes on with a larger one.
        runs_dir: where runs are kept. fresh: start anew even where a run of this configuration stands.
        cache: answers kept across runs: None or "off" for none, "on" for the default file (see `lm.cache.cache_path`),
            or a path. It changes no result.
        trackers: of `TRACKERS`, those that are told of the run when it is sealed. They change no result.
    """

    name: str
    task: Mapping[str, Any]
    data: DataConfig = field(default_factory=DataConfig)
    lm: LMConfig = field(default_factory=LMConfig)
    rewriter: LMConfig | None = None
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    context: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    rows: tuple[str, ...] = ()
    shard: ShardConfig = field(default_factory=ShardConfig)
    seed: int = 12345
    constrain: Constrain = "none"
    logprobs: int = 0
    max_failed: float = 0.1
    notes: tuple[str, ...] = ()
    budget: Limits = field(default_factory=Limits)
    runs_dir: str = "runs"
    fresh: bool = False
    cache: str | None = None
    trackers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _typed(self, "")
        if not self.name or any(c in self.name for c in "/\\\0") or self.name.startswith("."):
            raise ConfigError(f"name is {self.name!r}; it must be a plain folder name")
        if not self.context:
            raise ConfigError("no contexts: give at least one, such as context=[nopers,rag_5]")
        for row in self.rows:
            if row not in self.context:
                near = nearest(row, self.context)
                msg = f"rows names {row!r}, which is no context" + (f"; did you mean {near!r}?" if near else "")
                raise ConfigError(msg)
        for tracker in self.trackers:
            if tracker not in TRACKERS:
                near = nearest(tracker, TRACKERS)
                hint = f"did you mean {near!r}?" if near else f"there are {', '.join(TRACKERS)}"
                raise ConfigError(f"trackers names {tracker!r}, which is none; {hint}")
        if not 0 <= self.logprobs <= MOST:
            raise ConfigError(f"logprobs is {self.logprobs}; it must be from 0 (none) to {MOST}")
        if not 0 <= self.max_failed <= 1:
            raise ConfigError(f"max_failed is {self.max_failed}; it must be a share from 0 to 1")
        check_seed(self.seed)
        for name, lm in (("lm", self.lm), ("rewriter", self.rewriter)):
            if lm is not None and lm.kind == "endpoint" and not lm.base_url:
                msg = (
                    f"{name}.base_url is missing: the address of an OpenAI-compatible server, such as "
                    "http://localhost:8000/v1 (or set OPENAI_BASE_URL)"
                )
                raise ConfigError(msg)
        object.__setattr__(self, "runs_dir", _expanded(self.runs_dir))
        if self.cache is not None:
            object.__setattr__(self, "cache", _expanded(self.cache))

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> RunConfig:
        """Build from plain values, every key checked.

        Raises:
            ConfigError: an unknown key (with the nearest known one), a wrong type, a value out of range.
        """
        if isinstance(values, Mapping) and isinstance(values.get("cache"), bool):  # what YAML makes of on and off
            values = {**values, "cache": "on" if values["cache"] else "off"}
        rewriter = values.get("rewriter") if isinstance(values, Mapping) else None
        if isinstance(rewriter, Mapping) and "kind" not in rewriter:
            kinds = ", ".join(get_args(get_type_hints(LMConfig)["kind"]))
            raise ConfigError(f"rewriter.kind is missing; it must be one of {kinds}, or rewriter null")
        config = build(cls, values, "")
        config.make_task()
        config.make_contexts()
        return config

    def make_task(self) -> Task:
        """The task object."""
        return task_from(self.task)

    def make_contexts(self) -> dict[str, Context]:
        """Row name → context, in the table's order."""
        rows = self.rows or tuple(self.context)
        return {row: _context(row, self.context[row]) for row in rows}

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON: all that can change a result. How and where it ran (`OPERATIONAL`, folders) is left out."""
        values = asdict(self)
        values["task"] = self.make_task().as_dict()
        values["rows"] = list(self.rows or self.context)
        for lm in (values["lm"], values["rewriter"] or {}):
            for name in OPERATIONAL:
                lm.pop(name, None)
        for name in ("runs_dir", "fresh", "cache", "trackers", "budget", "max_failed"):
            del values[name]
        if not self.logprobs:  # asked for none: the run it has always been
            del values["logprobs"]
        return values

    @property
    def hash(self) -> str:
        """Digest of `as_dict`: the same configuration finds its run again."""
        return digest(self.as_dict())

    @property
    def folder(self) -> Path:
        """The run's directory."""
        return Path(self.runs_dir) / self.name / self.hash[:12]


def _context(row: str, settings: Mapping[str, Any]) -> Context:
    """Instantiate one context from its `_target_` and fields."""
    target = settings.get("_target_") if isinstance(settings, Mapping) else None
    if not isinstance(target, str) or "." not in target:
        msg = (
            f"context.{row} has no _target_; its file needs `# @package context.{row}` on its first line "
            "and a `_target_: module.Class`"
        )
        raise ConfigError(msg)
    module, _, name = target.rpartition(".")
    try:
        cls = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"context.{row}: cannot import {target} ({one_line(str(error))})") from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever somebody's module does when it is imported
        what = f"{type(error).__name__}: {one_line(str(error))}"
        raise ConfigError(
            f"context.{row}: the module {module} fails when it is imported ({what:.200}); correct it"
        ) from None
    if not (isinstance(cls, type) and issubclass(cls, Context)):
        raise ConfigError(f"context.{row}: {target} is not a personalink.contexts.Context")
    context: Context = build(cls, {k: v for k, v in settings.items() if k != "_target_"}, f"context.{row}")
    return context


def build(cls: type[C], values: Any, where: str) -> C:
    """A dataclass from a mapping, recursively, with every key and type checked; `where` names it in errors.

    Raises:
        ConfigError: what is wrong, by its dotted key.
    """
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where or 'the configuration'} is {values!r:.60}; it must be a group of settings")
    hints = get_type_hints(cls)
    known = {f.name: f for f in fields(cls) if f.init}  # type: ignore[arg-type]
    for key in values:
        if key not in known:
            near = nearest(str(key), known)
            hint = f"did you mean {near!r}?" if near else f"known: {', '.join(sorted(known))}"
            raise ConfigError(f"{_dotted(where, key)} is unknown; {hint}")
    made = {key: _convert(value, hints[key], _dotted(where, key)) for key, value in values.items()}
    try:
        return cls(**made)
    except ConfigError as error:
        if cls is LMConfig and where not in ("", "lm"):  # its own numbers, under the name it has here
            raise ConfigError(str(error).replace("lm.", f"{where}.", 1)) from None
        raise
    except PersonaError as error:
        raise ConfigError(f"{where}: {error}") from None
    except TypeError as error:
        raise ConfigError(f"{where or 'the configuration'}: {str(error).replace('__init__() ', '')}") from None


def _expanded(path: str) -> str:
    """A path with `~` as the user's home."""
    return os.path.expanduser(path) if path.startswith("~") else path


def _at_least(name: str, value: int | None, least: int) -> None:
    if value is not None and value < least:
        raise ConfigError(f"{name} is {value}; it must be at least {least}")


def _dotted(where: str, key: Any) -> str:
    return f"{where}.{key}" if where else str(key)


def _typed(config: Any, where: str) -> None:
    """Every field of a configuration as its type says, also where it was made from Python and not by `build`."""
    for name, kind in get_type_hints(type(config)).items():
        object.__setattr__(config, name, _convert(getattr(config, name), kind, _dotted(where, name)))


def _convert(value: Any, kind: Any, where: str) -> Any:
    """`value` as `kind`, leaving exact what is exact: no text becomes a number, no number a text."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        kinds = [a for a in args if a is not type(None)]
        several = hasattr(value, "__iter__") and not isinstance(value, str | Mapping)  # one text, or a list of them
        return _convert(value, kinds[-1] if several else kinds[0], where)
    if origin is Literal:
        if value in args and not isinstance(value, bool):
            return value
        raise ConfigError(f"{where} is {value!r}; it must be one of {', '.join(map(str, args))}")
    if is_dataclass(kind):
        return value if isinstance(value, kind) else build(kind, value, where)  # type: ignore[arg-type]
    if origin is tuple:
        if isinstance(value, str) or not hasattr(value, "__iter__"):
            raise ConfigError(f"{where} is {value!r:.60}; it must be a list")
        return tuple(_convert(v, args[0], f"{where}[{i}]") for i, v in enumerate(value))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where} is {value!r:.60}; it must be a group of settings")
        return dict(value)
    return _scalar(value, kind, where)


def _scalar(value: Any, kind: type, where: str) -> Any:
    if kind is Any or kind is object:
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        names = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
        raise ConfigError(f"{where} is {value!r:.60}; it must be {names.get(kind, kind.__name__)}")
    if kind is str and any("\ud800" <= c <= "\udfff" for c in str(value)):
        raise ConfigError(f"{where} is {value!r:.60}; it must be text that UTF-8 can hold")
    return value

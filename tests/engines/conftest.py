"""Real engines, in an environment of their own (scripts/engines.sh): skipped by name where they are not installed.

PERSONALINK_TEST_MODEL names the Hugging Face folder of SmolLM2-135M-Instruct (scripts/convert_gguf.py makes it).
What a test measures it puts into `measured`; the lane ends with those lines.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .serving import BLOCK, Served, serving

LINES = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LINES] = []


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if config.stash[LINES]:
        terminalreporter.section("measured")
        terminalreporter.write_line("\n".join(config.stash[LINES]))


@pytest.fixture
def measured(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Tell a figure at the end of the lane."""
    return lambda line: request.config.stash[LINES].append(f"{request.node.name}: {line}")


@pytest.fixture(scope="session")
def folder() -> Path:
    """The model's folder."""
    named = os.environ.get("PERSONALINK_TEST_MODEL", "")
    if not named:
        pytest.skip("PERSONALINK_TEST_MODEL is not set: the folder of a Hugging Face model")
    return Path(named)


@pytest.fixture(scope="session")
def vllm_folder(folder: Path) -> Path:
    """The model's folder, where vLLM is installed."""
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vllm is not installed; scripts/engines.sh makes an environment that has it")
    return folder


@pytest.fixture(scope="session")
def server(vllm_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The server as personalink recommends it."""
    with serving(vllm_folder, tmp_path_factory.mktemp("server") / "log") as served:
        yield served


@pytest.fixture(scope="session")
def foreign(vllm_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server as others start it: the model's own generation_config holds a penalty and a cap, and the cache is small.

    2,304 tokens.
    """
    place = tmp_path_factory.mktemp("foreign")
    copy = place / "model"
    copy.mkdir()
    for file in vllm_folder.iterdir():
        (copy / file.name).symlink_to(file.resolve())
    own = copy / "generation_config.json"
    values = json.loads(own.read_text()) | {"repetition_penalty": 1.3, "max_new_tokens": 5}
    own.unlink()
    own.write_text(json.dumps(values))
    flags = ("--generation-config", "auto", "--max-model-len", "2048", "--num-gpu-blocks-override", str(2304 // BLOCK))
    with serving(copy, place / "log", *flags) as served:
        yield served
    shutil.rmtree(copy)

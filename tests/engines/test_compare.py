"""The quickstart's experiment, shortened, through every engine: one manifest, the same prompts, answers counted."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from .serving import Served

pytestmark = pytest.mark.model
SCRIPT = Path(__file__).parents[2] / "scripts" / "compare_engines.py"
WORDS = [
    "experiment=quickstart",
    "context=[nopers,rag_1,rag_3,personalink_r1]",
    "data.n_users=2",
    "optimizer.audit=0",
    "optimizer.rewrite_tokens=96",
]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compare_engines", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_every_engine_is_asked_the_same(
    script: ModuleType, vllm_folder: Path, server: Served, measured: Callable[[str], None]
) -> None:
    engines = [f"transformers:{vllm_folder}", f"vllm:{vllm_folder}", server.url]
    if importlib.util.find_spec("xllamacpp") is not None:
        engines.append("embedded")
    told = await script.compare(engines, script.composed(WORDS))
    assert script.check(told) == []
    assert told[0].known == 2 * (1 + 2 + 8)  # test questions of rows without a persona, slices behind the empty one
    for other in told[1:]:
        both, same, flips = script.beside(told[0], other)
        measured(
            f"{other.engine.split(':')[0]} beside transformers: {same} of {both} answers the same, {flips} labels apart"
        )
        if other.engine != "embedded":  # the same weights in float32, where embedded has them in four bits
            assert same >= 0.8 * both
            assert flips <= 2

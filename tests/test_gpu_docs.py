"""What is written for GPU boxes, as far as it can be checked without one."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from personalink.cli import parser
from personalink.lm import Decoding, Message, Request
from personalink.testing import FakeVLLM

ROOT = Path(__file__).parent.parent


def ray_example() -> ast.Module:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "ray_serve.md").read_text(), re.DOTALL)
    return ast.parse(code)


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_gpu", ROOT / "scripts" / "bench_gpu.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["bench_gpu"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_ray_example_is_python_and_names_the_prefix_router() -> None:
    imported = [node for node in ray_example().body if isinstance(node, ast.ImportFrom)]
    names = {alias.name for node in imported for alias in node.names}
    assert names == {"serve", "RequestRouterConfig", "LLMConfig", "build_openai_app", "PrefixCacheAffinityRouter"}


def test_the_ray_examples_names_exist() -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed: that its names exist, take these settings and route is not checked")
    for node in ray_example().body:
        if isinstance(node, ast.ImportFrom):
            module = importlib.import_module(str(node.module))
            assert all(hasattr(module, alias.name) for alias in node.names)


def test_every_command_of_the_page_exists() -> None:
    page = (ROOT / "docs" / "gpu.md").read_text()
    blocks = "\n".join(re.findall(r"```bash\n(.*?)```", page, re.DOTALL))
    told = parser().format_help()
    for line in blocks.splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["personalink"]:
            assert words[1] in told
        for script in re.findall(r"scripts/\w+\.(?:py|sh)", line):
            assert (ROOT / script).exists(), script


def test_the_benchmark_tells_what_it_would_do() -> None:
    line = [sys.executable, str(ROOT / "scripts" / "bench_gpu.py"), "--users", "1", "--dry-run", "some/model"]
    done = subprocess.run(line, capture_output=True, text=True, check=True, timeout=60)
    assert "serve_vllm.sh some/model 8100" in done.stdout
    assert "at most 360 s" in done.stderr


def test_the_benchmarks_requests_are_the_same_each_time_distinct_and_free(bench: ModuleType) -> None:
    asked = bench.workload(2, 8)
    assert asked == bench.workload(2, 8)
    assert len({request.key("x") for request in asked}) == len(asked) > 30
    assert {request.constraint for request in asked} == {None}
    assert max(request.decoding.max_tokens for request in asked) == 8


def test_our_side_of_the_benchmark_counts_what_the_server_counts(bench: ModuleType) -> None:
    asked = [Request((Message("user", f"item {i}"),), Decoding(8)) for i in range(9)]
    with FakeVLLM(labels=("a", "b"), faults={3: "400"}) as server:
        args = bench.argparse.Namespace(model=server.model, concurrency=4)
        share = bench.Share(bench.time.monotonic() + 60)
        seconds, failed, tokens, answers = bench.asyncio.run(bench.ours(server.url, args, asked, share))
        assert (failed, tokens, answers.count("")) == (1, server.completion_tokens, 1)
        assert seconds > 0
        queries, hits = bench.prefix_counts(server.url)
        assert queries > hits >= 0


def test_the_benchmarks_table_counts_equal_answers(bench: ModuleType) -> None:
    one = bench.Round(False, bench.VLLM, 1, 2, 0, 2.0, 10, 0.5, ("a", "b"))
    two = bench.Round(False, bench.OURS, 1, 2, 0, 1.0, 10, None, ("a", "c"))
    lines = bench.table([one, two]).splitlines()[2:]
    assert lines == [
        "| off | vllm bench serve | 1 | 2 | 0 | 2.00 | 5 | 50.0% | first |",
        "| off | personalink | 1 | 2 | 0 | 1.00 | 10 | unknown | 1 |",
    ]


def test_no_time_left_is_told(bench: ModuleType) -> None:
    with pytest.raises(bench.OutOfTime):
        bench.Share(bench.time.monotonic() - 1).left()

"""What can be told of `VLLMEngine` without vLLM: settings, and what goes in and comes out."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from personalink.config import RunConfig
from personalink.errors import ConfigError, LMError, Unreachable
from personalink.lm import Completion, Constraint, Decoding, Message, Request, Usage, VLLMEngine, connect
from personalink.lm.vllm_engine import read_output, sampling, structured
from personalink.logprobs import NEVER
from personalink.sources import make_lm


def request(sample: int = 0, **decoding: Any) -> Request:
    return Request((Message("user", "hi"),), Decoding(16, **decoding), sample=sample)


def output(text: str, reason: str | None, logprobs: Any = None, **more: Any) -> SimpleNamespace:
    """As vLLM's RequestOutput."""
    answer = SimpleNamespace(text=text, finish_reason=reason, token_ids=[1, 2, 3], logprobs=logprobs)
    return SimpleNamespace(**{"prompt_token_ids": [1] * 9, "num_cached_tokens": 4, "outputs": [answer], **more})


def test_every_decoding_parameter_is_passed_on() -> None:
    values = {
        "max_tokens": 7, "temperature": 0.5, "top_p": 0.9, "top_k": 4, "min_p": 0.1, "repetition_penalty": 1.2,
        "presence_penalty": 0.3, "frequency_penalty": 0.4, "seed": 6,
    }  # fmt: skip
    assert {field.name for field in fields(Decoding)} == set(values)
    asked = Request((), Decoding(**values), sample=2)  # type: ignore[arg-type]
    assert sampling(asked) == {**values, "seed": 8, "n": 1}


def test_greedy_is_greedy_with_every_penalty_neutral() -> None:
    made = sampling(request())
    assert (made["temperature"], made["repetition_penalty"]) == (0.0, 1.0)
    assert (made["presence_penalty"], made["frequency_penalty"]) == (0.0, 0.0)


def test_constraints_in_vllms_words() -> None:
    assert structured(None) == {}
    assert structured(Constraint(choices=("a", "b"))) == {"choice": ["a", "b"]}
    assert structured(Constraint(schema={"type": "object"})) == {"json": {"type": "object"}}


def test_logprobs_are_asked_for_and_read() -> None:
    assert "logprobs" not in sampling(request())
    assert sampling(replace(request(), logprobs=2))["logprobs"] == 2

    def place(**told: float) -> dict[int, SimpleNamespace]:
        return {int(key[1:]): SimpleNamespace(decoded_token=key, logprob=told[key]) for key in told}

    told = [place(t1=-0.5, t7=-1.0), place(t2=-0.1, t8=float("-inf")), place(t9=-0.2, t3=-3.0)]
    done = read_output(output("x", "stop", told), "m", constrained=False)
    assert done.tokens is not None
    assert [(token.text, token.logprob) for token in done.tokens] == [("t1", -0.5), ("t2", -0.1), ("t3", -3.0)]
    assert done.tokens[1].alternatives == (("t2", -0.1), ("t8", NEVER))
    assert done.tokens[2].others == (("t9", -0.2),)
    assert read_output(output("x", "stop"), "m", constrained=False).tokens is None


def test_an_answer_is_read() -> None:
    done = read_output(output("politics", "stop"), "m", constrained=True)
    assert done == Completion("politics", "ok", Usage(9, 4, 3), "structured_outputs", "m")
    assert read_output(output("pol", "length"), "m", constrained=False).outcome == "truncated"
    assert read_output(output(" \n", "stop"), "m", constrained=False).outcome == "empty"
    assert read_output(output("x", "stop", num_cached_tokens=None), "m", constrained=False).usage.cached is None


@pytest.mark.parametrize("broken", [None, output("x", "abort"), output("x", None), output("x", "stop", outputs=[])])
def test_an_answer_broken_off_is_an_outage(broken: Any) -> None:
    with pytest.raises(Unreachable, match="the vLLM engine of m broke an answer off"):
        read_output(broken, "m", constrained=False)


def test_a_run_may_name_it(tmp_path: Path) -> None:
    lm = {
        "kind": "vllm_engine",
        "path": str(tmp_path),
        "dtype": "bfloat16",
        "concurrency": 8,
        "tensor_parallel_size": 2,
    }
    rows = {"nopers": {"_target_": "personalink.contexts.NoPersonalization"}}
    config = RunConfig.from_mapping(
        {"name": "x", "task": {"name": "x", "instruction": "x", "labels": ["a", "b"]}, "context": rows, "lm": lm}
    )
    made = make_lm(config.lm, config.make_task())
    assert isinstance(made, VLLMEngine)
    assert (made.model, made.concurrency, made.users_in_flight) == (tmp_path.name, 8, 32)
    assert "gpu_memory_utilization" not in config.as_dict()["lm"]
    assert config.as_dict()["lm"]["tensor_parallel_size"] == 2


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"dtype": "float8"}, "lm.dtype is 'float8'"),
        ({"concurrency": 0}, "lm.concurrency is 0"),
        ({"window": 0}, "lm.window is 0"),
        ({"tensor_parallel_size": 0}, "lm.tensor_parallel_size is 0"),
        ({"gpu_memory_utilization": 1.5}, "lm.gpu_memory_utilization is 1.5"),
        (
            {"gpu_memory_utilisation": 0.5},
            "lm.gpu_memory_utilisation is no option of VLLMEngine; did you mean 'gpu_memory_utilization'",
        ),
    ],
)
def test_what_is_wrong_with_a_setting_is_told(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        connect("vllm:owner/model", **options)


def test_a_name_is_needed() -> None:
    with pytest.raises(ConfigError, match=r"lm\.path is missing"):
        connect("vllm:")


async def test_before_the_start_nothing_is_known_and_closing_is_nothing() -> None:
    lm = connect("vllm:owner/model")
    assert (lm.model, lm.window) == ("owner/model", None)
    assert lm.describe() == {
        "kind": "vllm_engine", "dialect": "vllm", "model": "owner/model", "window": None, "counter": None,
    }  # fmt: skip
    assert "owner/model" in repr(lm)
    for name in ("identity", "counter"):
        with pytest.raises(AttributeError, match="known once start"):
            getattr(lm, name)
    await lm.aclose()


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vllm is installed")
async def test_without_vllm_the_remedy_is_told() -> None:
    with pytest.raises(LMError, match=r'lm=vllm_engine needs vllm \(.*\); pip install "personalink\[vllm\]"'):
        await connect("vllm:owner/model").start()


def test_importing_it_needs_no_engine() -> None:
    code = "import sys, personalink.lm.vllm_engine\nprint([m for m in ('vllm', 'torch', 'jinja2') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"

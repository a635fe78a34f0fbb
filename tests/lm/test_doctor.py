"""The doctor against servers that say one thing and do another."""

from __future__ import annotations

from typing import Any

import pytest

from personalink.doctor import Finding, diagnose, render_findings
from personalink.lm import EndpointLM, ScriptedLM

from .asking import dead_url
from .double import Double, reply, status

EVERY_CHECK = [
    *("reachable", "window", "counter", "auth", "model", "chat", "usage", "cached tokens"),
    *("constraint: choices", "constraint: schema", "greedy", "server defaults", "template"),
]


async def findings(double: Double, **options: Any) -> dict[str, Finding]:
    lm = EndpointLM(double.url, **{"retries": 0, **options})
    found = await diagnose(lm)
    await lm.aclose()
    assert len({f.name for f in found}) == len(found)
    return {f.name: f for f in found}


async def test_a_good_server_is_all_green() -> None:
    with Double(window=32768) as double:
        found = await findings(double)
        assert {name: f.ok for name, f in found.items()} == dict.fromkeys(EVERY_CHECK, True)
        assert all(not f.remedy for f in found.values())
        assert len(double.bodies) <= 12


async def test_ignored_constraints_are_found_out() -> None:
    with Double(constrains=False, answer=lambda body: "Hello there!") as double:
        found = await findings(double)
    for name in ("constraint: choices", "constraint: schema"):
        assert found[name].ok is False
        assert "ignored" in found[name].detail
        assert "Hello there!" in found[name].detail
        assert found[name].remedy


async def test_a_plain_openai_server_has_no_choices() -> None:
    with Double(dialect="openai") as double:
        found = await findings(double)
    assert found["constraint: choices"].ok is None
    assert found["constraint: schema"].ok is True
    assert found["window"].ok is None
    assert found["counter"].ok is None


@pytest.mark.parametrize(("leak", "greedy", "told"), [("defaults", True, "overrides"), ("always", False, "as it is")])
async def test_penalties_that_leak_into_greedy(leak: str, greedy: bool, told: str) -> None:
    with Double(leak=leak) as double:
        found = await findings(double)
    assert found["greedy"].ok is greedy
    assert told in found["server defaults"].detail
    if leak == "always":
        assert "4 of 8 tokens were not the most likely" in found["greedy"].detail
        assert found["greedy"].remedy
    else:
        assert "--generation-config vllm" in found["server defaults"].remedy


async def test_without_logprobs_greedy_cannot_be_told() -> None:
    with Double(logprobs=False) as double:
        found = await findings(double)
    assert (found["greedy"].ok, "no logprobs" in found["greedy"].detail) == (None, True)


async def test_a_template_with_a_system_prompt_of_its_own() -> None:
    with Double(hidden_system=20) as double:
        found = await findings(double)
    assert "adds 16 tokens" in found["template"].detail


async def test_missing_usage_is_told() -> None:
    with Double(faults={0: reply({"content": "hi"}, usage=None)}) as double:
        found = await findings(double)
    assert found["usage"].ok is None
    assert (found["cached tokens"].ok, "--enable-prompt-tokens-details" in found["cached tokens"].remedy) == (
        None,
        True,
    )


async def test_a_thinking_model_without_an_answer() -> None:
    with Double(faults={0: reply({"content": None, "reasoning_content": "…"})}) as double:
        found = await findings(double)
    assert found["chat"].ok is False


async def test_what_stops_at_the_door_is_one_finding() -> None:
    dead = EndpointLM(dead_url())
    found = await diagnose(dead)
    assert [(f.name, f.ok) for f in found] == [("reachable", False)]
    assert "vllm serve" in found[0].remedy
    with Double(models=("qwen",)) as double:
        wrong = await findings(double, model="quen")
    assert (wrong["model"].ok, len(wrong)) == (False, 1)
    with Double(key="k") as double:
        refused = await findings(double)
    assert "OPENAI_API_KEY" in refused["auth"].remedy


async def test_a_probe_that_is_refused_is_not_a_crash() -> None:
    with Double(faults=dict.fromkeys(range(1, 20), status(400, {"error": {"message": "no such field"}}))) as double:
        found = await findings(double)
    assert found["chat"].ok is True
    assert found["constraint: choices"].ok is None
    assert "no such field" in found["greedy"].detail


async def test_any_lm_can_be_looked_at() -> None:
    found = {f.name: f for f in await diagnose(ScriptedLM(lambda request: "Hello!"))}
    assert found["chat"].ok is True
    assert "greedy" not in found


def test_one_line_a_finding() -> None:
    text = render_findings(
        [Finding("a", True, "fine"), Finding("bb", False, "broken", "mend it"), Finding("c", None, "?")]
    )
    assert text.splitlines() == ["ok    a   fine", "FAIL  bb  broken  → mend it", "?     c   ?"]
    assert render_findings([]) == ""

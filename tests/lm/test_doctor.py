"""The doctor against servers that say one thing and do another."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from personalink.doctor import Finding, diagnose, render_findings
from personalink.lm import EndpointLM, ScriptedLM

from .asking import dead_url
from .double import Body, Double, hang, reply, status

EVERY_CHECK = [
    *(
        "reachable",
        "window",
        "counter",
        "auth",
        "model",
        "chat",
        "usage",
        "cached tokens",
        "prefix cache",
        "repeatable",
    ),
    *("constraint: choices", "constraint: schema", "greedy", "server defaults", "template"),
]


class Caching(Double):
    """One that reuses a prompt that it has answered before, and tells so; `silent_on_cold` tells nothing the first time."""

    silent_on_cold = False

    def chat_reply(self, text: str, body: Body | None = None) -> Body:
        data = super().chat_reply(text, body)
        warm = sum(b["messages"] == (body or {}).get("messages") for b in self.bodies) > 1
        if warm:
            data["usage"]["prompt_tokens_details"]["cached_tokens"] = data["usage"]["prompt_tokens"] - 1
        elif self.silent_on_cold:
            del data["usage"]["prompt_tokens_details"]
        return data


async def findings(double: Double, **options: Any) -> dict[str, Finding]:
    lm = EndpointLM(double.url, **{"retries": 0, **options})
    found = await diagnose(lm)
    await lm.aclose()
    assert len({f.name for f in found}) == len(found)
    return {f.name: f for f in found}


async def test_a_good_server_is_all_green() -> None:
    with Caching(window=32768) as double:
        found = await findings(double)
        assert [*found] == EVERY_CHECK
        assert {name: f.ok for name, f in found.items()} == dict.fromkeys(EVERY_CHECK, True)
        assert all(not f.remedy for f in found.values())
        assert len(double.bodies) <= 24


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
    with Double(faults=dict.fromkeys(range(3), reply({"content": "hi"}, usage=None))) as double:
        found = await findings(double)
    assert found["usage"].ok is None
    assert found["cached tokens"].ok is None
    assert "--enable-prompt-tokens-details" in found["cached tokens"].remedy
    assert (found["prefix cache"].ok, found["prefix cache"].remedy) == (None, "")


async def test_a_server_that_tells_of_cached_tokens_only_where_there_are_any() -> None:
    with Caching() as double:
        double.silent_on_cold = True
        found = await findings(double)
    assert found["cached tokens"].ok is True
    assert "from the second identical request on" in found["cached tokens"].detail
    assert found["prefix cache"].ok is True


async def test_a_prefix_that_is_read_again_is_told() -> None:
    with Double() as double:  # it always tells 0
        found = await findings(double)
        asked = [b for b in double.bodies if "Check " in b["messages"][0]["content"]]
    assert found["cached tokens"].ok is True
    assert found["prefix cache"].ok is None
    assert "--no-enable-prefix-caching" in found["prefix cache"].remedy
    assert len(asked) == 10
    assert len({str(b) for b in asked}) == 1
    assert len(asked[0]["messages"][1]["content"].split()) >= 200


async def test_ten_requests_are_cold_warm_and_eight_at_once() -> None:
    with Double() as double:
        double.pause_s = 0.05
        await findings(double)
        assert double.most_at_once == 8


@pytest.mark.parametrize(
    ("dialect", "remedy"), [("vllm", "VLLM_BATCH_INVARIANT=1"), ("llama_cpp", "-np 1"), ("openai", "journal")]
)
async def test_answers_that_differ_are_told_and_are_no_failure(dialect: str, remedy: str) -> None:
    numbers = itertools.count()

    def fickle(body: Body) -> str:
        return "same" if "Check " not in body["messages"][0]["content"] or next(numbers) < 5 else "other"

    with Double(dialect=dialect, answer=fickle) as double:
        found = await findings(double)
    assert found["repeatable"].ok is None
    assert found["repeatable"].detail == "warm as cold, 3 of 8 at once as warm"
    assert remedy in found["repeatable"].remedy


async def test_a_prefix_cache_that_changes_the_answer_is_told() -> None:
    numbers = itertools.count()

    def cold_first(body: Body) -> str:
        return "same" if "Check " not in body["messages"][0]["content"] or next(numbers) else "cold"

    with Double(dialect="llama_cpp", answer=cold_first) as double:
        found = await findings(double)
    assert found["repeatable"].ok is None
    assert found["repeatable"].detail == "warm not as cold, 8 of 8 at once as warm"
    assert "-np 1" not in found["repeatable"].remedy  # it has nothing to do with slots


async def test_a_server_that_drops_some_of_eight() -> None:
    with Double(faults=dict.fromkeys(range(5, 7), status(500))) as double:
        found = await findings(double)
    assert found["repeatable"].ok is None
    assert "2 of 8 at once were not answered" in found["repeatable"].detail
    assert found["constraint: choices"].ok is True


@pytest.mark.parametrize("logprobs", [[], "none", {"content": [7]}, {"content": [{"top_logprobs": "x"}]}, 3])
async def test_logprobs_of_any_shape_are_no_crash(logprobs: Any) -> None:
    class Odd(Double):
        def chat_reply(self, text: str, body: Body | None = None) -> Body:
            data = super().chat_reply(text, body)
            data["choices"][0]["logprobs"] = logprobs
            return data

    with Odd() as double:
        found = await findings(double)
    assert found["greedy"].ok is None


async def test_a_model_that_changes_under_the_doctor_is_no_crash() -> None:
    numbers = itertools.count()

    class Turning(Double):
        def chat_reply(self, text: str, body: Body | None = None) -> Body:
            return super().chat_reply(text, body) | {"model": f"m{next(numbers)}"}

    with Turning() as double:
        found = await findings(double)
    assert found["repeatable"].ok is None


async def test_a_thinking_model_without_an_answer() -> None:
    with Double(faults={0: reply({"content": None, "reasoning_content": "…"})}) as double:
        found = await findings(double)
    assert found["chat"].ok is False


async def test_what_stops_at_the_door_is_one_finding() -> None:
    dead = EndpointLM(dead_url(), retries=0)
    found = await diagnose(dead)
    assert [(f.name, f.ok) for f in found] == [("reachable", False)]
    assert "vllm serve" in found[0].remedy
    with Double(models=("qwen",)) as double:
        wrong = await findings(double, model="quen")
    assert (wrong["model"].ok, len(wrong)) == (False, 1)
    with Double(key="k") as double:
        refused = await findings(double)
    assert "OPENAI_API_KEY" in refused["auth"].remedy
    with Double(models=("a", "b")) as double:
        which = await findings(double)
    assert (which["setting"].ok, "'a', 'b'" in which["setting"].detail, len(which)) == (False, True, 1)


async def test_a_server_that_says_nothing_is_not_waited_for() -> None:
    with Double(pages={"/v1/models": hang}) as double:
        lm = EndpointLM(double.url)
        found = await diagnose(lm, start_s=0.1)
        await lm.aclose()
    assert [(f.name, f.ok) for f in found] == [("reachable", False)]
    assert double.url in found[0].detail
    assert "vllm serve" in found[0].remedy


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

"""The plan: bounds that always hold, and exact where everything is known."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from personalink.cli import main
from personalink.config import RunConfig
from personalink.contexts import Context
from personalink.experiment import Experiment
from personalink.lm import ScriptedLM
from personalink.lm.base import Request
from personalink.lm.journal import Journal
from personalink.plan import Plan
from tests.people import is_rewrite, random_script, rewrite_reply
from tests.test_experiment import ROWS, go, settings, write_records


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_records(tmp_path / "people.jsonl")
    return tmp_path


def planned(folder: Path, window: int | None = None, **changes: Any) -> Plan:
    config = RunConfig.from_mapping(settings(folder, **changes))
    lm = ScriptedLM(lambda request: pytest.fail("a plan asked something"), window=window)
    return asyncio.run(Experiment(config, lm=lm).plan())[0]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "rows",
    [[*ROWS], ["nopers", "rag_5"], ["personalink_r2"], ["pag", "personalink_r3"], ["random_user_persona", "oracle"]],
    ids=str,
)
def test_the_calls_made_lie_within_the_plan(folder: Path, rows: list[str], seed: int) -> None:
    changes = {"context": {row: ROWS[row] for row in rows}, "seed": seed}
    plan = planned(folder, **changes)
    lm = ScriptedLM(random_script(seed))
    go(folder, lm, **changes)
    assert plan.most is not None
    assert plan.least <= len(lm.requests) <= plan.most


def test_rows_without_a_product_are_counted_exactly(folder: Path) -> None:
    rows = {row: ROWS[row] for row in ("nopers", "rag_1", "rag_5", "random_user_demos", "oracle")}
    plan = planned(folder, context=rows)
    lm = ScriptedLM(random_script(1))
    go(folder, lm, context=rows)
    assert plan.least == plan.most == plan.exact == len(lm.requests)
    counted = sum(lm.counter.count("\n".join(m.content for m in r.messages)) for r in lm.requests)
    assert plan.prompt_tokens == counted


def test_the_least_is_reached_by_an_agent_that_makes_no_error(folder: Path) -> None:
    golds = {}
    for line in (folder / "people.jsonl").read_text().splitlines():
        row = json.loads(line)
        golds[row["input"]] = row["label"]

    def right(request: Request) -> str:
        if is_rewrite(request):
            return rewrite_reply()
        question = request.messages[1].content.rsplit("Text: ", 1)[1].removesuffix("\nLabel:")
        return str(golds[question])

    rows = {row: ROWS[row] for row in ("nopers", "rag_1", "personalink_r1", "personalink_r3")}
    plan = planned(folder, context=rows)
    lm = ScriptedLM(right)
    go(folder, lm, context=rows)
    assert len(lm.requests) == plan.least


def test_the_most_is_reached_by_ever_better_personas_that_are_never_perfect(folder: Path) -> None:
    """Each pass is accepted, and a new persona is audited each time: nothing can be saved."""
    rewrites: dict[str, int] = {}

    def ever_better(request: Request) -> str:
        text = request.messages[1].content
        if is_rewrite(request):
            user = text.split("item")[0].split()[-1]
            rewrites[user] = rewrites.get(user, 0) + 1
            return rewrite_reply(summary=f"Level{rewrites[user]} of {user}.", exemplars=[])
        level = int(text.split("Level")[1][0]) if "Level" in text else 0
        question = text.rsplit("Text: ", 1)[1].removesuffix("\nLabel:")
        number = int(question.split("item")[1]) if "item" in question else 0
        return golds.get(question, "north") if number % 9 < 2 * level else "nonsense"

    rows = [json.loads(line) for line in (folder / "people.jsonl").read_text().splitlines()]
    golds = {row["input"]: row["label"] for row in rows}
    context = {"personalink_r3": ROWS["personalink_r3"]}
    plan = planned(folder, context=context, optimizer={"race": False})
    lm = ScriptedLM(ever_better)
    go(folder, lm, context=context, optimizer={"race": False})
    assert plan.most is not None
    assert 0.75 * plan.most < len(lm.requests) <= plan.most


def test_prompts_that_will_not_fit_are_named(folder: Path) -> None:
    plan = planned(folder, window=300, context={"oracle": {**ROWS["oracle"], "keep": "fail"}, "nopers": ROWS["nopers"]})
    assert {long.row for long in plan.too_long} == {"oracle"}
    assert len(plan.too_long) == 6
    assert "may not fit, the server decides: row oracle" in plan.as_text()


def test_the_longest_prompt_is_named(folder: Path) -> None:
    plan = planned(folder, context={"oracle": ROWS["oracle"], "nopers": ROWS["nopers"]})
    assert plan.longest is not None
    assert (plan.longest.row, plan.longest.asked[:7]) == ("oracle", "query u")
    assert f"{plan.longest.tokens:,} tokens" in plan.as_text()


def test_a_slice_item_that_will_not_fit_is_named(folder: Path) -> None:
    plan = planned(folder, window=80, context={"personalink_r1": ROWS["personalink_r1"]})
    assert {long.row for long in plan.too_long} == {"personalink_r1"}
    assert any(long.asked.startswith("slice item u") for long in plan.too_long)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rows", [[*ROWS], ["nopers", "rag_5", "personalink_r2"], ["rag_5", "pag"]], ids=str)
def test_what_is_expected_is_near_what_comes(folder: Path, rows: list[str], seed: int) -> None:
    changes = {"context": {row: ROWS[row] for row in rows}}
    expected = planned(folder, **changes).expected
    lm = ScriptedLM(random_script(seed))
    go(folder, lm, **changes)
    taken = sum(lm.counter.count("\n".join(m.content for m in r.messages)) for r in lm.requests)
    assert expected is not None
    assert expected.prompt_tokens == pytest.approx(taken, rel=0.35)
    assert expected.calls == pytest.approx(len(lm.requests), rel=0.35)


def test_the_expectation_by_hand(folder: Path) -> None:
    """Everything is known: each prompt at its own size, each answer at half of what it may have."""
    plan = planned(folder, context={"nopers": ROWS["nopers"]}, budget={"prices": {"prompt": 10.0, "completion": 50.0}})
    most = plan.completion_tokens
    assert plan.expected is not None
    assert most is not None
    assert (plan.expected.calls, plan.expected.prompt_tokens) == (6, plan.prompt_tokens)
    assert plan.expected.completion_tokens == most // 2
    money = (plan.prompt_tokens * 10 + most / 2 * 50) / 1e6
    assert plan.expected.money == pytest.approx(money)
    assert f"money: about {money:.2g} for" in plan.as_text()


def test_gpu_time_is_told_where_price_and_speed_are_given(folder: Path) -> None:
    rows = {"nopers": ROWS["nopers"]}
    plain = planned(folder, context=rows, budget={"prices": {"gpu_hour": 2.0, "gpus": 4}})
    assert plain.expected is not None
    assert plain.expected.gpu_hours is None  # nobody told how fast it is
    prices = {"gpu_hour": 2.0, "gpus": 4, "tokens_per_s": 50.0}
    expected = planned(folder, context=rows, budget={"prices": prices}).expected
    assert expected is not None
    hours = (expected.prompt_tokens + expected.completion_tokens) / 50 / 3600
    assert expected.gpu_hours == pytest.approx(hours)
    assert expected.gpu_money == pytest.approx(hours * 4 * 2)
    assert expected.money is None


def test_a_finished_run_has_nothing_to_send(folder: Path) -> None:
    assert planned(folder).answered is None
    go(folder)
    plan = planned(folder)
    assert (plan.answered, plan.to_send) == (plan.exact, (0, 0))
    assert "to send: 0" in plan.as_text()
    fresh = planned(folder, fresh=True)
    assert fresh.answered is None


def test_a_run_that_was_stopped_has_the_rest_to_send(folder: Path) -> None:
    rows = {row: ROWS[row] for row in ("nopers", "rag_5", "personalink_r2")}
    go(folder, context=rows, budget={"calls": 40})
    plan = planned(folder, context=rows)
    assert plan.answered is not None
    assert 0 < plan.answered <= 40
    least, most = plan.to_send
    lm = ScriptedLM(random_script(5))
    go(folder, lm, context=rows)
    assert most is not None
    assert max(plan.exact - plan.answered, plan.least - 40) <= least <= len(lm.requests) <= most


def test_what_a_cache_answers_is_not_to_be_sent(folder: Path) -> None:
    rows = {"nopers": ROWS["nopers"], "rag_5": ROWS["rag_5"]}
    cache = str(folder / "cache.sqlite")
    assert planned(folder, context=rows, cache=cache).answered is None  # it is not there yet, and is not made
    assert not (folder / "cache.sqlite").exists()
    go(folder, context={"nopers": ROWS["nopers"]}, cache=cache)
    plan = planned(folder, context=rows, cache=cache)
    assert plan.answered == 6
    assert plan.to_send == (plan.exact - 6, plan.exact - 6)
    lm = ScriptedLM(random_script(5))
    go(folder, lm, context=rows, cache=cache)
    assert len(lm.requests) == plan.exact - 6


def test_a_plan_beside_a_running_run_still_plans(folder: Path) -> None:
    go(folder)
    (path,) = folder.glob("runs/made_up/*/log/journal")
    with Journal(path):
        assert planned(folder).exact > 0


def test_a_context_that_cannot_tell_its_calls_is_named(folder: Path) -> None:
    plan = planned(folder, context={"asks": {"_target_": "tests.test_plan.Asks"}, "nopers": ROWS["nopers"]})
    assert plan.untold == ("Asks",)
    assert plan.most is None
    assert "not in these figures: what Asks asks" in plan.as_text()


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["plan", "experiment=quickstart", "lm=scripted"]) == 0
    assert "4 users, 4 queries, 17 rows" in capsys.readouterr().out
    assert main(["plan", "lm=endpoint", "lm.base_url=http://127.0.0.1:9/v1", "lm.model=m"]) == 0
    assert "tokens are estimated" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@dataclass(frozen=True)
class Asks(Context):
    """One whose prepare may call the model and that does not say how often."""

    async def prepare(self, user, products, tools):
        return {}

    def place(self, user, query, products, tools):
        raise NotImplementedError

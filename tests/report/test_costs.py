"""What rows cost: adds up to what was paid, says when building pays, and leaves unknown what nobody told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from personalink.canonical import canonical_json
from personalink.lm import ScriptedLM
from personalink.lm.base import Completion, Request, Usage
from personalink.lm.budget import Prices
from personalink.predictions import Prediction
from personalink.report.costs import cost_table, gpu_note, passes_of, pays_after, row_costs
from personalink.run_dir import RunDir
from tests.people import is_rewrite, random_script
from tests.test_experiment import go, write_records


def counted(request: Request) -> Completion:
    """A scripted answer whose tokens are words."""
    said = random_script(5)(request)
    words = sum(len(m.content.split()) for m in request.messages)
    if isinstance(said, str):
        return Completion(said, usage=Usage(words, 0, len(said.split())))
    return Completion(said.text, said.outcome, Usage(words, 0, len(said.text.split())))


def by_label(table: Any) -> dict[str, dict[str, Any]]:
    return {row[0]: dict(zip((c.key for c in table.columns), row, strict=True)) for row in table.rows}


def test_costs_add_up_to_what_was_paid(tmp_path: Path) -> None:
    write_records(tmp_path / "people.jsonl")
    lm = ScriptedLM(counted)
    run = go(tmp_path, lm, optimizer={"audit": 0}).result.run
    table = cost_table(run)
    rows = by_label(table)
    building = [r for r in lm.requests if is_rewrite(r) or "query0" not in r.messages[1].content]
    assert rows["PersonaLink r=3"]["build_calls"] == pytest.approx(len(building) / 6)
    paid = sum(c.usage.prompt + c.usage.completion for c in map(counted, building))  # type: ignore[operator]
    assert rows["PersonaLink r=3"]["build_tokens"] == pytest.approx(paid / 6)
    assert rows["NoPers"]["build_calls"] == rows["RAG-5"]["build_tokens"] == 0
    builds = [rows[f"PersonaLink r={r}"]["build_calls"] for r in (1, 2, 3)]
    assert builds == sorted(builds)
    asked = [json.loads(line) for line in (run.sealed / "predictions.jsonl").read_text().splitlines()]
    rag = [p["usage"]["prompt"] + p["usage"]["completion"] for p in asked if p["row"] == "rag_5"]
    assert rows["RAG-5"]["query_tokens"] == pytest.approx(sum(rag) / len(rag))
    assert (rows["RAG-5"]["pays_rag_5"], rows["NoPers"]["pays_rag_5"]) == ("same row", "at once")
    text = table.as_text()
    assert "Pays after" in text
    assert max(map(len, text.splitlines())) <= 120
    assert table.as_csv().splitlines()[0].endswith(",pays_rag_1,pays_rag_5")  # RAG-1 where nobody has to look at it


def test_unknown_tokens_are_unknown(tmp_path: Path) -> None:
    write_records(tmp_path / "people.jsonl", n=2)
    run = go(tmp_path).result.run
    row = by_label(cost_table(run))["PersonaLink r=3"]
    assert (row["query_tokens"], row["build_tokens"], row["pays_rag_5"]) == (None, None, None)
    (run.log / "ledger.json").unlink()
    assert by_label(cost_table(run))["PersonaLink r=3"]["build_calls"] is None


def test_a_run_with_prices_shows_money(tmp_path: Path) -> None:
    write_records(tmp_path / "people.jsonl", n=2)
    run = go(tmp_path, ScriptedLM(counted), budget={"prices": {"prompt": 2.0, "completion": 8.0}}).result.run
    table = cost_table(run)
    row = by_label(table)["RAG-5"]
    asked = [json.loads(line) for line in (run.sealed / "predictions.jsonl").read_text().splitlines()]
    usages = [p["usage"] for p in asked if p["row"] == "rag_5"]
    money = sum(2 * u["prompt"] + 8 * u["completion"] for u in usages) / 1e6 / len(usages)
    assert row["money_1000_queries"] == pytest.approx(1000 * money)
    assert row["money_1000_users"] == 0
    assert max(map(len, table.as_text().splitlines())) <= 120


# by hand

OURS = "personalink.contexts."


def made(
    folder: Path, lines: list[dict[str, Any]], usages: dict[str, tuple[int, int]], attempts: Sequence[Any] = ()
) -> RunDir:
    """A run of two users with one query each, whose files say what is given here."""
    targets = {"rag_5": "Retrieval", "personalink_r2": "PersonaLink", "mine": "Mine"}
    run = RunDir(folder)
    rows = [*usages]
    config = {
        "name": "by_hand",
        "rows": rows,
        "context": {row: {"_target_": OURS + targets[row] if row != "mine" else "mine.Mine"} for row in rows},
        "optimizer": {"depth": 3},
    }
    run.seal("config.json", json.dumps(config))
    run.seal_lines("predictions.jsonl", [_prediction(u, row, *usages[row]) for row in rows for u in ("a", "b")])
    run.log.mkdir(parents=True, exist_ok=True)
    (run.log / "ledger.json").write_text(json.dumps({"lines": lines}))
    (run.log / "attempts.jsonl").write_text("".join(canonical_json(a) + "\n" for a in attempts))
    return run


def _prediction(user: str, row: str, prompt: int, completion: int) -> dict[str, Any]:
    usage = Usage(prompt, None, completion)
    return Prediction(user, "q", row, "x", "exact", "ok", "x", 0, usage=usage).as_dict()


def line(phase: str, depth: int = 0, row: str = "", **counts: Any) -> dict[str, Any]:
    plain = {"user": "a", "phase": phase, "depth": depth, "row": row, "calls": 1, "cached_calls": 0, "replayed": 0}
    return {**plain, "prompt_tokens": 0, "cached_tokens": 0, "completion_tokens": 0, **counts}


BUILDING = [
    line("evaluate", 0, calls=16, prompt_tokens=1600, cached_tokens=400, completion_tokens=32, retries=1, failed=0),
    line("rewrite", 1, calls=2, prompt_tokens=2000, cached_tokens=0, completion_tokens=400, retries=0, failed=2),
    line("audit", 0, calls=9, prompt_tokens=9999, completion_tokens=9999, retries=9, failed=9),  # not in it
    line("rewrite", 3, calls=9, prompt_tokens=9999, completion_tokens=9999, retries=9, failed=9),  # beyond r=2
    line("answer", row="personalink_r2", calls=2, prompt_tokens=600, cached_tokens=300, completion_tokens=4, retries=4, failed=0),
    line("answer", row="rag_5", calls=2, prompt_tokens=2000, cached_tokens=0, completion_tokens=4, retries=0, failed=0),
]  # fmt: skip


def test_tokens_by_hand(tmp_path: Path) -> None:
    run = made(tmp_path, BUILDING, {"rag_5": (1000, 2), "personalink_r2": (300, 2)})
    row = by_label(cost_table(run))["PersonaLink r=2"]
    assert row["query_tokens"] == 302
    assert row["build_calls"] == (16 + 2) / 2
    assert row["build_tokens"] == (1600 + 32 + 2000 + 400) / 2  # 2,016
    assert row["pays_rag_5"] == 3  # 2,016 / (1,002 − 302) = 2.88
    assert (row["retries"], row["failed"]) == (5, 2)


def test_money_by_hand(tmp_path: Path) -> None:
    run = made(tmp_path, BUILDING, {"rag_5": (1000, 2), "personalink_r2": (300, 2)})
    costs = row_costs(run, Prices(prompt=10.0, cached=1.0, completion=100.0))
    link = costs["personalink_r2"]
    # 3,600 prompt tokens, of which 400 cached, and 432 of answers, for two users
    assert link.money == pytest.approx((3200 * 10 + 400 * 1 + 432 * 100) / 1e6 / 2)
    # 300 prompt tokens of which half was cached (300 of 600 in the ledger), and 2 of the answer
    assert link.query_money == pytest.approx((150 * 10 + 150 * 1 + 2 * 100) / 1e6)
    assert costs["rag_5"].query_money == pytest.approx((1000 * 10 + 2 * 100) / 1e6)


def test_the_table_pays_in_money_where_prices_are_set(tmp_path: Path) -> None:
    told = {"prices": {"prompt": 10.0, "cached": 1.0, "completion": 100.0}}
    run = made(tmp_path, BUILDING, {"rag_5": (1000, 2), "personalink_r2": (300, 2)}, [{"at": "x", **told}])
    row = by_label(cost_table(run))["PersonaLink r=2"]
    assert row["money_1000_users"] == pytest.approx(37.8)
    assert row["money_1000_queries"] == pytest.approx(1.85)
    assert row["pays_rag_5"] == 5  # .0378 / (.0102 − .00185) = 4.53


def test_columns_that_a_ledger_does_not_have_are_unknown(tmp_path: Path) -> None:
    old = [{k: v for k, v in one.items() if k not in ("retries", "failed")} for one in BUILDING]
    rows = by_label(cost_table(made(tmp_path, old, {"rag_5": (1000, 2), "personalink_r2": (300, 2)})))
    assert (rows["PersonaLink r=2"]["retries"], rows["PersonaLink r=2"]["failed"]) == (None, None)


def test_what_a_context_of_ones_own_takes_to_build_is_unknown(tmp_path: Path) -> None:
    row = by_label(cost_table(made(tmp_path, BUILDING, {"rag_5": (1000, 2), "mine": (300, 2)})))["mine"]
    assert (row["build_tokens"], row["retries"], row["pays_rag_5"]) == (None, None, None)
    assert row["query_tokens"] == 302


def test_without_a_retrieval_row_nothing_is_compared(tmp_path: Path) -> None:
    table = cost_table(made(tmp_path, BUILDING, {"personalink_r2": (300, 2)}))
    assert not [c for c in table.columns if c.key.startswith("pays_")]
    assert "Pays after" not in table.as_text()


@pytest.mark.parametrize(
    ("built", "query", "rival", "after"),
    [
        (2016, 302, 1002, 3),
        (1400, 300, 1000, 3),  # equal after two, so cheaper from the third on
        (1, 300, 1000, 1),
        (0, 300, 1000, "at once"),
        (0, 1000, 1000, "never"),
        (500, 1200, 1000, "never"),
        (None, 300, 1000, None),
        (500, None, 1000, None),
        (500, 300, None, None),
    ],
)
def test_pays_after(built: float | None, query: float | None, rival: float | None, after: Any) -> None:
    assert pays_after(built, query, rival) == after


def test_gpu_hours_of_all_attempts(tmp_path: Path) -> None:
    attempts = [{"at": "x", "prices": {}}, {"at": "x", "seconds": 1800.0}, {"at": "y", "prices": {}}, {"at": "y", "seconds": 5400.0}]  # fmt: skip
    run = made(tmp_path, BUILDING, {"rag_5": (1000, 2)}, attempts)
    prices = Prices(gpu_hour=2.5, gpus=4)
    assert gpu_note(run, prices) == ["GPU time, the whole run: 2.000 hours × 4 GPUs × 2.5 an hour = 20.0000."]
    assert gpu_note(run, Prices()) == []
    killed = made(tmp_path / "killed", BUILDING, {"rag_5": (1000, 2)}, attempts[:3])
    (note,) = gpu_note(killed, prices)
    assert "0.500 hours" in note
    assert "at least: 1 of 2 attempts" in note
    never = made(tmp_path / "never", BUILDING, {"rag_5": (1000, 2)}, attempts[:1])
    assert "unknown" in gpu_note(never, prices)[0]


def test_a_run_tells_how_long_it_took(tmp_path: Path) -> None:
    write_records(tmp_path / "people.jsonl", n=2)
    run = go(tmp_path, budget={"prices": {"gpu_hour": 3.0}}).result.run
    (attempt,) = run.attempts()
    assert attempt["seconds"] >= 0
    assert attempt["prices"]["gpu_hour"] == 3.0
    assert "GPU time, the whole run" in cost_table(run).as_text()
    go(tmp_path)  # a finished run is no attempt
    assert len(run.attempts()) == 1


def test_passes_by_context() -> None:
    assert passes_of({"_target_": f"{OURS}PersonaLink", "depth": 2}, 3) == 2
    assert passes_of({"_target_": f"{OURS}PersonaLink", "depth": 9}, 3) == 3
    assert passes_of({"_target_": f"{OURS}Draft"}, 3) == 1
    assert passes_of({"_target_": f"{OURS}Retrieval", "k": 5}, 3) == 0
    assert passes_of({"_target_": "mine.Retrieval"}, 3) is None

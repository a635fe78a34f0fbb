"""What rows cost: adds up to what was paid, and says when building pays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from personalink.lm import ScriptedLM
from personalink.lm.base import Completion, Request, Usage
from personalink.report.costs import cost_table, passes_of
from tests.people import is_rewrite, random_script
from tests.test_experiment import go, write_records


def counted(request: Request) -> Completion:
    """A scripted answer whose tokens are words."""
    said = random_script(5)(request)
    words = sum(len(m.content.split()) for m in request.messages)
    if isinstance(said, str):
        return Completion(said, usage=Usage(words, 0, len(said.split())))
    return Completion(said.text, said.outcome, Usage(words, 0, len(said.text.split())))


def test_costs_add_up_to_what_was_paid(tmp_path: Path) -> None:
    write_records(tmp_path / "people.jsonl")
    lm = ScriptedLM(counted)
    run = go(tmp_path, lm, optimizer={"audit": 0}).result.run
    table = cost_table(run)
    rows = {row[0]: dict(zip((c.key for c in table.columns), row, strict=True)) for row in table.rows}
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
    pays, link = rows["PersonaLink r=1"]["pays_rag_5"], rows["PersonaLink r=1"]
    saved = rows["RAG-5"]["query_tokens"] - link["query_tokens"]
    assert pays == pytest.approx(link["build_tokens"] / saved) if saved > 0 else pays is None
    assert "Pays after" in table.as_text()


def test_unknown_tokens_are_unknown(tmp_path: Path) -> None:
    write_records(tmp_path / "people.jsonl", n=2)
    table = cost_table(go(tmp_path).result.run)
    rows = {row[0]: row for row in table.rows}
    assert rows["PersonaLink r=3"][2] is None
    assert rows["PersonaLink r=3"][4] is None


def test_passes_by_context() -> None:
    ours = "personalink.contexts."
    assert passes_of({"_target_": f"{ours}PersonaLink", "depth": 2}, 3) == 2
    assert passes_of({"_target_": f"{ours}PersonaLink", "depth": 9}, 3) == 3
    assert passes_of({"_target_": f"{ours}Draft"}, 3) == 1
    assert passes_of({"_target_": f"{ours}Retrieval", "k": 5}, 3) == 0
    assert passes_of({"_target_": "mine.Retrieval"}, 3) is None

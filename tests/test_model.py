"""The whole pipeline with a real model: journalled, resumed, readable. For what it says, not for how well."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

import personalink as pl
from personalink.cli import main

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="xllamacpp is not installed: [embedded]"),
]
RUN = (
    "run", "experiment=quickstart", "data.n_users=2", "context=[nopers,rag_3,pag,rag_pag,personalink_r2]",
    "optimizer.depth=2", "optimizer.audit=0",
)  # fmt: skip


def test_a_short_experiment_runs_resumes_and_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(RUN) == 0
    first = capsys.readouterr().out
    (sealed,) = tmp_path.glob("runs/quickstart/*/sealed")
    predictions = [json.loads(line) for line in (sealed / "predictions.jsonl").read_text().splitlines()]
    assert len(predictions) == 2 * 5
    assert {p["constrained"] for p in predictions} == {"grammar"}
    assert all(p["label"] for p in predictions)  # the constraint bites
    assert all(p["usage"]["prompt"] for p in predictions)
    assert any(p["context_tokens"] for p in predictions if p["row"] == "rag_3")
    ledger = json.loads((sealed.parent / "log" / "ledger.json").read_text())
    assert ledger["total"]["calls"] > 20
    assert ledger["total"]["prompt_tokens"] > 1000
    assert "embedded" in (sealed.parent / "log" / "attempts.jsonl").read_text()
    before = {p.name: p.read_bytes() for p in sealed.rglob("*") if p.is_file()}
    (sealed.parent / "log" / "status.json").unlink()  # as if it had been killed just before it was done
    assert main(RUN) == 0
    assert "(0 requests sent)" in capsys.readouterr().out
    assert {p.name: p.read_bytes() for p in sealed.rglob("*") if p.is_file()} == before
    assert "PersonaLink r=2" in first


def test_predict_and_the_personas_own_count() -> None:
    lm = pl.connect("embedded")
    with pl.PersonaLink(pl.task("lamp2"), lm, constrain="line") as link:
        user = pl.load_sample("news").users[0]
        answer = link.predict("", user.queries[0].input)
        assert answer.label in pl.task("lamp2").labels
        text = "- The Vatican did not approve of a lesbian activist -> women"
        state, _ = pl.fit_persona(
            "Files church news under religion.",
            [pl.Exemplar("x", "The Vatican did not approve of a lesbian activist and two more", "women")],
            [pl.Rule("it mentions the Vatican", "religion")],
            caps=pl.Caps(),
            counter=lm.counter,
        )
        assert state.counter_id == lm.counter.id
        assert state.tokens == lm.counter.count(state.render())
        assert lm.counter.count(text) > 5
        assert link.predict(state, "The pope speaks on Sunday.").label is not None

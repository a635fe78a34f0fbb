"""LaMP-4 with a real model: headlines written, read and scored. For what it says, not for how well."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from personalink.cli import main
from personalink.data import load_sample
from tests.lamp_files import HEADS

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="xllamacpp is not installed: [embedded]"),
]


def headlines(folder: Path, users: int = 2, m: int = 12) -> None:
    """LaMP-4 files made of the bundled news sample, whose items have their headlines."""
    where = folder / "LaMP_4" / "dev"
    where.mkdir(parents=True)
    questions, golds = [], []
    for user in [u for u in load_sample("news").users if len(u.history) > m][:users]:
        first, *rest = user.history[: m + 1]
        profile = [{"id": item.id, "text": item.input, "title": item.title} for item in rest]
        questions.append({"id": user.id, "input": HEADS["lamp4"] + first.input, "profile": profile})
        golds.append({"id": user.id, "output": first.title})
    (where / "dev_questions.json").write_text(json.dumps(questions))
    (where / "dev_outputs.json").write_text(json.dumps({"task": "LaMP_4", "golds": golds}))


def test_headlines_by_a_real_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    headlines(tmp_path)
    monkeypatch.chdir(tmp_path)
    run = (
        "run", "experiment=lamp4", f"data.root={tmp_path}", "context=[nopers,rag_3,pag,personalink_r1]", "task.max_tokens=24",
        "optimizer.depth=1", "optimizer.audit=0", "optimizer.holdout=4", "optimizer.rewrite_tokens=256",
        "optimizer.sample_tokens=300", "optimizer.mistake_tokens=200", "optimizer.item_tokens=32", "max_failed=1",
    )  # fmt: skip
    assert main(run) == 0
    table = capsys.readouterr().out
    assert "ROUGE-L" in table
    (sealed,) = tmp_path.glob("runs/lamp4/*/sealed")
    predictions = [json.loads(line) for line in (sealed / "predictions.jsonl").read_text().splitlines()]
    assert len(predictions) == 2 * 4
    assert all(p["label"] and "\n" not in p["label"] for p in predictions)
    metrics = json.loads((sealed / "metrics.json").read_text())
    assert 0 < max(row["rouge_l"] for row in metrics.values()) <= 1
    refined = [json.loads(line) for line in next(sealed.glob("products/Refine-*.jsonl")).read_text().splitlines()]
    assert all(len(one["product"]["slice"]) == 4 for one in refined)
    assert main(run) == 0
    assert "(0 requests sent)" in capsys.readouterr().out

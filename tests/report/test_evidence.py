"""Evidence: what it holds of a finished run, of a half finished one, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from personalink.canonical import pretty_json
from personalink.errors import IncompleteRun, IntegrityError, Unreachable, UsageError
from personalink.lm import ScriptedLM
from personalink.lm.base import Completion, Request
from personalink.metrics import score
from personalink.report.evidence import CONTRACTION, load
from personalink.run_dir import RunDir
from tests.people import random_script
from tests.report.runs import ROWS, finished


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return finished(tmp_path_factory.mktemp("evidence"))


def test_everything_of_a_run_is_there_in_the_manifests_order(run: RunDir) -> None:
    evidence = load(run.path)
    manifest = json.loads((run.sealed / "manifest.json").read_text())
    order = [entry["user"] for entry in manifest["entries"]]
    assert list(evidence.users) == order
    assert evidence.methods == tuple(ROWS)
    assert tuple(evidence.rows) == (*evidence.floors, *ROWS)
    for row in evidence.rows:
        assert [one.prediction.user for one in evidence.judged(row)] == order
        assert all(one.prediction.row == row for one in evidence.rows[row])
    assert evidence.history_size == {entry["user"]: entry["history"] for entry in manifest["entries"]}
    assert set(evidence.refinements) == set(order)
    assert (evidence.incomplete, evidence.contraction) == ({}, None)
    assert evidence.name == f"made_up/{run.path.name}"


def test_scores_are_those_of_the_answers_it_holds(run: RunDir) -> None:
    evidence = load(run)
    for row in evidence.rows:
        metrics = evidence.results.metrics[row]
        again = score(evidence.task, evidence.scored(row))
        assert {name: metrics[name] for name in again} == again
        assert metrics["accuracy"] == sum(one.right for one in evidence.judged(row)) / 6
        assert sum(one.error(evidence.task) for one in evidence.judged(row)) == sum(
            not one.right for one in evidence.judged(row)
        )


def test_what_contraction_measured_is_read_where_it_is(tmp_path: Path) -> None:
    run = finished(tmp_path, context={"personalink_r2": ROWS["personalink_r2"]})
    file = run.path / CONTRACTION
    file.parent.mkdir()
    file.write_text(pretty_json({"fit": {"modulus": 0.1}}))
    assert load(run).contraction == {"fit": {"modulus": 0.1}}
    file.write_text("[1]")
    with pytest.raises(IntegrityError, match="contraction"):
        load(run)


def test_a_half_finished_run_names_who_is_missing_and_why(tmp_path: Path) -> None:
    healthy, count = random_script(5), {"n": 0}

    def answer(request: Request) -> str | Completion | Exception:
        count["n"] += 1
        return Unreachable("gone") if count["n"] > 150 else healthy(request)

    run = finished(tmp_path, lm=ScriptedLM(answer, users_in_flight=1, concurrency=1))
    evidence = load(run)
    assert 0 < len(evidence.users) < 6
    assert len(evidence.users) + len(evidence.incomplete) == 6
    assert {*evidence.incomplete.values()} <= {"gone", "not begun"} | set(run.status["incomplete"].values())
    assert not set(evidence.users) & set(evidence.incomplete)


def test_what_is_no_finished_run_is_refused_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run at"):
        load(tmp_path / "nothing")
    run = finished(tmp_path, context={"nopers": ROWS["nopers"]}, lm=ScriptedLM(lambda request: Unreachable("gone")))
    with pytest.raises(IncompleteRun, match="no finished user"):
        load(run)
    (run.sealed / "seal.json").unlink()
    with pytest.raises(IncompleteRun, match="not finished"):
        load(run)


@pytest.mark.parametrize("file", ["predictions.jsonl", "golds.jsonl", "manifest.json"])
def test_an_altered_file_breaks_the_seal(tmp_path: Path, file: str) -> None:
    run = finished(tmp_path, context={"nopers": ROWS["nopers"]})
    path = run.sealed / file
    path.write_text(path.read_text() + "\n")
    with pytest.raises(IntegrityError, match=file):
        load(run)

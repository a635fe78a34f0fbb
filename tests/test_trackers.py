"""Trackers: what they are told, that the real libraries keep it, and that nothing they do changes a run."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from personalink import trackers
from personalink.config import TRACKERS, RunConfig
from personalink.errors import ConfigError, Interrupted
from personalink.report.results import score_run
from personalink.run_dir import RunDir
from personalink.running import arun
from personalink.trackers.record import record_of
from personalink.trackers.sending import SENDERS
from tests.people import people
from tests.test_experiment import go, sealed, settings, write_records

ROOT = Path(__file__).parent.parent


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_records(tmp_path / "people.jsonl", n=3)
    return tmp_path


@pytest.fixture
def own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose modules stand in for the libraries; what they do is what somebody's library may do."""
    modules = folder / "modules"
    modules.mkdir()
    before = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", f"{modules}{os.pathsep}{before}" if before else str(modules))
    return modules


def run_of(folder: Path) -> RunDir:
    (path,) = folder.glob("runs/made_up/*")
    return RunDir(path)


def plain(folder: Path) -> dict[str, bytes]:
    """The sealed bytes of an untracked run over the same data."""
    other = folder / "plain"
    other.mkdir()
    (other / "people.jsonl").write_bytes((folder / "people.jsonl").read_bytes())
    go(other, data={"kind": "records", "path": str(folder / "people.jsonl")})
    return sealed(other)


def test_a_tracker_is_no_part_of_a_runs_identity(folder: Path) -> None:
    bare, tracked = (RunConfig.from_mapping(settings(folder, **c)) for c in ({}, {"trackers": [*TRACKERS]}))
    assert bare.hash == tracked.hash
    assert "trackers" not in tracked.as_dict()
    assert set(TRACKERS) == set(SENDERS)


@pytest.mark.parametrize(
    ("given", "told"),
    [(["mlfow"], "did you mean 'mlflow'"), (["comet"], "there are mlflow, wandb"), ("wandb", "a list")],
)
def test_an_unknown_tracker_is_one_line(folder: Path, given: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        RunConfig.from_mapping(settings(folder, trackers=given))


def test_what_is_told_are_settings_scores_and_costs_and_nothing_of_a_user(folder: Path) -> None:
    finished = go(folder)
    run = run_of(folder)
    record = record_of(run, finished.scores)
    assert (record["name"], record["run"], record["state"]) == ("made_up", run.path.name, "complete")
    assert record["settings"]["context.rag_5.k"] == "5"
    assert record["settings"]["task.labels"] == '["north", "south", "east", "west"]'
    metrics = json.loads((run.sealed / "metrics.json").read_text())
    assert record["metrics"]["rag_1/accuracy"] == metrics["rag_1"]["accuracy"]
    assert record["metrics"]["cost/calls"] == finished.result.sent
    assert not {name for name in record["metrics"] if name.startswith("cost/prompt")}  # a scripted model does not tell
    assert len(record["series"]["slice/score_by_depth"]) == len(record["series"]["audit/score_by_depth"]) == 4
    assert record["series"]["slice/score_by_depth"] == sorted(record["series"]["slice/score_by_depth"])
    assert {Path(file).name for file in record["files"]} >= {"table.csv", "selection.md", "metrics.json"}
    told = json.dumps({k: v for k, v in record.items() if k not in ("folder", "files")})
    told += "".join(Path(file).read_text() for file in record["files"])
    for user in people(3, 26).users:
        assert f'"{user.id}"' not in told
        assert not [item for item in user.history if item.input in told]


def alive(process: int) -> bool:
    """Whether a process is at work; one that ended and waits for its parent is not."""
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(process)], capture_output=True, text=True, check=False
    ).stdout
    return bool(state.strip()) and not state.startswith("Z")


TROUBLE = {
    "raises": ("raise RuntimeError('no such\\nserver')", "RuntimeError: no such server"),
    "exits": ("import sys; sys.exit(0)", "SystemExit: 0"),
    "crashes": ("import os; os.kill(os.getpid(), 9)", "its process ended with -9"),
    "hangs": (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: time.sleep(1)",
        "longer",
    ),
    "changes": ("import os, pathlib\nos.environ.clear()\nprint('x' * 100_000)\nraise ValueError('y' * 5_000)", "yyy"),
}


@pytest.mark.parametrize("kind", TROUBLE)
def test_whatever_a_tracker_does_the_run_is_the_same(
    folder: Path, own: Path, kind: str, monkeypatch: pytest.MonkeyPatch, caplog: Any, capfd: Any
) -> None:
    code, told = TROUBLE[kind]
    (own / "tensorboardX.py").write_text(code)
    if kind == "hangs":
        monkeypatch.setattr(trackers, "TIMEOUT_S", 3.0)
    with caplog.at_level(logging.WARNING, "personalink.trackers"):
        finished = go(folder, trackers=["tensorboard"])
    (warning,) = [r.getMessage() for r in caplog.records if r.name == "personalink.trackers"]
    assert warning.startswith("tracker tensorboard was not told of this run")
    assert told in warning
    assert len(warning.splitlines()) == 1
    assert len(warning) < 600
    assert (finished.trouble, finished.result.state, run_of(folder).status["state"]) == (None, "complete", "complete")
    assert capfd.readouterr().out == ""
    assert sealed(folder) == plain(folder)
    assert run_of(folder).broken_seal() == ""


def test_what_a_tracker_started_is_ended_with_it(folder: Path, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note = folder / "pid"
    (own / "tensorboardX.py").write_text(
        "import subprocess, sys, pathlib\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"pathlib.Path({str(note)!r}).write_text(str(child.pid))\n"
        "raise RuntimeError('left a process behind')\n"
    )
    go(folder, trackers=["tensorboard"])
    until = time.monotonic() + 30
    while alive(int(note.read_text())) and time.monotonic() < until:
        time.sleep(0.01)
    assert not alive(int(note.read_text()))


def test_one_that_is_not_installed_is_said_with_its_extra(folder: Path, own: Path, caplog: Any) -> None:
    for name in ("mlflow", "wandb", "tensorboardX"):
        (own / f"{name}.py").write_text(f"raise ModuleNotFoundError(\"No module named '{name}'\")")
    with caplog.at_level(logging.WARNING, "personalink.trackers"):
        go(folder, trackers=[*TRACKERS])
    told = [r.getMessage() for r in caplog.records if r.name == "personalink.trackers"]
    assert [line.split()[1] for line in told] == list(TRACKERS)
    for line in told:
        assert "No module named" in line
        assert line.endswith('pip install "personalink[trackers]"')


def test_a_ledger_that_is_damaged_is_a_warning_too(folder: Path, caplog: Any) -> None:
    go(folder)
    (run_of(folder).log / "ledger.json").write_text("{")
    with caplog.at_level(logging.WARNING, "personalink.trackers"):
        assert go(folder, trackers=["tensorboard"]).trouble is None
    assert "ledger.json is damaged" in caplog.text


def test_a_run_that_was_stopped_is_not_told(folder: Path, own: Path, caplog: Any) -> None:
    (own / "tensorboardX.py").write_text("raise RuntimeError('told')")
    config = RunConfig.from_mapping(settings(folder, trackers=["tensorboard"]))

    def stop(experiment: Any) -> None:
        experiment.drain()

    with pytest.raises(Interrupted):
        asyncio.run(arun(config, started=stop))
    assert not [r for r in caplog.records if r.name == "personalink.trackers"]


def test_from_the_command_line_a_finished_run_is_told_without_a_request(folder: Path, own: Path) -> None:
    (own / "tensorboardX.py").write_text("raise RuntimeError('as it is')")
    words = ["run", "experiment=quickstart", "lm=scripted", "data.n_users=2", "context=[nopers,rag_1]"]
    env = {**os.environ, "PYTHONPATH": f"{os.environ['PYTHONPATH']}{os.pathsep}{ROOT}"}
    for more in ([], ["trackers=[tensorboard]"]):
        command = [sys.executable, "-m", "personalink.cli", *words, *more]
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
    assert "(0 requests sent)" in done.stdout
    assert done.stderr.splitlines() == [
        "tracker tensorboard was not told of this run, which is whole all the same: RuntimeError: as it is"
    ]


def test_tensorboard_keeps_what_it_is_told(folder: Path) -> None:
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed")
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="tensorboard is not installed"
    )
    for _ in range(2):  # told again, the files are replaced
        finished = go(folder, trackers=["tensorboard"])
    run = run_of(folder)
    record = record_of(run, finished.scores)
    (file,) = (run.log / "tensorboard").iterdir()
    events = accumulator.EventAccumulator(str(file))
    events.Reload()
    spelt = {re.sub(r"[^-/\w.]", "_", name) for name in (*record["metrics"], *record["series"])}  # by the library
    assert set(events.Tags()["scalars"]) == spelt
    for name, values in record["series"].items():
        assert [(e.step, e.value) for e in events.Scalars(name)] == [
            (depth, pytest.approx(value)) for depth, value in enumerate(values)
        ]
    assert {"settings/text_summary", "table/text_summary"} <= set(events.Tags()["tensors"])
    assert sealed(folder) == plain(folder)


def test_mlflow_keeps_what_it_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    pytest.importorskip("sqlalchemy", reason="sqlalchemy is not installed")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    for _ in range(2):  # told again, the run is the same one
        finished = go(folder, trackers=["mlflow"])
    record = record_of(run_of(folder), finished.scores)
    client = mlflow.MlflowClient(f"sqlite:///{folder}/mlflow.db")
    (kept,) = client.search_runs([client.get_experiment_by_name("mine").experiment_id])
    assert kept.info.status == "FINISHED"
    assert kept.data.tags["personalink.run"] == record["run"]
    assert kept.data.params["context.rag_5.k"] == "5"
    assert len(kept.data.params) == len(record["settings"])
    assert kept.data.metrics["rag_1/accuracy"] == record["metrics"]["rag_1/accuracy"]
    assert len(kept.data.metrics) == len(record["metrics"]) + len(record["series"])
    history = client.get_metric_history(kept.info.run_id, "slice/score_by_depth")
    assert {(m.step, m.value) for m in history} == set(enumerate(record["series"]["slice/score_by_depth"]))
    assert {Path(a.path).name for a in client.list_artifacts(kept.info.run_id, "tables")} == {
        Path(file).name for file in record["files"]
    }


def test_wandb_keeps_what_it_is_told_and_stays_offline(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed")
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    finished = go(folder, trackers=["wandb"])
    run = run_of(folder)
    record = record_of(run, finished.scores)
    (kept,) = (run.log / "wandb").glob("offline-run-*")
    assert kept.name.endswith(record["run"])
    (file,) = kept.glob("run-*.wandb")
    told = file.read_bytes()
    for words in ("context.rag_5.k", "rag_1/accuracy", "slice/score_by_depth", "table.csv"):
        assert words.encode() in told
    assert sealed(folder) == plain(folder)


def test_scores_can_be_told_of_any_finished_run(folder: Path, own: Path, caplog: Any) -> None:
    (own / "tensorboardX.py").write_text("raise RuntimeError('asked')")
    go(folder)
    run = run_of(folder)
    trackers.tell(("tensorboard",), run, score_run(run))
    assert "RuntimeError: asked" in caplog.text

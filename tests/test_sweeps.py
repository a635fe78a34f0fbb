"""Sweeps under every launcher: a job that raises, exits or is killed takes no other along and is told with its reason."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hydra.errors import ConfigCompositionException

from personalink.cli import main
from personalink.cli.sweep import NOT_STARTED, Order, outcome
from personalink.cli.words import explained
from personalink.run_dir import RunDir
from personalink.testing import FakeVLLM
from tests.test_cli import ROOT, errors

PLUGINS = {"basic": None, "joblib": "hydra_joblib_launcher", "submitit_local": "hydra_submitit_launcher"}
NEWS = ("politics", "sports", "travel")


def launcher(name: str) -> Any:
    plugin = PLUGINS[name]
    absent = plugin is not None and importlib.util.find_spec(f"hydra_plugins.{plugin}") is None
    return pytest.param(name, marks=pytest.mark.skipif(absent, reason=f"needs {plugin}: personalink[launchers]"))


EVERY = [launcher(name) for name in PLUGINS]
OTHERS = EVERY[1:]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with groups of its own: `experiment=fine,bad_data,exits,killed,orphans`."""
    groups = tmp_path / "mine"
    (groups / "context").mkdir(parents=True)
    (groups / "experiment").mkdir()
    contexts = {"exits": "Exits", "killed": "Killed", "orphans": "Killed\nstarter: true"}
    for name, target in contexts.items():
        text = f"# @package context.{name}\n_target_: tests.bad_contexts.{target}\n"
        (groups / "context" / f"{name}.yaml").write_text(text)
    for name in ("fine", "bad_data", *contexts):
        rows = f"[nopers, {name}]" if name in contexts else "[nopers]"
        data = "\n  - override /data: records\ndata: {path: broken.jsonl}" if name == "bad_data" else ""
        text = f"# @package _global_\ndefaults:\n  - override /context: {rows}{data}\nname: {name}\n"
        (groups / "experiment" / f"{name}.yaml").write_text(text)
    (tmp_path / "broken.jsonl").write_text('{"user": "a"\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "personalink.cli", *arguments]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def personalink(here: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), cwd=here, env=environment(), capture_output=True, text=True, check=False, timeout=180
    )


def the_sweep(here: Path) -> Path:
    (folder,) = here.glob("runs/.sweeps/*")
    return folder


def sealed(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("name", EVERY)
def test_four_ends_of_a_job_and_none_takes_another_along(here: Path, name: str) -> None:
    done = personalink(
        here, "run", "-m", f"hydra/launcher={name}", "--config-dir", "mine", "lm=scripted", "data.n_users=2",
        "experiment=exits,killed,bad_data,fine",
    )  # fmt: skip
    assert done.returncode == 2, done.stderr  # the worst of 1, 1, 2 and 0
    assert "sweep: 1 of 4 jobs complete" in done.stderr
    told = {
        0: ("experiment=exits", "exit code 1", "sys.exit(0) was called inside the run"),
        1: ("experiment=killed", "exit code 1", "killed by SIGKILL"),
        2: ("experiment=bad_data", "exit code 2", "broken.jsonl"),
    }
    for number, words in told.items():
        (line,) = [line for line in done.stderr.splitlines() if line.startswith(f"  job {number} ")]
        assert all(word in line for word in words), line
    folder = the_sweep(here)
    assert "sys.exit(0)" in (folder / "0.log").read_text()
    assert "broken.jsonl" in (folder / "2.log").read_text()
    states = {run.parent.name: RunDir(run).status["state"] for run in here.glob("runs/[a-z]*/*")}
    assert states.pop("fine") == "complete"
    assert "complete" not in states.values()
    for failed in ("exits", "killed"):  # the run's own log has the reason too
        (attempts,) = here.glob(f"runs/{failed}/*/log/attempts.jsonl")
        assert (
            json.loads(attempts.read_text().splitlines()[-1])["why"]
            == Order.read(folder / f"{[*told][failed == 'killed']}.json").why
        )
        assert all("ended" not in attempt for attempt in RunDir(attempts.parent.parent).attempts())


@pytest.mark.parametrize("name", [launcher("joblib")])
def test_a_launcher_that_loses_a_worker_is_told_and_believed_in_nothing(here: Path, name: str) -> None:
    done = personalink(
        here, "run", "-m", f"hydra/launcher={name}", "--config-dir", "mine", "lm=scripted", "data.n_users=2",
        "experiment=orphans",
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "sweep: 0 of 1 jobs complete" in done.stderr
    assert "it left no word" in done.stderr
    assert "Traceback" not in done.stderr
    assert "the launcher ended early" in errors(done.stderr)[-1]


@pytest.mark.parametrize("name", OTHERS)
def test_merged_shards_equal_the_unsharded_run_byte_for_byte(here: Path, name: str) -> None:
    words = ["lm=scripted", "data.n_users=6", "context=[nopers,rag_1,personalink_r1]"]
    sweep = ["run", "-m", f"hydra/launcher={name}", *words, "shard.count=2", "shard.index=0,1"]
    done = personalink(here, *sweep)
    assert done.returncode == 0, done.stderr
    assert "sweep: 2 of 2 jobs complete" in done.stderr
    before = set(here.glob("runs/lamp2/*"))
    assert main(["merge", "runs/lamp2"]) == 0
    (merged,) = set(here.glob("runs/lamp2/*")) - before
    ours = sealed(merged / "sealed")
    merged.rename(here / "merged")
    assert main(["run", *words]) == 0
    assert sealed(merged / "sealed") == ours


STOPS = [("basic", signal.SIGINT), ("joblib", signal.SIGTERM), ("submitit_local", signal.SIGINT)]


@pytest.mark.parametrize(
    ("name", "number"), [pytest.param(*s, marks=e.marks) for s, e in zip(STOPS, EVERY, strict=True)]
)
def test_a_sweep_that_is_stopped_drains_its_jobs_starts_no_more_and_goes_on(here: Path, name: str, number: int) -> None:
    with FakeVLLM(labels=NEWS, latency_s=0.02) as server:
        sweep = command(
            "run", "-m", f"hydra/launcher={name}", "lm=vllm", f"lm.base_url={server.url}/v1", "lm.dialect=openai", "lm.concurrency=2",
            "data.n_users=4", "context=[nopers,personalink_r1]", "seed=0,1", "max_failed=1.0",
        )  # fmt: skip
        if name == "joblib":
            sweep.append("hydra.launcher.n_jobs=1")
        process = subprocess.Popen(
            sweep, cwd=here, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        wait_for(server, 10)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 128 + number, err
        orders = [Order.read(the_sweep(here) / f"{i}.json") for i in range(2)]
        assert {order.code for order in orders} <= {128 + number}
        assert any(order.why.startswith("interrupted") for order in orders)
        if name != "submitit_local":  # which starts all at once
            assert orders[1].why == NOT_STARTED
            assert "1 more jobs of the sweep were not started" in err
        if name != "basic":
            return  # going on is the same under each
        server.latency_s = 0.0
        again = subprocess.run(sweep, cwd=here, env=environment(), capture_output=True, text=True, check=False)
        assert again.returncode == 0, again.stderr
        assert "sweep: 2 of 2 jobs complete" in again.stderr
        ledgers = [json.loads((run / "log" / "ledger.json").read_text()) for run in here.glob("runs/lamp2/*")]
        assert sum(ledger["total"]["calls"] for ledger in ledgers) == server.requests  # nothing was paid for twice


def wait_for(server: FakeVLLM, requests: int) -> None:
    """Until the server was asked so often, a minute at most."""
    deadline = time.monotonic() + 60
    while server.requests < requests and time.monotonic() < deadline:
        time.sleep(0.005)


def test_a_job_whose_sweep_was_killed_drains_by_itself(here: Path) -> None:
    with FakeVLLM(labels=NEWS, latency_s=0.02) as server:
        sweep = command(
            "run", "-m", "lm=vllm", f"lm.base_url={server.url}/v1", "lm.dialect=openai", "lm.concurrency=2", "data.n_users=4",
            "context=[nopers,personalink_r1]", "seed=0,1", "max_failed=1.0",
        )  # fmt: skip
        process = subprocess.Popen(
            sweep, cwd=here, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_for(server, 10)
        process.kill()
        process.wait()
        deadline, state = time.monotonic() + 30, ""
        while state != "interrupted" and time.monotonic() < deadline:
            (run,) = here.glob("runs/lamp2/*")
            state = RunDir(run).status["state"]
            time.sleep(0.02)
        assert state == "interrupted"


def test_success_is_what_the_runs_own_status_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finished, half = RunDir(tmp_path / "finished"), RunDir(tmp_path / "half")
    finished.set_status("complete")
    half.set_status("incomplete")
    folder = tmp_path / "sweep"
    folder.mkdir()
    for number, (run, code) in enumerate([(finished, 0), (half, 0), (finished, None), (finished, 4)]):
        Order(number, "run", [], ["a=1", f"b={number}"], run=str(run.path), code=code, why="failed").write(folder)
    assert outcome(folder) == 4
    err = capsys.readouterr().err
    assert "1 of 4 jobs complete" in err
    assert f"job 1 (b=1), exit code 1: the status of {half.path} is incomplete" in err
    assert "job 2 (b=2), exit code 1: it left no word" in err


def test_a_plan_can_be_swept(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "-m", "lm=scripted", "data.n_users=2", "context=[nopers]", "seed=0,nan"]) == 2
    out, err = capfd.readouterr()
    assert out.count("calls") >= 1
    assert "job 1 (seed=nan), exit code 2: seed is nan" in err


def test_a_launcher_that_is_not_installed_is_told_with_the_extra() -> None:
    error = ConfigCompositionException("Could not find 'hydra/launcher/joblib'\n\nAvailable options:\n\tbasic")
    assert "install personalink[launchers]" in explained(error)

"""Faults that belong to no single part: the disk, the environment, many starts at once, people with odd histories.

What each fault comes to, and which test shows it, stands in `docs/faults.md`; that every test named there exists is
checked here.
"""

from __future__ import annotations

import ast
import asyncio
import gc
import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from personalink.cli import main
from personalink.errors import IncompleteRun, IntegrityError, StorageError
from personalink.lm import ScriptedLM
from personalink.lm.base import Completion, Request
from personalink.lm.journal import Journal
from personalink.run_dir import RunDir
from personalink.running import arun
from personalink.spool import Spool
from personalink.testing import FakeVLLM
from tests.forked import Forked
from tests.people import LABELS, people, random_script
from tests.test_cli import ROOT, errors
from tests.test_experiment import ROWS, go, sealed, settings, write_records

TESTS = Path(__file__).parent


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_records(tmp_path / "people.jsonl")
    return tmp_path


def alike(one: dict[str, bytes], other: dict[str, bytes]) -> bool:
    """Whether two runs sealed the same, but for where their files lie."""
    placed = ("config.json", "seal.json")
    return {n: b for n, b in one.items() if n not in placed} == {n: b for n, b in other.items() if n not in placed}


def test_the_table_of_faults_names_tests_that_exist() -> None:
    rows = [line for line in (ROOT / "docs" / "faults.md").read_text().splitlines() if re.match(r"\| \d+ \|", line)]
    assert [int(row.split("|")[1]) for row in rows] == list(range(1, len(rows) + 1))
    for row in rows:
        named = re.findall(r"`(?:([\w/]+\.py)::)?(test_\w+)`", row)
        assert named or "no test:" in row, row
        file = ""
        for path, name in named:
            file = path or file  # a name alone stands in the file named before it
            tree = ast.parse((TESTS / file).read_text())
            there = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
            assert name in there, f"{file}::{name}"


# the disk


@pytest.mark.parametrize("share", [0.02, 0.4, 0.9])
def test_a_disk_that_is_full_ends_the_run_in_one_line_and_loses_nothing(folder: Path, share: float) -> None:
    values = settings(folder)
    whole = Forked(folder, {**values, "runs_dir": "whole"})
    assert whole.ended() == 0, whole.said
    (journal,) = folder.glob("whole/*/*/log/journal")
    full = Forked(folder, {**values, "runs_dir": "full"}, file_bytes=int(share * journal.stat().st_size))
    assert full.ended() == 1, full.said
    assert len(errors(full.said)) == 1
    assert "cannot write" in full.said
    assert "never retrieved" not in full.said
    (run,) = [RunDir(path) for path in folder.glob("full/*/*")]
    assert run.status["state"] != "complete"
    with Journal(run.log / "journal") as half:
        assert half.torn == half.damaged == 0
    again = Forked(folder, {**values, "runs_dir": "full"})
    assert again.ended() == 0, again.said
    ledgers = [json.loads(path.read_text())["total"] for path in folder.glob("*/*/*/log/ledger.json")]
    assert ledgers[0]["calls"] == ledgers[1]["calls"]  # nothing was paid for twice
    for file in (p for p in run.sealed.rglob("*") if p.is_file()):
        assert (journal.parent.parent / "sealed" / file.relative_to(run.sealed)).read_bytes() == file.read_bytes()


def test_a_disk_that_fills_while_others_wait_is_one_line_and_leaves_no_fault_unread(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unread: list[str] = []
    put, count = Spool.put, itertools.count()

    def full(spool: Spool, kind: str, user: str, text: str) -> None:
        if next(count) >= 3:
            raise StorageError("cannot write the spool: no space left")
        put(spool, kind, user, text)

    async def attempt() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, told: unread.append(told["message"]))
        values = settings(
            folder, context={row: ROWS[row] for row in ("nopers", "personalink_r1", "random_user_persona")}
        )
        with pytest.raises(StorageError, match="no space left"):
            await arun(values, lm=ScriptedLM(random_script(5)))
        for _ in range(50):
            await asyncio.sleep(0)
        gc.collect()  # a task that nobody has read says so when it is collected

    monkeypatch.setattr(Spool, "put", full)
    asyncio.run(attempt())
    assert unread == []


def test_a_parent_that_is_a_file_is_one_line_before_anything_is_sent(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    for arguments in (["run"], ["run", "-m", "seed=0,1"]):
        code = main([*arguments, "lm=scripted", "data.n_users=2", "context=[nopers]", "runs_dir=people.jsonl/runs"])
        out, err = capsys.readouterr()
        assert (code, out) == (1, ""), err
        assert len(errors(err)) == 1
        assert "people.jsonl/runs" in err


def test_a_folder_that_is_deleted_under_a_run_is_no_success(folder: Path) -> None:
    script, asked = random_script(5), itertools.count()

    def answer(request: Request) -> str | Completion:
        if next(asked) == 100:
            shutil.rmtree(next(folder.glob("runs/made_up/*")))
        return script(request)

    with pytest.raises((IntegrityError, StorageError)) as lost:
        go(folder, ScriptedLM(answer))
    assert "\n" not in str(lost.value)
    assert go(folder).trouble is None


# many at once, and the environment


def test_twenty_starts_in_the_same_second_are_twenty_whole_runs(folder: Path) -> None:
    rows = {row: ROWS[row] for row in ("nopers", "rag_1", "personalink_r1")}
    started = [Forked(folder, settings(folder, seed=n, context=rows), number=n) for n in range(20)]
    for process in started:
        assert process.ended() == 0, process.said
    runs = [RunDir(path) for path in folder.glob("runs/made_up/*")]
    assert len(runs) == 20
    assert {run.read_json("sealed/config.json")["seed"] for run in runs} == set(range(20))
    for run in runs:
        assert run.status["state"] == "complete"
        with Journal(run.log / "journal") as journal:
            assert (journal.torn, journal.damaged) == (0, 0)
            assert len(journal) == json.loads((run.log / "ledger.json").read_text())["total"]["calls"]


def test_of_several_starts_of_one_run_one_works_and_the_others_are_refused(folder: Path) -> None:
    with FakeVLLM(labels=LABELS, latency_s=0.05) as server:
        model = {"kind": "endpoint", "base_url": f"{server.url}/v1", "dialect": "openai", "concurrency": 4}
        values = settings(folder, lm=model, context={"rag_1": ROWS["rag_1"], "personalink_r1": ROWS["personalink_r1"]})
        started = [Forked(folder, values, number=n) for n in range(4)]
        codes = sorted(process.ended() for process in started)
        refused = sum("another process is working in" in process.said for process in started)
        # one that starts only when the first has finished finds a finished run, asks nothing and ends with 0, too
        assert 0 < codes.count(2) == refused == 4 - codes.count(0) < 4, [process.said for process in started]
        (ledger,) = folder.glob("runs/*/*/log/ledger.json")
        assert json.loads(ledger.read_text())["total"]["calls"] == server.requests


def test_a_narrow_locale_without_a_terminal_changes_no_byte(folder: Path) -> None:
    text = (
        (folder / "people.jsonl")
        .read_text()
        .replace("amber", "ámbar 日本 🙂")
        .replace("cedar", "\u202e\u05d0\u05e8\u05d6")
    )
    (folder / "people.jsonl").write_text(text, encoding="utf-8")
    narrow = {
        "LANG": "C",
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "COLUMNS": "80",
        "TERM": "dumb",
    }
    written = []
    for name, change in (("wide", {"PYTHONUTF8": "1"}), ("narrow", narrow)):
        command = [
            sys.executable, "-m", "personalink.cli", "run", "task=lamp2", f"task.labels=[{','.join(LABELS)}]", "data=records",
            "data.path=people.jsonl", "lm=scripted", "context=[nopers,rag_1,personalink_r1]", f"runs_dir={name}",
        ]  # fmt: skip
        env = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG", "PYTHON"))}
        done = subprocess.run(
            command,
            cwd=folder,
            env={**env, "PYTHONPATH": str(ROOT), **change},
            capture_output=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert b"\r" not in done.stderr
        root = next(folder.glob(f"{name}/*/*/sealed"))
        written.append({str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()})
    assert written[0] == written[1]


def test_a_clock_that_jumps_changes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sealed_by(folder, "steady")
    draw = random.Random(4)
    monkeypatch.setattr(time, "time", lambda: draw.choice([0.0, 4e9, 1e9]))
    assert sealed_by(folder, "jumping") == before


def sealed_by(folder: Path, name: str) -> dict[str, bytes]:
    """What a run of the folder's people sealed under `name`."""
    root = go(folder, runs_dir=str(folder / name), budget={"seconds": 3600}).result.run.sealed
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


# people


def nasty() -> list[dict[str, Any]]:
    """The records of people whom nobody wants to have: each has one query."""
    long = "a very long review. " * 2500  # fifty thousand characters
    histories = {
        "empty": [],
        "one item": ["amber basin"],
        "three of one label": ["amber", "basin", "cedar"],
        "long": [long, long + "again", "short", *(f"item {i}" for i in range(10))],
        "emoji 🙂": [f"🙂👩‍👩‍👧 number {i}" for i in range(12)],
        "nul": [f"a\x00b\x1b[31m {i}" for i in range(12)],
        "right to left": [f"\u202e\u05d0\u05e8\u05d6 {i}" for i in range(12)],
        "copies": ["the very same words"] * 12,
        "../../etc": [f"a path for a name {i}" for i in range(12)],
    }
    rows = []
    for user, texts in histories.items():
        for i, text in enumerate(texts):
            label = LABELS[0] if user.startswith("three") else LABELS[i % len(LABELS)]
            rows.append({"user": user, "id": f"i{i}", "input": text, "label": label, "split": "history"})
        rows.append({"user": user, "id": "q", "input": f"a question of {user}", "label": LABELS[0], "split": "query"})
    return rows


def test_odd_histories_end_in_an_answer_and_touch_nobody_else(folder: Path) -> None:
    alone = go(folder)
    assert alone.trouble is None
    kept = {name: text for name, text in sealed(folder).items() if name.startswith("personas/")}
    rows = {
        row: context for row, context in ROWS.items() if not row.startswith("random")
    }  # donors hang on who is there
    lines = {
        json.dumps(json.loads(x)) for x in (alone.result.run.sealed / "predictions.jsonl").read_text().splitlines()
    }
    with (folder / "people.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in nasty())
    finished = go(folder, runs_dir=str(folder / "with"), context=rows)
    assert finished.trouble is None
    assert not finished.result.incomplete
    made = [json.loads(x) for x in (finished.result.run.sealed / "predictions.jsonl").read_text().splitlines()]
    assert {p["user"] for p in made} >= {row["user"] for row in nasty()}
    ordinary = {user.id for user in people(6, 26).users}
    ours = {json.dumps(p) for p in made if p["user"] in ordinary}
    assert ours == {line for line in lines if not json.loads(line)["row"].startswith("random")}
    personas = {
        str(p.relative_to(finished.result.run.sealed)): p.read_bytes()
        for p in finished.result.run.sealed.glob("personas/*")
    }
    assert kept.items() <= personas.items()


def test_two_items_of_one_id_are_refused_by_name(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    rows = [row for row in nasty() if row["user"] == "one item"]
    (folder / "people.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [rows[0], *rows]))
    monkeypatch.chdir(folder)
    words = [f"task.labels=[{','.join(LABELS)}]", "data=records", "data.path=people.jsonl", "lm=scripted"]
    assert main(["run", *words, "context=[nopers]"]) == 2
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1
    assert "i0" in err


# how much may fail


@pytest.mark.parametrize(("allowed", "complete"), [(0.0, False), (0.02, False), (0.04, True)])
def test_three_in_a_hundred_that_fail_are_too_many_or_not_as_the_setting_says(
    tmp_path: Path, allowed: float, complete: bool
) -> None:
    write_records(tmp_path / "people.jsonl", n=100, m=3)
    count = itertools.count()
    lm = ScriptedLM(lambda request: "" if next(count) in (10, 50, 90) else "north")
    finished = go(tmp_path, lm, context={"nopers": ROWS["nopers"]}, max_failed=allowed)
    assert finished.scores.metrics["nopers"]["n_empty"] == 3
    assert finished.result.run.status["state"] == ("complete" if complete else "failed")
    assert (finished.trouble is None) == complete
    if not complete:
        assert isinstance(finished.trouble, IncompleteRun)
        assert "3 of 100 answers carry no label" in str(finished.trouble)


def test_rows_are_cut_to_the_window_and_a_question_that_does_not_fit_is_told_apart_and_never_retried(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    (asks,) = [row for row in nasty() if row["user"] == "nul" and row["split"] == "query"]
    with (folder / "people.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({**asks, "user": "talker", "input": "word " * 2000}) + "\n")
    with FakeVLLM(labels=LABELS, window=150) as server:
        code = main([
            "run", f"task.labels=[{','.join(LABELS)}]", "data=records", "data.path=people.jsonl", "lm=vllm",
            f"lm.base_url={server.url}/v1", "context=[nopers,rag_20,oracle]", "max_failed=1.0",
        ])  # fmt: skip
        assert code == 0
        assert server.requests <= 3 * 7  # none twice
    (path,) = folder.glob("runs/*/*/sealed/predictions.jsonl")
    outcomes = {(p["user"] == "talker", p["outcome"]) for p in map(json.loads, path.read_text().splitlines())}
    assert outcomes == {(False, "ok"), (True, "too_long")}

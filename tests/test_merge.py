"""Shards: together they are the unsharded run, byte for byte, and nothing less is merged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from personalink.cli import main
from personalink.config import ShardConfig
from personalink.errors import ConfigError, IncompleteRun, IntegrityError, UsageError
from personalink.lm import ScriptedLM
from personalink.merge import find_shards, merge
from personalink.report.results import score_run
from tests.people import random_script
from tests.test_experiment import go, write_records


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_records(tmp_path / "people.jsonl", n=8)
    return tmp_path


def sharded(folder: Path, count: int = 3, only: tuple[int, ...] | None = None) -> int:
    sent = 0
    for index in only or range(count):
        lm = ScriptedLM(random_script(5))
        go(folder, lm, shard={"index": index, "count": count})
        sent += len(lm.requests)
    return sent


def files(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


def test_merged_shards_equal_the_unsharded_run(folder: Path) -> None:
    sharded(folder)
    merged = merge(find_shards(folder / "runs" / "made_up"))
    score_run(merged).seal(merged)
    ours = files(merged.sealed)
    merged.path.rename(folder / "merged")
    whole = go(folder)
    assert whole.result.run.path == merged.path  # the very place where the unsharded run belongs
    assert files(whole.result.run.sealed) == ours
    ledger = json.loads((folder / "merged" / "log" / "ledger.json").read_text())
    assert ledger["total"]["calls"] >= json.loads((whole.result.run.log / "ledger.json").read_text())["total"]["calls"]


def test_every_user_is_in_one_shard_whatever_the_others_are() -> None:
    for count in (1, 2, 7):
        for user in (f"u{i}" for i in range(200)):
            assert sum(ShardConfig(index, count).holds(user) for index in range(count)) == 1
    for index, count in ((-1, 2), (2, 2), (0, 0)):
        with pytest.raises(ConfigError, match="shard"):
            ShardConfig(index, count)


def test_a_missing_shard_is_named(folder: Path) -> None:
    sharded(folder, only=(0, 2))
    with pytest.raises(UsageError, match="shard 1 of 3 is missing"):
        merge(find_shards(folder / "runs" / "made_up"))
    with pytest.raises(UsageError, match="given twice"):
        shards = find_shards(folder / "runs" / "made_up")
        sharded(folder, only=(1,))
        merge([*find_shards(folder / "runs" / "made_up"), shards[0]])


def test_an_unfinished_shard_is_refused_by_its_own_status(folder: Path) -> None:
    sharded(folder)
    shards = find_shards(folder / "runs" / "made_up")
    shards[1].set_status("interrupted")
    with pytest.raises(IncompleteRun, match="is interrupted"):
        merge(shards)


def test_a_lost_or_strange_user_is_found(folder: Path) -> None:
    sharded(folder)
    shards = find_shards(folder / "runs" / "made_up")
    path = next(p for s in shards if (p := s.sealed / "predictions.jsonl").read_text())
    kept = path.read_text()
    user = json.loads(kept.splitlines()[0])["user"]
    path.write_text("".join(line + "\n" for line in kept.splitlines() if json.loads(line)["user"] != user))
    with pytest.raises(IntegrityError, match="missing or was altered"):
        merge(shards)
    for shard in shards:
        shard.close_seal()  # as somebody would who means it
    with pytest.raises(IntegrityError, match="the union is not complete"):
        merge(shards)
    path.write_text(kept)
    other = next(s.sealed / "predictions.jsonl" for s in shards if s.sealed / "predictions.jsonl" != path)
    other.write_text(other.read_text() + kept.splitlines()[0] + "\n")
    for shard in shards:
        shard.close_seal()
    with pytest.raises(IntegrityError, match="does not belong in this shard"):
        merge(shards)


def test_other_experiments_are_not_mixed_in(folder: Path) -> None:
    sharded(folder)
    go(folder, shard={"index": 1, "count": 3}, seed=7)
    with pytest.raises(UsageError, match="differ in more than"):
        merge(find_shards(folder / "runs" / "made_up"))


def test_the_command_line_sweeps_and_merges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "context=[nopers,personalink_r1]"
    sweep = ["run", "-m", "lm=scripted", "data.n_users=9", rows, "shard.count=3", "shard.index=range(0,3)"]
    assert main(sweep) == 0
    assert main(["merge", "runs/lamp2"]) == 0
    assert "n = 9 users" in capsys.readouterr().out
    assert main(["merge", "runs/lamp2"]) == 2
    assert "holds this run already" in capsys.readouterr().err
    assert main(["merge", str(tmp_path)]) == 2

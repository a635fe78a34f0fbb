"""Shards: together they are the unsharded run, byte for byte, and nothing less is merged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from personalink.cli import main
from personalink.config import RunConfig, ShardConfig
from personalink.errors import ConfigError, IncompleteRun, IntegrityError, UsageError
from personalink.lm import ScriptedLM
from personalink.merge import find_shards, merge
from personalink.report.results import score_run
from personalink.run_dir import RunDir, find_run
from tests.people import random_script
from tests.test_experiment import go, settings, write_records


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


def shards_of(folder: Path) -> list[RunDir]:
    """The shards of the only configuration there."""
    (shards,) = find_shards(folder / "runs" / "made_up").values()
    return shards


def target_of(folder: Path) -> Path:
    """Where the merged run belongs."""
    config = RunConfig.from_mapping(settings(folder))
    return config.folder


def files(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


def test_merged_shards_equal_the_unsharded_run(folder: Path) -> None:
    sharded(folder)
    merged = merge(shards_of(folder))
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
        merge(shards_of(folder))
    with pytest.raises(UsageError, match="given twice"):
        shards = shards_of(folder)
        sharded(folder, only=(1,))
        merge([*shards_of(folder), shards[0]])


def test_an_unfinished_shard_is_refused_by_its_own_status(folder: Path) -> None:
    sharded(folder)
    shards = shards_of(folder)
    shards[1].set_status("interrupted")
    with pytest.raises(IncompleteRun, match="is interrupted"):
        merge(shards)


def test_a_lost_or_strange_user_is_found(folder: Path) -> None:
    sharded(folder)
    shards = shards_of(folder)
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
    groups = find_shards(folder / "runs" / "made_up")
    assert {name: len(shards) for name, shards in groups.items()} == {"seed=12345": 3, "seed=7": 1}
    with pytest.raises(UsageError, match=r"differ in more than shard.index \(seed\)"):
        merge([*groups["seed=12345"], *groups["seed=7"]])


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


@pytest.mark.parametrize("name", ["model.json", "data.json", "manifest.json"])
def test_a_refused_merge_writes_nothing_and_is_in_nobodys_way(folder: Path, name: str) -> None:
    sharded(folder)
    shards = shards_of(folder)
    kept = (shards[1].sealed / name).read_text()
    shards[1].seal(name, kept.replace("{", '{"x": 1,', 1))
    shards[1].close_seal()
    with pytest.raises(IntegrityError, match=f"the shards differ in {name}"):
        merge(shards)
    assert not target_of(folder).exists()
    shards[1].seal(name, kept)
    shards[1].close_seal()
    assert merge(shards).path == target_of(folder)


def test_a_killed_merge_is_done_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sharded(folder)
    whole = merge(shards_of(folder))
    wanted = files(whole.path)
    for steps in range(1, 9):
        whole.path.rename(folder / f"whole{steps}")
        with monkeypatch.context() as killed:
            killed.setattr(RunDir, "seal", killed_after(steps))
            with pytest.raises(KeyboardInterrupt):
                merge(shards_of(folder))
        assert files(merge(shards_of(folder)).path) == wanted
    with pytest.raises(UsageError, match="holds this run already"):
        merge(shards_of(folder))


def killed_after(steps: int) -> Callable[[RunDir, str, str], None]:
    """`RunDir.seal` for so many files; then Ctrl-C."""
    left, seal = iter(range(steps)), RunDir.seal

    def sealed(run: RunDir, name: str, text: str) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt
        seal(run, name, text)

    return sealed


def test_an_unsharded_run_that_was_begun_is_not_written_over(folder: Path) -> None:
    sharded(folder)
    run = go(folder).result.run
    run.set_status("interrupted")
    before = files(run.path)
    with pytest.raises(UsageError, match="unsharded and unfinished"):
        merge(shards_of(folder))
    assert files(run.path) == before


def test_shards_put_aside_are_not_counted(folder: Path) -> None:
    sharded(folder)
    go(folder, shard={"index": 1, "count": 3}, fresh=True)
    (aside,) = folder.glob("runs/made_up/*.old1")
    assert len(shards_of(folder)) == 3
    assert merge(shards_of(folder)).path == target_of(folder)
    assert find_run(aside).path == aside


def test_a_run_that_was_put_aside_is_not_the_one_that_is_meant(folder: Path) -> None:
    go(folder)
    run = go(folder, fresh=True).result.run
    assert find_run(folder).path == run.path
    run.path.rename(folder / "gone")
    (folder / "gone" / "sealed" / "config.json").unlink()
    with pytest.raises(UsageError, match="no run at"):
        find_run(folder)


@pytest.mark.parametrize("text", ["[]", '{"shard": 5}', '{"shard": {"index": 0}}', '{"shard": {"index": 7, "count": 3}}',
                                  '{"shard": {"index": "a", "count": 3}}', '{"shard": {"index": 0.5, "count": 3}}', "{}",
                                  '"text"', "{"])  # fmt: skip
def test_a_damaged_configuration_is_one_line(folder: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    sharded(folder)
    shards = shards_of(folder)
    (shards[0].sealed / "config.json").write_text(text)
    for given in ([str(folder / "runs" / "made_up")], [str(shard.path) for shard in shards]):
        assert main(["merge", *given]) == 5
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        assert "config.json" in err


def test_a_changed_configuration_is_found_by_its_folder(folder: Path) -> None:
    sharded(folder)
    path = shards_of(folder)[0].sealed / "config.json"
    path.write_text(path.read_text().replace("12345", "54321"))
    with pytest.raises(IntegrityError, match="was altered"):
        shards_of(folder)


def test_records_and_ledgers_of_another_form_are_damage(folder: Path) -> None:
    sharded(folder)
    shards = shards_of(folder)
    ledger = shards[0].log / "ledger.json"
    kept = ledger.read_text()
    for text in ("[]", '{"lines": [{"user": 1}]}', '{"lines": 5}'):
        ledger.write_text(text)
        with pytest.raises(IntegrityError, match=r"ledger.json is damaged"):
            merge(shards)
    ledger.write_text(kept)
    shards[0].seal("floors.jsonl", '{"row": "x"}\n')
    shards[0].close_seal()
    with pytest.raises(IntegrityError, match="names no user"):
        merge(shards)


def test_a_killed_shard_is_unfinished_and_not_altered(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sharded(folder)
    shards = shards_of(folder)
    for name in ("seal.json", "predictions.jsonl"):  # as a run that is worked on, or was killed, looks
        (shards[1].sealed / name).unlink()
    (shards[1].log / "status.json").unlink()
    with pytest.raises(IncompleteRun, match="the same command goes on"):
        merge(shards)
    assert main(["table", str(shards[1].path)]) == 4
    assert "is not finished: it is being worked on, or was killed" in capsys.readouterr().err
    shards[1].set_status("interrupted")  # by an attempt before
    with pytest.raises(IncompleteRun, match="the same command goes on"):
        shards[1].check_seal()
    shards[1].set_status("complete")
    with pytest.raises(IntegrityError, match="missing or was altered"):
        shards[1].check_seal()


def test_a_sweep_over_seeds_with_shards_is_merged_seed_by_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_records(tmp_path / "people.jsonl", n=8)
    rows = {"nopers": {"_target_": "personalink.contexts.NoPersonalization"}}
    for seed, index in ((0, 0), (0, 1), (1, 0), (1, 1), (2, 1)):
        go(tmp_path, ScriptedLM(random_script(5)), seed=seed, shard={"index": index, "count": 2}, context=rows)
    assert main(["merge", "runs/made_up"]) == 2
    out, err = capsys.readouterr()
    assert {line for line in out.splitlines() if line.startswith("seed=")} == {"seed=0", "seed=1"}
    assert out.count("n = 8 users") == 2
    assert err.count("\n") == 1
    assert "seed=2: shard 0 of 2 is missing" in err
    go(tmp_path, ScriptedLM(random_script(5)), seed=2, shard={"index": 0, "count": 2}, context=rows)
    assert main(["merge", "runs/made_up"]) == 0
    out, err = capsys.readouterr()
    assert (out.count("merged already"), out.count("n = 8 users"), err) == (2, 1, "")

"""The analyser on runs: which users, what is written, what it is measured against; and its command."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from personalink.cli import main
from personalink.contraction import Contraction, of_run, save
from personalink.errors import ConfigError, DataError, IncompleteRun, IntegrityError, StorageError, UsageError
from personalink.lm import ScriptedLM
from personalink.report.results import refinements_of
from personalink.run_dir import RunDir, find_run
from tests.people import LABELS, random_script
from tests.test_contraction import ByWord
from tests.test_encoder import real
from tests.test_experiment import ROWS, go, write_records

PERSONAS = {name: ROWS[name] for name in ("nopers", "personalink_r3")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of eight users, and one of the same users with another model beside it."""
    root = tmp_path_factory.mktemp("runs")
    write_records(root / "people.jsonl", n=8)
    for seed, name in ((5, "newer"), (9, "older")):
        go(root, ScriptedLM(random_script(seed)), context=PERSONAS, name=name, optimizer={"gate": "no_regress"})
    return root


@pytest.fixture
def run(folder: Path) -> RunDir:
    return find_run(folder / "runs" / "newer")


def copied(run: RunDir, target: Path) -> RunDir:
    """The same run elsewhere, to be spoilt."""
    for path in (p for p in run.path.rglob("*") if p.is_file()):
        (there := target / path.relative_to(run.path)).parent.mkdir(parents=True, exist_ok=True)
        there.write_bytes(path.read_bytes())
    return RunDir(target)


def test_a_run_is_measured_as_its_refinements_are(run: RunDir) -> None:
    found, refinements = of_run(run, ByWord(), draws=200), refinements_of(run)
    assert [one.user for one in found.users] == [e["user"] for e in run.read_json("sealed/manifest.json")["entries"]]
    assert found.seed == run.read_json("sealed/config.json")["seed"]
    assert any(one.moved for one in found.users)
    for one in found.users:
        texts = [refinements[one.user].at(depth).render() for depth in range(4)]
        assert one.changed == tuple(a != b for a, b in pairwise(texts))
        assert one.accepted == tuple(p.accepted for p in refinements[one.user].passes)
    assert found == of_run(str(run.path), ByWord(), draws=200)


def test_the_first_users_of_the_manifest(run: RunDir) -> None:
    everyone = of_run(run, ByWord(), draws=50).users
    few = of_run(run, ByWord(), draws=50, users=3)
    assert [one.user for one in few.users] == [one.user for one in everyone[:3]]
    assert [one.displacement for one in few.users] == [one.displacement for one in everyone[:3]]
    assert of_run(run, ByWord(), draws=50, users=99).users == everyone
    for wrong in (0, -1, True, 1.5):
        with pytest.raises(ConfigError, match="users is"):
            of_run(run, ByWord(), users=wrong)  # type: ignore[arg-type]


def test_users_without_a_loop_are_passed_over(tmp_path: Path) -> None:
    write_records(tmp_path / "people.jsonl", n=4)
    lines = (tmp_path / "people.jsonl").read_text().splitlines(keepends=True)
    gone = [f'"u1-{i}"' for i in range(3, 26)]  # too few items are left for a slice
    (tmp_path / "people.jsonl").write_text("".join(line for line in lines if not any(item in line for item in gone)))
    go(tmp_path, context=PERSONAS)
    found = of_run(tmp_path / "runs", ByWord(), draws=50)
    assert set(found.left_out) == {"u1"}
    assert len(found.users) == 3
    assert len(of_run(tmp_path / "runs", ByWord(), draws=50, users=3).users) == 3


def test_drift_against_an_older_run(folder: Path, run: RunDir) -> None:
    found = of_run(run, ByWord(), draws=50, against=folder / "runs" / "older")
    assert found.drift is not None
    assert len(found.drift.users) == 8
    assert found.drift.against == find_run(folder / "runs" / "older").path.name
    assert found.drift.whole > 0
    same = of_run(run, ByWord(), draws=50, against=run, users=2).drift
    assert same is not None
    assert (same.same, same.whole, same.only_there) == (1, 0, 6)
    assert [one.user for one in same.users] == [one.user for one in found.drift.users[:2]]


def test_an_older_run_of_another_task_is_refused(folder: Path, run: RunDir, tmp_path: Path) -> None:
    task = {"kind": "label", "name": "other", "instruction": "Say it.", "labels": list(LABELS)}
    write_records(tmp_path / "people.jsonl", n=2)
    go(tmp_path, context=PERSONAS, task=task)
    with pytest.raises(UsageError, match="is a run of task other, not compass"):
        of_run(run, ByWord(), against=tmp_path / "runs")


def test_what_is_written_is_derived_and_the_same_bytes(run: RunDir, tmp_path: Path) -> None:
    target = copied(run, tmp_path / "run")
    before = {p: p.read_bytes() for p in target.path.rglob("*") if p.is_file()}
    measured = of_run(target, ByWord(), draws=200)
    files = save(target, measured)
    assert [str(f.relative_to(target.path)) for f in files] == ["report/contraction.json", "report/contraction.csv"]
    first = [f.read_bytes() for f in files]
    assert Contraction.from_dict(json.loads(first[0])) == measured
    assert [f.read_bytes() for f in save(target, of_run(target, ByWord(), draws=200))] == first
    assert {p: p.read_bytes() for p in before} == before
    target.check_seal()
    assert str(tmp_path).encode() not in first[0]


def test_a_folder_that_cannot_be_written(run: RunDir, tmp_path: Path) -> None:
    target = copied(run, tmp_path / "run")
    (target.path / "report").write_text("in the way")
    with pytest.raises(StorageError, match="report cannot be written"):
        save(target, of_run(target, ByWord(), draws=50))


def test_runs_that_cannot_be_measured(run: RunDir, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run at"):
        of_run(tmp_path, ByWord())
    spoilt = copied(run, tmp_path / "spoilt")
    (product,) = (spoilt.sealed / "products").glob("Refine-*")
    product.write_text(product.read_text().replace("south", "north"))
    with pytest.raises(IntegrityError, match="missing or was altered"):
        of_run(spoilt, ByWord())
    broken = copied(run, tmp_path / "broken")
    (broken.sealed / "manifest.json").write_text('{"entries": [{}]}')
    broken.close_seal()
    with pytest.raises(IntegrityError, match="is damaged: KeyError 'user'"):
        of_run(broken, ByWord())
    unsealed = copied(run, tmp_path / "unsealed")
    (unsealed.sealed / "seal.json").unlink()
    with pytest.raises(IncompleteRun, match="nothing of it is sealed"):
        of_run(unsealed, ByWord())
    write_records(tmp_path / "people.jsonl", n=2)
    go(tmp_path, context={"nopers": ROWS["nopers"]})
    with pytest.raises(UsageError, match="holds no refinement"):
        of_run(tmp_path / "runs", ByWord())
    go(tmp_path, context=PERSONAS, name="flat", optimizer={"depth": 0})
    with pytest.raises(DataError, match="has a pass to measure"):
        of_run(tmp_path / "runs" / "flat", ByWord())


# the command


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["contraction", *words])
    out, err = capsys.readouterr()
    return code, out, err


class AsEncoder(ByWord):
    """A sentence encoder for where the real one is not installed."""

    def __init__(self, model: str | None = None, **settings: Any) -> None:
        self.id = model or "words"


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("personalink.encoder.SentenceEncoder", AsEncoder)


@pytest.mark.usefixtures("light")
def test_the_command_writes_and_tells(run: RunDir, folder: Path, tmp_path: Path, capsys: Any) -> None:
    one, two = copied(run, tmp_path / "a"), copied(run, tmp_path / "b")
    code, out, err = call(capsys, str(one.path), str(two.path), "--encoder", "mine", "--users", "5")
    assert code == 0
    for said in ("displacement", "Rules", "5 users", "Encoder: mine", f"written: {two.path}"):
        assert said in out
    assert "measuring" in err
    assert (one.path / "report/contraction.json").read_bytes() == (two.path / "report/contraction.json").read_bytes()
    code, out, _ = call(capsys, str(one.path), "--json", "--against", str(folder / "runs" / "older"))
    assert code == 0
    assert json.loads(out) == json.loads((one.path / "report/contraction.json").read_text())
    assert json.loads(out)["drift"]["against"]


@pytest.mark.usefixtures("light")
@pytest.mark.parametrize("users", ["0", "-1", "many", "١", "1" * 12])
def test_a_wrong_number_of_users(run: RunDir, capsys: Any, users: str) -> None:
    code, out, err = call(capsys, str(run.path), f"--users={users}")
    assert (code, out) == (2, "")
    assert f"--users is {users!r}" in err


def test_an_encoder_that_is_not_there_is_one_line(run: RunDir, capsys: Any) -> None:
    code, _, err = call(capsys, str(run.path), "--encoder", "no-such-encoder")
    assert code == 2
    assert len(err.strip().splitlines()) == 1
    assert "no-such-encoder" in err or "personalink[embed]" in err


@real
def test_with_the_real_encoder(run: RunDir, tmp_path: Path, capsys: Any) -> None:
    target = copied(run, tmp_path / "run")
    code, out, err = call(capsys, str(target.path))
    assert code == 0
    assert "Encoder: all-MiniLM-L6-v2, 256 tokens" in out
    assert "Loading" not in err
    first = (target.path / "report/contraction.json").read_bytes()
    assert call(capsys, str(target.path))[1] == out
    assert (target.path / "report/contraction.json").read_bytes() == first
    found = Contraction.from_dict(json.loads(first))
    assert found.steps[0] is not None
    assert 0.5 < found.steps[0] < 1.5
    assert found.overlong == 0

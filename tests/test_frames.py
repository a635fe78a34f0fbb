"""A run as data frames: every column as documented, the numbers those of the run, and the unknown NA."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

import personalink as pl
from personalink import frames
from personalink.errors import IncompleteRun, IntegrityError, UsageError
from personalink.lm import ScriptedLM
from tests.people import STARS, random_script
from tests.test_experiment import ROWS, go, write_records

pd = pytest.importorskip("pandas")
DOCS = Path(__file__).parent.parent / "docs" / "inspecting.md"
FRAMES = {
    "users": frames.USERS,
    "personas": frames.PERSONAS,
    "passes": frames.PASSES,
    "predictions": frames.PREDICTIONS,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of six users, made once."""
    folder = tmp_path_factory.mktemp("made")
    write_records(folder / "people.jsonl")
    go(folder)
    return next(folder.glob("runs/made_up/*"))


def test_every_frame_has_the_columns_and_dtypes_that_are_told(made: Path) -> None:
    run = pl.open_run(made)
    for name, dtypes in FRAMES.items():
        frame = getattr(run, name)
        assert list(frame.columns) == list(dtypes)
        assert {column: frame[column].dtype for column in frame} == {
            c: pd.Series([], dtype=d).dtype for c, d in dtypes.items()
        }
    tests = run.tests("rag_1")
    assert {c: tests[c].dtype for c in tests} == {c: pd.Series([], dtype=d).dtype for c, d in frames.TESTS.items()}


def test_every_column_is_documented() -> None:
    text = DOCS.read_text()
    for name, dtypes in {**FRAMES, "tests": frames.TESTS}.items():
        section = re.search(rf"### `{name}.*?\n(.*?)(?=\n###|\n## |\Z)", text, re.DOTALL)
        assert section, name
        told = re.findall(r"^\| `(.+?)` \| (\w+) \|", section[1], re.MULTILINE)
        assert [(c, d) for names, d in told for c in names.split("`, `")] == list(dtypes.items()), name


def test_users_and_personas_are_those_of_the_refinements(made: Path) -> None:
    run = pl.open_run(str(made))
    users = run.users.set_index("user")
    assert bool(users.finished.all())
    assert users.why.isna().all()
    for user, one in run.refinements.items():
        row = users.loc[user]
        assert (row.history, row.kept, row.passes) == (26, sum(p.accepted for p in one.passes), 3)
        assert row.slice_after - row.slice_before == row.gain
        mine = run.personas[run.personas.user == user]
        assert list(mine.depth) == [0, 1, 2, 3]
        assert list(mine.text) == [one.at(depth).render() for depth in range(4)]
        assert list(mine["audit"]) == [score.value for score in one.audit]
        assert run.persona(user) == one.persona
        assert run.persona(user, 0).is_empty
        assert list(run.passes[run.passes.user == user].accepted) == [p.accepted for p in one.passes]


def test_predictions_give_the_metrics(made: Path) -> None:
    run = pl.open_run(made)
    sealed = json.loads((made / "sealed" / "metrics.json").read_text())
    metrics = run.metrics.set_index("row")
    assert list(metrics.index) == list(run.predictions.row.unique())
    for row, right in run.predictions.groupby("row").right.mean().items():
        assert metrics.loc[row, "accuracy"] == pytest.approx(sealed[row]["accuracy"]) == pytest.approx(right)
        assert metrics.loc[row, "n"] == 6
    floors = run.predictions[run.predictions.kind == "floor"]
    assert floors.context_tokens.isna().all()
    assert floors["items"].isna().all()
    assert metrics.loc["Floor: majority label", "context_tokens"] is pd.NA
    rag = run.predictions[run.predictions.row == "rag_5"]
    assert all(len(items) == 5 for items in rag["items"])


def test_what_the_server_did_not_tell_is_na(made: Path) -> None:
    predictions = pl.open_run(made).predictions
    assert predictions.margin.isna().all()
    assert predictions.expected.isna().all()
    assert predictions[predictions.kind == "floor"].prompt_tokens.isna().all()


def test_tests_are_those_of_the_report(made: Path) -> None:
    run = pl.open_run(made)
    one = run.tests("rag_1")
    assert list(one.a) == [row for row in ROWS if row != "rag_1"]
    assert set(one.b) == {"rag_1"}
    assert (one.p_holm >= one.p).all()
    right = run.predictions.pivot(index="user", columns="row", values="right")
    for _, test in one.iterrows():
        assert test.a_better == (right[test.a] & ~right["rag_1"]).sum()
        assert test.difference == pytest.approx(right[test.a].mean() - right["rag_1"].mean())
    with pytest.raises(UsageError, match="did you mean 'rag_1'"):
        run.tests("rag_2")


def test_ratings_have_errors_and_tests(tmp_path: Path) -> None:
    write_records(tmp_path / "people.jsonl", n=4)
    text = (tmp_path / "people.jsonl").read_text()
    for label, stars in zip(("north", "south", "east", "west"), "1245", strict=True):
        text = text.replace(f'"label": "{label}"', f'"label": "{stars}"')
    (tmp_path / "people.jsonl").write_text(text)
    rows = {row: ROWS[row] for row in ("nopers", "rag_1", "personalink_r2")}
    task = {"kind": "rating", "name": "stars", "instruction": STARS.instruction}
    go(tmp_path, ScriptedLM(random_script(5, tuple("12345"))), task=task, context=rows)
    run = pl.open_run(tmp_path)
    methods = run.predictions[run.predictions.kind == "method"]
    metrics = run.metrics.set_index("row")
    for row, error in methods.groupby("row").error.mean().items():
        assert metrics.loc[row, "mae"] == pytest.approx(error)
    assert set(run.tests().test) == {"paired bootstrap of |error|"}
    assert len(run.tests()) == 3


def test_an_unfinished_run_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    write_records(tmp_path / "people.jsonl")
    go(tmp_path, budget={"user_calls": 1})
    run = pl.open_run(tmp_path)
    assert "0 of 6 users" in repr(run)
    assert not run.users.finished.any()
    assert run.users.why.notna().all()
    assert run.users.gain.isna().all()
    assert (len(run.personas), len(run.passes)) == (0, 0)
    assert len(run.predictions) == 0
    with pytest.raises(IncompleteRun, match="u1"):
        run.persona("u1")


def test_a_run_of_which_nothing_is_sealed(made: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    shutil.copytree(made, run_dir)
    for path in (run_dir / "sealed").iterdir():
        if path.name not in ("config.json", "manifest.json"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    run = pl.open_run(run_dir)
    assert not run.users.finished.any()
    assert "nothing of it is sealed yet" in run._repr_html_()
    for name in ("predictions", "metrics"):
        with pytest.raises(IncompleteRun, match="nothing of it is sealed yet"):
            getattr(run, name)


def test_what_is_wrong_is_said(made: Path, tmp_path: Path) -> None:
    run = pl.open_run(made)
    with pytest.raises(UsageError, match="no user 'u77'"):
        run.persona("u77")
    with pytest.raises(UsageError, match="depth is 4"):
        run.persona("u1", 4)
    with pytest.raises(UsageError, match="no run at"):
        pl.open_run(tmp_path / "nowhere")
    altered = tmp_path / "altered"
    shutil.copytree(made, altered)
    (altered / "sealed" / "golds.jsonl").write_text("")
    with pytest.raises(IntegrityError, match=r"golds\.jsonl is missing or was altered"):
        _ = pl.open_run(altered).predictions


def test_a_notebook_shows_what_the_run_is_with_nothing_unescaped(tmp_path: Path) -> None:
    write_records(tmp_path / "people.jsonl", n=2)
    go(tmp_path, context={"nopers": ROWS["nopers"]}, notes=["<script>alert(1)</script>"])
    shown = pl.open_run(tmp_path)._repr_html_()
    assert "NoPers" in shown
    assert "&lt;script&gt;" in shown
    assert "<script>" not in shown

"""Figures: the data beside each are the evidence's, what is left out says why, and the same evidence has the same bytes."""

from __future__ import annotations

import csv
import io
import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from personalink.errors import StorageError
from personalink.metrics import bootstrap_interval
from personalink.report import figures
from personalink.report.evidence import Evidence, load
from personalink.report.figures import Drawn, LeftOut, Sketch
from personalink.report.figures.subject import DRAWS, bands
from personalink.report.tables import selection_table
from personalink.stats import tango, wilson
from personalink.tasks import RatingTask
from tests.report.figures_evidence import contracted, evidence
from tests.report.runs import ROWS, finished, rated

pytest.importorskip("matplotlib", reason="needs the extra `report`")

NAMES = [figure.name for figure in figures.FIGURES]
ALWAYS = {"rating_reliability"}  # left out of a label task, whatever it holds


@pytest.fixture(scope="module")
def news() -> Evidence:
    return evidence(60, "lamp2")


@pytest.fixture(scope="module")
def stars() -> Evidence:
    return evidence(60, "lamp3")


@pytest.fixture(scope="module")
def drawn(news: Evidence, tmp_path_factory: pytest.TempPathFactory) -> list[Drawn]:
    return figures.draw(news, tmp_path_factory.mktemp("figures"))


def sketched(found: Evidence, name: str) -> Sketch | LeftOut:
    return next(figure for figure in figures.FIGURES if figure.name == name).sketch(found)


def records(found: Evidence, name: str) -> list[dict[str, Any]]:
    sketch = sketched(found, name)
    assert isinstance(sketch, Sketch), sketch.reason
    return sketch.data.records()


def reason(found: Evidence, name: str) -> str:
    sketch = sketched(found, name)
    assert isinstance(sketch, LeftOut)
    assert "\n" not in sketch.reason
    return sketch.reason


def few(found: Evidence) -> Evidence:
    """So little that two figures are drawn, which is quick."""
    return replace(found, rows={"nopers": found.rows["nopers"]}, refinements={}, contraction=None)


def test_every_figure_is_drawn_in_three_formats_with_its_data_and_a_caption_that_counts(drawn: list[Drawn]) -> None:
    assert [one.name for one in drawn] == NAMES
    for one in drawn:
        if one.name in ALWAYS:
            assert (one.paths, one.caption) == ((), "")
            assert one.left_out
            continue
        assert one.left_out == ""
        assert [path.name for path in one.paths] == [f"{one.name}.{kind}" for kind in ("svg", "pdf", "png", "csv")]
        assert [path.read_bytes()[:4] for path in one.paths[:3]] == [b"<?xm", b"%PDF", b"\x89PNG"]
        assert "n = " in one.caption
    folder = drawn[0].paths[0].parent
    assert len(list(folder.iterdir())) == 4 * (len(NAMES) - len(ALWAYS))  # nothing half-written beside them


def test_the_same_evidence_gives_the_same_bytes_in_another_process_with_other_settings(
    drawn: list[Drawn], tmp_path: Path
) -> None:
    code = (
        "import sys, matplotlib\nfrom pathlib import Path\n"
        "matplotlib.rcParams.update({'font.size': 30, 'axes.facecolor': 'black', 'svg.fonttype': 'none',"
        " 'text.usetex': True, 'axes.spines.top': True, 'path.sketch': (1, 100, 2)})\n"
        "from personalink.report import figures\nfrom tests.report.figures_evidence import evidence\n"
        "figures.draw(evidence(60, 'lamp2'), Path(sys.argv[1]))\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "77", "TZ": "Asia/Tokyo", "SOURCE_DATE_EPOCH": "12345"}
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=environment, cwd=root, check=True)
    for one in drawn:
        for path in one.paths:
            assert path.read_bytes() == (tmp_path / path.name).read_bytes(), path.name


def test_no_date_and_no_version_in_a_file_and_no_type_3_font(drawn: list[Drawn]) -> None:
    for one in drawn:
        for path in one.paths[:3]:
            content = path.read_bytes()
            for word in (b"CreationDate", b"matplotlib.org", b"Matplotlib v", b"<dc:date>", b"/Type3", b"Software"):
                assert word not in content, (path.name, word)


def test_nothing_of_the_drawing_library_is_changed_and_no_window_is_opened(news: Evidence, tmp_path: Path) -> None:
    import matplotlib

    before = {**matplotlib.rcParams}
    figures.draw(few(news), tmp_path)
    assert {**matplotlib.rcParams} == before
    code = (
        "import sys\nfrom pathlib import Path\nfrom personalink.report import figures\n"
        "assert not any(m.split('.')[0] == 'matplotlib' for m in sys.modules)\n"
        "from tests.report.figures_evidence import evidence\n"
        "e = evidence(1, 'lamp2', loop=False, margins=False)\n"
        "figures.draw(e, Path(sys.argv[1]))\nassert 'matplotlib.pyplot' not in sys.modules\n"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "other")], cwd=root, check=True)


def test_without_the_library_the_data_are_written_and_the_remedy_is_named(tmp_path: Path) -> None:
    code = (
        "import sys\nsys.modules['matplotlib'] = None\nfrom pathlib import Path\n"
        "from personalink.report import figures\nfrom tests.report.figures_evidence import evidence\n"
        "drawn = figures.draw(evidence(12, 'lamp2'), Path(sys.argv[1]))\n"
        "made = [one for one in drawn if one.paths]\nassert len(made) >= 10\n"
        "assert all(one.left_out == figures.NO_MATPLOTLIB and len(one.paths) == 1 for one in made)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=Path(__file__).parents[2], check=True)
    assert {path.suffix for path in tmp_path.iterdir()} == {".csv"}
    assert "personalink[report]" in figures.NO_MATPLOTLIB


def test_csv_holds_what_is_shown_at_full_precision(news: Evidence, drawn: list[Drawn]) -> None:
    for one in drawn:
        if one.paths:
            rows = list(csv.DictReader(io.StringIO(one.paths[3].read_text(encoding="utf-8"))))
            written = [{k: "" if v is None else str(v) for k, v in r.items()} for r in records(news, one.name)]
            assert rows == written


@pytest.mark.parametrize("kind", ["label", "rating"])
def test_rows_cost_and_depth_are_the_results_table(kind: str, news: Evidence, stars: Evidence) -> None:
    found, metric, second = (news, "accuracy", "macro_f1") if kind == "label" else (stars, "mae", "rmse")
    scores = found.results.metrics
    for name in ("rows", "figure3_quality_by_cost", "figure4_depth"):
        for r in records(found, name):
            theirs = scores[r["row"]]
            assert r[metric] == theirs[metric]
            assert (r[f"{metric}_low"], r[f"{metric}_high"]) == theirs["interval"]
            assert r["n"] == theirs["n"]
            assert r[f"paper_{metric}"] == (theirs["paper"] or {}).get(metric)
    assert [r["row"] for r in records(found, "rows")] == list(found.rows)
    costs = {r["row"]: r["context_tokens"] for r in records(found, "figure3_quality_by_cost")}
    assert costs["rag_5"] == scores["rag_5"]["context_tokens"]
    assert "random_user_demos" not in costs
    assert "personalink_r3" not in costs
    depths = [(r["depth"], r["row"], r["gated"]) for r in records(found, "figure4_depth")]
    ours = [(r, f"personalink_r{r}", True) for r in (1, 2, 3)]
    assert depths == [(0, "nopers", True), *ours, (1, "pag", False)]
    r = records(found, "figure4_depth")[2]
    scored = found.scored(r["row"])
    assert (r[f"{second}_low"], r[f"{second}_high"]) == bootstrap_interval(found.task, scored, second, draws=DRAWS)


def test_the_paper_stands_only_beside_the_papers_data(news: Evidence) -> None:
    sample = replace(news, config={**news.config, "data": {"kind": "sample"}})
    assert all(r["paper_accuracy"] is None for r in records(sample, "rows"))
    assert "paper" not in sketched(sample, "rows").caption  # type: ignore[union-attr]


def test_confusion_counts_every_answer_once(news: Evidence, stars: Evidence) -> None:
    for found in (news, stars):
        cells = records(found, "confusion")
        judged = found.judged("personalink_r2")
        assert sum(r["count"] for r in cells) == len(judged)
        right = sum(r["count"] for r in cells if r["gold"] == r["answer"])
        assert right == sum(one.right for one in judged)
        none = sum(r["count"] for r in cells if r["answer"] == "no label")
        assert none == sum(one.prediction.label is None for one in judged)


def test_gains_are_paired_and_have_their_intervals(news: Evidence, stars: Evidence) -> None:
    base = {one.key: one for one in news.judged("nopers")}
    for r in records(news, "label_gain"):
        pairs = [(a, base[a.key]) for a in news.judged("personalink_r2") if a.gold == r["gold"]]
        better = sum(a.right and not b.right for a, b in pairs)
        worse = sum(b.right and not a.right for a, b in pairs)
        assert (r["n"], r["better"], r["worse"]) == (len(pairs), better, worse)
        interval = tango(better, worse, len(pairs))
        assert (r["gain"], r["gain_low"], r["gain_high"]) == (interval.estimate, interval.low, interval.high)
    total = sum(r["gain"] * r["n"] for r in records(stars, "label_gain"))
    difference = [stars.results.metrics[row]["mae"] for row in ("nopers", "personalink_r2")]
    assert total / 60 == pytest.approx(difference[0] - difference[1])
    assert all(r["gain_low"] is None for r in records(stars, "label_gain") if r["n"] < 5)


def test_history_groups_hold_every_user_once_and_equal_sizes_together(news: Evidence) -> None:
    groups = records(news, "history_gain")
    assert sum(r["users"] for r in groups) == 60
    assert all(r["users"] >= 10 for r in groups)
    assert all(a["history_to"] < b["history_from"] for a, b in pairwise(groups))
    same = replace(news, history_size=dict.fromkeys(news.users, 9))
    assert reason(same, "history_gain").startswith("60 users: too few for two groups")


def test_reliability_is_of_the_ratings_that_were_read(stars: Evidence) -> None:
    for r in records(stars, "rating_reliability"):
        golds = [int(str(o.gold)) for o in stars.judged(r["row"]) if o.prediction.label == str(r["rating"])]
        assert r["n"] == len(golds)
        assert r["mean_gold"] == pytest.approx(sum(golds) / len(golds))
    assert {r["row"] for r in records(stars, "rating_reliability")} == {"nopers", "rag_5", "personalink_r2"}


def test_passes_and_audit_agree_with_the_selection_table(news: Evidence) -> None:
    made = selection_table(list(news.refinements.values()))
    table = [dict(zip([c.key for c in made.columns], row, strict=True)) for row in made.rows]
    for r, theirs in zip(records(news, "slice_audit"), table, strict=True):
        assert (r["depth"], r["users"]) == (theirs["depth"], theirs["audited_users"])
        assert (r["selection"], r["audit"]) == (theirs["selection_audited"], theirs["audit"])
        assert r["audit_low"] <= r["audit"] <= r["audit_high"]
    for r, theirs in zip(records(news, "accepted"), table[1:], strict=True):
        assert r["proposed"] == theirs["candidates"]
        assert r["accepted_share"] == theirs["accepted_share"]
        share = wilson(r["accepted"], r["proposed"])
        assert (r["accepted_share_low"], r["accepted_share_high"]) == (share.low, share.high)
        assert sum(r[end] for end in ("accepted", "not_better", "same", "unusable", "idle")) == r["users"] == 60


def test_movement_is_what_the_contraction_measured(news: Evidence) -> None:
    assert news.contraction is not None
    theirs = {one["user"]: one for one in news.contraction["users"]}
    for r in records(news, "figure5_trajectories"):
        assert [r["x"], r["y"]] == theirs[r["user"]]["points"][r["depth"]]
    decay = records(news, "figure6_decay")
    for r in decay:
        if r["kind"] == "user":
            assert r["displacement"] == theirs[r["user"]]["displacement"][r["pass"] - 1]
    means = [r for r in decay if r["kind"] == "mean"]
    assert [r["displacement"] for r in means] == news.contraction["decay"]["means"]
    fit = news.contraction["decay"]["fit"]
    assert [r["fit"] for r in means] == [fit["scale"] * fit["L"] ** t for t in range(3)]
    assert f"L = {fit['L']:.3f}" in sketched(news, "figure6_decay").caption  # type: ignore[union-attr]
    assert {r["field"] for r in records(news, "field_motion")} == set(news.contraction["fields"])


def test_near_ties_are_counted_as_the_table_does(news: Evidence) -> None:
    for r in records(news, "near_ties"):
        margins = [one.prediction.margin for one in news.rows[r["row"]]]
        assert r["near_ties"] == sum(m < 0.05 for m in margins if m is not None)
        assert r["n"] == 60
        assert r["q5"] <= r["q25"] <= r["q50"] <= r["q75"] <= r["q95"]


def test_everything_that_is_left_out_says_why(news: Evidence, stars: Evidence) -> None:
    blind = evidence(5, "lamp2", golds=False)
    for name in ("rows", "figure3_quality_by_cost", "confusion"):
        assert "gold label" in reason(blind, name)
    assert "two depths" in reason(blind, "figure4_depth")
    alone = evidence(5, "lamp2", rows={"rag_5": ROWS["rag_5"]}, loop=False, margins=False)
    assert "same size" in reason(alone, "figure3_quality_by_cost")
    assert "two depths" in reason(alone, "figure4_depth")
    for name in ("label_gain", "history_gain"):
        assert "PersonaLink row and NoPers" in reason(alone, name)
    for name in ("accepted", "slice_audit"):
        assert "no row of this run has a refinement" in reason(alone, name)
    assert "no answer has a margin" in reason(alone, "near_ties")
    for name in ("figure5_trajectories", "figure6_decay", "field_motion"):
        assert "personalink contraction" in reason(alone, name)
        assert "not a contraction of version" in reason(replace(news, contraction={"version": 99}), name)
    still = evidence(5, "lamp2", path="runs/x")
    made = {
        user: replace(r, passes=tuple(replace(p, accepted=False) for p in r.passes))
        for user, r in still.refinements.items()
    }
    import numpy as np

    unmoved = replace(still, contraction=contracted(made, np.random.default_rng(1)).as_dict())
    assert "no pass changed any user's persona" in reason(unmoved, "figure5_trajectories")
    assert "no user has an audit slice" in reason(evidence(5, "lamp2", audit=False), "slice_audit")
    short = {user: replace(r, slice_ids=()) for user, r in news.refinements.items()}
    assert "too short for a slice" in reason(replace(news, refinements=short), "accepted")
    assert "5 users: too few" in reason(evidence(5, "lamp3"), "history_gain")
    assert "no ratings" in reason(news, "rating_reliability")
    assert isinstance(stars.task, RatingTask)
    unread = {
        row: tuple(replace(o, prediction=replace(o.prediction, label=None)) for o in some)
        for row, some in stars.rows.items()
    }
    assert "could be read as a rating" in reason(replace(stars, rows=unread), "rating_reliability")


def test_a_figure_that_is_left_out_later_takes_its_files_with_it(news: Evidence, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("kept")
    (tmp_path / "slice_audit.svg").write_text("old")
    figures.draw(few(news), tmp_path)
    assert not (tmp_path / "slice_audit.svg").exists()
    assert (tmp_path / "mine.txt").read_text() == "kept"


def test_a_file_is_whole_or_as_it_was(news: Evidence, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rows.svg").write_text("old")

    def full(source: str, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(StorageError, match="No space left on device; give another folder"):
        figures.draw(few(news), tmp_path)
    assert (tmp_path / "rows.svg").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["rows.svg"]


@pytest.mark.parametrize("make", [finished, rated])
def test_a_real_run_has_the_figures_that_its_data_allow(make: Any, tmp_path: Path) -> None:
    found = load(make(tmp_path))
    drawn = {figure.name: figure.sketch(found) for figure in figures.FIGURES}
    out = {name for name, sketch in drawn.items() if isinstance(sketch, LeftOut)}
    moving = {"figure5_trajectories", "figure6_decay", "field_motion"}
    assert out == moving | {"history_gain", "near_ties"} | (ALWAYS if make is finished else set())


def test_bands_are_bootstrap_means_drawn_once_for_all() -> None:
    values = [[0.0, 1.0, 1.0, 0.0, 1.0], [2.0, 2.0, 2.0, 2.0, 2.0]]
    (low, high), same = bands(values, 3)
    assert 0 <= low < 0.6 < high <= 1
    assert same == (2.0, 2.0)
    assert bands(values[:1], 3) == [(low, high)]

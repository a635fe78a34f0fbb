"""experiment=paper_lamp2 and paper_lamp3: one run has all that tables 2 to 5 and figures 3 to 6 are made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from personalink.cli import main
from personalink.cli.compose import compose, plain_values, run_config
from personalink.config import RunConfig
from personalink.report.contrasts import Choices
from personalink.report.evidence import load
from personalink.report.paper import PAPER_ROWS, PAPER_TABLES, paper_name
from personalink.report.report import make_tables


def composed(*words: str) -> RunConfig:
    found: list[Any] = []
    compose(words, lambda config: found.append(plain_values(config)))
    return run_config(found[0])


@pytest.mark.parametrize(("experiment", "task"), [("paper_lamp2", "lamp2"), ("paper_lamp3", "lamp3")])
def test_it_is_the_papers_protocol_with_every_row(experiment: str, task: str) -> None:
    config = composed(f"experiment={experiment}", "data.root=/data", "lm=scripted")
    rows = set(config.context)
    assert {row for paper in PAPER_TABLES for row in paper.rows} <= rows
    assert {paper_name(row) for row in rows} == set(PAPER_ROWS)
    assert (config.make_task().name, config.seed, config.data.n_users, config.data.split) == (task, 12345, 200, "dev")
    assert (config.optimizer.depth, config.optimizer.gate, config.optimizer.audit) == (3, "no_regress", 0)
    assert (config.constrain, config.data.max_top_label_share, config.data.max_history) == ("none", None, None)


def test_fewer_users_can_still_be_asked_for() -> None:
    assert composed("experiment=paper_lamp2", "data.root=/data", "data.n_users=8").data.n_users == 8


@pytest.mark.parametrize(
    ("experiment", "words"), [("paper_lamp2", ["data=news"]), ("paper_lamp3", ["data=films", "task=films"])]
)
def test_its_run_gives_every_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, experiment: str, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", f"experiment={experiment}", "lm=scripted", "data.n_users=3", "max_failed=1", *words]) == 0
    tables, remarks = make_tables(load(tmp_path / "runs"), Choices())
    assert list(tables) == ["results", "table2", "table3", "table4", "table5", "tests", "selection", "costs"]
    assert remarks == []

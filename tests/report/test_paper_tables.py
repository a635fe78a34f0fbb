"""Tables 2 to 5 over a run: the paper beside ours, stars, families, bold, counts, and what is said to be missing."""

from __future__ import annotations

import csv
import io
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from personalink import stats
from personalink.lm import ScriptedLM
from personalink.lm.base import Completion, Request
from personalink.report.contrasts import Choices
from personalink.report.evidence import Evidence, load
from personalink.report.files import write_tables
from personalink.report.layout import Table
from personalink.report.paper import PAPER_ROWS, PAPER_TABLES, paper_name
from personalink.report.report import make_tables
from tests.people import is_rewrite, random_script
from tests.report.runs import ROWS, finished, rated


def knows_the_way(request: Request) -> str | Completion:
    """Right behind demonstrations, wrong without: so that rows differ for certain."""
    if is_rewrite(request):
        return random_script(5)(request)
    asked = request.messages[-1].content
    return "north" if asked.count("Label:") > 1 else "nonsense"


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    return load(finished(tmp_path_factory.mktemp("tables"), n=40, lm=ScriptedLM(knows_the_way)))


@pytest.fixture(scope="module")
def made(evidence: Evidence) -> Mapping[str, Table]:
    return make_tables(evidence, Choices())[0]


def records(table: Table) -> dict[str, dict[str, str]]:
    return {record["row"]: record for record in csv.DictReader(io.StringIO(table.as_csv()))}


def test_every_table_is_made_with_the_papers_rows(evidence: Evidence) -> None:
    tables, remarks = make_tables(evidence, Choices())
    assert list(tables) == ["results", "table2", "table3", "table4", "table5", "tests", "selection", "costs"]
    assert remarks == []
    for paper in PAPER_TABLES:
        assert [row for row in records(tables[paper.name]) if row not in evidence.floors] == list(paper.rows)


def test_the_paper_stands_beside_ours_with_the_difference_and_whether_it_lies_within(
    made: Mapping[str, Table], tmp_path: Path
) -> None:
    two = {row: ROWS[row] for row in ("nopers", "rag_5")}
    few = make_tables(load(finished(tmp_path, script=1, context=two)), Choices())[0]
    seen = set()
    for table in (*(made[paper.name] for paper in PAPER_TABLES), few["table4"]):
        for row, record in records(table).items():
            printed = PAPER_ROWS.get(paper_name(row), {}).get("lamp2")
            for place, metric in enumerate(("accuracy", "macro_f1")):
                if printed is None:
                    assert record[f"paper_{metric}"] == record[f"paper_{metric}_within"] == ""
                    continue
                value, ours = printed[place], float(record[metric])
                assert float(record[f"paper_{metric}"]) == value
                assert float(record[f"difference_from_paper_{metric}"]) == ours - value
                within = float(record[f"{metric}_low"]) <= value <= float(record[f"{metric}_high"])
                assert record[f"paper_{metric}_within"] == ("yes" if within else "no")
                seen.add(within)
    assert seen == {True, False}
    line = next(line for line in made["table4"].as_markdown().splitlines() if line.startswith("| NoPers"))
    assert re.search(r"0\.645\\\*\\\* \([+−]\d\.\d{3}\)‡", line)


def test_stars_follow_the_p_that_holm_gives_over_the_table(made: Mapping[str, Table], evidence: Evidence) -> None:
    for paper in PAPER_TABLES:
        table = made[paper.name]
        tested = {row: record for row, record in records(table).items() if record["p"]}
        assert set(tested) == {*paper.rows} - {paper.reference}
        corrected = stats.holm([float(record["p"]) for record in tested.values()])
        for record, p in zip(tested.values(), corrected, strict=True):
            assert float(record["p_holm"]) == p
            assert record["stars"] == "*" * sum(p < level for level in (0.05, 0.01, 0.001))
            assert record["reference"] == paper.reference
    found = records(made["table4"])
    reference = evidence.judged("personalink_r2")
    p = stats.mcnemar([one.right for one in evidence.judged("rag_5")], [one.right for one in reference]).exact
    assert float(found["rag_5"]["p"]) == p
    assert any(record["stars"] for record in found.values())
    assert "Holm" in " ".join(made["table4"].notes)
    assert "†" in made["table4"].as_markdown()


def test_bold_is_the_best_method_and_neither_floor_nor_oracle(made: Mapping[str, Table], evidence: Evidence) -> None:
    table = made["table4"]
    keys = [column.key for column in table.columns]
    values = {number: cells[keys.index("accuracy")] for number, cells in enumerate(table.rows)}
    contest = {
        number: value
        for number, value in values.items()
        if table.rows[number][0] not in (*evidence.floors, "oracle") and isinstance(value, float)
    }
    best = {number for number, value in contest.items() if round(value, 3) == round(max(contest.values()), 3)}
    assert {number for number, column in table.bold if column == keys.index("accuracy")} == best


def test_the_tests_table_has_every_p_and_what_a_tie_amounts_to(made: Mapping[str, Table]) -> None:
    rows = list(csv.DictReader(io.StringIO(made["tests"].as_csv())))
    assert len(rows) == sum(len(paper.rows) - 1 for paper in PAPER_TABLES)
    for record in rows:
        assert float(record["p"]) == float(record["p_exact"]) >= float(record["p_mid"])
        assert float(record["margin"]) == 0.05
        assert record["verdict"] in (
            "better",
            "worse",
            "equivalent",
            "not inferior",
            "not superior",
            "undecided",
        )
    assert "no tie by itself" in " ".join(made["tests"].notes)


def test_another_reference_and_another_test(evidence: Evidence) -> None:
    tables, remarks = make_tables(evidence, Choices(reference="rag_5", mcnemar="chi2cc"))
    assert {record["reference"] for record in records(tables["table2"]).values()} == {"rag_5"}
    assert records(tables["table4"])["rag_5"]["p"] == ""
    assert "continuity" in records(tables["table4"])["nopers"]["test"]
    assert remarks == []


def test_unread_answers_are_counted_in_columns_and_otherwise_in_a_note(
    made: Mapping[str, Table], tmp_path: Path
) -> None:
    assert "| Invalid |" in made["table4"].as_markdown()
    assert int(records(made["table4"])["nopers"]["invalid"]) > 0
    quiet = load(finished(tmp_path, context={row: ROWS[row] for row in ("nopers", "rag_5")}, script=5,
                          lm=ScriptedLM(lambda request: "north")))  # fmt: skip
    tables, _ = make_tables(quiet, Choices())
    assert "Invalid" not in tables["table4"].as_markdown().split("\n- ")[0]
    assert "none invalid, none failed" in tables["table4"].as_markdown()


def test_what_is_missing_is_said_in_a_line_each(tmp_path: Path) -> None:
    few = load(finished(tmp_path, context={row: ROWS[row] for row in ("nopers", "rag_1", "rag_5", "pag")}))
    tables, remarks = make_tables(few, Choices())
    assert list(tables) == ["results", "table2", "table3", "table4", "tests", "costs"]
    told = "\n".join(remarks)
    assert "table2 is without personalink_r1, personalink_r2, personalink_r3" in told
    assert "table4 has no stars: the run has no row personalink_r2 to test against" in told
    assert "table5 is left out" in told
    assert "selection is left out" in told
    assert all("\n" not in remark for remark in remarks)
    none, remarks = make_tables(
        load(finished(tmp_path / "b", context={"nopers": ROWS["nopers"]})), Choices(reference="nopers")
    )
    assert list(none) == ["results", "costs"]
    assert any(remark.startswith("tests is left out") for remark in remarks)


def test_ratings_have_the_other_metrics_and_the_bootstrap(tmp_path: Path) -> None:
    tables, _ = make_tables(load(rated(tmp_path)), Choices())
    record = records(tables["table4"])["rag_5"]
    assert float(record["paper_mae"]) == 0.285
    assert float(record["mae_low"]) <= float(record["mae"]) <= float(record["mae_high"])
    assert float(record["rmse_low"]) <= float(record["rmse"]) <= float(record["rmse_high"])
    assert record["test"] == "paired bootstrap of |error|"
    assert "bear no claim" in " ".join(tables["table4"].notes)


def test_texts_are_compared_by_rouge(tmp_path: Path) -> None:
    pytest.importorskip("rouge_score")
    task = {"kind": "text", "name": "heads", "instruction": "Write a headline."}
    rows = {row: ROWS[row] for row in ("nopers", "rag_5", "personalink_r2")}
    evidence = load(finished(tmp_path, task=task, context=rows))
    found = records(make_tables(evidence, Choices())[0]["table4"])
    lost = [sum(one.error(evidence.task) for one in evidence.judged(row)) / 6 for row in ("rag_5", "personalink_r2")]
    assert float(found["rag_5"]["rouge_l"]) == pytest.approx(1 - lost[0])
    assert float(found["rag_5"]["difference"]) == pytest.approx(lost[1] - lost[0])
    assert found["rag_5"]["test"] == "paired bootstrap of ROUGE-L"


def test_an_unknown_task_has_no_paper_beside_it(tmp_path: Path) -> None:
    task = {"kind": "label", "name": "compass", "instruction": "Where?", "labels": ["north", "south", "east", "west"]}
    tables, _ = make_tables(load(finished(tmp_path, task=task)), Choices())
    assert "ours − paper" not in tables["table4"].as_markdown()
    assert "The paper prints none" not in tables["table3"].as_markdown()


def test_the_passes_after_the_first_are_told_under_table_2(made: Mapping[str, Table]) -> None:
    note = next(note for note in made["table2"].notes if note.startswith("PersonaLink r=2 − PAG"))
    assert "the paper: p = 0.77" in note


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed here")
def test_all_tables_compile_without_a_line_that_is_too_wide(made: Mapping[str, Table], tmp_path: Path) -> None:
    write_tables(made, tmp_path)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout

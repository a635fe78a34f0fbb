"""`personalink report`: what it writes and where, the same bytes twice, several runs, and what is refused."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from personalink.cli import main
from personalink.run_dir import RunDir
from tests.report.runs import ROWS, finished

SOME = {row: ROWS[row] for row in ("nopers", "rag_1", "rag_5", "pag", "personalink_r2", "oracle")}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return finished(tmp_path_factory.mktemp("report"), context=SOME)


@pytest.fixture
def run(made: RunDir, tmp_path: Path) -> RunDir:
    """A copy of the finished run to write into."""
    shutil.copytree(made.path, tmp_path / "made_up" / made.path.name)
    return RunDir(tmp_path / "made_up" / made.path.name)


def call(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[int, str, str]:
    code = main([str(word) for word in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def digests(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_a_whole_report_is_the_same_bytes_twice_and_leaves_the_sealed_files(run: RunDir, capsys: Any) -> None:
    before = digests(run.sealed)
    code, out, _ = call(capsys, "report", run.path)
    assert code == 0
    report = run.path / "report"
    first = digests(report)
    assert {"index.html", "index.md", "tables/table4.tex", "tables/costs.csv", "pages/index.html"} <= set(first)
    assert any(name.startswith("figures/") for name in first)
    assert f"report: {report / 'index.html'}" in out
    assert "table5 is left out: the run has not enough of its rows" in out
    assert "personalink contraction RUN" in out
    assert call(capsys, "report", run.path)[0] == 0
    assert digests(report) == first
    assert digests(run.sealed) == before
    assert "pages/index.html" in (report / "index.html").read_text()
    assert "<script" not in (report / "index.html").read_text()


def test_a_part_alone_and_another_folder(run: RunDir, tmp_path: Path, capsys: Any) -> None:
    target = tmp_path / "elsewhere"
    code, out, _ = call(capsys, "report", run.path, "--only", "tables", "--out", target)
    assert code == 0
    assert {path.name for path in target.iterdir()} == {"tables"}
    assert not (run.path / "report").exists()
    assert f"report: {target}" in out


def test_a_table_that_is_left_out_now_is_taken_away_and_nothing_else(run: RunDir, capsys: Any) -> None:
    tables = run.path / "report" / "tables"
    call(capsys, "report", run.path, "--only", "tables")
    (tables / "table5.md").write_text("old")
    (tables / "mine.md").write_text("mine")
    call(capsys, "report", run.path, "--only", "tables")
    assert not (tables / "table5.md").exists()
    assert (tables / "mine.md").read_text() == "mine"


def test_several_runs_have_a_report_each_and_an_overview(run: RunDir, tmp_path: Path, capsys: Any) -> None:
    other = finished(tmp_path / "b", context=SOME, optimizer={"gate": "no_regress"})
    target = tmp_path / "both"
    parts = ("--only", "tables", "--only", "pages")
    code, out, _ = call(capsys, "report", run.path, other.path, "--out", target, *parts)
    assert code == 0
    assert (target / "pages" / "index.html").exists()
    assert "pages/index.html" in (target / "index.html").read_text()
    assert f"overview: {target / 'index.html'}" in out
    for one in (run, other):
        assert (target / "made_up" / one.path.name / "tables" / "table4.csv").exists()
    table = (target / "tables" / "table4.md").read_text()
    assert "| RAG-5 |" in table
    assert table.count("Accuracy ↑") == 2
    assert run.path.name in (target / "tables" / "runs.csv").read_text()


def test_without_a_folder_the_overview_stands_where_the_runs_lie(run: RunDir, tmp_path: Path, capsys: Any) -> None:
    other = run.path.with_name("0123456789ab")
    shutil.copytree(run.path, other)
    _, out, _ = call(capsys, "report", run.path, other, "--only", "tables")
    assert f"overview: {run.path.parent.resolve() / 'report' / 'index.html'}" in out


def test_it_needs_no_model_and_no_network(run: RunDir) -> None:
    code = (
        "import socket, sys\n"
        "def refuse(*a, **k): raise OSError('a network was asked for')\n"
        "socket.socket.connect = socket.getaddrinfo = socket.create_connection = refuse\n"
        "from personalink.cli import main\n"
        f"assert main(['report', {str(run.path)!r}]) == 0\n"
        "print([m for m in ('torch', 'transformers', 'xllamacpp', 'sentence_transformers') if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_words_of_a_configuration_are_shown_as_they_are_and_never_run(tmp_path: Path, capsys: Any) -> None:
    hostile = "<script>alert(1)</script> \\input{/etc/passwd} | **x** \u202e\x00"
    rows = {row: ROWS[row] for row in ("nopers", "rag_5", "personalink_r2")}
    run = finished(tmp_path, context=rows, notes=[hostile])
    assert call(capsys, "report", run.path, "--only", "tables")[0] == 0
    tables = run.path / "report" / "tables"
    assert "<script" not in (tables / "table4.html").read_text()
    assert "&lt;script&gt;" in (tables / "table4.html").read_text()
    assert "\\input{" not in (tables / "table4.tex").read_text()
    assert "<script" not in re.sub(r"\\<", "", (tables / "table4.md").read_text())


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--reference", "rag_6"), 2, "reference 'rag_6' is no row of"),
        (("--reference", "rag_6"), 2, "did you mean 'rag_1'?"),
        (("--margin", "-1"), 2, "margin is -1.0; it must be a finite number above 0"),
        (("--margin", "2"), 2, "margin is 2.0; it must lie between 0 and 1"),
    ],
)
def test_wrong_words_are_one_line(run: RunDir, capsys: Any, words: tuple[str, ...], code: int, message: str) -> None:
    got, _, err = call(capsys, "report", run.path, "--only", "tables", *words)
    lines = [line for line in err.splitlines() if line.startswith("personalink:")]
    assert (got, len(lines)) == (code, 1)
    assert message in lines[0]
    assert not (run.path / "report").exists()


def test_bad_runs_are_one_line_and_their_exit_code(run: RunDir, tmp_path: Path, capsys: Any) -> None:
    def told(*arguments: Any) -> tuple[int, str]:
        code, _, err = call(capsys, "report", *arguments, "--only", "tables")
        lines = [line for line in err.splitlines() if line.startswith("personalink:")]
        assert len(lines) == 1
        return code, lines[0]

    code, line = told(tmp_path / "nothing")
    assert (code, "no run at" in line) == (2, True)
    code, line = told(run.path, run.path)
    assert (code, "name each run once" in line) == (2, True)
    code, line = told(run.path, "--out", run.sealed / "report")
    assert (code, "among the run's sealed files" in line) == (2, True)
    file = tmp_path / "a_file"
    file.write_text("")
    code, line = told(run.path, "--out", file)
    assert (code, "cannot write the report" in line) == (1, True)
    predictions = run.sealed / "predictions.jsonl"
    predictions.write_text(predictions.read_text()[:-20])
    code, line = told(run.path)
    assert (code, "predictions.jsonl is missing or was altered" in line) == (5, True)
    (run.sealed / "seal.json").unlink()
    code, line = told(run.path)
    assert (code, "is not finished" in line) == (4, True)

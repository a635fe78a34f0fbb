import csv
import io
import re
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from personalink.gate import SliceScore
from personalink.metrics import Scored, score
from personalink.persona import Caps, PersonaState
from personalink.refinement import Pass, Refinement
from personalink.report.latex import latex
from personalink.report.layout import Column, Table, written
from personalink.report.tables import ROW_LABELS, RowResult, results_table, selection_table
from personalink.tasks import task

NEWS, STARS = task("lamp2"), task("lamp3")


class Words:
    id = "words"

    def count(self, text):
        return len(text.split())


def metrics(accuracy, macro_f1=0.5, **more):
    counts = {"n": 200, "n_invalid": 0, "n_empty": 0, "n_refused": 0, "n_too_long": 0, "n_truncated_invalid": 0}
    return {"accuracy": accuracy, "macro_f1": macro_f1, "official_accuracy": accuracy, **counts, **more}


def rows():
    return [
        RowResult("nopers", "", metrics(0.645, 0.388), (0.58, 0.71), 0.0, calls=200),
        RowResult("oracle", "", metrics(0.99, 0.9), (0.98, 1.0), 18800.4, calls=200),
        RowResult("Floor: majority label", "", metrics(0.8, 0.1), None, None, "floor"),
        RowResult("personalink_r2_no_summary", "", metrics(0.7449, 0.514), (0.68, 0.8049), 249.6),
        RowResult("rag_5", "", metrics(0.7451, 0.608), None, 512.0),
        RowResult("my_row", "", metrics(None, None), None, None),
    ]


def lines(text, *, start):
    return next(line for line in text.splitlines() if line.startswith(start))


def test_text_is_aligned_bounded_and_ordered():
    text = results_table(NEWS, rows(), title="News", notes=["one note"]).as_text()
    assert max(map(len, text.splitlines())) <= 120
    table = text.split("─\n")[1].split("\n\n")[0].splitlines()
    assert [line.split("  ")[0] for line in table] == [
        "Floor: majority label",
        "NoPers",
        "Oracle (full profile)",
        "PersonaLink r=2 − preference summary",
        "RAG-5",
        "my_row",
    ]
    assert len({line.index(".") for line in table[:5]}) == 1
    assert "Accuracy ↑" in text
    assert "95 % interval" in text
    assert "[0.580, 0.710]" in text
    assert "18800" in text
    assert "one note" in text
    assert "\x1b" not in text
    assert "None" not in text


def test_best_method_is_marked_with_ties_as_shown_and_never_the_oracle_or_a_floor():
    table = results_table(NEWS, rows())
    text = table.as_text()
    assert text.count("0.745*") == 2
    assert lines(text, start="RAG-5").count("*") == 2
    assert "*" not in lines(text, start="Oracle")
    assert "*" not in lines(text, start="Floor")
    markdown = table.as_markdown()
    assert "**0.608**" in markdown
    assert r"\textbf{0.608}" in table.as_latex()
    assert "*" not in table.as_csv()


def test_lower_is_better_for_ratings():
    results = [
        RowResult(name, "", {"mae": mae, "rmse": rmse})
        for name, mae, rmse in [("rag_5", 0.285, 0.7), ("pag", 0.45, 0.6), ("oracle", 0.1, 0.1)]
    ]
    text = results_table(STARS, results).as_text()
    assert "MAE ↓" in text
    assert "RMSE ↓" in text
    assert "0.285*" in text
    assert "0.600*" in text
    assert "0.100*" not in text


def test_invalid_and_failed_count_every_missing_label_once():
    answers = [
        Scored("1", "1", "1", "ok"),
        Scored("1", None, "eh", "unreadable"),
        Scored("1", "2", "2 be", "truncated"),
    ]
    answers += [Scored("1", None, "", outcome) for outcome in ("empty", "truncated", "refused", "too_long")]
    table = results_table(STARS, [RowResult("pag", "", score(STARS, answers))])
    row = next(csv.DictReader(io.StringIO(table.as_csv())))
    assert (row["n"], row["invalid"], row["failed"]) == ("7", "1", "4")


def test_csv_has_one_header_and_full_precision():
    value = 1 / 3
    result = RowResult("rag_5", 'a, "b"', metrics(value), (0.1 + 0.2, 1.0), 12.25, calls=7)
    (row,) = list(csv.DictReader(io.StringIO(results_table(NEWS, [result]).as_csv())))
    assert float(row["accuracy"]) == value
    assert float(row["accuracy_low"]) == 0.1 + 0.2
    assert float(row["context_tokens"]) == 12.25
    assert row["method"] == 'a, "b"'
    assert (row["row"], row["kind"], row["calls"]) == ("rag_5", "method", "7")
    unknown = next(csv.DictReader(io.StringIO(results_table(NEWS, [RowResult("x", "", {})]).as_csv())))
    assert unknown["accuracy"] == unknown["accuracy_low"] == unknown["failed"] == ""


def test_markdown_escapes_and_has_as_many_cells_in_every_line():
    result = RowResult("x", "a|b*c\nd", metrics(0.5), (0.4, 0.6), 1.0)
    markdown = results_table(NEWS, [result], title="T", notes=["n"]).as_markdown()
    table = [line for line in markdown.splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table}) == 1
    assert r"a\|b\*c d" in markdown
    assert markdown.startswith("**T**")
    assert "- n" in markdown


def test_long_labels_and_huge_numbers_do_not_break_the_width():
    results = [RowResult("x", "long " * 40, {**metrics(0.5), "official_accuracy": 1e99}, (0.4, 1e99), 1.0)]
    text = results_table(NEWS, results).as_text()
    assert max(map(len, text.splitlines())) <= 120
    assert "…" in text


def test_a_table_without_rows_is_still_a_table():
    table = results_table(NEWS, [])
    assert "Method" in table.as_text()
    assert "Method" in table.as_markdown()
    assert table.as_csv().count("\n") == 1
    assert r"\bottomrule" in table.as_latex()


SPECIALS = r"& % $ # _ { } ~ ^ \ ↑ ↓ − … é ß ł 中 ½ [x] *y* <|> "


def test_latex_escapes():
    assert latex("a_b & 5 %") == r"a\_b \& 5 \%"
    assert latex("\\~^{}#$") == r"\textbackslash{}\textasciitilde{}\textasciicircum{}\{\}\#\$"
    assert latex("↑ r=2 − x") == r"$\uparrow$ r=2 $-$ x"
    assert latex("é í ½ 中") == r"\'{e} \'{\i} 1/2 ?"
    assert latex("[a]*") == "{[}a{]}{*}"


@given(st.text())
def test_latex_is_ascii_with_balanced_braces(text):
    written = latex(text)
    assert written.isascii()
    bare = re.sub(r"\\[{}]", "", written)
    depth = 0
    for character in bare:
        depth += (character == "{") - (character == "}")
        assert depth >= 0
    assert depth == 0
    assert re.sub(r"\\.", "", bare).count("$") % 2 == 0
    assert not re.search(r"(?<!\\)[&%#_]", bare)


def latex_document():
    results = [*rows(), RowResult("x", SPECIALS, metrics(0.5)), RowResult("y", "[3pt] *", metrics(0.5))]
    body = results_table(NEWS, results, title=SPECIALS, notes=[SPECIALS]).as_latex()
    return f"\\documentclass{{article}}\n\\usepackage{{booktabs}}\n\\begin{{document}}\n{body}\\end{{document}}\n"


def test_latex_is_a_booktabs_table():
    source = latex_document()
    for name in (r"\begin{table}", r"\toprule", r"\midrule", r"\bottomrule", r"\end{tabular}", r"\caption{"):
        assert source.count(name) == 1
    assert source.isascii()
    body = source.split(r"\toprule")[1].split(r"\bottomrule")[0]
    assert {len(re.findall(r"(?<!\\)&", line)) for line in body.splitlines() if line.endswith(r"\\")} == {8}


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed here")
def test_latex_compiles(tmp_path):
    (tmp_path / "t.tex").write_text(latex_document())
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


def test_bold_needs_no_results():
    table = Table("T", (Column("a", "A", "text"), Column("b", "B", "metric")), (("x", 0.5),), (), frozenset({(0, 1)}))
    assert "0.500*" in table.as_text()


def refinement(user, values, accepted, audit=(), *, sliced=True):
    empty = PersonaState.empty(Words(), Caps())
    scores = [SliceScore((1,), value) for value in values]
    passes = tuple(
        Pass(depth, scores[depth - 1], scores[depth], None, kept is True, "", None if kept is None else empty, empty)
        for depth, kept in enumerate(accepted, 1)
    )
    audits = tuple(SliceScore((1,), value) for value in audit)
    ids = ("s",) if sliced else ()
    return Refinement(user, 0, ids, ("a",) if audit else (), scores[0], empty, passes, audits)


def test_selection_stands_beside_audit():
    table = selection_table(
        [
            refinement("a", [0.5, 0.75, 0.75], [True, False], [0.5, 0.25, 0.25]),
            refinement("b", [1.0, 1.0, 1.0], [None, None]),
            refinement("c", [0.0], [], sliced=False),
        ]
    )
    found = list(csv.DictReader(io.StringIO(table.as_csv())))
    assert [row["depth"] for row in found] == ["0", "1", "2"]
    assert [float(row["selection"]) for row in found] == [0.75, 0.875, 0.875]
    assert [float(row["selection_audited"]) for row in found] == [0.5, 0.75, 0.75]
    assert [float(row["audit"]) for row in found] == [0.5, 0.25, 0.25]
    assert [(row["accepted_share"], row["candidates"]) for row in found] == [("", ""), ("1.0", "1"), ("0.0", "1")]
    assert [(row["users"], row["audited_users"]) for row in found] == [("2", "1")] * 3
    assert any("not accuracy" in note for note in table.notes)
    assert any("1 of 3 users" in note for note in table.notes)
    assert max(map(len, table.as_text().splitlines())) <= 120


def test_selection_of_nobody():
    assert "–" in selection_table([]).as_text()


def test_labels_of_rows():
    assert ROW_LABELS["rag_5"] == "RAG-5"
    assert ROW_LABELS["personalink_r2_no_rules"] == "PersonaLink r=2 − decision rules"


def test_how_cells_are_written():
    assert written(None, "metric") == "–"
    assert written(-1.78125, "metric") == "-1.781"  # as in every table that was ever sealed
    assert [written(x, "signed") for x in (0.1, -0.1, -0.0001)] == ["+0.100", "−0.100", "0.000"]
    assert [written(x, "p") for x in (0.0009, 0.001, 1.0)] == ["<0.001", "0.001", "1.000"]
    assert written((-0.5, 0.25), "interval") == "[−0.500, 0.250]"


def grouped():
    columns = (
        Column("row", "Row", "text", csv_only=True),
        Column("method", "Method", "text"),
        Column("x", "X", "metric"),
        Column("shown", "Shown", "remark", people_only=True),
    )
    rows = (("a", "A_1", 0.5, "yes"), ("b", "<B>", 0.25, None))
    marks = {(0, 2): "**", (1, 1): "†"}
    return Table("T", columns, rows, ("n & m",), frozenset({(0, 2)}), marks, {0: "First", 1: "Second"}, compact=True)


def test_groups_marks_and_columns_for_people_alone():
    table = grouped()
    assert table.as_csv() == "row,method,x\na,A_1,0.5\nb,<B>,0.25\n"
    lines = [line for line in table.as_markdown().splitlines() if line.startswith("|")]
    assert lines[2:] == [
        "| *First* |  |  |",
        r"| A\_1 | **0.500**\*\* | yes |",
        "| *Second* |  |  |",
        r"| \<B>† | 0.250 | – |",
    ]
    tex = table.as_latex()
    assert r"\textbf{0.500}$^{**}$" in tex
    assert r"$^{\dagger}$" in tex
    assert tex.count(r"\multicolumn{3}{l}{\textit{") == 2


def test_html_is_escaped_and_has_a_cell_a_column():
    written_out = grouped().as_html()
    assert "&lt;B&gt;<sup>†</sup>" in written_out
    assert "<strong>0.500</strong><sup>**</sup>" in written_out
    assert "<li>n &amp; m</li>" in written_out
    assert written_out.count('scope="col"') == 3
    assert written_out.count('colspan="3"') == 2

"""`personalink compare`: pairs, flips both ways, near ties, settings, and runs that cannot be compared."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from personalink.cli import main
from personalink.errors import IntegrityError, Unreachable, UsageError
from personalink.lm import ScriptedLM
from personalink.lm.base import Completion, Request
from personalink.report.answers import Judged
from personalink.report.compare import compare, differing
from personalink.report.comparing import as_dict, as_text, rows_table
from personalink.report.evidence import Evidence, load
from tests.people import random_script
from tests.report.runs import ROWS, TASK, finished

SOME = {row: ROWS[row] for row in ("nopers", "rag_5", "personalink_r2")}
CHANGED = {"name": "changed", "optimizer": {"gate": "no_regress"}}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Evidence, Evidence]:
    """Two runs over the same people, answered by other models and with another gate."""
    folder = tmp_path_factory.mktemp("compare")
    a = finished(folder, n=20, context=SOME)
    return load(a), load(finished(folder, n=20, script=6, context={**SOME, "rag_1": ROWS["rag_1"]}, **CHANGED))


def call(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[int, str, str]:
    code = main([str(word) for word in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_rows_flips_and_settings(pair: tuple[Evidence, Evidence]) -> None:
    a, b = pair
    made = compare(a, b)
    assert [(row.a, row.b) for row in made.rows] == [(row, row) for row in SOME]
    assert (made.only_a, made.only_b) == ((), ("rag_1",))
    assert made.settings["name"] == ("made_up", "changed")
    assert made.settings["optimizer.gate"] == ("strict", "no_regress")
    assert made.settings["context.rag_1"] == (None, ROWS["rag_1"] | {"_target_": ROWS["rag_1"]["_target_"]})
    for row in made.rows:
        ours, theirs = a.judged(row.a), b.judged(row.b)
        assert row.contrast.n == 20
        assert row.contrast.difference.estimate == pytest.approx(
            sum(one.right for one in ours) / 20 - sum(one.right for one in theirs) / 20
        )
        assert len(row.flips) == sum(
            one.prediction.label != two.prediction.label for one, two in zip(ours, theirs, strict=True)
        )
        assert row.count("a") == row.contrast.mcnemar.a_only
        assert row.count("b") == row.contrast.mcnemar.b_only
        assert row.count("a") + row.count("b") + row.count("") == len(row.flips)
    assert any(row.count("a") and row.count("b") for row in made.rows)


def test_a_run_beside_itself_does_not_differ(pair: tuple[Evidence, Evidence]) -> None:
    made = compare(pair[0], pair[0])
    assert not made.settings
    for row in made.rows:
        assert row.contrast.p == row.corrected == row.contrast.second.p == 1
        assert row.flips == ()
        assert row.near_ties == 0
    assert "No setting differs." in as_text(made)


def test_one_row_of_a_beside_another_of_b(pair: tuple[Evidence, Evidence], capsys: Any) -> None:
    a, b = pair
    (row,) = compare(a, b, pairs=[("rag_5", "rag_1")]).rows
    assert row.name == "rag_5:rag_1"
    swapped = compare(b, a, pairs=[("rag_1", "rag_5")]).rows[0]
    assert swapped.contrast.difference.estimate == -row.contrast.difference.estimate
    assert swapped.contrast.p == row.contrast.p
    code, out, _ = call(capsys, "compare", a.run.path, b.run.path, "--row", "rag_5:rag_1")
    assert code == 0
    assert "rag_5:rag_1" in out
    assert "Only in" not in out


def with_margins(evidence: Evidence, margin: float) -> Evidence:
    """The same answers as if logprobs had been asked for."""

    def told(one: Judged) -> Judged:
        return replace(one, prediction=replace(one.prediction, margin=margin))

    return replace(evidence, rows={row: tuple(map(told, judged)) for row, judged in evidence.rows.items()})


def test_flips_with_a_small_margin_on_either_side_are_near_ties(pair: tuple[Evidence, Evidence]) -> None:
    a, b = pair
    assert all(row.near_ties is None for row in compare(a, b).rows if row.flips)
    assert "run with logprobs=5" in as_text(compare(a, b))
    near = compare(with_margins(a, 2.0), with_margins(b, 0.01))
    assert all(row.near_ties == len(row.flips) for row in near.rows)
    assert "run with logprobs=5" not in as_text(near)
    assert all(row.near_ties == 0 for row in compare(with_margins(a, 2.0), b).rows)


def test_text_json_and_csv(pair: tuple[Evidence, Evidence], capsys: Any) -> None:
    a, b = pair
    made = compare(a, b)
    words = ("compare", a.run.path, b.run.path)
    code, out, _ = call(capsys, *words)
    assert code == 0
    assert out.rstrip("\n") == as_text(made)
    assert max(map(len, rows_table(made).as_text().splitlines())) <= 120
    assert "optimizer.gate: strict → no_regress" in out
    assert "Only in B: rag_1" in out
    plain = json.loads(call(capsys, *words, "--json")[1])
    assert plain == json.loads(json.dumps(as_dict(made)))
    rows = list(csv.DictReader(io.StringIO(call(capsys, *words, "--csv")[1])))
    assert [float(row["p_holm"]) for row in rows] == [row.corrected for row in made.rows]
    flips = list(csv.DictReader(io.StringIO(call(capsys, *words, "--csv", "--flips")[1])))
    assert len(flips) == sum(len(row.flips) for row in made.rows)
    assert "Queries whose label differs" in call(capsys, *words, "--flips")[1]


def test_unfinished_users_are_listed_and_the_others_paired(tmp_path: Path) -> None:
    healthy, count = random_script(6), {"n": 0}

    def answer(request: Request) -> str | Completion | Exception:
        count["n"] += 1
        return Unreachable("gone") if count["n"] > 80 else healthy(request)

    a = load(finished(tmp_path, context=SOME))
    b = load(finished(tmp_path, context=SOME, lm=ScriptedLM(answer, users_in_flight=1, concurrency=1), **CHANGED))
    assert 0 < len(b.users) < 6
    made = compare(a, b)
    assert all(row.contrast.n == len(b.users) for row in made.rows)
    assert f"not finished: {', '.join(b.incomplete)}" in as_text(made)
    assert as_dict(made)["b"]["incomplete"] == b.incomplete


def test_other_manifests_are_refused(pair: tuple[Evidence, Evidence], tmp_path: Path, capsys: Any) -> None:
    a = pair[0]
    other = load(finished(tmp_path, n=4, context=SOME))
    with pytest.raises(IntegrityError, match=r"different manifests.*20 and 4 users.*run one of them again with"):
        compare(a, other)
    code, _, err = call(capsys, "compare", a.run.path, other.run.path)
    assert code == 5
    assert len([line for line in err.splitlines() if line.startswith("personalink:")]) == 1


def test_tasks_with_other_answers_and_unknown_rows_are_refused(
    pair: tuple[Evidence, Evidence], tmp_path: Path, capsys: Any
) -> None:
    a, b = pair
    with pytest.raises(UsageError, match=r"no row of .*; did you mean 'rag_5'"):
        compare(a, b, pairs=[("rag_55", "rag_5")])
    with pytest.raises(UsageError, match="no row in common"):
        compare(a, replace(b, rows={row: b.rows[row] for row in (*b.floors, "rag_1")}))
    first = load(finished(tmp_path, context=SOME))
    reversed_labels = {**TASK, "labels": list(reversed(TASK["labels"]))}  # type: ignore[call-overload]
    second = load(finished(tmp_path, context=SOME, task=reversed_labels))
    with pytest.raises(UsageError, match="tasks with other answers"):
        compare(first, second)
    assert call(capsys, "compare", a.run.path, tmp_path / "nothing")[0] == 2


def test_settings_that_differ_are_found_at_any_depth() -> None:
    a = {"x": 1, "deep": {"same": 1, "other": [1, 2]}, "only": None}
    b = {"x": 1, "deep": {"same": 1, "other": [1]}, "new": {"y": 2}}
    assert differing(a, b) == {"deep.other": ([1, 2], [1]), "new": (None, {"y": 2})}

"""Experiments: resumable to the byte, deaf to order and company, honest about what was not finished."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from pathlib import Path
from typing import Any

import pytest

from personalink.config import RunConfig
from personalink.errors import (
    ConfigError,
    IncompleteRun,
    IntegrityError,
    Interrupted,
    ModelNotFound,
    Unauthorized,
    Unreachable,
    UsageError,
)
from personalink.experiment import Experiment
from personalink.lm import ScriptedLM
from personalink.lm.base import Completion, Request
from personalink.lm.journal import Journal
from personalink.rows import Rows
from personalink.running import Finished, arun, run
from tests.people import LABELS, is_rewrite, people, random_script

ROWS = {
    "nopers": {"_target_": "personalink.contexts.NoPersonalization"},
    "random_user_persona": {"_target_": "personalink.contexts.RandomUserPersona"},
    "random_user_demos": {"_target_": "personalink.contexts.RandomUserDemonstrations", "k": 3},
    "rag_1": {"_target_": "personalink.contexts.Retrieval", "k": 1},
    "rag_5": {"_target_": "personalink.contexts.Retrieval", "k": 5},
    "pag": {"_target_": "personalink.contexts.Draft"},
    "rag_pag": {"_target_": "personalink.contexts.RetrievalWithDraft", "k": 5},
    "personalink_r1": {"_target_": "personalink.contexts.PersonaLink", "depth": 1},
    "personalink_r2": {"_target_": "personalink.contexts.PersonaLink", "depth": 2},
    "personalink_r3": {"_target_": "personalink.contexts.PersonaLink", "depth": 3},
    "oracle": {"_target_": "personalink.contexts.FullProfile"},
}


def write_records(path: Path, n: int = 6, m: int = 26, order: int = 1) -> Path:
    """`n` made-up users as a records file, each with one query; `order` −1 turns the users around."""
    data = people(n, m)
    with path.open("w", encoding="utf-8") as file:
        for user in data.users[::order]:
            for item in user.history:
                row = {"user": user.id, "id": item.id, "input": item.input, "label": item.label, "split": "history"}
                file.write(json.dumps(row) + "\n")
            for query in user.queries:
                gold = data.gold(user.id, query.id)
                row = {"user": user.id, "id": query.id, "input": query.input, "label": gold, "split": "query"}
                file.write(json.dumps(row) + "\n")
    return path


def settings(folder: Path, **changes: Any) -> dict[str, Any]:
    """A configuration over such a file."""
    return {
        "name": "made_up",
        "task": {"kind": "label", "name": "compass", "instruction": "Say where it lies.", "labels": list(LABELS)},
        "data": {"kind": "records", "path": str(folder / "people.jsonl")},
        "lm": {"kind": "scripted"},
        "context": ROWS,
        "runs_dir": str(folder / "runs"),
        "max_failed": 1.0,
        **changes,
    }


def go(folder: Path, lm: ScriptedLM | None = None, **changes: Any) -> Finished:
    return asyncio.run(arun(settings(folder, **changes), lm=lm or ScriptedLM(random_script(5))))


def sealed(folder: Path) -> dict[str, bytes]:
    """Every sealed file of the only run under a folder."""
    (root,) = folder.glob("runs/made_up/*/sealed")
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_records(tmp_path / "people.jsonl")
    return tmp_path


def test_a_run_is_complete_and_a_finished_one_asks_nothing(folder: Path) -> None:
    first = ScriptedLM(random_script(5))
    finished = go(folder, first)
    assert finished.trouble is None
    assert finished.result.state == "complete"
    assert finished.result.sent == len(first.requests) > 100
    before = sealed(folder)
    second = ScriptedLM(lambda request: pytest.fail("a finished run asked something"))
    again = go(folder, second)
    assert (again.result.sent, again.trouble) == (0, None)
    assert sealed(folder) == before
    assert again.scores.metrics == finished.scores.metrics


def test_every_row_and_floor_is_scored(folder: Path) -> None:
    scores = go(folder).scores
    assert [*scores.metrics][:2] == ["Floor: majority label", "Floor: BM25-5 vote"]
    assert [*scores.metrics][2:] == list(ROWS)
    assert all(m["n"] == 6 for m in scores.metrics.values())
    assert scores.selection is not None


def test_no_identical_prompt_is_sent_twice(folder: Path) -> None:
    lm = ScriptedLM(random_script(5))
    go(folder, lm)
    keys = [request.key("x") for request in lm.requests]
    assert len(keys) == len(set(keys))


def test_rejected_personas_are_answered_with_the_prompt_of_no_personalization(folder: Path) -> None:
    def useless(request: Request) -> str:
        return "I would rather not." if is_rewrite(request) else "north"

    lm = ScriptedLM(useless)
    finished = go(folder, lm, context={k: ROWS[k] for k in ("nopers", "personalink_r1", "personalink_r3")})
    lines = [json.loads(line) for line in (finished.result.run.sealed / "predictions.jsonl").read_text().splitlines()]
    by_row = {row: [{**p, "row": ""} for p in lines if p["row"] == row] for row in ROWS}
    assert by_row["nopers"] == by_row["personalink_r1"] == by_row["personalink_r3"]
    answers = [r for r in lm.requests if not is_rewrite(r) and "query0" in r.messages[1].content]
    assert len(answers) == 6  # one prompt a user serves all three rows


def test_order_and_concurrency_change_no_sealed_byte(tmp_path: Path) -> None:
    results = []
    for i, (order, concurrency, users) in enumerate(((1, 64, 64), (-1, 1, 1), (1, 3, 2))):
        folder = tmp_path / str(i)
        folder.mkdir()
        write_records(folder / "people.jsonl", order=order)
        lm = ScriptedLM(random_script(5), concurrency=concurrency, users_in_flight=users, latency_s=0.0005)
        go(folder, lm)
        files = sealed(folder)
        for name in ("config.json", "manifest.json", "data.json", "seal.json"):  # path and digest of the file
            files.pop(name)
        results.append(files)
    assert results[0] == results[2]
    assert {n: sorted(b.splitlines()) for n, b in results[0].items()} == {
        n: sorted(b.splitlines()) for n, b in results[1].items()
    }


def test_the_company_of_other_users_changes_no_persona(tmp_path: Path) -> None:
    personas = []
    for n in (4, 9):
        folder = tmp_path / str(n)
        folder.mkdir()
        write_records(folder / "people.jsonl", n=n)
        go(folder, context={"personalink_r3": ROWS["personalink_r3"]})
        personas.append({k: v for k, v in sealed(folder).items() if k.startswith("personas/")})
    assert personas[0].items() <= personas[1].items()
    assert len(personas[0]) == 8


def test_the_journal_is_whole_whatever_was_torn(folder: Path) -> None:
    go(folder)
    before = sealed(folder)
    (journal,) = folder.glob("runs/made_up/*/log/journal")
    status = journal.with_name("status.json")
    raw = journal.read_bytes()
    for cut in random.Random(3).sample(range(len(raw)), 5):
        journal.write_bytes(raw[:cut])
        status.unlink()
        finished = go(folder)
        assert finished.result.state == "complete"
        assert sealed(folder) == before


@pytest.mark.parametrize("error", [Unreachable("gone"), Unauthorized("no key"), ModelNotFound("no such model")])
def test_a_model_that_goes_away_leaves_what_was_finished(folder: Path, error: Exception) -> None:
    healthy = random_script(5)
    count = {"n": 0}

    def answer(request: Request) -> str | Completion | Exception:
        count["n"] += 1
        return error if count["n"] > 150 else healthy(request)

    lm = ScriptedLM(answer, users_in_flight=1, concurrency=1)
    finished = go(folder, lm)
    assert finished.result.state == "incomplete"
    assert isinstance(finished.trouble, type(error) if error.fatal else IncompleteRun)  # type: ignore[attr-defined]
    assert "\n" not in str(finished.trouble)
    done = 6 - len(finished.result.incomplete)
    assert 0 < done < 6
    assert finished.scores.metrics["nopers"]["n"] == done
    assert len(lm.requests) < 170  # a dead model is not asked for every user
    whole = go(folder)
    assert whole.result.state == "complete"
    alone = folder / "alone"
    alone.mkdir()
    (alone / "people.jsonl").symlink_to(folder / "people.jsonl")
    go(alone)
    ours, theirs = sealed(folder), sealed(alone)
    for name in ("config.json", "seal.json"):  # they hold the file's path
        del ours[name], theirs[name]
    assert ours == theirs


@pytest.mark.parametrize(("kind", "remedy"), [("empty", "chat template"), ("truncated", "max_tokens")])
def test_answers_that_are_none_are_told_and_counted(folder: Path, kind: str, remedy: str) -> None:
    lm = ScriptedLM(lambda request: Completion("" if kind == "empty" else "The place", kind))  # type: ignore[arg-type]
    finished = go(folder, lm, max_failed=0.1)
    assert isinstance(finished.trouble, IncompleteRun)
    assert f"66 {kind}" in str(finished.trouble)
    assert remedy in str(finished.trouble)
    assert finished.scores.metrics["nopers"][f"n_{kind}"] == 6
    assert (finished.result.run.sealed / "table.txt").exists()


def test_any_character_may_stand_in_an_answer(folder: Path) -> None:
    said = f"{LABELS[0]}\n\u2028\u2029\x85\x0b\x0c\x1c\x1e\r\x00"
    finished = go(folder, ScriptedLM(lambda request: said), context={"nopers": ROWS["nopers"]})
    told = [line["text"] for line in finished.result.run.read_lines("sealed/predictions.jsonl")]
    assert told == [said] * 6


def test_unreadable_answers_are_counted_apart_and_are_no_failure(folder: Path) -> None:
    finished = go(folder, ScriptedLM(lambda request: "somewhere"), max_failed=0.0)
    assert finished.trouble is None
    assert finished.scores.metrics["nopers"]["n_unreadable"] == 6


def test_a_drain_seals_what_is_done_and_the_same_configuration_goes_on(folder: Path) -> None:
    experiment: Experiment | None = None
    healthy, count = random_script(5), {"n": 0}

    def answer(request: Request) -> str | Completion:
        count["n"] += 1
        if count["n"] == 120:
            assert experiment is not None
            experiment.drain()
        return healthy(request)

    def started(made: Experiment) -> None:
        nonlocal experiment
        experiment = made

    lm = ScriptedLM(answer, concurrency=4, users_in_flight=2)
    finished = asyncio.run(arun(settings(folder), lm=lm, started=started))
    assert finished.result.state == "interrupted"
    assert finished.trouble is not None
    assert finished.trouble.exit_code == 130
    assert len(lm.requests) <= 120 + 4
    rest = ScriptedLM(random_script(5))
    assert go(folder, rest).result.state == "complete"
    alone = ScriptedLM(random_script(5))
    other = folder / "other"
    other.mkdir()
    write_records(other / "people.jsonl")
    go(other, alone)
    assert len(lm.requests) + len(rest.requests) == len(alone.requests)


def test_a_second_process_is_refused(folder: Path) -> None:
    path = RunConfig.from_mapping(settings(folder)).folder
    with Journal(path / "log" / "journal"), pytest.raises(UsageError, match="another process is working"):
        go(folder)


def test_another_configurations_folder_is_refused_and_fresh_puts_the_old_run_aside(folder: Path) -> None:
    finished = go(folder)
    path = finished.result.run.path
    changed = json.loads((path / "sealed" / "config.json").read_text())
    (path / "sealed" / "config.json").write_text(json.dumps({**changed, "seed": 1}))
    with pytest.raises(IntegrityError, match="differs in seed"):
        go(folder)
    again = go(folder, fresh=True)
    assert again.result.sent > 0
    assert path.with_name(f"{path.name}.old1").exists()


def test_how_it_is_asked_does_not_change_which_run_it_is(folder: Path) -> None:
    base = RunConfig.from_mapping(settings(folder))
    same = RunConfig.from_mapping(settings(folder, lm={"kind": "scripted", "concurrency": 3, "retries": 9}))
    moved = [
        RunConfig.from_mapping(
            settings(folder, max_failed=n, lm={"kind": "endpoint", "base_url": f"http://host{n}/v1"})
        )
        for n in (0, 1)
    ]
    assert moved[0].folder == moved[1].folder  # a server that moved, a threshold that was raised
    other = RunConfig.from_mapping(settings(folder, seed=0))
    assert base.folder == same.folder != other.folder


def test_python_raises_the_trouble_of_a_run(folder: Path) -> None:
    with pytest.raises(IncompleteRun):
        run(settings(folder, max_failed=0.1), lm=ScriptedLM(lambda request: ""))


def test_a_budget_is_never_exceeded_and_a_larger_one_goes_on(folder: Path) -> None:
    whole = ScriptedLM(random_script(5))
    other = folder / "whole"
    other.mkdir()
    write_records(other / "people.jsonl")
    go(other, whole)
    sent = 0
    for calls in (0, 1, 90, 140, None):
        lm = ScriptedLM(random_script(5), concurrency=8)
        finished = go(folder, lm, budget={"calls": calls})
        sent += len(lm.requests)
        if calls is not None:
            assert sent == calls
            assert isinstance(finished.trouble, IncompleteRun)
            assert f"budget.calls ({calls}) could be exceeded" in str(finished.trouble)
    assert finished.result.state == "complete"
    assert sent == len(whole.requests)
    ours, theirs = sealed(folder), sealed(other)
    for name in ("config.json", "seal.json"):  # they hold the file's path
        del ours[name], theirs[name]
    assert ours == theirs


def test_one_users_budget_stops_that_user_alone(folder: Path) -> None:
    lm = ScriptedLM(lambda request: "north" if not is_rewrite(request) else "no", concurrency=4)
    rows = {row: ROWS[row] for row in ("nopers", "rag_1", "personalink_r1")}
    finished = go(folder, lm, context=rows, budget={"user_calls": 18})
    assert all("budget.user_calls" in str(error) for error in finished.result.incomplete.values())
    assert finished.result.state in ("complete", "incomplete")
    ledger = json.loads((finished.result.run.log / "ledger.json").read_text())
    per_user: dict[str, int] = {}
    for line in ledger["lines"]:
        per_user[line["user"]] = per_user.get(line["user"], 0) + line["calls"]
    assert max(per_user.values()) <= 18


def test_other_data_under_the_same_path_are_refused(folder: Path) -> None:
    go(folder)
    text = (folder / "people.jsonl").read_text()
    (folder / "people.jsonl").write_text(text.replace("amber", "umber"))
    with pytest.raises(IntegrityError, match="begun with other data"):
        go(folder)
    (folder / "people.jsonl").write_text(text)
    assert go(folder).result.sent == 0


def test_another_model_is_refused_finished_or_not(folder: Path) -> None:
    go(folder)
    with pytest.raises(IntegrityError, match="begun with the model"):
        go(folder, ScriptedLM(random_script(6), identity="another"))
    next(folder.glob("runs/made_up/*/log/status.json")).unlink()
    with pytest.raises(IntegrityError, match="begun with the model"):
        go(folder, ScriptedLM(random_script(6), identity="another"))
    assert go(folder, ScriptedLM(random_script(6), identity="another"), fresh=True).result.state == "complete"


@pytest.mark.parametrize(
    "harm", ["predictions.jsonl", "golds.jsonl", "floors.jsonl", "model.json", "products", "text", "seal.json", "more"]
)
def test_what_is_missing_or_altered_is_no_result_and_is_sealed_anew(folder: Path, harm: str) -> None:
    import shutil

    from personalink.report.results import score_run

    finished = go(folder)
    before, run = sealed(folder), finished.result.run
    target = run.sealed / harm
    if harm == "text":
        file = run.sealed / "predictions.jsonl"
        file.write_text(file.read_text().replace('"text":"north"', '"text":"south"'))
    elif harm == "more":
        (run.sealed / "products" / "Refine-strange.jsonl").write_text("{}\n")
    elif target.is_dir():
        shutil.rmtree(target)
    else:
        target.unlink()
    with pytest.raises(IntegrityError, match="missing or was altered"):
        score_run(run)
    if harm == "more":
        (run.sealed / "products" / "Refine-strange.jsonl").unlink()
    again = go(folder)
    assert (again.result.sent, again.result.state) == (0, "complete")
    assert sealed(folder) == before


@pytest.mark.parametrize("content", ["[]", "{}", "null", '{"a":1}', "\xff"])
@pytest.mark.parametrize("name", ["predictions.jsonl", "config.json", "golds.jsonl", "products/Refine"])
def test_damaged_files_are_one_line(folder: Path, name: str, content: str) -> None:
    from personalink.report.results import score_run

    run = go(folder).result.run
    (target,) = run.sealed.glob(f"{name}*")
    target.write_bytes(content.encode("latin-1") + b"\n")
    with pytest.raises(IntegrityError) as refused:
        score_run(run)
    assert "\n" not in str(refused.value)
    run.close_seal()  # even if the seal were true
    if not (name == "config.json" and content in ("null",)):
        with contextlib.suppress(IntegrityError):
            score_run(run)


def test_an_outage_later_loses_nothing_that_was_finished(folder: Path) -> None:
    healthy, count = random_script(5), {"n": 0}

    def answer(request: Request) -> str | Completion | Exception:
        count["n"] += 1
        return Unreachable("gone") if count["n"] > 150 else healthy(request)

    first = go(folder, ScriptedLM(answer, users_in_flight=1, concurrency=1))
    kept = sealed(folder)["predictions.jsonl"]
    assert kept
    second = go(folder, ScriptedLM(lambda request: Unreachable("gone"), users_in_flight=1, concurrency=1))
    assert sealed(folder)["predictions.jsonl"] == kept
    assert len(second.result.incomplete) == len(first.result.incomplete)


def test_empty_answers_of_a_bad_day_are_asked_for_again(folder: Path) -> None:
    first = go(folder, ScriptedLM(lambda request: ""), max_failed=0.1)
    assert first.result.run.status["state"] == "failed"
    lm = ScriptedLM(random_script(5))
    again = go(folder, lm, max_failed=0.1)
    assert again.trouble is None
    assert len(lm.requests) > 100
    assert again.scores.metrics["nopers"]["n_empty"] == 0


def test_a_constraint_that_is_ignored_is_trouble_and_is_said(folder: Path) -> None:
    def ignores(request: Request) -> Completion:
        return Completion("it lies in the north", constrained="structured_outputs" if request.constraint else "")

    finished = go(folder, ScriptedLM(ignores), constrain="label")
    assert finished.trouble is None  # max_failed is 1 in these settings
    assert "the server ignores the constraint" in finished.scores.results.as_text().replace("\n", " ")
    finished = go(folder, ScriptedLM(ignores), constrain="label", max_failed=0.1, fresh=True)
    assert isinstance(finished.trouble, IncompleteRun)
    assert "ignores the constraint" in str(finished.trouble)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Raises", "prepare() raised ZeroDivisionError"),
        ("Nothing", "place() returned"),
        ("Sets", "prepare() returned what is no plain JSON"),
        ("Itself", "needs itself"),
    ],
)
def test_a_context_that_does_not_work_is_one_line_and_keeps_the_journal(folder: Path, name: str, message: str) -> None:
    rows = {"nopers": ROWS["nopers"], "mine": {"_target_": f"tests.bad_contexts.{name}"}}
    with pytest.raises(ConfigError) as refused:
        go(folder, context=rows)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_stop_before_the_model_is_up_ends_it(folder: Path) -> None:
    class Slow(ScriptedLM):
        async def start(self) -> None:
            await asyncio.sleep(30)

    async def main() -> None:
        experiment = Experiment(RunConfig.from_mapping(settings(folder)), lm=Slow(random_script(5)))
        running = asyncio.create_task(experiment.run())
        await asyncio.sleep(0.05)
        experiment.drain()
        with pytest.raises(Interrupted, match="before anything was sent"):
            await asyncio.wait_for(running, 5)

    asyncio.run(main())


def test_fresh_leaves_a_run_alone_that_somebody_works_in(folder: Path) -> None:
    path = go(folder).result.run.path
    with Journal(path / "log" / "journal"), pytest.raises(UsageError, match="another process"):
        go(folder, fresh=True)
    assert path.exists()


def test_what_a_killed_writer_left_is_swept(folder: Path) -> None:
    run = go(folder).result.run
    (run.sealed / ".predictions.jsonl.abc").write_text("half")
    (run.log / "status.json").unlink()
    go(folder)
    assert not list(run.sealed.glob(".*"))


def test_damaged_journals_are_told(folder: Path) -> None:
    run = go(folder).result.run
    journal = run.log / "journal"
    raw = bytearray(journal.read_bytes())
    raw[200] ^= 1
    journal.write_bytes(bytes(raw[:-5]))
    (run.log / "status.json").unlink()
    remarks = go(folder).result.remarks
    assert any("damaged" in remark for remark in remarks)
    assert any("not whole" in remark for remark in remarks)


def test_what_the_loader_left_out_is_said(folder: Path) -> None:
    lines = (folder / "people.jsonl").read_text().splitlines()
    query = json.loads(next(line for line in lines if '"query"' in line))
    planted = {**query, "id": "planted", "split": "history", "input": query["input"].upper()}
    (folder / "people.jsonl").write_text("\n".join([*lines, json.dumps(planted)]) + "\n")
    text = go(folder).scores.results.as_text()
    assert "Left out by the loader: 1 ×" in text


def test_a_donors_draft_is_made_once_whoever_comes_first(folder: Path) -> None:
    rows = {row: ROWS[row] for row in ("pag", "random_user_persona")}
    drafts = []
    for users in (1, 64):
        lm = ScriptedLM(random_script(5), users_in_flight=users, latency_s=0.0005)
        go(folder, lm, context=rows, fresh=True)
        drafts.append(sorted(request.key("x") for request in lm.requests if is_rewrite(request)))
    assert len(drafts[0]) == len({*drafts[0]}) == 6
    assert drafts[0] == drafts[1]


def test_a_product_is_parsed_once_for_all_rows_and_queries(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from personalink.contexts import persona
    from personalink.refinement import Refinement

    parsed: list[str] = []

    class Seen(Refinement):
        @classmethod
        def from_dict(cls, data: Any) -> Refinement:
            parsed.append(data["user"])
            return Refinement.from_dict(data)

    monkeypatch.setattr(persona, "Refinement", Seen)
    go(folder)
    assert len(parsed) == len({*parsed}) == 6


def test_nothing_is_left_of_the_spool_and_no_product_stays_in_memory(folder: Path) -> None:
    held: list[Rows] = []

    class Watched(Rows):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            held.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("personalink.experiment.Rows", Watched)
        run = go(folder).result.run
    assert not held[0]._preparing
    assert sorted(p.name for p in run.log.iterdir()) == [
        "answered_by.json",
        "attempts.jsonl",
        "journal",
        "ledger.json",
        "status.json",
    ]

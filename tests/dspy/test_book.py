"""Many users in one compile: resumable, bounded, each user's trouble his own; one program that serves them all."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from . import REASON

dspy = pytest.importorskip("dspy", reason=REASON)

import personalink as pl  # noqa: E402
from personalink.dspy import Book, PersonaLink, Personalized, connect  # noqa: E402
from personalink.errors import BadRequest, BudgetExceeded, ConfigError, DataError, Unreachable  # noqa: E402
from personalink.lm.base import Request  # noqa: E402
from personalink.lm.budget import Limits  # noqa: E402
from personalink.testing import FakeVLLM  # noqa: E402
from tests.people import is_rewrite  # noqa: E402

from .programs import Steps, Where, body_script, history, right, script  # noqa: E402


def users(n: int = 6) -> dict[str, list[Any]]:
    return {f"u{i}": history(f"u{i}") for i in range(n)}


def compiled(of: Any, answer: Any = script, program: Any = None, **options: Any) -> tuple[Book, pl.ScriptedLM]:
    model = pl.ScriptedLM(answer, concurrency=8)
    with dspy.context(lm=connect(model)):
        optimizer = PersonaLink(metric=right, depth=1)
        return optimizer.compile_users(program or dspy.Predict(Where), users=of, **options), model


def test_many_users_equal_one_by_one_in_any_order() -> None:
    people = users()
    book, model = compiled(people)
    backwards, _ = compiled(iter(sorted(people.items(), reverse=True)))
    alone = {user: compiled({user: past})[0][user] for user, past in people.items()}
    assert dict(book) == dict(backwards) == alone
    assert sorted(book) == sorted(people)
    assert len(book) == 6
    counts = book.ledger.total()
    assert counts.calls == len(model.requests)
    assert book.summary() == {
        "users": 6, "personalized": 6, "unchanged": 0, "nothing to mend": 0, "incomplete": 0,
        "calls": len(model.requests), "prompt_tokens": None, "completion_tokens": None,
    }  # fmt: skip


@pytest.mark.parametrize("program", [dspy.Predict(Where), Steps()])
def test_a_finished_run_asks_nothing_and_an_interrupted_one_what_is_left(tmp_path: Path, program: Any) -> None:
    people = users()
    first, model = compiled(dict(list(people.items())[:3]), program=program, store=tmp_path)
    paid = len(model.requests)
    whole, model = compiled(people, program=program, store=tmp_path)
    assert {user: whole[user] for user in first} == dict(first)
    assert 0 < len(model.requests) <= paid + 8
    again, model = compiled(people, program=program, store=tmp_path)
    assert model.requests == []
    assert dict(again) == dict(whole)
    assert again.summary()["calls"] == whole.summary()["calls"]  # of all attempts


def test_the_ledger_is_the_servers_own_count() -> None:
    for program in (dspy.Predict(Where), Steps()):
        with FakeVLLM(body_script, latency_s=0.002) as server:
            lm = connect(server.url, model="fake-7b", concurrency=8)
            with dspy.context(lm=lm):
                book = PersonaLink(metric=right, depth=2).compile_users(program, users=users(8))
            lm.engine.close()
        told = book.summary()
        assert (told["calls"], told["prompt_tokens"], told["completion_tokens"]) == (
            server.requests,
            server.prompt_tokens,
            server.completion_tokens,
        )
        assert set(book.ledger.by("user")) == set(users(8))


def test_users_keep_the_queue_full() -> None:
    with FakeVLLM(body_script, latency_s=0.05) as server:
        lm = connect(server.url, model="fake-7b", concurrency=4)
        with dspy.context(lm=lm):
            PersonaLink(metric=right, depth=2).compile_users(dspy.Predict(Where), users=users(4))
        lm.engine.close()
    assert server.most_at_once == 4


def test_one_users_trouble_is_his_own() -> None:
    def answer(request: Request) -> Any:
        return BadRequest("no") if " u3 item" in request.messages[1].content else script(request)

    people = users() | {"bad": [dspy.Example(text="x", side="up").with_inputs("text")]}
    book, _ = compiled(people, answer)
    assert sorted(book.incomplete) == ["bad", "u3"]
    assert isinstance(book.incomplete["u3"], BadRequest)
    assert isinstance(book.incomplete["bad"], DataError)
    assert sorted(book) == ["u0", "u1", "u2", "u4", "u5"]
    assert book.summary()["incomplete"] == 2


def test_an_outage_scores_nobody_and_the_same_call_goes_on(tmp_path: Path) -> None:
    sent = []

    def answer(request: Request) -> Any:
        sent.append(request)
        return Unreachable("gone") if len(sent) > 20 else script(request)

    book, _ = compiled(users(), answer, store=tmp_path)
    assert set(book) | set(book.incomplete) == set(users())
    assert book.incomplete
    assert all(isinstance(error, Unreachable) for error in book.incomplete.values())
    whole, _ = compiled(users(), store=tmp_path)
    assert not whole.incomplete
    assert dict(whole) == dict(compiled(users())[0])


def test_budgets_of_a_user_and_of_the_run_are_never_exceeded(tmp_path: Path) -> None:
    book, model = compiled(users(), budget=Limits(user_calls=9))
    assert len(model.requests) <= 9 * 6
    assert set(book.incomplete) == set(users())  # ten are needed and more
    assert all(isinstance(error, BudgetExceeded) for error in book.incomplete.values())
    book, model = compiled(users(), budget=Limits(calls=40), store=tmp_path)
    assert len(model.requests) == 40
    assert book.incomplete
    whole, model = compiled(users(), budget=Limits(calls=400), store=tmp_path)
    assert not whole.incomplete
    assert whole.summary()["calls"] == 40 + len(model.requests)


def test_the_lms_own_budget_binds_too() -> None:
    model = pl.ScriptedLM(script)
    lm = connect(model, budget=Limits(calls=12))
    with dspy.context(lm=lm):
        book = PersonaLink(metric=right, depth=1).compile_users(dspy.Predict(Where), users=users())
    assert len(model.requests) == 12
    assert book.incomplete


def test_the_lms_own_budget_counts_nothing_twice(tmp_path: Path) -> None:
    model = pl.ScriptedLM(script)
    lm = connect(model, budget=Limits(calls=150))
    with dspy.context(lm=lm):
        optimizer = PersonaLink(metric=right, depth=1)
        for _ in range(5):
            book = optimizer.compile_users(dspy.Predict(Where), users=users(), store=tmp_path)
            assert not book.incomplete
    assert lm.engine.gateway.budget.total.calls == len(model.requests) < 150


def serving(program: Any = None) -> tuple[Personalized, Book]:
    """u1 lies in the north, so a persona helps; u0's answers are right as they are."""
    people = users(2)
    people["u0"] = [dspy.Example(text=e.text, side="south").with_inputs("text") for e in people["u0"]]
    student = program or dspy.Predict(Where)
    book, _ = compiled(people, program=student)
    return book.bind(student), book


def ask(program: Any, **inputs: Any) -> tuple[str, str]:
    model = pl.ScriptedLM(script)
    with dspy.context(lm=connect(model)):
        return program(**inputs).side, model.requests[-1].messages[0].content


def test_one_program_serves_them_all() -> None:
    for student in (dspy.Predict(Where), Steps()):
        program, book = serving(student)
        assert book.summary()["nothing to mend"] == 1
        assert ask(program, user_id="u1", text="x")[0] == "north"
        for user in ("u0", "nobody", 17):
            side, system = ask(program, user_id=user, text="x")
            assert side == "south"
            assert system == ask(type(student)() if isinstance(student, Steps) else student, text="x")[1]
        assert program.persona is None
        assert program.detailed_results is None
        with pytest.raises(DataError, match="give user_id"):
            ask(program, text="x")


def test_serving_in_threads_and_async_never_mixes_users() -> None:
    program, _ = serving()
    past = [dspy.Example(user_id=f"u{i % 2}", text=f"t{i}", side=("south", "north")[i % 2]) for i in range(60)]
    devset = [example.with_inputs("user_id", "text") for example in past]
    with dspy.context(lm=connect(pl.ScriptedLM(script, latency_s=0.001))):
        assert dspy.Evaluate(devset=devset, metric=right, num_threads=16)(program).score == 100.0

        async def together() -> list[Any]:
            return list(await asyncio.gather(*(program.acall(**e.inputs()) for e in devset)))

        assert [p.side for p in asyncio.run(together())] == [e.side for e in devset]


def test_a_program_for_many_is_saved_and_loaded_without_pickle(tmp_path: Path) -> None:
    program, book = serving()
    program.save(tmp_path / "personal.json")
    assert [path.name for path in tmp_path.iterdir()] == ["personal.json"]
    again = Personalized(dspy.Predict(Where))
    again.load(tmp_path / "personal.json")
    assert again.personas.states == {"u1": book["u1"].persona}
    assert ask(again, user_id="u1", text="x") == ask(program, user_id="u1", text="x")
    control = again.reset_copy()
    assert ask(control, user_id="u1", text="x") == ask(program, user_id="nobody", text="x")


def test_a_history_may_carry_the_users_id() -> None:
    past = history("u1", user_id="u1")
    for student in (dspy.Predict(Where), Steps()):
        book, model = compiled({"u1": past}, program=student)
        assert not book["u1"].persona.is_empty
        assert not any("user_id" in r.messages[1].content for r in model.requests if not is_rewrite(r))


def test_what_concerns_nobody_alone_is_raised() -> None:
    with pytest.raises(ConfigError, match="the metric returned 2"), dspy.context(lm=connect(pl.ScriptedLM(script))):
        PersonaLink(metric=lambda e, p: 2).compile_users(dspy.Predict(Where), users=users())

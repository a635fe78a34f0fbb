"""PersonaLink as a DSPy optimizer for one user: any program, any metric, saved, reset, composed; honest when it fails."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from . import REASON

dspy = pytest.importorskip("dspy", reason=REASON)

from dspy.utils.dummies import DummyLM  # noqa: E402

import personalink as pl  # noqa: E402
from personalink.dspy import PersonaLink, Personalized, connect  # noqa: E402
from personalink.dspy.compiling import Compiling  # noqa: E402
from personalink.dspy.program import is_direct  # noqa: E402
from personalink.errors import (  # noqa: E402
    BadRequest,
    ConfigError,
    DataError,
    IntegrityError,
    PersonaError,
    PromptTooLong,
    Unreachable,
)
from personalink.lm.base import Completion, Request  # noqa: E402
from personalink.testing import FakeVLLM  # noqa: E402
from tests.people import is_rewrite, rewrite_reply  # noqa: E402

from .programs import SIDES, Steps, Where, answering, fields, history, right, script  # noqa: E402


def compiled(
    program: Any = Where, answer: Any = script, trainset: Any = None, **options: Any
) -> tuple[Personalized, pl.ScriptedLM]:
    """A compile by a scripted model, with what it was asked."""
    model = pl.ScriptedLM(answer)
    student = dspy.Predict(program) if isinstance(program, type) and issubclass(program, dspy.Signature) else program
    valset = options.pop("valset", None)
    with dspy.context(lm=connect(model)):
        optimizer = PersonaLink(**{"metric": right, "depth": 2, **options})
        return optimizer.compile(student, trainset=trainset or history(), valset=valset), model


def call(program: Any, answer: Any = script, **inputs: Any) -> tuple[Any, tuple[str, ...]]:
    """(what a program says, the text of its last prompt)."""
    model = pl.ScriptedLM(answer)
    with dspy.context(lm=connect(model)):
        said = program(**(inputs or {"text": "a new text"}))
    return said, tuple(m.content for m in model.requests[-1].messages)


def test_one_line_changed_gives_a_persona() -> None:
    mine, model = compiled()
    assert mine.persona is not None
    assert mine.persona.preference_summary == "Prefers the north."
    assert mine.persona.tokens <= 250
    told = mine.detailed_results
    assert [p.accepted for p in told.passes] == [True, False]
    assert told.passes[-1].score_after > told.initial.value
    assert told.calls == len(model.requests)
    said, (system, _) = call(mine)
    assert said.side == "north"
    assert mine.persona.render().splitlines()[0] in system


def test_a_user_whom_nothing_helps_gets_the_prompt_of_no_personalization() -> None:
    mine, _ = compiled(answer=answering(fields(side="south")))
    assert mine.persona is not None
    assert mine.persona.is_empty
    assert call(mine)[1] == call(dspy.Predict(Where))[1]


def test_a_user_without_mistakes_costs_the_slice_alone() -> None:
    past = [dspy.Example(text=e.text, side="south").with_inputs("text") for e in history()]
    mine, model = compiled(trainset=past)
    assert len(model.requests) == 8
    assert mine.detailed_results.passes[0].reason == "converged: no errors on the slice"


def test_another_answer_with_the_best_score_is_no_mistake() -> None:
    mine, model = compiled(metric=lambda gold, pred: True)
    assert len(model.requests) == 8
    assert mine.detailed_results.passes[0].reason == "converged: no errors on the slice"


def keys(model: pl.ScriptedLM) -> list[str]:
    return [request.key("same") for request in model.requests]


def test_the_direct_way_and_the_programs_own_send_the_same_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    forward = dspy.Predict.forward
    monkeypatch.setattr(dspy.Predict, "forward", lambda self, **inputs: called.append(1) or forward(self, **inputs))
    demo = dspy.Example(text="shown", side="west").with_inputs("text")

    def run(direct: bool, **config: Any) -> tuple[Any, list[str]]:
        model = pl.ScriptedLM(script, concurrency=1)
        student = dspy.Predict(Where, **config)
        student.demos = [demo]
        with dspy.context(lm=connect(model)):
            optimizer = PersonaLink(metric=right, depth=2)
            optimizer.settings = dataclasses.replace(optimizer.settings, direct=direct)
            return optimizer.compile(student, trainset=history()).detailed_results, keys(model)

    for config in ({}, {"max_tokens": 33, "seed": 4}):
        one, quick = run(True, **config)
        assert not called
        other, slow = run(False, **config)
        assert called
        called.clear()
        assert one == other
        assert sorted(quick) == sorted(slow)
        assert len(quick) > 16


@pytest.mark.parametrize(
    "student",
    [
        dspy.ChainOfThought("q -> a"),
        dspy.Predict("q -> a, b: list[dspy.Image]"),
        dspy.Predict("picture: dspy.Image -> a"),
        dspy.Predict("history: dspy.History, q -> a"),
        dspy.Predict("q -> a", n=3),
        dspy.Predict("q -> a", stop=["x"]),
        dspy.Predict("q, missing -> a"),
    ],
)
def test_what_is_no_bare_predict_of_text_is_called_as_it_is(student: Any) -> None:
    from personalink.dspy.adapter import placing

    assert is_direct(dspy.Predict("q -> a"), placing(None, "", {}, constrain=True), {"q": "x"})
    assert not is_direct(student, placing(None, "", {}, constrain=True), {"q": "x"})
    assert not is_direct(dspy.Predict("q -> a"), placing(dspy.JSONAdapter(), "", {}, constrain=True), {"q": "x"})


def test_a_program_of_several_predictors_sees_the_persona_in_each() -> None:
    mine, model = compiled(Steps())
    assert mine.persona is not None
    assert not mine.persona.is_empty
    model = pl.ScriptedLM(script)
    with dspy.context(lm=connect(model)):
        assert mine(text="a new text").side == "north"
    assert [mine.persona.preference_summary in r.messages[0].content for r in model.requests] == [True, True]
    assert [name for name, _ in mine.named_predictors()] == ["student.clue", "student.where"]


def test_a_program_that_reasons_is_constrained_nowhere_and_works() -> None:
    def answer(request: Request) -> str:
        if is_rewrite(request):
            return rewrite_reply()
        side = "north" if "Prefers the north" in request.messages[0].content else "south"
        return fields(reasoning="because", side=side)

    mine, model = compiled(dspy.ChainOfThought(Where), answer)
    assert mine.persona is not None
    assert not mine.persona.is_empty
    assert {r.constraint for r in model.requests if not is_rewrite(r)} == {None}
    (shown,) = [r.messages[1].content for r in model.requests if is_rewrite(r)][:1]
    assert '"then": one of the labels north, south, east, west' in shown


def test_feedback_goes_into_the_rewrite() -> None:
    def metric(gold: Any, pred: Any, trace: Any = None, pred_name: Any = None, pred_trace: Any = None) -> Any:
        assert pred_name == "self"
        assert pred_trace[0][1] == {"text": gold.text}
        return dspy.Prediction(score=float(gold.side == pred.side), feedback=f"look for\n{gold.side} winds")

    _, model = compiled(metric=metric)
    first = next(r.messages[1].content for r in model.requests if is_rewrite(r))
    assert "it said: south (look for north winds); this person: north" in first


def test_long_feedback_is_bounded() -> None:
    def metric(gold: Any, pred: Any) -> Any:
        return dspy.Prediction(score=float(gold.side == pred.side), feedback="word " * 10_000)

    _, model = compiled(metric=metric)
    first = next(r.messages[1].content for r in model.requests if is_rewrite(r))
    assert "word word" in first
    assert len(first) < 10_000


def test_scores_between_right_and_wrong_decide() -> None:
    """Half a point an item is not what a label's equality would see."""

    def metric(gold: Any, pred: Any, trace: Any = None) -> float:
        return 1.0 if gold.side == pred.side else 0.1 if pred.side == "south" else 0.3

    def answer(request: Request) -> str:
        if is_rewrite(request):
            return rewrite_reply()
        return fields(side="east" if "Prefers the north" in request.messages[0].content else "south")

    past = [dspy.Example(text=e.text, side="north").with_inputs("text") for e in history()]
    mine, _ = compiled(answer=answer, trainset=past, metric=metric)
    told = mine.detailed_results.passes[0]
    assert (told.score_before, told.score_after, told.accepted) == (pytest.approx(0.1), pytest.approx(0.3), True)


def test_ratings_with_a_metric_below_zero() -> None:
    def stars(gold: Any, pred: Any, trace: Any = None) -> Any:
        return dspy.Prediction(score=-abs(gold.rating - pred.rating), feedback=f"the user gave {gold.rating}")

    def answer(request: Request) -> str:
        if is_rewrite(request):
            return rewrite_reply("Is generous.", [{"if": "it mentions amber", "then": "5"}])
        return fields(rating="5 stars" if "generous" in request.messages[0].content else "2")

    past = [
        dspy.Example(review=e.text, rating=5 if i % 2 else 4).with_inputs("review") for i, e in enumerate(history())
    ]
    options: Any = {"metric": stars, "labels": range(1, 6), "failure_score": -4, "perfect_score": 0}
    mine, model = compiled(dspy.Predict("review -> rating: int"), answer, past, **options)
    assert mine.detailed_results.initial.value < -2
    assert mine.detailed_results.passes[0].accepted
    assert any("one of the ratings 1, 2, 3, 4, 5" in r.messages[1].content for r in model.requests)
    with pytest.raises(ConfigError, match="the metric returned -2"):
        compiled(dspy.Predict("review -> rating: int"), answer, past, metric=stars, labels=range(1, 6))


def test_an_unreadable_answer_scores_the_least_and_is_told() -> None:
    mine, model = compiled(answer=answering("no idea"))
    assert mine.detailed_results.initial.value == 0.0
    first = next(r.messages[1].content for r in model.requests if is_rewrite(r))
    assert "it said: nothing usable; this person: north" in first
    assert mine.detailed_results.passes[0].unreadable > 0


def test_open_text_gets_a_persona_without_rules() -> None:
    def metric(gold: Any, pred: Any) -> float:
        return len({*gold.reply.split()} & {*pred.reply.split()}) / 3

    def answer(request: Request) -> str:
        if is_rewrite(request):
            return rewrite_reply("Writes short, warm thanks.", [{"if": "it mentions amber", "then": "x"}])
        return fields(reply="many thanks dear" if "warm" in request.messages[0].content else "Noted.")

    past = [dspy.Example(mail=e.text, reply="many thanks dear").with_inputs("mail") for e in history()]
    mine, model = compiled(dspy.Predict("mail -> reply"), answer, past, metric=metric)
    assert mine.persona is not None
    assert mine.persona.preference_summary == "Writes short, warm thanks."
    assert mine.persona.decision_rules == ()
    assert mine.persona.exemplars


def test_several_answer_fields_are_one_label() -> None:
    def metric(gold: Any, pred: Any) -> float:
        return ((gold.side == pred.side) + (gold.size == pred.size)) / 2

    def answer(request: Request) -> str:
        if is_rewrite(request):
            return rewrite_reply("Prefers the north.", [])
        return fields(side="north" if "Prefers" in request.messages[0].content else "south", size=3)

    past = [dspy.Example(text=e.text, side="north", size=3).with_inputs("text") for e in history()]
    mine, model = compiled(dspy.Predict("text -> side, size: int"), answer, past, metric=metric)
    assert mine.detailed_results.passes[0].score_after == 1.0
    first = next(r.messages[1].content for r in model.requests if is_rewrite(r))
    assert "it said: side: south; size: 3; this person: side: north; size: 3" in first


def test_a_valset_scores_in_place_of_a_slice() -> None:
    held = history("v", 6)
    mine, model = compiled(valset=held, trainset=[*history(), held[1]])
    told = mine.detailed_results
    assert told.slice_ids == tuple(map(str, range(6)))
    assert told.audit_ids == ()
    asked = {r.messages[1].content.split("\n")[1] for r in model.requests if not is_rewrite(r)}
    assert asked == {e.text for e in held}
    shown = "\n".join(r.messages[1].content.split("Without a profile")[0] for r in model.requests if is_rewrite(r))
    assert held[1].text not in shown  # no copy of it in the pool


def test_a_label_in_other_spelling_is_the_same_label() -> None:
    past = [dspy.Example(text=e.text, side=e.side.upper() + " ").with_inputs("text") for e in history()]

    def metric(gold: Any, pred: Any) -> bool:
        return bool(gold.side.strip().lower() == pred.side)

    assert not compiled(trainset=past, metric=metric)[0].persona.is_empty  # type: ignore[union-attr]


def test_an_outage_is_no_score() -> None:
    def answer(request: Request) -> Any:
        return Unreachable("the server is gone") if "item7" in request.messages[1].content else script(request)

    for program in (dspy.Predict(Where), Steps()):
        with pytest.raises(Unreachable, match="the server is gone"):
            compiled(program, answer)


class Careless(Steps):
    """It answers something whatever happens."""

    def forward(self, text: str) -> Any:
        try:
            return super().forward(text)
        except Exception:  # noqa: BLE001
            return dspy.Prediction(side="south")


def test_an_outage_that_a_program_swallows_is_one_too() -> None:
    def failing(error: Exception) -> Any:
        return lambda request: rewrite_reply() if is_rewrite(request) else error

    with pytest.raises(Unreachable):
        compiled(Careless(), failing(Unreachable("gone")))
    mine, _ = compiled(Careless(), failing(BadRequest("bad")))
    assert mine.detailed_results.initial.value < 1.0  # what a program may well deal with, it may


def test_a_prompt_that_is_too_long_is_unreadable_and_no_outage() -> None:
    def answer(request: Request) -> Any:
        return (
            PromptTooLong("too long")
            if "item1" in request.messages[1].content and not is_rewrite(request)
            else (script(request))
        )

    for program in (dspy.Predict(Where), Steps()):
        mine, _ = compiled(program, answer)
        assert mine.persona is not None


def test_what_is_wrong_with_the_program_or_the_metric_passes_as_it_is() -> None:
    class Broken(Steps):
        def forward(self, text: str) -> Any:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        compiled(Broken())
    with pytest.raises(AttributeError, match="colour"):
        compiled(metric=lambda gold, pred: gold.colour == 1)


def test_refusals_in_one_line() -> None:
    with pytest.raises(ConfigError, match="there is no LM; set one"):
        PersonaLink(metric=right).compile(dspy.Predict(Where), trainset=history())
    with dspy.context(lm="openai/gpt"), pytest.raises(ConfigError, match=r"is no dspy\.LM"):
        PersonaLink(metric=right).compile(dspy.Predict(Where), trainset=history())
    with pytest.raises(ConfigError, match="takes no teacher"):
        PersonaLink(metric=right).compile(dspy.Predict(Where), trainset=history(), teacher=dspy.Predict(Where))
    with pytest.raises(ConfigError, match="gate is 'always'"):
        PersonaLink(metric=right, accept="always")
    with pytest.raises(DataError, match=r"example 0 holds no answer \(side\)"):
        compiled(trainset=[dspy.Example(text="x", category="north").with_inputs("text")])
    with pytest.raises(DataError, match="is not a label"):
        compiled(trainset=[dspy.Example(text="x", side="up").with_inputs("text")])
    with pytest.raises(DataError, match=r"is no dspy\.Example"):
        compiled(trainset=[{"text": "x"}])
    with pytest.raises(DataError, match="does not tell its inputs"):
        compiled(Steps(), trainset=[dspy.Example(text="x", side="north")])


def test_saved_and_loaded_by_dspys_own_calls(tmp_path: Path) -> None:
    for student in (dspy.Predict(Where), Steps()):
        mine, _ = compiled(student)
        mine.save(tmp_path / "mine.json")
        again = Personalized(type(student)() if isinstance(student, Steps) else dspy.Predict(Where))
        assert again.persona is None
        again.load(tmp_path / "mine.json")
        assert again.persona == mine.persona
        assert again.detailed_results == mine.detailed_results
        assert call(again)[1] == call(mine)[1]


def test_what_another_optimizer_made_is_saved_with_it(tmp_path: Path) -> None:
    with dspy.context(lm=connect(pl.ScriptedLM(script))):
        taught = dspy.BootstrapFewShot(metric=right, max_labeled_demos=2).compile(Steps(), trainset=history())
    assert taught._compiled
    mine, _ = compiled(taught)
    mine.save(tmp_path / "mine.json")
    again = Personalized(Steps())
    again.load(tmp_path / "mine.json")
    assert [len(p.demos) for p in again.predictors()] == [len(p.demos) for p in taught.predictors()]
    assert call(again)[1] == call(mine)[1]


def test_labels_that_were_given_are_saved_too(tmp_path: Path) -> None:
    mine, _ = compiled(dspy.Predict("text -> side", "Say where it lies."), labels=SIDES)
    mine.save(tmp_path / "mine.json")
    again = Personalized(dspy.Predict("text -> side", "Say where it lies."))
    again.load(tmp_path / "mine.json")
    assert call(again, lambda request: "North.")[0].side == "north"


def test_an_altered_file_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    mine, _ = compiled()
    mine.save(tmp_path / "mine.json")
    state = json.loads((tmp_path / "mine.json").read_text())
    for change, error in (
        (("personas", ""), PersonaError),
        (("version",), IntegrityError),
        (("refinement",), IntegrityError),
        (("by_user",), IntegrityError),
    ):
        altered = json.loads(json.dumps(state))
        place = altered["personas"]
        for key in change[:-1]:
            place = place[key]
        if change[-1] == "by_user":
            del place["by_user"]
        elif change[-1] == "":
            place[""]["preference_summary"] = "Prefers the south."
        else:
            place[change[-1]] = {"nothing": 1}
        (tmp_path / "altered.json").write_text(json.dumps(altered))
        again = Personalized(dspy.Predict(Where))
        with pytest.raises(error):
            again.load(tmp_path / "altered.json")
        assert again.persona is None


def test_reset_is_the_control_without_a_persona() -> None:
    mine, _ = compiled(Steps())
    control = mine.reset_copy()
    assert control.persona is None
    assert mine.persona is not None
    assert call(control)[1] == call(Steps())[1]


def test_it_counts_as_compiled_so_that_nobody_resets_it_unseen() -> None:
    mine, model = compiled()
    with dspy.context(lm=connect(model)), pytest.raises(AssertionError, match="must be uncompiled"):
        dspy.BootstrapFewShot(metric=right).compile(mine, trainset=history())


def test_a_personalized_student_is_taken_without_its_persona() -> None:
    mine, _ = compiled()
    twice, model = compiled(mine)
    assert twice.detailed_results == mine.detailed_results
    assert not isinstance(twice.student, Personalized)


def test_it_answers_under_evaluate_in_threads_and_in_a_context_of_its_own() -> None:
    mine, _ = compiled()
    control = mine.reset_copy()
    with dspy.context(lm=connect(pl.ScriptedLM(script, latency_s=0.001))):
        scores = {}

        def score(name: str, program: Any) -> None:
            with dspy.context(lm=lm):
                scores[name] = dspy.Evaluate(devset=history("t", 30), metric=right, num_threads=8)(program).score

        lm = dspy.settings.lm
        threads = [threading.Thread(target=score, args=pair) for pair in (("mine", mine), ("control", control))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert scores["mine"] == pytest.approx(66.67)  # all north
    assert scores["control"] == pytest.approx(33.33)  # all south
    with dspy.context(lm=connect(pl.ScriptedLM(lambda request: fields(side="west")))):
        assert mine(text="x").side == "west"


def test_async_calls() -> None:
    async def both() -> tuple[Any, Any]:
        with dspy.context(lm=connect(pl.ScriptedLM(script))):
            return await asyncio.gather(mine.acall(text="x"), steps.acall(text="y"))

    mine, steps = compiled()[0], compiled(Steps())[0]  # Steps has no async form
    assert [p.side for p in asyncio.run(both())] == ["north", "north"]


def test_compiling_inside_a_running_loop_as_a_notebook_has_one() -> None:
    async def inside() -> Any:
        return compiled()[0]

    assert asyncio.run(inside()).persona == compiled()[0].persona


def test_the_settings_of_a_context_hold_while_compiling() -> None:
    mine, model = compiled()
    with dspy.context(adapter=dspy.JSONAdapter()):
        _, model = compiled(answer=lambda r: rewrite_reply() if is_rewrite(r) else json.dumps({"side": "south"}))
    asked = [r for r in model.requests if not is_rewrite(r)]
    assert all("JSON object" in r.messages[0].content for r in asked)


def test_callbacks_see_the_compile_and_each_call() -> None:
    class Log(dspy.utils.BaseCallback):
        def __init__(self) -> None:
            self.seen: list[str] = []

        def on_lm_start(self, call_id: Any, instance: Any, inputs: Any) -> None:
            self.seen.append("lm")

        def on_compile_start(self, call_id: Any, instance: Any, inputs: Any) -> None:
            self.seen.append("compile")

    log = Log()
    with dspy.context(callbacks=[log]):
        _, model = compiled()
    asked = sum(not is_rewrite(r) for r in model.requests)
    assert log.seen == ["compile", *["lm"] * asked]  # so the direct way is not taken


def test_another_model_writes_the_personas() -> None:
    writer = pl.ScriptedLM(lambda request: rewrite_reply("Is somebody else.", []))
    _, model = compiled(rewriter=connect(writer))
    assert all(map(is_rewrite, writer.requests))
    assert not any(map(is_rewrite, model.requests))
    assert writer.requests


def test_any_dspy_lm_will_do() -> None:
    """One that is not ours: DSPy's own dummy, which answers what it is told for each text."""
    past = history()
    answers = {e.text: {"side": "south"} for e in past}
    lm = DummyLM(answers)
    with dspy.context(lm=lm):
        mine = PersonaLink(metric=right, depth=1).compile(dspy.Predict(Where), trainset=past)
    assert mine.detailed_results.initial.value < 0.5
    assert mine.detailed_results.passes[0].reason == "the reply holds no JSON object"  # the dummy writes no persona
    assert mine.detailed_results.passes[0].calls == 1


def test_a_foreign_lm_keeps_its_settings_and_dspys_cache_is_not_asked() -> None:
    class Told:
        def __init__(self, side: str) -> None:
            self.side, self.requests = side, []  # type: ignore[var-annotated]

        def complete(self, request: Any) -> Any:
            self.requests.append(request)
            text = rewrite_reply() if request.system.startswith("You keep") else fields(side=self.side)
            done = dspy.lm15.Message.assistant(text)
            usage = dspy.lm15.Usage(input_tokens=5, output_tokens=2)
            return dspy.lm15.Response(id=None, model="m", message=done, finish_reason="stop", usage=usage)

    engines = [Told("north"), Told("west")]
    scores = []
    for engine in engines:
        lm = dspy.LM("same/name", engine=engine, temperature=0.5, max_tokens=77, cache=True)
        with dspy.context(lm=lm):
            mine = PersonaLink(metric=right, depth=1).compile(dspy.Predict(Where), trainset=history())
        scores.append(mine.detailed_results.initial.value)
    assert scores[0] > 0.4
    assert scores[1] == 0.0  # DSPy's cache would have given it the first server's answers
    asked = [r for r in engines[0].requests if not r.system.startswith("You keep")]
    assert {(r.config.temperature, r.config.max_tokens) for r in asked} == {(0.5, 77)}


def test_a_foreign_lm_that_is_out_is_an_outage() -> None:
    class Out:
        def complete(self, request: Any) -> Any:
            raise dspy.lm15.AuthError("no key")

    with dspy.context(lm=dspy.LM("m", engine=Out(), num_retries=0)), pytest.raises(pl.Unauthorized, match="no key"):
        PersonaLink(metric=right).compile(dspy.Predict(Where), trainset=history())


def test_labels_are_asked_for_as_a_constraint_and_can_be_left_free() -> None:
    with FakeVLLM(lambda body: "{}", labels=("x",), record=True) as server:
        lm = connect(server.url, model="fake-7b")
        with dspy.context(lm=lm):
            PersonaLink(metric=right, depth=0).compile(dspy.Predict(Where), trainset=history())
            PersonaLink(metric=right, depth=0, constrain=False).compile(dspy.Predict(Where), trainset=history())
        lm.engine.close()
    held, free = server.bodies[:8], server.bodies[8:]
    assert {tuple(b["structured_outputs"]["choice"]) for b in held} == {tuple(fields(side=s) for s in SIDES)}
    assert not any("structured_outputs" in b for b in free)


def test_it_is_gepas_student() -> None:
    mine, _ = compiled()

    def metric(gold: Any, pred: Any, trace: Any = None, pred_name: Any = None, pred_trace: Any = None) -> Any:
        return dspy.Prediction(score=float(gold.side == pred.side), feedback=f"it is {gold.side}")

    class Proposes:
        def __call__(self, candidate: Any, reflective_dataset: Any, components_to_update: Any) -> dict[str, str]:
            assert reflective_dataset["student"][0]["Feedback"].startswith("it is")
            return dict.fromkeys(components_to_update, "Say where it lies, in one word.")

    lm = connect(pl.ScriptedLM(script))
    with dspy.context(lm=lm):
        gepa = dspy.GEPA(metric=metric, max_metric_calls=30, instruction_proposer=Proposes(), track_stats=True)
        better = gepa.compile(mine, trainset=history("t", 6), valset=history("v", 6))
    assert better.persona == mine.persona
    assert better.detailed_results.candidates  # GEPA's own
    assert better.personas.refinement == mine.detailed_results


def test_it_is_a_step_of_better_together() -> None:
    student = dspy.Predict(Where)
    student.set_lm(connect(pl.ScriptedLM(script)))
    together = dspy.BetterTogether(metric=right, p=PersonaLink(metric=right, depth=1))
    best = together.compile(student, trainset=history(n=30), valset=history("v", 12), strategy="p", seed=1)
    assert isinstance(best, Personalized)
    assert not best.flag_compilation_error_occurred
    assert [c["strategy"] for c in best.candidate_programs] == ["p", ""]
    assert best.get_lm() is not None


def test_predictors_with_models_of_their_own_keep_them() -> None:
    one, two = pl.ScriptedLM(script), pl.ScriptedLM(script)
    student = Steps()
    student.clue.lm, student.where.lm = connect(one), connect(two)
    mine = PersonaLink(metric=right, depth=1).compile(student, trainset=history())
    assert len(one.requests) == len(two.requests) + 1  # the first writes the persona
    assert [p.lm.engine for p in mine.predictors()] == [student.clue.lm.engine, student.where.lm.engine]


def test_the_ledger_has_every_call_by_phase() -> None:
    model = pl.ScriptedLM(script)
    lm = connect(model)
    with dspy.context(lm=lm):
        mine = PersonaLink(metric=right, depth=2).compile(Steps(), trainset=history())
    by = lm.engine.ledger.by("phase")
    assert sum(c.calls for c in by.values()) == len(model.requests)
    assert set(by) == {"evaluate", "rewrite"}
    assert mine.detailed_results.calls < len(model.requests)  # the loop counts answers, the ledger calls


@pytest.mark.parametrize("student", [dspy.Predict(Where), dspy.ChainOfThought(Where)])
def test_a_metric_that_asks_a_model_is_counted_apart_and_its_outage_is_one(student: Any) -> None:
    def judge(gold: Any, pred: Any) -> float:
        return float(dspy.Predict("answer, wanted -> good: bool")(answer=pred.side, wanted=gold.side).good)

    def answer(request: Request) -> Any:
        if is_rewrite(request):
            return rewrite_reply()
        if "`good`" not in request.messages[0].content:
            return fields(reasoning="so", side="north")
        assert "Prefers the north" not in request.messages[0].content  # a judge sees no persona
        text = request.messages[1].content
        return fields(good="north" in text.split("wanted")[1]) if working else Unreachable("the judge is gone")

    working = True
    model = pl.ScriptedLM(answer)
    lm = connect(model)
    with dspy.context(lm=lm):
        mine = PersonaLink(metric=judge, depth=1).compile(student, trainset=history())
        assert 0 < mine.detailed_results.initial.value < 1
        by = {phase: counts.calls for phase, counts in lm.engine.ledger.by("phase").items()}
        assert by["judge"] >= 2
        assert sum(by.values()) == len(model.requests)
        working = False
    with dspy.context(lm=connect(pl.ScriptedLM(answer))), pytest.raises(Unreachable, match="the judge is gone"):
        PersonaLink(metric=judge, depth=1).compile(student, trainset=history())


def test_compiling_leaves_the_student_as_it_was() -> None:
    student = dspy.Predict(Where)
    compiled(student)
    assert student.signature is Where
    assert student.lm is None
    assert student.demos == []


def test_completions_that_were_refused_or_cut_are_unreadable() -> None:
    for outcome in ("refused", "truncated", "empty"):
        mine, _ = compiled(
            answer=lambda r, o=outcome: rewrite_reply() if is_rewrite(r) else Completion("", o)  # type: ignore[misc]
        )
        assert mine.detailed_results.initial.value == 0.0


def test_threads_are_given_back() -> None:
    before = threading.active_count()
    compiled(Steps())
    with (
        dspy.context(lm=connect(pl.ScriptedLM(script))),
        Compiling(dspy.Predict(Where), PersonaLink(metric=right).settings),
    ):
        pass
    for thread in threading.enumerate():
        if thread.name.startswith("personalink-dspy"):
            thread.join(5)
    assert threading.active_count() <= before + 1  # the background loop

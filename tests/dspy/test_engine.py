"""The engine: counts as the server counts, servers apart, errors told as DSPy tells them, nothing dropped unsaid."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from . import REASON

dspy = pytest.importorskip("dspy", reason=REASON)

import personalink as pl  # noqa: E402
from personalink import background  # noqa: E402
from personalink.dspy import Engine, Personalized, connect  # noqa: E402
from personalink.dspy.engine import AsyncEngine, lm_over  # noqa: E402
from personalink.errors import (  # noqa: E402
    BadRequest,
    BudgetExceeded,
    ConfigError,
    DeadlineExceeded,
    LMError,
    MalformedReply,
    ModelNotFound,
    PromptTooLong,
    StorageError,
    Unauthorized,
    Unreachable,
)
from personalink.lm.base import Completion, Decoding, Usage  # noqa: E402
from personalink.lm.budget import Limits  # noqa: E402
from personalink.lm.journal import Journal  # noqa: E402
from personalink.testing import FakeVLLM  # noqa: E402

from .programs import Where, body_script, fields, history, right  # noqa: E402


def scripted(answer: Any, **options: Any) -> tuple[Any, pl.ScriptedLM]:
    model = pl.ScriptedLM(answer)
    return connect(model, **options), model


@pytest.mark.parametrize("threads", [1, 8, 64])
def test_usage_under_threads_is_the_servers_own(threads: int) -> None:
    with FakeVLLM(body_script) as server:
        lm = connect(server.url, model="fake-7b")
        with dspy.context(lm=lm):
            done = dspy.Evaluate(devset=history(n=40), metric=right, num_threads=threads)(dspy.Predict(Where))
        counts = lm.engine.ledger.total()
        lm.engine.close()
    assert len(done.results) == 40
    assert (counts.calls, counts.prompt_tokens) == (server.requests, server.prompt_tokens) == (40, counts.prompt_tokens)
    assert counts.completion_tokens == server.completion_tokens > 0


def test_two_servers_of_one_name_share_nothing() -> None:
    with FakeVLLM(lambda body: fields(side="north")) as one, FakeVLLM(lambda body: fields(side="west")) as two:
        lms = [connect(server.url, model="fake-7b") for server in (one, two)]
        said = []
        for lm in lms * 2:
            with dspy.context(lm=lm):
                said.append(dspy.Predict(Where)(text="the same").side)
            lm.engine.close()
        assert said == ["north", "west"] * 2
        assert one.requests == two.requests == 1  # each remembers its own


def test_an_answer_that_is_known_has_no_usage() -> None:
    lm, model = scripted(lambda request: Completion(fields(side="east"), "ok", Usage(10, 4, 3), model="m"))
    with dspy.context(lm=lm), dspy.track_usage() as usage:
        for _ in range(3):
            assert dspy.Predict(Where)(text="x").side == "east"
    assert len(model.requests) == 1
    (told,) = usage.get_total_tokens().values()
    assert (told["prompt_tokens"], told["completion_tokens"], told["total_tokens"]) == (10, 3, 13)
    assert told["prompt_tokens_details"] == {"cached_tokens": 4}


def test_the_history_is_as_dspy_expects() -> None:
    lm, _ = scripted(lambda request: Completion(fields(side="east"), "ok", Usage(10, None, 3), model="m-1"))
    with dspy.context(lm=lm):
        dspy.Predict(Where)(text="x")
    (entry,) = lm.history
    assert [m["role"] for m in entry["messages"]] == ["system", "user"]
    assert entry["outputs"] == [fields(side="east")]
    assert entry["usage"]["prompt_tokens"] == 10
    assert entry["response_model"] == "m-1"


def test_what_dspy_sends_is_what_the_model_gets() -> None:
    lm, model = scripted(lambda request: fields(side="east"), decoding=Decoding(max_tokens=99, seed=7))
    with dspy.context(lm=lm):
        dspy.Predict(Where, temperature=0.5, top_p=0.9)(text="x")
        dspy.Predict(Where, max_tokens=5, seed=3)(text="x")
    first, second = (request.decoding for request in model.requests)
    assert first == Decoding(max_tokens=99, temperature=0.5, top_p=0.9, seed=7)
    assert second == Decoding(max_tokens=5, seed=3)


def test_a_schema_is_a_constraint() -> None:
    lm, model = scripted(lambda request: '{"side": "east"}')
    with dspy.context(lm=lm, adapter=dspy.JSONAdapter()):
        assert dspy.Predict(Where)(text="x").side == "east"
    constraint = model.requests[0].constraint
    assert constraint is not None
    assert constraint.schema is not None
    assert constraint.schema["properties"]["side"]["enum"] == ["north", "south", "east", "west"]


def test_repeated_draws_are_new_answers_and_the_same_with_a_journal(tmp_path: Any) -> None:
    def draws() -> tuple[list[str], int]:
        model = pl.ScriptedLM(lambda request: fields(answer=f"draw {request.sample}"))
        journal = Journal(tmp_path / "journal")
        lm = lm_over(Engine(model, journal), "scripted")
        with dspy.context(lm=lm):
            said = [dspy.Predict("q -> answer", temperature=1.0)(q="?").answer for _ in range(3)]
        journal.close()
        return said, len(model.requests)

    assert draws() == (["draw 0", "draw 1", "draw 2"], 3)
    assert draws() == (["draw 0", "draw 1", "draw 2"], 0)


def test_several_candidates_are_several_draws() -> None:
    lm, model = scripted(lambda request: fields(answer=f"draw {request.sample}"))
    with dspy.context(lm=lm):
        said = dspy.Predict("q -> answer", n=3)(q="?")
    assert said.completions.answer == ["draw 0", "draw 1", "draw 2"]
    assert len(model.requests) == 3


def test_async_calls_share_gateway_and_ledger_and_outlive_their_loop() -> None:
    with FakeVLLM(body_script, latency_s=0.02) as server:
        lm = connect(server.url, model="fake-7b")

        async def many() -> list[Any]:
            asked = (dspy.Predict(Where).acall(text=f"t{i % 10}") for i in range(20))
            return list(await asyncio.gather(*asked))

        with dspy.context(lm=lm):
            for _ in range(2):
                assert {p.side for p in asyncio.run(many())} == {"south"}
            dspy.Predict(Where)(text="t0")
        assert lm.engine.ledger.total().calls == server.requests == 10
        lm.engine.close()


def test_an_async_call_works_on_the_background_loop_too() -> None:
    lm, _ = scripted(lambda request: fields(side="east"))

    async def inside() -> Any:
        with dspy.context(lm=lm):
            return await dspy.Predict(Where).acall(text="x")

    assert background.run(inside()).side == "east"


def test_a_stream_comes_in_one_piece() -> None:
    lm, _ = scripted(lambda request: fields(answer="yes"))
    listener = dspy.streaming.StreamListener(signature_field_name="answer")
    with dspy.context(lm=lm):
        program = dspy.streamify(dspy.Predict("q -> answer"), stream_listeners=[listener], async_streaming=False)
        ended = [piece for piece in program(q="?") if isinstance(piece, dspy.Prediction)]
    assert [piece.answer for piece in ended] == ["yes"]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Unreachable("gone"), "LMTransportError"),
        (DeadlineExceeded("late"), "LMTimeoutError"),
        (Unauthorized("no"), "LMAuthError"),
        (ModelNotFound("which"), "LMUnsupportedModelError"),
        (PromptTooLong("long"), "ContextWindowExceededError"),
        (BadRequest("bad"), "LMInvalidRequestError"),
        (MalformedReply("html"), "LMServerError"),
        (LMError("other"), "LMTransportError"),
        (BudgetExceeded("spent", whole_run=True), "LMBillingError"),
        (StorageError("full"), "LMUnexpectedError"),
    ],
)
def test_errors_are_told_as_dspy_tells_them(ours: Exception, theirs: str) -> None:
    lm, model = scripted(lambda request: ours)
    with dspy.context(lm=lm), pytest.raises(dspy.LMError, match=str(ours)) as caught:
        dspy.Predict(Where)(text="x")
    assert type(caught.value).__name__ == theirs
    chain, error = [], caught.value
    while error is not None:
        chain.append(error)
        error = error.__cause__
    assert ours in chain
    assert len(model.requests) == 1  # the transport has retried already


def test_a_budget_is_never_exceeded() -> None:
    with FakeVLLM(body_script) as server:
        lm = connect(server.url, model="fake-7b", budget=Limits(calls=5))
        with dspy.context(lm=lm, max_errors=1000):
            dspy.Evaluate(devset=history(n=30), metric=right, num_threads=8)(dspy.Predict(Where))
        lm.engine.close()
    assert server.requests == 5


@pytest.mark.parametrize(
    ("settings", "named"), [({"stop": ["x"]}, "config.stop"), ({"reasoning_effort": "high"}, "config.reasoning")]
)
def test_what_cannot_be_carried_is_refused_by_name(settings: dict[str, Any], named: str) -> None:
    lm, model = scripted(lambda request: fields(side="east"))
    with dspy.context(lm=lm), pytest.raises(dspy.LMError, match=f"does not carry {named}"):
        dspy.Predict(Where, **settings)(text="x")
    assert model.requests == []


def test_an_image_is_refused_by_name() -> None:
    lm, _ = scripted(lambda request: fields(side="east"))
    picture = dspy.Image(url="data:image/png;base64,iVBORw0KGgo=")
    with dspy.context(lm=lm), pytest.raises(dspy.LMError, match=r"messages\[0\]"):
        dspy.Predict("picture: dspy.Image -> side")(picture=picture)


def test_a_program_that_holds_it_is_saved_and_loaded(tmp_path: Any) -> None:
    with FakeVLLM(body_script) as server:
        lm = connect(server.url, model="fake-7b", decoding=Decoding(max_tokens=64), retries=1)
        program = Personalized(dspy.Predict(Where))
        program.set_lm(lm)
        program.save(tmp_path / "program.json")
        assert 'api_key"' not in (tmp_path / "program.json").read_text()
        again = Personalized(dspy.Predict(Where))
        again.load(tmp_path / "program.json", allow_unsafe_lm_state=True)
        assert again.get_lm().engine is lm.engine  # one connection, one ledger
        assert isinstance(again.get_lm()._async_engine_spec, AsyncEngine)
        assert again(text="x").side == "south"
        lm.engine.close()


def test_an_engine_that_cannot_be_saved_says_so(tmp_path: Any) -> None:
    lm, _ = scripted(lambda request: fields(side="east"))
    program = dspy.Predict(Where)
    program.lm = lm
    with pytest.raises(ConfigError, match=r"was not made by connect"):
        program.save(tmp_path / "p.json")


def test_a_copy_of_a_program_shares_the_engine() -> None:
    lm, _ = scripted(lambda request: fields(side="east"))
    program = dspy.Predict(Where)
    program.lm = lm
    assert program.deepcopy().lm.engine is lm.engine
    assert lm.copy(temperature=0.5).engine is lm.engine


def test_options_belong_to_a_place() -> None:
    with pytest.raises(ConfigError, match="has been made already"):
        connect(pl.ScriptedLM(str), model="other")

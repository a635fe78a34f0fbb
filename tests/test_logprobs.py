"""Margins and expected ratings: by hand, through the wire, and through a whole run beside one that asked for none."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from personalink.agent import Agent
from personalink.config import RunConfig
from personalink.errors import ConfigError
from personalink.lm import Constraint, Decoding, EmbeddedLM, EndpointLM, Message, Request, ScriptedLM
from personalink.lm.base import LM, Completion, completion_from_dict, completion_to_dict
from personalink.lm.gateway import Gateway
from personalink.lm.ledger import Bill
from personalink.lm.wire import read_reply
from personalink.logprobs import NEVER, TokenLogprobs, logprobs_from_plain, logprobs_to_plain, margin
from personalink.optimizer import OptimizerConfig
from personalink.predictions import Prediction
from personalink.report.results import expected_errors, refinements_of
from personalink.running import Finished, arun
from personalink.tasks import RatingTask, task
from personalink.testing import FakeVLLM

STARS = task("lamp3")
assert isinstance(STARS, RatingTask)
NOPERS = {"_target_": "personalink.contexts.NoPersonalization"}
RAG = {"_target_": "personalink.contexts.Retrieval", "k": 3}


def token(text: str, p: float, **others: float) -> TokenLogprobs:
    """A token of probability p; `_4` stands for " 4"."""
    told = [(text, math.log(p)), *((name.replace("_", " "), math.log(q)) for name, q in others.items())]
    return TokenLogprobs(text, math.log(p), tuple(told))


def request(**more: Any) -> Request:
    return Request((Message("user", "Rate it."),), Decoding(max_tokens=8), **more)


# -- the margin -------------------------------------------------------------------------------------------------------


def test_the_margin_is_the_smallest_lead_of_a_token() -> None:
    answer = [token("a", 0.8, b=0.1, c=0.05), token("d", 0.5, e=0.25), token("f", 0.9, g=0.01)]
    assert margin(answer) == round(math.log(2), 4)
    assert margin([token("a", 0.4, b=0.4)]) == 0
    assert margin([token("a", 0.2, b=0.4)]) == round(-math.log(2), 4)  # something else chose


def test_a_margin_that_cannot_be_known_is_none() -> None:
    assert margin([]) is None
    assert margin([token("a", 0.8)]) is None
    assert margin([TokenLogprobs("a", -0.1)]) is None


def test_of_two_tokens_that_read_alike_only_the_chosen_one_is_left_out() -> None:
    half = TokenLogprobs("\ufffd", -0.5, (("\ufffd", -0.5), ("\ufffd", -0.7)))
    assert margin([half]) == 0.2


def test_under_a_constraint_only_what_it_allows_is_a_rival() -> None:
    choices = ("Rating: 4", "Rating: 5")
    forced = [token("Rating", 0.01, The=0.9), token(":", 0.3, is_=0.6)]
    answer = [*forced, token(" 4", 0.2, _5=0.1, _the=0.6)]
    assert margin(answer) == round(math.log(0.01 / 0.9), 4)
    assert margin(answer, choices) == round(math.log(2), 4)
    assert margin(forced, choices) is None
    assert margin([*answer, token("", 0.1, _and=0.8)], choices) == round(math.log(2), 4)  # the end cannot be missed
    spelled = [token("R", 0.5, Rating=0.4), token("ating:", 0.9), token("4", 0.2, **{"5": 0.1})]
    assert margin(spelled, choices) == round(math.log(2), 4)  # the same answer in other tokens is no flip
    assert margin([token("art", 0.5, arts=0.25)], ("art", "arts")) == round(math.log(2), 4)


@given(st.lists(st.builds(
    TokenLogprobs, st.text(), st.floats(-50, 0), st.lists(st.tuples(st.text(), st.floats(-50, 0))).map(tuple)
)))  # fmt: skip
def test_tokens_go_through_json_and_greedy_ones_have_no_negative_margin(tokens: list[TokenLogprobs]) -> None:
    readable = [t for t in tokens if (t.text + "".join(a for a, _ in t.alternatives)).isprintable()]
    assert logprobs_from_plain(json.loads(json.dumps(logprobs_to_plain(readable)))) == tuple(readable)
    greedy = [TokenLogprobs(t.text, 0.0, t.alternatives) for t in tokens]
    known = margin(greedy)
    assert known is None or known >= 0


# -- the expected rating ----------------------------------------------------------------------------------------------


def test_the_expected_rating_weighs_the_scale_by_its_probabilities() -> None:
    tokens = [token("Rating", 0.9, x=0.1), token(" 4", 0.6, _5=0.2, _3=0.1, good=0.05)]
    assert STARS.expected(tokens) == round((4 * 0.6 + 5 * 0.2 + 3 * 0.1) / 0.9, 4)
    assert STARS.expected([token("4", 0.5, _4=0.25, _5=0.25)]) == 4.25  # with and without a space it is one rating
    assert STARS.expected([token("4", 1.0)]) == 4
    assert STARS.expected([TokenLogprobs("4", -0.2)]) == 4


def test_there_is_no_expected_rating_without_one_token_a_rating() -> None:
    assert STARS.expected([]) is None
    assert STARS.expected([token("none", 0.9, **{"4": 0.1})]) is None
    for low, high in ((1, 10), (-2, 2)):
        assert RatingTask("wide", "Rate.", low, high).expected([token("1", 0.9)]) is None
    assert task("lamp2").expected([token("politics", 0.9)]) is None


@given(st.lists(st.tuples(st.sampled_from("12345x"), st.floats(-80, 0)), min_size=1), st.sampled_from("12345"))
def test_the_expected_rating_is_on_the_scale(others: list[tuple[str, float]], said: str) -> None:
    value = STARS.expected([TokenLogprobs(said, -1.0, tuple(others))])
    assert value is not None
    assert 1 <= value <= 5


def test_errors_of_expected_ratings_are_over_the_same_answers_as_mae() -> None:
    def said(label: str | None, expected: float | None) -> Prediction:
        return Prediction("u", "q", "r", label, "exact", "ok", label or "", 0, expected=expected)

    pairs = [(said("4", 4.5), "5"), (said("2", None), "1"), (said(None, None), "2")]
    assert expected_errors(STARS, pairs) == {
        "expected_mae": (0.5 + 1 + 3) / 3,
        "expected_rmse": math.sqrt((0.25 + 1 + 9) / 3),
        "expected_n": 1,
    }
    assert expected_errors(STARS, pairs[1:]) == {}


# -- the wire and the records -----------------------------------------------------------------------------------------


def reply(logprobs: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"content": "4"}, "finish_reason": "stop", "logprobs": logprobs}]}


def test_a_reply_in_openais_form_is_read() -> None:
    entry = {"token": "4", "logprob": -0.5, "bytes": [52], "top_logprobs": [{"token": "5", "logprob": -1, "bytes": []}]}
    done = read_reply(reply({"content": [entry]}))
    assert done.tokens == (TokenLogprobs("4", -0.5, (("5", -1.0),)),)
    assert completion_from_dict(json.loads(json.dumps(completion_to_dict(done)))) == done


@pytest.mark.parametrize(
    "told",
    [
        None, [], "x", {}, {"content": None}, {"content": ["x"]}, {"content": [{}]}, {"content": [{"token": "4"}]},
        {"content": [{"token": 4, "logprob": -1}]}, {"content": [{"token": "4", "logprob": "x"}]},
        {"content": [{"token": "4", "logprob": -math.inf}]}, {"content": [{"token": "4", "logprob": None}]},
        {"content": [{"token": "4", "logprob": -1, "top_logprobs": 5}]},
        {"content": [{"token": "4", "logprob": 10**400}]}, {"content": [{"token": "4", "logprob": True}]},
        {"content": [{"token": "4", "logprob": 5.0}]}, {"content": [{"token": "4", "logprob": 0.01}]},
        {"content": [{"token": "4", "logprob": -1e308, "top_logprobs": [{"token": "5", "logprob": 1e308}]}]},
    ],
)  # fmt: skip
def test_logprobs_of_any_other_form_are_unknown_and_the_answer_stands(told: Any) -> None:
    done = read_reply(reply(told))
    assert (done.text, done.outcome, done.tokens) == ("4", "ok", None)
    assert "tokens" not in completion_to_dict(done)


def test_rounding_above_zero_is_zero_and_nothing_lies_below_never() -> None:
    entry = {"token": "4", "logprob": 1e-7, "top_logprobs": [{"token": "5", "logprob": -1e308}]}
    done = read_reply(reply({"content": [entry]}))
    assert done.tokens == (TokenLogprobs("4", 0.0, (("5", NEVER),)),)
    assert margin(done.tokens) == -NEVER


@pytest.mark.parametrize("odd", [[["4", -1e308, [["5", 1e308]]]], [["4", True, []]], [["4", 5.0, [["5", 7.0]]]]])
def test_odd_numbers_in_an_old_journal_are_no_tokens(odd: list[Any]) -> None:
    tokens = logprobs_from_plain(odd)
    assert (tokens, margin(tokens), STARS.expected(tokens)) == ((), None, None)
    assert margin([TokenLogprobs("4", -1e308, (("5", 1e308),))]) is None


def test_a_request_that_asks_for_none_keeps_its_key() -> None:
    assert request().key("who") == "69bad4080990ba336fc2e571a694e5b4570d7d67d244602b9793884ce276549e"
    assert len({request(logprobs=n).key("who") for n in (0, 1, 5)}) == 3


@pytest.mark.parametrize("wrong", [-1, 21, 1.5, True, "a"])
def test_how_many_may_be_asked_for(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"it must be .*from 0"):
        Agent(STARS, Gateway(ScriptedLM(lambda request: "4")), logprobs=wrong)
    with pytest.raises(ConfigError, match=r"logprobs is .*; it must be"):
        RunConfig(name="x", task={}, context={"nopers": NOPERS}, logprobs=wrong)


def test_a_model_that_tells_none_leaves_both_unknown() -> None:
    agent = Agent(STARS, Gateway(ScriptedLM(lambda request: "4")), logprobs=5)
    answer = asyncio.run(agent.answer("", "a book", Bill("u", "test")))
    assert (answer.label, answer.margin, answer.expected) == ("4", None, None)


# -- a whole run ------------------------------------------------------------------------------------------------------


def write_ratings(path: Path) -> Path:
    """Three made-up users with six rated reviews and one more to rate."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        {"user": f"u{u}", "id": f"{u}-{i}", "input": f"book {i} of {u}", "label": str(1 + (u + i) % 5), "split": split}
        for u in range(3)
        for i, split in enumerate(["history"] * 6 + ["query"])
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


async def go(server: FakeVLLM | ScriptedLM, runs: Path, **changes: Any) -> Finished:
    settings = {
        "name": "stars",
        "task": STARS.as_dict(),
        "data": {"kind": "records", "path": str(write_ratings(runs / "ratings.jsonl"))},
        "context": {"nopers": NOPERS, "rag_3": RAG},
        "runs_dir": str(runs),
        "max_failed": 1.0,
        **changes,
    }
    return await arun(settings, lm=server if isinstance(server, ScriptedLM) else EndpointLM(server.url))


def records(finished: Finished) -> list[dict[str, Any]]:
    return list(finished.result.run.read_lines("sealed/predictions.jsonl"))


@pytest.mark.parametrize("constrain", ["none", "line"])
def test_a_run_that_asks_differs_by_margin_and_expected_alone(tmp_path: Path, constrain: str) -> None:
    with FakeVLLM(labels=STARS.labels, record=True) as server:
        plain = asyncio.run(go(server, tmp_path / "a", constrain=constrain))
        sent = len(server.bodies)
        asked = asyncio.run(go(server, tmp_path / "b", constrain=constrain, logprobs=5))
        assert len(server.bodies) == 2 * sent  # no further call
    assert {(b.get("logprobs"), b.get("top_logprobs")) for b in server.bodies[:sent]} == {(None, None)}
    assert {(b.get("logprobs"), b.get("top_logprobs")) for b in server.bodies[sent:]} == {(True, 5)}
    found = records(asked)
    told = [(p.pop("margin"), p.pop("expected")) for p in found]
    assert found == records(plain)
    assert all(lead >= 0 and 1 <= mean <= 5 for lead, mean in told)
    assert "logprobs" not in plain.scores.config
    assert asked.scores.metrics["nopers"]["expected_n"] == 3
    text = asked.scores.results.as_text()
    assert "Near ties: " in text
    assert "(expected)" in text
    assert not {"Near ties", "expected"} & set(plain.scores.results.as_text().split())


def test_a_server_that_tells_none_is_said_under_the_table(tmp_path: Path) -> None:
    lm = ScriptedLM(lambda request: "4")
    asked = asyncio.run(go(lm, tmp_path / "a", logprobs=5))
    assert "asked for; 0 of 6 answers came with them" in " ".join(asked.scores.results.as_text().split())
    plain = asyncio.run(go(lm, tmp_path / "b"))
    assert "Log-probabilities" not in plain.scores.results.as_text()


def test_a_run_that_asked_is_finished_from_its_journal(tmp_path: Path) -> None:
    with FakeVLLM(labels=STARS.labels) as server:
        first = asyncio.run(go(server, tmp_path, logprobs=5))
        (first.result.run.log / "status.json").unlink()
        again = asyncio.run(go(server, tmp_path, logprobs=5))
    assert again.result.sent == 0
    assert records(again) == records(first)


def test_the_double_tells_a_distribution_whose_tokens_spell_the_answer() -> None:
    with FakeVLLM(labels=STARS.labels) as server:

        async def ask() -> tuple[Completion, Completion]:
            lm = EndpointLM(server.url)
            constraint = Constraint(choices=("Rating: 4", "Rating: 5"))
            try:
                return await lm.complete(request(logprobs=5)), await lm.complete(
                    request(logprobs=2, constraint=constraint)
                )
            finally:
                await lm.aclose()

        for done, most in zip(asyncio.run(ask()), (5, 2), strict=True):
            assert done.tokens
            assert "".join(t.text for t in done.tokens) == done.text
            assert all(len(t.alternatives) <= most for t in done.tokens)
            assert math.fsum(math.exp(p) for _, p in done.tokens[-1].alternatives) == pytest.approx(1)


def test_personas_say_by_what_they_were_constrained_and_the_paper_constrains_nothing(tmp_path: Path) -> None:
    rows = {"personalink_r1": {"_target_": "personalink.contexts.PersonaLink", "depth": 1}}
    with FakeVLLM(labels=STARS.labels) as server:
        held = asyncio.run(go(server, tmp_path / "a", context=rows))
        paper = {"constrain_rewrite": OptimizerConfig.paper().constrain_rewrite}
        free = asyncio.run(go(server, tmp_path / "b", context=rows, optimizer=paper))
    passes = [p for r in refinements_of(held.result.run).values() for p in r.passes if p.candidate]
    assert passes
    assert {p.constrained for p in passes} == {"response_format"}
    note = f"Of {len(passes)} personas proposed, constrained: {len(passes)} by response_format."
    assert note in held.scores.results.notes
    assert not any("by response_format" in note for note in free.scores.results.notes)
    assert "Labels unconstrained." in free.scores.results.notes


# -- a real model -----------------------------------------------------------------------------------------------------


@pytest.mark.model
@pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="xllamacpp is not installed: [embedded]")
def test_a_real_models_margins_and_expected_ratings() -> None:
    async def ask(lm: LM) -> None:
        try:
            await lm.start()
            bill = Bill("u", "test")
            free = Agent(STARS, Gateway(lm), logprobs=5)
            answer = await free.answer("", "I loved every page of it.", bill)
            assert answer.margin is not None
            assert answer.margin >= 0  # greedy
            line = Agent(STARS, Gateway(lm), constrain="line", logprobs=20)
            answer = await line.answer("", "I loved every page of it.", bill)
            assert answer.label in STARS.labels
            assert answer.constrained == "grammar"
            assert answer.margin is not None
            assert answer.margin >= 0  # among what the grammar allows
            assert answer.expected is not None
            assert 1 <= answer.expected <= 5
            plain = await Agent(STARS, Gateway(lm), constrain="line").answer("", "I loved every page of it.", bill)
            assert (plain.text, plain.margin, plain.expected) == (answer.text, None, None)
        finally:
            await lm.aclose()

    asyncio.run(ask(EmbeddedLM(context=1024)))

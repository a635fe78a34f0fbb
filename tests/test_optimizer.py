"""The loop: monotone, exact in its calls, deaf to queries, deterministic."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from personalink.agent import Agent
from personalink.data.types import Item, Query, User
from personalink.errors import ConfigError, DataError, LeakError, Unreachable
from personalink.gate import GATES
from personalink.lm import ScriptedLM
from personalink.lm.base import Completion, Request
from personalink.lm.gateway import Gateway
from personalink.optimizer import Optimizer, OptimizerConfig
from personalink.refinement import Refinement
from tests.people import LABELS, STARS, TASK, is_rewrite, person, random_script, rewrite_reply


def loop(answer, *, seed=12345, task=TASK, **changes) -> tuple[Optimizer, ScriptedLM]:
    lm = ScriptedLM(answer)
    config = OptimizerConfig(**{"audit": 0, **changes})
    return Optimizer(Agent(task, Gateway(lm)), config, seed=seed), lm


def refine(user: User, answer, **changes) -> tuple[Refinement, ScriptedLM]:
    optimizer, lm = loop(answer, **changes)
    return asyncio.run(optimizer.refine(user)), lm


def gold_of(user: User, request: Request) -> str:
    question = request.messages[1].content.rsplit("Text: ", 1)[1]
    return next(item.label for item in user.history if question.startswith(item.input))


def right_when(user: User, told):
    """An agent that answers right where `told(request)` and "nonsense" elsewhere; rewrites are usable."""

    def answer(request: Request) -> str:
        if is_rewrite(request):
            return rewrite_reply()
        return gold_of(user, request) if told(request) else "nonsense"

    return answer


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("task", [TASK, STARS], ids=["labels", "ratings"])
def test_the_kept_slice_score_never_falls(gate: str, task) -> None:
    """1,000 random scripts in all four gates (125 each, for labels and for ratings alike)."""
    labels = task.labels

    async def all_scripts() -> int:
        accepted = 0
        for seed in range(125):
            user = person(f"p{seed}", 8 + seed % 9, labels=labels)
            optimizer, _ = loop(random_script(seed, labels), seed=seed, task=task, gate=gate, holdout=4, margin=0.2)
            one = await optimizer.refine(user)
            totals = [one.initial.total, *(p.after.total for p in one.passes)]
            assert totals == sorted(totals)
            assert all(p.before.total == before for p, before in zip(one.passes, totals, strict=False))
            assert one.calls <= 4 + 3 * (1 + 4)
            accepted += sum(p.accepted for p in one.passes)
        return accepted

    accepted = asyncio.run(all_scripts())
    assert accepted > 0 or gate == "mcnemar"  # four items cannot reach p ≤ .05


def test_useless_candidates_leave_the_empty_persona_under_strict() -> None:
    user = person("u")
    one, _ = refine(user, right_when(user, lambda request: hash(request.messages[1].content[-60:]) % 2 == 0))
    assert one.persona.is_empty
    assert [p.accepted for p in one.passes] == [False] * 3
    assert [one.at(r).render() for r in range(4)] == [""] * 4


def test_a_tie_is_accepted_by_no_regress_alone() -> None:
    user = person("u")
    for gate, kept in (("strict", False), ("no_regress", True)):
        one, _ = refine(user, right_when(user, lambda request: False), gate=gate, depth=1)
        assert one.passes[0].accepted is kept


def test_a_better_candidate_is_kept_and_ends_the_loop_when_nothing_is_wrong() -> None:
    user = person("u")
    one, lm = refine(user, right_when(user, lambda request: "This user's" in request.messages[1].content))
    first, *rest = one.passes
    assert (first.score_before, first.score_after, first.accepted, first.calls) == (0.0, 1.0, True, 9)
    assert [p.reason for p in rest] == ["converged: no errors on the slice"] * 2
    assert one.calls == len(lm.requests) == 8 + 9
    assert first.persona.decision_rules[0].depth == 1
    assert set(first.persona.decision_rules[0].item_ids) <= {i.id for i in user.history if i.label == "north"}


def test_a_user_without_errors_costs_only_the_slice() -> None:
    user = person("u")
    one, lm = refine(user, right_when(user, lambda request: True))
    assert one.calls == len(lm.requests) == 8
    assert one.persona.is_empty


def test_identical_rewrite_is_not_scored_again_and_ends_the_loop() -> None:
    user = person("u")
    told = {"n": 0}

    def answer(request: Request) -> str:
        if is_rewrite(request):
            return rewrite_reply()
        told["n"] += 1
        persona = "This user's" in request.messages[1].content
        return gold_of(user, request) if persona and told["n"] % 2 else "nonsense"

    one, lm = refine(user, answer)
    assert [p.accepted for p in one.passes] == [True, False, False]
    assert one.passes[1].reason == "identical to the incumbent"
    assert one.passes[1].calls == 1
    assert one.passes[2].reason == "fixed point: the same rewrite again"
    assert one.passes[2].calls == 0
    assert len(lm.requests) == one.calls == 8 + 9 + 1


def test_a_text_that_was_scored_is_not_scored_again() -> None:
    user = person("u")
    one, _ = refine(user, right_when(user, lambda request: False))
    assert [p.calls for p in one.passes] == [9, 1, 1]
    assert one.passes[1].reason == "tried before"


def test_stop_ends_the_loop_after_one_rejection() -> None:
    user = person("u")
    one, lm = refine(user, right_when(user, lambda request: False), after_rejection="stop")
    assert [p.reason for p in one.passes][1:] == ["stopped after a rejection"] * 2
    assert len(lm.requests) == 8 + 9


def test_feedback_shows_the_refused_candidate_and_resample_draws_again() -> None:
    user = person("u")
    _, lm = refine(user, right_when(user, lambda request: False), depth=2)
    first, second = [r for r in lm.requests if is_rewrite(r)]
    assert "tried and refused (not better on the slice)" in second.messages[1].content
    assert "tried and refused" not in first.messages[1].content
    _, lm = refine(user, right_when(user, lambda request: False), depth=2, after_rejection="resample")
    first, second = [r for r in lm.requests if is_rewrite(r)]
    assert first.messages == second.messages
    assert (first.sample, second.sample, second.decoding.temperature) == (1, 2, 0.7)


def test_an_unusable_reply_is_told_and_never_adopted() -> None:
    user = person("u")

    def answer(request: Request) -> str | Completion:
        return Completion("{", "truncated") if is_rewrite(request) else "nonsense"

    one, lm = refine(user, answer)
    assert one.persona.is_empty
    assert [p.reason for p in one.passes][:2] == ["the reply was truncated"] * 2
    assert one.passes[2].reason == "fixed point: the same rewrite again"  # the third request would be the second
    assert "Your last reply could not be used" in [r for r in lm.requests if is_rewrite(r)][1].messages[1].content
    assert [p.calls for p in one.passes] == [1, 1, 0]


def test_a_slice_quote_is_rejected() -> None:
    user = person("u")
    optimizer, _ = loop(lambda request: "x")
    held = optimizer.slicer.split(user, 12345).slice[0]

    def answer(request: Request) -> str:
        quote = " ".join(held.input.split()[:8])
        return rewrite_reply(summary=f"Likes {quote}.") if is_rewrite(request) else "nonsense"

    one, _ = refine(user, answer, depth=1)
    assert one.passes[0].reason.startswith("quotes the slice")
    assert one.persona.is_empty


@pytest.mark.parametrize("m", [0, 1, 2, 3])
def test_a_tiny_history_has_no_loop_but_a_draft(m: int) -> None:
    user = person("u", m)
    one, lm = refine(user, right_when(user, lambda request: False))
    assert one.persona.is_empty
    assert one.flags == ("history too short: under 4 distinct items",)
    assert not lm.requests
    optimizer, lm = loop(right_when(user, lambda request: False))
    proposal = asyncio.run(optimizer.draft(user))
    assert (proposal.persona is not None) == (m > 0)
    assert len(lm.requests) == min(m, 1)
    assert optimizer.draft_calls(user) == (min(m, 1), min(m, 1))


def test_nothing_is_written_from_nothing() -> None:
    """No room for a sample, and no mistake to show: neither draft nor loop asks; with mistakes both do."""
    user = person("u")
    for sees, wrong, written in (("profile", True, False), ("errors", False, False), ("errors", True, True)):
        script = right_when(user, lambda request, wrong=wrong: not wrong)
        settings = {"draft_sees": sees, "sample_tokens": 0, "skip_if_no_errors": False}
        optimizer, lm = loop(script, **settings)
        proposal = asyncio.run(optimizer.draft(user))
        one = asyncio.run(optimizer.refine(user))
        assert (proposal.reason == "no item and no mistake to write from") == (not written)
        assert any(is_rewrite(r) for r in lm.requests) == written
        assert optimizer.draft_calls(user) == (0, int(sees == "errors"))
        if not written:
            assert {p.reason for p in one.passes} == {proposal.reason}


def test_the_draft_is_what_pass_one_proposes() -> None:
    user = person("u")
    optimizer, lm = loop(right_when(user, lambda request: False))
    proposal = asyncio.run(optimizer.draft(user))
    one = asyncio.run(optimizer.refine(user))
    assert one.passes[0].candidate == proposal.persona
    assert sum(is_rewrite(r) for r in lm.requests) == 3  # the draft's request is shared with pass 1


def test_audit_items_reach_neither_gate_nor_rewriter() -> None:
    user = person("u", 40)
    optimizer, lm = loop(random_script(3), audit=8)
    one = asyncio.run(optimizer.refine(user))
    assert len(one.audit_ids) == 8
    assert len(one.audit) == 4
    audited = {item.input for item in user.history if item.id in one.audit_ids}
    for request in lm.requests:
        if is_rewrite(request):
            assert not any(seen in request.messages[1].content for seen in audited)
    assert not {e.item_id for p in one.passes for e in p.persona.exemplars} & {*one.slice_ids, *one.audit_ids}


def test_exemplars_are_real_items_by_id() -> None:
    user = person("u")
    one, _ = refine(user, right_when(user, lambda request: "This user's" in request.messages[1].content))
    items = {item.id: item for item in user.history}
    assert one.persona.exemplars
    for exemplar in one.persona.exemplars:
        assert exemplar.label == items[exemplar.item_id].label
        assert items[exemplar.item_id].input.startswith(exemplar.input.rstrip("…"))


def test_no_query_reaches_any_prompt_of_the_loop() -> None:
    user = person("u", 30)
    _, lm = refine(user, random_script(1))
    asked = user.queries[0]
    for request in lm.requests:
        assert asked.input not in request.messages[1].content
        assert asked.id not in request.messages[1].content


@pytest.mark.parametrize("plant", ["same", "case", "inside", "title", "id"])
def test_a_planted_query_raises_before_anything_is_sent(plant: str) -> None:
    user = person("u", 10)
    asked = user.queries[0]
    planted = {
        "same": Item("x", asked.input, "north"),
        "case": Item("x", f"  {asked.input.upper()} ", "north"),
        "inside": Item("x", f"Reprinted: {asked.input} (end)", "north"),
        "title": Item("x", "something else", "north", title=asked.input),
        "id": Item(asked.id, "something else", "north"),
    }[plant]
    optimizer, lm = loop(random_script(1))
    bad = dataclasses.replace(user, history=(*user.history, planted))
    for call in (optimizer.refine, optimizer.draft):
        with pytest.raises(LeakError, match="one of the user's own queries"):
            asyncio.run(call(bad))
    assert not lm.requests


def test_duplicate_item_ids_are_refused() -> None:
    user = person("u", 10)
    bad = dataclasses.replace(user, history=(*user.history, Item("u-0", "another text", "north")))
    with pytest.raises(DataError, match="ids must be distinct"):
        refine(bad, random_script(1))


def test_seed_zero_is_a_seed_and_the_seed_matters() -> None:
    user = person("u", 40)
    slices = {seed: refine(user, random_script(1), seed=seed)[0].slice_ids for seed in (0, 1, 12345)}
    assert len(set(slices.values())) == 3
    assert refine(user, random_script(1), seed=0)[0].slice_ids == slices[0]


def test_concurrency_and_latency_change_nothing() -> None:
    user = person("u", 40)
    records = []
    for concurrency, latency in ((1, 0.0), (64, 0.0), (3, 0.001)):
        lm = ScriptedLM(random_script(7), concurrency=concurrency, latency_s=latency)
        optimizer = Optimizer(Agent(TASK, Gateway(lm)), OptimizerConfig())
        records.append(asyncio.run(optimizer.refine(user)).as_dict())
    assert records[0] == records[1] == records[2]


def test_an_outage_is_raised_and_not_scored() -> None:
    user = person("u")
    with pytest.raises(Unreachable):
        refine(user, lambda request: Unreachable("gone"))


def test_another_model_can_rewrite() -> None:
    user = person("u")
    agent_lm, writer = ScriptedLM(lambda request: "nonsense"), ScriptedLM(lambda request: rewrite_reply())
    optimizer = Optimizer(Agent(TASK, Gateway(agent_lm)), OptimizerConfig(audit=0), rewriting=Gateway(writer))
    asyncio.run(optimizer.refine(user))
    assert all(is_rewrite(r) for r in writer.requests)
    assert not any(is_rewrite(r) for r in agent_lm.requests)


def test_the_rewriters_prompt_fits_a_small_window() -> None:
    items = tuple(Item(f"i{n}", f"{n} " + "word " * 30_000, LABELS[n % 4]) for n in range(20))
    user = User("u", "people", items, (Query("q", "a short question"),))
    lm = ScriptedLM(random_script(1), window=2048)
    optimizer = Optimizer(Agent(TASK, Gateway(lm)), OptimizerConfig(audit=0))
    asyncio.run(optimizer.refine(user))
    rewrites = [r for r in lm.requests if is_rewrite(r)]
    assert rewrites
    assert all(sum(lm.counter.count(m.content) for m in r.messages) + 512 <= 2048 for r in rewrites)


def test_the_record_is_plain_json_both_ways() -> None:
    one, _ = refine(person("u", 40), random_script(7))
    assert Refinement.from_dict(one.as_dict()) == one


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("gate", "strictest"), ("after_rejection", "give_up"), ("draft_sees", "all"), ("pool", "half"), ("depth", -1),
        ("holdout", 0), ("holdout", 2.5), ("slice_by", "luck"), ("quote_words", -1), ("depth", "3"), ("depth", 1.5),
        ("depth", True), ("sample_tokens", "x"), ("sample_tokens", -1), ("mistake_tokens", None), ("item_tokens", 0),
        ("rewrite_tokens", 15), ("race", "yes"), ("gate", ["strict"]), ("gate_metric", "mse"), ("caps", {}),
        ("skip_if_no_errors", 1), ("holdout", "8"), ("margin", "x"), ("audit", 2.0),
    ],
)  # fmt: skip
def test_settings_out_of_range_are_refused_in_one_line(setting: str, value: object) -> None:
    with pytest.raises(ConfigError) as refused:
        OptimizerConfig(**{setting: value})
    assert "\n" not in str(refused.value)


def test_the_gate_metric_of_ratings() -> None:
    user = person("u", 20, labels=STARS.labels)
    for metric, worst in ((None, -4), ("mae", -4), ("rmse", -16), ("exact", 0)):
        one, _ = refine(user, lambda request: "nonsense", task=STARS, gate_metric=metric, depth=0)
        assert min(one.initial.points) >= worst
        assert all(point <= 0 for point in one.initial.points)


def echoing(user: User):
    """An agent that a persona helps in every second answer, and a rewriter that only ever writes one persona."""
    told = {"n": 0}

    def answer(request: Request) -> str:
        if is_rewrite(request):
            return rewrite_reply()
        told["n"] += 1
        persona = "This user's" in request.messages[1].content
        return gold_of(user, request) if persona and told["n"] % 2 else "nonsense"

    return answer


def test_an_identical_rewrite_ends_the_loop_only_where_the_next_request_would_be_the_same() -> None:
    user = person("u")
    for after, calls in (("feedback", [9, 1, 0, 0]), ("stop", [9, 1, 0, 0]), ("resample", [9, 1, 1, 1])):
        one, lm = refine(user, echoing(user), after_rejection=after, depth=4)
        assert [p.calls for p in one.passes] == calls, after
        assert one.calls == len(lm.requests)
        rewrites = [r for r in lm.requests if is_rewrite(r)]
        assert len({r.key("") for r in rewrites}) == len(rewrites)
        assert not any("tried and refused" in r.messages[1].content for r in rewrites)


class Unequal(Request):
    """A request that no loop takes for the last one again."""

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


class Tireless:
    """The standard rewriter with requests that never equal one another."""

    def __init__(self, rewriter) -> None:
        self.read, self.plain = rewriter.read, rewriter.request

    def request(self, brief) -> Request:
        made = self.plain(brief)
        return Unequal(made.messages, made.decoding, made.constraint, made.sample)


@pytest.mark.parametrize("after", ["feedback", "stop", "resample"])
def test_a_fixed_point_changes_no_persona_and_no_prompt(after: str) -> None:
    async def both(seed: int) -> int:
        kept, asked, calls = [], [], []
        for tireless in (False, True):
            optimizer, lm = loop(random_script(seed), depth=6, after_rejection=after)
            if tireless:
                optimizer.rewriter = Tireless(optimizer.rewriter)
            one = await optimizer.refine(person(f"p{seed}", 20))
            kept.append([(p.persona, p.accepted, p.before, p.after) for p in one.passes])
            asked.append([r.key("") for r in lm.requests])
            calls.append(one.calls)
        assert kept[0] == kept[1]
        assert asked[0] == asked[1]
        return calls[1] - calls[0]

    async def all_of_them() -> list[int]:
        return [await both(seed) for seed in range(60)]

    saved = asyncio.run(all_of_them())
    assert min(saved) == 0
    assert (sum(saved) > 0) == (after == "feedback")  # "stop" has stopped before, "resample" draws anew


def test_labels_are_read_in_the_tasks_spelling_at_the_door() -> None:
    user = person("u", 30)
    loud = dataclasses.replace(
        user, history=tuple(dataclasses.replace(i, label=f" {i.label.upper()} ") for i in user.history)
    )
    assert refine(loud, random_script(3))[0] == refine(user, random_script(3))[0]
    stars = person("s", 30, labels=STARS.labels)
    floats = dataclasses.replace(
        stars, history=tuple(dataclasses.replace(i, label=f"{i.label}.0") for i in stars.history)
    )
    script = random_script(3, STARS.labels)
    assert refine(floats, script, task=STARS)[0] == refine(stars, script, task=STARS)[0]


@pytest.mark.parametrize("label", ["up", "", 3, None])
def test_a_label_outside_the_task_is_refused_before_anything_is_sent(label: object) -> None:
    user = person("u", 10)
    bad = dataclasses.replace(user, history=(*user.history, Item("x9", "some other text", label)))  # type: ignore[arg-type]
    optimizer, lm = loop(random_script(1))
    for call in (optimizer.refine, optimizer.draft):
        with pytest.raises(DataError, match="user u, item x9: label") as refused:
            asyncio.run(call(bad))
        assert "\n" not in str(refused.value)
    assert not lm.requests


def test_what_is_no_user_is_refused() -> None:
    for nobody in ("x", None, dataclasses.replace(person("u"), history=("text",))):
        with pytest.raises(DataError, match="must be a personalink"):
            refine(nobody, random_script(1))  # type: ignore[arg-type]

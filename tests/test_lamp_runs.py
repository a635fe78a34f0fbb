"""LaMP-1, 4, 5 and 7 through the whole house: every row, the loop, its gate and race, what the rewriter is shown."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest

from personalink.agent import Agent, Answer
from personalink.canonical import digest
from personalink.cli import main
from personalink.data import Item, User, find_lamp, load_lamp
from personalink.gate import GATES, make_gate
from personalink.lm import ScriptedLM
from personalink.lm.base import Completion, Request
from personalink.lm.gateway import Gateway
from personalink.optimizer import Optimizer, OptimizerConfig
from personalink.persona import Caps
from personalink.refinement import Refinement
from personalink.running import Finished, arun
from personalink.tasks import Reading, task
from personalink.tasks.text import UNIT
from personalink.trial import Trial, hopeless, waves
from tests.lamp_files import WORDS, write
from tests.people import is_rewrite, rewrite_reply
from tests.test_experiment import ROWS
from tests.test_trial import EMPTY

TASKS = ("lamp1", "lamp4", "lamp5", "lamp7")

pytest.importorskip("rouge_score", reason="rouge_score is not installed: [generation]")
CAPS = Caps(rules=4, rule=18, exemplars=3, exemplar=40)


def scripted(seed: int, marks: tuple[str, ...] = ()) -> ScriptedLM:
    """Answers and rewrites by a hash of (seed, request); some of them unusable."""

    def answer(request: Request) -> str | Completion:
        key = int(digest([seed, [m.content for m in request.messages], request.sample])[:8], 16)
        if is_rewrite(request):
            if key % 5 == 0:
                return Completion("{", "truncated")
            rules = [{"if": f"it tells of {WORDS[key % 24]}", "then": f"begin with {WORDS[key // 24 % 24]}"}]
            return rewrite_reply(f"Be brief on {WORDS[key // 7 % 24]}.", rules, [f"e{1 + key % 4}"])
        if marks:
            return (*marks, "neither")[key % 3]
        return "" if key % 7 == 0 else " ".join(WORDS[(key >> k) % 24] for k in range(6))

    return ScriptedLM(answer)


def go(folder: Path, name: str, **changes: Any) -> Finished:
    settings = {
        "name": "made_up",
        "task": task(name).as_dict(),
        "data": {"kind": "lamp", "root": str(folder)},
        "lm": {"kind": "scripted"},
        "optimizer": {"caps": {"rules": 4, "rule": 18, "exemplars": 3, "exemplar": 40}, "quote_words": 5},
        "context": ROWS,
        "runs_dir": str(folder / "runs"),
        "max_failed": 1.0,
    }
    return asyncio.run(arun({**settings, **changes}, lm=scripted(5, task(name).labels)))


def sealed(folder: Path) -> dict[str, bytes]:
    (root,) = folder.glob("runs/made_up/*/sealed")
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("name", TASKS)
def test_every_row_runs_is_scored_and_resumes_to_the_byte(tmp_path: Path, name: str) -> None:
    write(tmp_path, name, users=3, m=60 if name == "lamp1" else 30)
    done = go(tmp_path, name)
    first = sealed(tmp_path)
    metric = "accuracy" if name == "lamp1" else "rouge_l"
    metrics = json.loads(first["metrics.json"])
    assert set(ROWS) < set(metrics)
    for row in metrics.values():
        assert row["n"] == 3
        assert 0 <= row[metric] <= 1
        low, high = row["interval"]
        assert low <= row[metric] <= high
    floors = {row for row in metrics if row.startswith("Floor")}
    assert floors == ({"Floor: nearest option"} if name == "lamp1" else {
        "Floor: BM25-1 text", "Floor: first sentence of the input",
    })  # fmt: skip
    table = first["table.txt"].decode()
    assert ("Accuracy" if name == "lamp1" else "ROUGE-L") in table
    predictions = [json.loads(line) for line in first["predictions.jsonl"].splitlines()]
    assert len(predictions) == 3 * len(ROWS)
    again = go(tmp_path, name)
    assert again.result.sent == 0
    assert sealed(tmp_path) == first
    assert done.scores.metrics == again.scores.metrics
    refined = [json.loads(line)["product"] for f in first if "Refine" in f for line in first[f].splitlines()]
    assert any(p["accepted"] for r in refined for p in r["passes"])


@pytest.mark.parametrize("name", TASKS)
def test_the_command_line_knows_the_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    write(tmp_path, name, users=2, m=24)
    monkeypatch.chdir(tmp_path)
    run = ("run", f"experiment={name}", f"data.root={tmp_path}", "lm=scripted", "context=[nopers,rag_3,personalink_r1]")
    assert main((*run, "max_failed=1")) == 0
    assert ("Accuracy" if name == "lamp1" else "ROUGE-L") in capsys.readouterr().out


# the loop


def history(folder: Path, name: str = "lamp4", m: int = 30) -> User:
    write(folder, name, users=2, m=m)
    return load_lamp(*find_lamp(folder, name)).users[0]


def refine(name: str, user: User, lm: ScriptedLM, **config: Any) -> Refinement:
    settings = OptimizerConfig(**{"caps": CAPS, "quote_words": 5, **config})
    return asyncio.run(Optimizer(Agent(task(name), Gateway(lm)), settings).refine(user))


def test_a_persona_that_helps_is_kept_and_the_rewriter_sees_the_worst_first(tmp_path: Path) -> None:
    user = history(tmp_path)
    labels = {item.input: item.label for item in user.history}

    def answer(request: Request) -> str:
        prompt = request.messages[1].content
        if is_rewrite(request):
            return rewrite_reply("Name the place last.", [{"if": "a list", "then": "begin with a number"}])
        gold = next(label for text, label in labels.items() if f"Article: {text}\nHeadline:" in prompt)
        words = gold.split()
        return gold if "place last" in prompt else " ".join(words[: 1 + len(words[-1]) % 5])

    lm = ScriptedLM(answer)
    one = refine("lamp4", user, lm)
    first, *rest = one.passes
    assert first.accepted
    assert 0 < first.score_before < first.score_after == 1.0
    assert [p.reason for p in rest] == ["converged: no errors on the slice"] * 2
    assert [(r.condition, r.label) for r in first.persona.decision_rules] == [("a list", "begin with a number")]
    shown = {item.id: item for item in user.history}
    for exemplar in first.persona.exemplars:
        assert exemplar.label == shown[exemplar.item_id].label  # the user's own words, whole
        assert len(exemplar.input) <= len(shown[exemplar.item_id].input)
    assert 1 <= len(first.persona.exemplars) <= CAPS.exemplars
    assert first.persona.tokens <= CAPS.total
    (prompt,) = [r.messages[1].content for r in lm.requests if is_rewrite(r)]
    told = [line for line in prompt.splitlines() if line.startswith("  it said: ")]
    pairs = [line.removeprefix("  it said: ").split("; this person: ") for line in told]
    found = [task("lamp4").points(Reading(said), gold) for said, gold in pairs]
    assert len(found) > 3
    assert found == sorted(found)
    assert '"then": how to write' in prompt


def test_with_nothing_gained_the_prompts_are_those_of_no_personalization(tmp_path: Path) -> None:
    user = history(tmp_path)
    lm = ScriptedLM(lambda r: rewrite_reply("Be brief.") if is_rewrite(r) else "something else")
    one = refine("lamp4", user, lm)
    assert one.persona.is_empty
    assert [p.accepted for p in one.passes] == [False] * 3


@pytest.mark.parametrize("field", ["preference_summary", "then"])
def test_a_slice_headline_copied_into_the_persona_is_refused(tmp_path: Path, field: str) -> None:
    user = history(tmp_path)
    held = Optimizer(Agent(task("lamp4"), Gateway(scripted(1))), OptimizerConfig()).slicer.split(user, 12345).slice[0]

    def answer(request: Request) -> str:
        if not is_rewrite(request):
            return "something else"
        if field == "then":
            return rewrite_reply("Be brief.", [{"if": "it is so", "then": f"write {held.label}"}])
        return rewrite_reply(f"Write {held.label}.", [])

    one = refine("lamp4", user, ScriptedLM(answer), caps=Caps(rule=40))
    assert one.passes[0].reason.startswith("quotes the slice: ")
    assert one.persona.is_empty


def test_any_history_keeps_its_caps_its_score_and_its_calls(tmp_path: Path) -> None:
    for name in TASKS:
        user = history(tmp_path / name, name)
        for seed in range(6):
            for gate in ("strict", "no_regress"):
                lm = scripted(seed, task(name).labels)
                one = refine(name, user, lm, gate=gate)
                values = [one.initial.total, *(p.after.total for p in one.passes)]
                assert values == sorted(values)
                assert all(p.persona.tokens <= CAPS.total for p in one.passes)
                assert one.calls + one.audit_calls >= len(lm.requests)
                assert Refinement.from_dict(json.loads(json.dumps(one.as_dict()))) == one


def test_long_labels_leave_the_rewriters_prompt_within_its_budget() -> None:
    tale = " ".join(WORDS * 40)
    items = tuple(Item(str(i), f"{i} {tale}", f"{tale} {i}") for i in range(24))
    lm = ScriptedLM(lambda r: rewrite_reply("Be long.") if is_rewrite(r) else f"{tale} and {tale}")
    refine("lamp4", User("u", "s", items), lm, audit=0)
    config, counter = OptimizerConfig(), lm.counter
    for request in filter(is_rewrite, lm.requests):
        limit = config.sample_tokens + 2 * config.mistake_tokens + 2 * config.caps.total + 500
        assert counter.count(request.messages[1].content) <= limit


# racing


def text_answers() -> list[Answer]:
    draw = random.Random(3)
    texts = [" ".join(draw.choices(WORDS[:6], k=draw.randint(1, 5))) for _ in range(40)]
    return [*(Answer(Reading(text), "ok") for text in texts), Answer(Reading(None), "empty")]


@pytest.mark.parametrize("gate_name", GATES)
def test_the_verdict_of_a_race_over_texts_equals_full_evaluation(gate_name: str) -> None:
    headline = task("lamp4")
    draw, gate, answers = random.Random(7), make_gate(gate_name, margin=0.05, alpha=0.3, unit=UNIT), text_answers()
    accepted = saved = 0
    for _ in range(1500):
        golds = [draw.choice(answers[:-1]).reading.label or "" for _ in range(draw.randint(1, 8))]
        right, good = [Answer(Reading(gold), "ok") for gold in golds], draw.random()
        kept = [r if draw.random() < 0.6 else draw.choice(answers) for r in right]
        tried = [r if draw.random() < good else draw.choice(answers) for r in right]
        items = tuple(Item(str(i), "", gold) for i, gold in enumerate(golds))
        before, after = (Trial(EMPTY, items, headline, dict(enumerate(a))) for a in (kept, tried))
        raced = Trial(EMPTY, items, headline)
        for wave in waves(before, raced, race=True):
            if hopeless(gate, before, raced):
                break
            raced.answers.update({i: tried[i] for i in wave})
        full = gate.accepts(before.score, after.score)
        assert (raced.complete and gate.accepts(before.score, raced.score)) == full
        accepted += full
        saved += len(items) - len(raced.answers)
    assert accepted > 0
    assert saved > 0


@pytest.mark.parametrize("after", ["feedback", "stop", "resample"])
def test_racing_over_texts_changes_no_kept_persona_and_no_prompt(tmp_path: Path, after: str) -> None:
    user = history(tmp_path)
    for seed in range(6):
        records, prompts = [], []
        for race in (True, False):
            lm = scripted(seed)
            one = refine("lamp4", user, lm, race=race, after_rejection=after, gate="margin", margin=0.01)
            records.append([(p.persona, p.accepted, p.candidate, p.reason, p.before, p.after) for p in one.passes])
            prompts.append([r.messages[1].content for r in lm.requests if is_rewrite(r)])
        assert records[0] == records[1]
        assert prompts[0] == prompts[1]

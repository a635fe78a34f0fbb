"""Racing: fewer calls, never another verdict."""

from __future__ import annotations

import asyncio
import random

import pytest

from personalink.agent import Agent, Answer
from personalink.data.types import Item
from personalink.gate import GATES, make_gate
from personalink.lm import ScriptedLM
from personalink.lm.gateway import Gateway
from personalink.optimizer import Optimizer, OptimizerConfig
from personalink.persona import PersonaState
from personalink.tasks.base import Reading
from personalink.trial import Trial, hopeless, waves
from tests.people import STARS, TASK, person, random_script

EMPTY = PersonaState.empty(ScriptedLM(lambda request: "").counter)


def raced(task, gate, golds, incumbent, candidate) -> tuple[bool, int]:
    """The race's verdict and the number of answers it took."""
    items = tuple(Item(str(i), str(i), gold) for i, gold in enumerate(golds))
    kept, trial = Trial(EMPTY, items, task, dict(enumerate(incumbent))), Trial(EMPTY, items, task)
    for wave in waves(kept, trial, race=True):
        if hopeless(gate, kept, trial):
            break
        trial.answers.update({i: candidate[i] for i in wave})
    return trial.complete and gate.accepts(kept.score, trial.score), len(trial.answers)


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("task", [TASK, STARS], ids=["labels", "ratings"])
def test_the_verdict_equals_full_evaluation(name: str, task) -> None:
    """10⁵ random slices over the four gates and both kinds of task."""
    draw, gate = random.Random(7), make_gate(name, margin=0.15, alpha=0.3)
    answers = {label: Answer(Reading(label), "ok") for label in (*task.labels, None)}
    accepted = saved = 0
    for _ in range(12_500):
        golds = draw.choices(task.labels, k=draw.randint(1, 8))
        good = draw.random()
        incumbent = [answers[g if draw.random() < 0.5 else draw.choice((*task.labels, None))] for g in golds]
        candidate = [answers[g if draw.random() < good else draw.choice((*task.labels, None))] for g in golds]
        items = tuple(Item(str(i), "", gold) for i, gold in enumerate(golds))
        full = gate.accepts(
            Trial(EMPTY, items, task, dict(enumerate(incumbent))).score,
            Trial(EMPTY, items, task, dict(enumerate(candidate))).score,
        )
        verdict, asked = raced(task, gate, golds, incumbent, candidate)
        assert verdict == full
        accepted += full
        saved += len(golds) - asked
    assert accepted > 0
    assert saved > 0 or (name == "no_regress" and task is TASK)  # a tie is always within reach there


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("task", [TASK, STARS], ids=["labels", "ratings"])
@pytest.mark.parametrize("after", ["feedback", "stop", "resample"])
def test_racing_changes_no_kept_persona_and_no_prompt(gate: str, task, after: str) -> None:
    async def both(seed: int) -> tuple[int, int]:
        records, prompts, calls = [], [], []
        for race in (True, False):
            lm = ScriptedLM(random_script(seed, task.labels))
            config = OptimizerConfig(gate=gate, race=race, after_rejection=after, margin=0.2, alpha=0.5, depth=4)  # type: ignore[arg-type]
            one = await Optimizer(Agent(task, Gateway(lm)), config).refine(person(f"p{seed}", 30, labels=task.labels))
            records.append([(p.persona, p.accepted, p.candidate, p.reason, p.before, p.after) for p in one.passes])
            prompts.append([r.messages[1].content for r in lm.requests if "short profile" in r.messages[0].content])
            calls.append(one.calls)
        assert records[0] == records[1]
        assert prompts[0] == prompts[1]
        assert calls[0] <= calls[1]
        return calls[0], calls[1]

    async def all_of_them() -> list[tuple[int, int]]:
        return [await both(seed) for seed in range(12)]

    counts = asyncio.run(all_of_them())
    assert sum(a for a, _ in counts) < sum(b for _, b in counts) or gate == "no_regress"


def test_a_race_goes_in_two_waves_the_incumbents_errors_first() -> None:
    items = tuple(Item(str(i), str(i), "north") for i in range(4))
    right, wrong = Answer(Reading("north"), "ok"), Answer(Reading("south"), "ok")
    kept = Trial(EMPTY, items, TASK, {0: right, 1: wrong, 2: right, 3: wrong})
    trial = Trial(EMPTY, items, TASK)
    assert waves(kept, trial, race=True) == [[1, 3], [0, 2]]
    assert waves(kept, trial, race=False) == [[0, 1, 2, 3]]
    trial.answers = {1: wrong, 3: wrong}
    assert hopeless(make_gate("strict"), kept, trial)
    assert not hopeless(make_gate("no_regress"), kept, trial)
    trial.answers = {1: right, 3: wrong}
    assert not hopeless(make_gate("strict"), kept, trial)
    assert waves(kept, trial, race=True) == [[0, 2]]

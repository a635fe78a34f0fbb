"""Made-up evidence of any size for the tests of figures: as a run would leave it, without running anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from personalink.contraction.decay import decay
from personalink.contraction.record import Contraction, FieldMotion, UserPath
from personalink.gate import SliceScore
from personalink.lm.counters import EstimateCounter
from personalink.metrics import bootstrap_interval, primary, score
from personalink.persona import PersonaState
from personalink.predictions import Prediction
from personalink.refinement import Pass, Refinement
from personalink.report.answers import Judged
from personalink.report.evidence import Evidence
from personalink.report.paper import paper_row
from personalink.report.results import Scores
from personalink.report.tables import results_table
from personalink.run_dir import RunDir
from personalink.tasks import Task, task
from tests.report.runs import ROWS

TOKENS = {"nopers": 0, "rag_1": 103, "rag_3": 305, "rag_5": 511, "rag_10": 1020, "rag_20": 2031, "oracle": 18_800}
SHARES = {"nopers": 0.645, "random_user_persona": 0.66, "rag_1": 0.695, "oracle": 0.715, "personalink_r1": 0.745}
FLOOR = "Floor: majority label"
COUNTER = EstimateCounter()


def evidence(
    n: int,
    task_name: str | Task = "lamp2",
    *,
    users: Sequence[str] | None = None,
    rows: Mapping[str, dict[str, Any]] = ROWS,
    golds: bool = True,
    margins: bool = True,
    loop: bool = True,
    audit: bool = True,
    contraction: bool = True,
    data: str = "lamp",
    path: str = "runs/made_up/0123456789ab",
    seed: int = 7,
) -> Evidence:
    """`n` users with one query each, whose answers are right about as often as in the paper."""
    asked = task(task_name) if isinstance(task_name, str) else task_name
    random = np.random.default_rng(seed)
    names = list(users) if users else [f"user {i}" for i in range(n)]
    weights = 1 / np.arange(1, len(asked.labels) + 1)
    gold = [str(label) for label in random.choice(asked.labels, n, p=weights / weights.sum())]
    ease = random.random(n)
    judged = {}
    for row in (FLOOR, *rows):
        share = SHARES.get(row, 0.45 if row == FLOOR else 0.75)
        tokens = TOKENS.get(row, 0 if row == FLOOR else 250)
        predictions = [
            _prediction(
                names[i], row, gold[i], asked, ease[i] / 2 + random.random() / 2 < share, tokens, random, margins
            )
            for i in range(n)
        ]
        judged[row] = tuple(Judged(p, g if golds else None) for p, g in zip(predictions, gold, strict=True))
    config = {
        "name": "made_up", "seed": 12345, "context": dict(rows), "rows": list(rows), "task": asked.as_dict(),
        "data": {"kind": data}, "optimizer": {"depth": 3, "gate_metric": None},
    }  # fmt: skip
    made = {name: _refinement(name, random, audit=audit) for name in names} if loop else {}
    return Evidence(
        run=RunDir(Path(path)),
        config=config,
        task=asked,
        manifest={},
        rows=judged,
        floors=(FLOOR,),
        users=tuple(names),
        incomplete={},
        refinements=made,
        results=_scores(asked, config, judged),
        history_size={name: int(size) for name, size in zip(names, 4 + random.pareto(1.2, n) * 30, strict=True)},
        contraction=contracted(made, random).as_dict() if made and contraction else None,
    )


def _prediction(
    user: str, row: str, gold: str, asked: Task, right: bool, tokens: int, random: np.random.Generator, margins: bool
) -> Prediction:
    place = asked.labels.index(gold)
    if asked.kind == "rating":
        wrong = asked.labels[min(max(place + int(random.choice((-1, 1))), 0), len(asked.labels) - 1)]
    else:
        wrong = asked.labels[int(random.integers(len(asked.labels)))]
    label = None if random.random() < 0.02 else gold if right else wrong
    return Prediction(
        user=user,
        query="q0",
        row=row,
        label=label,
        how="exact" if label else "none",
        outcome="ok" if label else "unreadable",
        text=label or "eh",
        context_tokens=int(tokens * (0.8 + 0.4 * random.random())),
        margin=round(float(random.lognormal(0.5, 1.6)), 4) if margins and row != FLOOR else None,
    )


def _scores(asked: Task, config: dict[str, Any], judged: Mapping[str, Sequence[Judged]]) -> Scores:
    metrics: dict[str, dict[str, Any]] = {}
    for row, answers in judged.items():
        scored = [one.scored for one in answers if one.gold is not None]
        metrics[row] = {
            **score(asked, scored),
            "interval": bootstrap_interval(asked, scored, primary(asked)[0], draws=1_000),
            "context_tokens": None
            if row == FLOOR
            else sum(o.prediction.context_tokens for o in answers) / len(answers),
            "paper": paper_row(asked.name, row),
        }
    return Scores(asked, config, results_table(asked, []), None, metrics, {}, {})


def _refinement(user: str, random: np.random.Generator, *, audit: bool) -> Refinement:
    empty = PersonaState.empty(COUNTER)
    kept, score_now = empty, int(random.integers(3, 9))
    passes: list[Pass] = []
    kept_at = [score_now]
    for depth in (1, 2, 3):
        before = _slice(score_now)
        if score_now == 8:
            passes.append(Pass(depth, before, before, None, False, "converged: no errors on the slice", None, kept))
        elif random.random() < 0.15:
            passes.append(Pass(depth, before, before, None, False, "half", None, kept, calls=1))
        else:
            candidate = PersonaState(f"Prefers pass {depth}.", counter=COUNTER)
            trial = int(min(8, max(0, score_now + random.integers(-2, 5 - depth))))
            accepted = trial > score_now
            kept, score_now = (candidate, trial) if accepted else (kept, score_now)
            passes.append(Pass(depth, before, _slice(score_now), _slice(trial), accepted, "", candidate, kept, calls=9))
        kept_at.append(score_now)
    scores = tuple(_slice(min(8, max(0, k - int(random.integers(0, 3))))) for k in kept_at) if audit else ()
    ids = tuple(map(str, range(8)))
    return Refinement(user, 12345, ids, ids if audit else (), _slice(kept_at[0]), empty, tuple(passes), scores)


def _slice(right: int) -> SliceScore:
    return SliceScore(tuple(int(i < right) for i in range(8)), right / 8)


def contracted(refinements: Mapping[str, Refinement], random: np.random.Generator) -> Contraction:
    """How such users' personas might move: a long first step, then shorter and shorter ones."""
    users = []
    for user, made in refinements.items():
        at = np.array([-0.6, -0.2])
        points, steps = [(float(at[0]), float(at[1]))], []
        for p in made.passes:
            step = (
                random.normal((0.9, 0.3), 0.35, 2) if p.depth == 1 else random.normal(0, 0.9 * 0.2 ** (p.depth - 1), 2)
            )
            at = at + step if p.accepted else at
            points.append((round(float(at[0]), 6), round(float(at[1]), 6)))
            steps.append(round(float(np.hypot(*step)), 6) if p.accepted else 0.0)
        fields = {
            name: tuple(s * f for s in steps)
            for name, f in (("preference_summary", 1.0), ("exemplars", 0.4), ("decision_rules", 0.7))
        }
        moved = tuple(s > 0 for s in steps)
        users.append(UserPath(user, tuple(steps), moved, None, None, tuple(points), moved, fields))
    table = np.array([one.displacement for one in users])
    motions = {
        name: FieldMotion(tuple(np.array([u.fields[name] for u in users]).mean(axis=0).tolist()), (0.5, 0.5, 0.5))
        for name in users[0].fields
    }
    return Contraction(
        encoder="made-up encoder", empty="", tolerance=0.02, seed=12345, draws=1_000, users=tuple(users),
        decay=decay(table, seed=12345, draws=1_000), accepted=None, fields=motions, explained=(0.41, 0.17),
        texts=10, overlong=0,
    )  # fmt: skip

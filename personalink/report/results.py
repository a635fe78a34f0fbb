"""A run's tables, computed from its sealed files alone: no model, no data file, no network.

Reads predictions, golds, floors and refinements; writes metrics and tables back beside them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from personalink.canonical import pretty_json
from personalink.contexts.persona import Refine
from personalink.errors import IntegrityError, PersonaError
from personalink.lm.base import Constraint
from personalink.lm.constraints import satisfies
from personalink.logprobs import NEAR_TIE
from personalink.metrics import bootstrap_interval, primary, score
from personalink.predictions import Prediction
from personalink.refinement import Refinement
from personalink.report.answers import Answers, Judged, read_answers
from personalink.report.layout import Table
from personalink.report.paper import paper_row
from personalink.report.tables import RowResult, results_table, selection_table
from personalink.run_dir import RunDir
from personalink.tasks import RatingTask, Task, task_from
from personalink.tasks.base import Reading


@dataclass(frozen=True, slots=True)
class Scores:
    """What a run scored.

    Attributes:
        task: the run's task. config: its sealed configuration.
        results: one line a row, floors first. selection: slice beside audit by depth; None without a refinement.
        metrics: row → metrics, interval, and the paper's figures where it has the row.
        outcomes: how the methods' answers ended, e.g. {"ok": 130, "unreadable": 6}; floors are not counted.
        no_label: answers that carry no label because they were empty, refused, cut off or too long.
        unconstrained: answers that were sent with a constraint and do not keep to it: the server ignored it.
    """

    task: Task
    config: Mapping[str, Any]
    results: Table
    selection: Table | None
    metrics: Mapping[str, Mapping[str, Any]]
    outcomes: Mapping[str, int]
    no_label: Mapping[str, int]
    unconstrained: int = 0

    def seal(self, run: RunDir) -> None:
        """Write metrics and tables into the run."""
        run.seal("metrics.json", pretty_json(self.metrics))
        for name, table in (("table", self.results), ("selection", self.selection)):
            if table is not None:
                run.seal(f"{name}.txt", table.as_text() + "\n")
                run.seal(f"{name}.md", table.as_markdown() + "\n")
                run.seal(f"{name}.csv", table.as_csv())
                run.seal(f"{name}.tex", table.as_latex() + "\n")


def score_run(run: RunDir) -> Scores:
    """Score a run from its sealed files, every raw text read again by the task's parser.

    Raises:
        IntegrityError: a sealed file is missing, altered or damaged.
    """
    return read_scores(run)[0]


def read_scores(run: RunDir) -> tuple[Scores, Answers]:
    """`score_run`, with the answers that it scored.

    Raises:
        IntegrityError: a sealed file is missing, altered or damaged.
    """
    config = run.read_json("sealed/config.json")
    if config is None:
        msg = f"{run.path} has no sealed/config.json; it is not a run's directory"
        raise IntegrityError(msg)
    run.check_seal()
    try:
        answers = read_answers(run, task_from(config["task"]), config["rows"])
        return _score(run, config, answers), answers
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        msg = f"{run.sealed} is damaged: {type(error).__name__} {error}; run the same command again to seal it anew"
        raise IntegrityError(msg) from None


def refinements_of(run: RunDir) -> dict[str, Refinement]:
    """Every refinement that a run holds, by user; empty where it holds none.

    Raises:
        IntegrityError: one is damaged; names file and line.
    """
    name = f"sealed/products/Refine-{Refine().key[:8]}.jsonl"
    found: dict[str, Refinement] = {}
    for number, record in enumerate(run.read_lines(name), 1):
        try:
            found[_user(record)] = Refinement.from_dict(record["product"])
        except (IntegrityError, PersonaError, LookupError, TypeError, ValueError, AttributeError) as error:
            what = f"it is no refinement ({type(error).__name__}: {error})"
            msg = f"{run.path / name} is damaged in line {number}: {what}"
            raise IntegrityError(msg) from None
    return found


def _user(record: Any) -> str:
    user = record["user"]
    if not isinstance(user, str):
        msg = f"its user is {user!r:.60}"
        raise TypeError(msg)
    return user


def _score(run: RunDir, config: Mapping[str, Any], answers: Answers) -> Scores:
    task = task_from(config["task"])
    rows, metrics = [], {}
    for kind, group in (("floor", answers.floors), ("method", answers.methods)):
        for row, judged in group.items():
            result = _row(task, row, kind, judged, config["seed"])
            rows.append(result)
            metrics[row] = {
                **result.metrics,
                "interval": result.interval,
                "context_tokens": result.context_tokens,
                "paper": paper_row(task.name, row),
            }
    refinements = list(refinements_of(run).values())
    everything = [one.prediction for judged in answers.methods.values() for one in judged]
    return Scores(
        task=task,
        config=config,
        results=results_table(
            task,
            rows,
            title=_title(run, config, everything),
            notes=[*_notes(run, config, answers.golds, everything), *persona_notes(refinements)],
        ),
        selection=selection_table(refinements) if any(r.slice_ids for r in refinements) else None,
        metrics=metrics,
        outcomes=dict(sorted(Counter(p.outcome for p in everything).items())),
        no_label=dict(sorted(Counter(p.outcome for p in everything if _failed(p)).items())),
        unconstrained=sum(breaks_constraint(p, task) for p in everything),
    )


def breaks_constraint(prediction: Prediction, task: Task) -> bool:
    """Whether an answer that was to be one of the labels is none: then the server did not constrain it."""
    whole = prediction.outcome in ("ok", "unreadable")
    return bool(prediction.constrained) and whole and not satisfies(Constraint(choices=task.labels), prediction.text)


def expected_errors(task: Task, pairs: Sequence[tuple[Prediction, str]]) -> dict[str, float | int]:
    """`expected_mae` and `expected_rmse`: MAE and RMSE of the expected ratings, in points of the scale, lower is
    better; empty where no answer has one.

    They are over the same answers as MAE and RMSE: one without an expected rating (of `expected_n` that have one)
    counts as the label read from it, and as the farther end of the scale where there is none either.
    """
    known = sum(p.expected is not None for p, _ in pairs)
    if not known or not isinstance(task, RatingTask):
        return {}
    errors = [
        task.error(Reading(p.label), gold) if p.expected is None else abs(p.expected - int(gold)) for p, gold in pairs
    ]
    mean = math.fsum(errors) / len(errors)
    square = math.fsum(error * error for error in errors) / len(errors)
    return {"expected_mae": mean, "expected_rmse": math.sqrt(square), "expected_n": known}


def persona_notes(refinements: Sequence[Refinement]) -> list[str]:
    """By what the personas proposed in a run were constrained, in a line; none where nothing was proposed."""
    by = Counter(p.constrained for r in refinements for p in r.passes if p.candidate is not None)
    if not by:
        return []
    named = ", ".join(f"{count} by {name}" for name, count in sorted(by.items()) if name)
    return [f"Of {by.total()} personas proposed, constrained: {named}." if named else "Personas unconstrained."]


def _failed(prediction: Prediction) -> bool:
    """No label, and not because an answer could not be read."""
    return prediction.label is None and prediction.outcome != "unreadable"


def _row(task: Task, row: str, kind: str, judged: Sequence[Judged], seed: int) -> RowResult:
    known = [(one.prediction, one.gold) for one in judged if one.gold is not None]
    scored = [one.scored for one in judged if one.gold is not None]
    tokens = sum(one.prediction.context_tokens for one in judged) / len(judged) if kind == "method" else None
    return RowResult(
        name=row,
        label="" if kind == "method" else row,
        metrics={**score(task, scored), **expected_errors(task, known)},
        interval=bootstrap_interval(task, scored, primary(task)[0], seed=seed),
        context_tokens=tokens,
        kind="floor" if kind == "floor" else "method",
    )


def _title(run: RunDir, config: Mapping[str, Any], predictions: Sequence[Prediction]) -> str:
    users = len({p.user for p in predictions})
    who = run.read_json("sealed/model.json") or {}
    model = "SmolLM2-135M-Instruct" if "SmolLM2-135M-Instruct" in str(who.get("model")) else who.get("model")
    return f"{config['name']}: task {config['task']['name']}, n = {users} users, model {model}, seed {config['seed']}"


def _notes(
    run: RunDir, config: Mapping[str, Any], golds: Mapping[tuple[str, str], str | None], predictions: list[Prediction]
) -> list[str]:
    notes = list(config["notes"])
    by = sorted({p.constrained for p in predictions})
    broken = sum(breaks_constraint(p, task_from(config["task"])) for p in predictions)
    if broken:
        notes.append(
            f"Labels were to be constrained by {', '.join(b for b in by if b)}, and {broken} of {len(predictions)} "
            "answers are none of them: the server ignores the constraint (see `personalink doctor`)."
        )
    elif any(by):
        notes.append(f"Labels constrained by {', '.join(b or 'nothing (some answers)' for b in by)}.")
    elif config["constrain"] != "none":
        notes.append("Labels were to be constrained, and the server could not: unconstrained.")
    else:
        notes.append("Labels unconstrained.")
    margins = [p.margin for p in predictions if p.margin is not None]
    if margins:
        near = sum(margin < NEAR_TIE for margin in margins)
        notes.append(
            f"Near ties: {near} of {len(margins)} answers whose margin is known have one under {NEAR_TIE} nats; "
            "another batch, cache or GPU may flip them."
        )
    came = sum(p.outcome not in ("too_long", "empty", "refused") for p in predictions)
    if config.get("logprobs") and len(margins) < came:
        notes.append(
            f"Log-probabilities were asked for; {len(margins)} of {came} answers came with them and with another token "
            "to choose: the others have no margin."
        )
    left_out = (run.read_json("sealed/data.json") or {}).get("left_out", {})
    if left_out:
        told = ", ".join(f"{n} × {why}" for why, n in sorted(left_out.items()))
        notes.append(f"Left out by the loader: {told}.")
    if missing := sum(gold is None for gold in golds.values()):
        notes.append(
            f"{missing} queries have no gold label in these files (an official test split) and are not scored."
        )
    return notes

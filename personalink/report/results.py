"""A run's tables, computed from its sealed files alone: no model, no data file, no network.

Reads predictions, golds, floors and refinements; writes metrics and tables back beside them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from personalink.canonical import pretty_json
from personalink.errors import IntegrityError
from personalink.metrics import Scored, bootstrap_interval, primary, score
from personalink.predictions import Prediction
from personalink.refinement import Refinement
from personalink.report.paper import paper_row
from personalink.report.tables import RowResult, Table, results_table, selection_table
from personalink.run_dir import RunDir
from personalink.tasks import Task, task_from


@dataclass(frozen=True, slots=True)
class Scores:
    """What a run scored.

    Attributes:
        task: the run's task. config: its sealed configuration.
        results: one line a row, floors first. selection: slice beside audit by depth; None without a refinement.
        metrics: row → metrics, interval, and the paper's figures where it has the row.
        outcomes: how the methods' answers ended, e.g. {"ok": 130, "unreadable": 6}; floors are not counted.
        no_label: answers that carry no label because they were empty, refused, cut off or too long.
    """

    task: Task
    config: Mapping[str, Any]
    results: Table
    selection: Table | None
    metrics: Mapping[str, Mapping[str, Any]]
    outcomes: Mapping[str, int]
    no_label: Mapping[str, int]

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
        IntegrityError: a sealed file is missing or damaged.
    """
    config = run.read_json("sealed/config.json")
    if config is None:
        msg = f"{run.path} has no sealed/config.json; it is not a run's directory"
        raise IntegrityError(msg)
    task = task_from(config["task"])
    golds = {(g["user"], g["query"]): g["gold"] for g in run.read_lines("sealed/golds.jsonl")}
    floors = _by_row(Prediction.from_dict(p) for p in run.read_lines("sealed/floors.jsonl"))
    methods = _by_row(Prediction.from_dict(p).reread(task) for p in run.read_lines("sealed/predictions.jsonl"))
    ordered = {row: methods[row] for row in config["rows"] if row in methods}
    rows, metrics = [], {}
    for kind, group in (("floor", floors), ("method", ordered)):
        for row, predictions in group.items():
            result = _row(task, row, kind, predictions, golds, config["seed"])
            rows.append(result)
            metrics[row] = {
                **result.metrics,
                "interval": result.interval,
                "context_tokens": result.context_tokens,
                "paper": paper_row(task.name, row),
            }
    refinements = [
        Refinement.from_dict(record["product"])
        for path in sorted(run.sealed.glob("products/Refine-*.jsonl"))
        for record in run.read_lines(str(path.relative_to(run.path)))
    ]
    everything = [p for predictions in ordered.values() for p in predictions]
    return Scores(
        task=task,
        config=config,
        results=results_table(task, rows, title=_title(config, ordered), notes=_notes(config, golds, everything)),
        selection=selection_table(refinements) if any(r.slice_ids for r in refinements) else None,
        metrics=metrics,
        outcomes=dict(sorted(Counter(p.outcome for p in everything).items())),
        no_label=dict(sorted(Counter(p.outcome for p in everything if _failed(p)).items())),
    )


def _failed(prediction: Prediction) -> bool:
    """No label, and not because an answer could not be read."""
    return prediction.label is None and prediction.outcome != "unreadable"


def _by_row(predictions: Iterable[Prediction]) -> dict[str, list[Prediction]]:
    rows: dict[str, list[Prediction]] = {}
    for prediction in predictions:
        rows.setdefault(prediction.row, []).append(prediction)
    return rows


def _row(
    task: Task,
    row: str,
    kind: str,
    predictions: list[Prediction],
    golds: Mapping[tuple[str, str], str | None],
    seed: int,
) -> RowResult:
    known = [(p, gold) for p in predictions if (gold := golds.get((p.user, p.query))) is not None]
    scored = [Scored(gold, p.label, p.text, p.outcome) for p, gold in known]
    tokens = sum(p.context_tokens for p in predictions) / len(predictions) if kind == "method" else None
    return RowResult(
        name=row,
        label="" if kind == "method" else row,
        metrics=score(task, scored),
        interval=bootstrap_interval(task, scored, primary(task)[0], seed=seed),
        context_tokens=tokens,
        kind="floor" if kind == "floor" else "method",
    )


def _title(config: Mapping[str, Any], rows: Mapping[str, list[Prediction]]) -> str:
    users = len({p.user for predictions in rows.values() for p in predictions})
    lm = config["lm"]
    model = lm["model"] or lm["path"] or ("SmolLM2-135M-Instruct" if lm["kind"] == "embedded" else lm["kind"])
    return f"{config['name']}: task {config['task']['name']}, n = {users} users, model {model}, seed {config['seed']}"


def _notes(
    config: Mapping[str, Any], golds: Mapping[tuple[str, str], str | None], predictions: list[Prediction]
) -> list[str]:
    notes = list(config["notes"])
    by = sorted({p.constrained for p in predictions})
    if any(by):
        notes.append(f"Labels constrained by {', '.join(b or 'nothing (some answers)' for b in by)}.")
    elif config["constrain"] != "none":
        notes.append("Labels were to be constrained, and the server could not: unconstrained.")
    else:
        notes.append("Labels unconstrained.")
    if missing := sum(gold is None for gold in golds.values()):
        notes.append(
            f"{missing} queries have no gold label in these files (an official test split) and are not scored."
        )
    return notes

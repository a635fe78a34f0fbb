"""All that a report shows of one run, read once: what tables, figures and pages are made from.

Reads the run's sealed files, its status, and what `personalink contraction` derived; asks no model and no network.
Knows nothing of how anything is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from personalink.config import ShardConfig
from personalink.errors import IncompleteRun, IntegrityError
from personalink.metrics import Scored
from personalink.refinement import Refinement
from personalink.report.answers import Judged
from personalink.report.results import Scores, read_scores, refinements_of
from personalink.run_dir import RunDir, find_run
from personalink.tasks import Task

REPORT = "report"
"""The folder of a run that holds what was derived from it, beside `sealed/` and `log/`."""

CONTRACTION = f"{REPORT}/contraction.json"
"""Where `personalink contraction` leaves what it measured."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One run, ready to be shown.

    Attributes:
        run: its directory. config: its sealed configuration. task: what was asked.
        manifest: the sealed manifest (users, donors, data).
        rows: row → its answers beside their golds; floors first, then methods in the table's order. Within a row: the
            manifest's order of users, and each user's order of queries.
        floors: those names in `rows` that are floors: predictors without a model.
        users: ids of the finished users, in the manifest's order.
        incomplete: user → why that user was not finished; in the manifest's order.
        refinements: user → the record of the loop; empty where no row has one.
        results: scores, tables and metrics of the run.
        history_size: user → number of history items.
        contraction: what `personalink contraction` measured; None where it was not run.
    """

    run: RunDir
    config: Mapping[str, Any]
    task: Task
    manifest: Mapping[str, Any]
    rows: Mapping[str, tuple[Judged, ...]]
    floors: tuple[str, ...]
    users: tuple[str, ...]
    incomplete: Mapping[str, str]
    refinements: Mapping[str, Refinement]
    results: Scores
    history_size: Mapping[str, int] = field(default_factory=dict)
    contraction: Mapping[str, Any] | None = None

    @property
    def name(self) -> str:
        """The experiment's name, and the folder of the run: what tells runs apart for people."""
        return f"{self.config['name']}/{self.run.path.resolve().name}"

    @property
    def methods(self) -> tuple[str, ...]:
        """The rows that are no floors, in the table's order."""
        return tuple(row for row in self.rows if row not in self.floors)

    def judged(self, row: str) -> tuple[Judged, ...]:
        """A row's answers whose gold label is known, in the fixed order; empty for a row that is not there."""
        return tuple(one for one in self.rows.get(row, ()) if one.gold is not None)

    def scored(self, row: str) -> list[Scored]:
        """`judged` as `metrics.score` and `metrics.bootstrap_interval` take it."""
        return [one.scored for one in self.judged(row)]


def load(where: str | Path | RunDir) -> Evidence:
    """Read a run.

    Args:
        where: a run, its directory, or a folder that holds exactly one run.

    Raises:
        UsageError: there is no run at `where`, or there are several.
        IncompleteRun: the run has no finished user.
        IntegrityError: a sealed file is missing, altered or damaged.
    """
    run = where if isinstance(where, RunDir) else find_run(where)
    if not (run.sealed / "seal.json").exists():
        msg = f"{run.path} is not finished: nothing of it is sealed yet; run its command again first"
        raise IncompleteRun(msg)
    results, answers = read_scores(run)
    if not answers.methods:
        msg = f"{run.path} has no finished user; run its command again first"
        raise IncompleteRun(msg)
    manifest = run.read_json("sealed/manifest.json")
    try:
        entries = manifest["entries"]
        size = {entry["user"]: entry["history"] for entry in entries}
        finished = {one.prediction.user for judged in answers.methods.values() for one in judged}
        shard = ShardConfig(**results.config["shard"])
        why = run.status.get("incomplete") or {}
        incomplete = {
            user: str(why.get(user, "not begun")) for user in size if user not in finished and shard.holds(user)
        }
    except (KeyError, TypeError, AttributeError) as error:
        msg = f"{run.sealed / 'manifest.json'} is damaged: {type(error).__name__} {error}"
        raise IntegrityError(msg) from None
    return Evidence(
        run=run,
        config=results.config,
        task=results.task,
        manifest=manifest,
        rows={**answers.floors, **answers.methods},
        floors=tuple(answers.floors),
        users=tuple(user for user in size if user in finished),
        incomplete=incomplete,
        refinements=refinements_of(run),
        results=results,
        history_size=size,
        contraction=_contraction(run),
    )


def _contraction(run: RunDir) -> Mapping[str, Any] | None:
    found = run.read_json(CONTRACTION)
    if found is not None and not isinstance(found, dict):
        msg = f"{run.path / CONTRACTION} is damaged: expected an object; run `personalink contraction` again"
        raise IntegrityError(msg)
    return found

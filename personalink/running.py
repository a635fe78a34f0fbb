"""Run a configuration and score it: what the command line and Python share, so that both give the same bytes."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from personalink import background
from personalink.config import RunConfig
from personalink.errors import IncompleteRun, Interrupted, LMError, PersonalinkError, StorageError
from personalink.experiment import Experiment, RunResult
from personalink.lm.base import LM
from personalink.progress import Progress
from personalink.report.results import Scores, score_run
from personalink.trackers import tell

REMEDIES: Mapping[str, str] = {
    "truncated": "raise task.max_tokens, or constrain=label",
    "empty": "look at the server's log and chat template",
    "refused": "the server's filter refused them; another model may not",
    "too_long": "the window is too small; shorten the rows or raise it",
}


@dataclass(frozen=True, slots=True)
class Finished:
    """A run with its scores; `trouble` is what keeps it from being complete, None for a complete one."""

    result: RunResult
    scores: Scores
    trouble: PersonalinkError | None


async def arun(
    config: RunConfig | Mapping[str, Any],
    *,
    lm: LM | None = None,
    rewriter: LM | None = None,
    progress: Callable[[int], Progress] | None = None,
    started: Callable[[Experiment], None] = lambda experiment: None,
) -> Finished:
    """Run an experiment to its end, or go on with one that was stopped, and seal its tables.

    Args:
        config: the configuration, or the mapping that `conf/` composes to.
        lm, rewriter: models to use in place of the configuration's.
        progress: makes the display; None shows nothing.
        started: told of the experiment before it runs (the command line hangs its signal handlers on it).

    Raises:
        PersonalinkError: nothing could be run; a run that ended half done is returned with its `trouble`.
    """
    if not isinstance(config, RunConfig):
        config = RunConfig.from_mapping(config)
    experiment = Experiment(config, lm=lm, rewriter=rewriter, progress=progress)
    started(experiment)
    result = await experiment.run()
    scores = score_run(result.run)
    try:
        scores.seal(result.run)
    except OSError as error:
        msg = f"cannot write the tables of {result.run.path}: {error.strerror or error}"
        raise StorageError(msg) from None
    trouble = _trouble(config, result, scores)
    if trouble is not None and result.state == "complete":
        facts = {name: value for name, value in result.run.status.items() if name != "state"}
        result.run.set_status("failed", **{**facts, "why": str(trouble)})
    if config.trackers and result.state != "interrupted":  # who stopped it does not wait for them
        await asyncio.to_thread(tell, config.trackers, result.run, scores)
    return Finished(result, scores, trouble)


def run(config: RunConfig | Mapping[str, Any], **options: Any) -> Finished:
    """`arun` for scripts and notebooks.

    Raises:
        PersonalinkError: as `arun`; and the run's trouble, when it ended half done (what is finished is sealed).
    """
    finished = background.run(arun(config, **options))
    if finished.trouble is not None:
        raise finished.trouble
    return finished


def _trouble(config: RunConfig, result: RunResult, scores: Scores) -> PersonalinkError | None:
    """Why a run is not complete, worst first."""
    if result.state == "interrupted":
        return Interrupted("interrupted: what is finished is sealed; the same command goes on")
    if result.incomplete:
        user, error = next(iter(result.incomplete.items()))
        same = sum(str(e) == str(error) for e in result.incomplete.values())
        whom = f"user {user}" if same == 1 else f"user {user} and {same - 1} more"
        msg = f"{len(result.incomplete)} users were not finished ({whom}: {error}); the same command goes on"
        kind = type(error) if isinstance(error, LMError) and error.fatal else IncompleteRun
        return kind(msg)
    total = sum(scores.outcomes.values())
    failed = sum(scores.no_label.values())
    if total and failed > config.max_failed * total:
        worst = max(scores.no_label, key=lambda outcome: scores.no_label[outcome])
        kinds = ", ".join(f"{n} {outcome}" for outcome, n in scores.no_label.items())
        msg = (
            f"{failed} of {total} answers carry no label ({kinds}); "
            f"max_failed allows {config.max_failed:.0%}: {REMEDIES[worst]}"
        )
        return IncompleteRun(msg)
    if total and scores.unconstrained > config.max_failed * total:
        msg = (
            f"{scores.unconstrained} of {total} answers do not keep to the labels that they were constrained to: the "
            "server ignores the constraint; see `personalink doctor`, or use constrain=none"
        )
        return IncompleteRun(msg)
    return None


def command_line(arguments: list[str]) -> str:
    """The exact command that goes on."""
    return shlex.join(["personalink", *arguments])

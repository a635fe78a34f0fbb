"""`personalink doctor`: a model by itself (`--lm URL`), or all that a run needs (the same words as `run`)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from personalink.cli.streams import out
from personalink.config import LMConfig, RunConfig
from personalink.doctor import Finding, diagnose, look_at_run, render_findings, told_settings
from personalink.errors import LMError, PersonalinkError, UsageError
from personalink.experiment import Experiment
from personalink.lm import connect
from personalink.sources import make_lm

ALONE = ("--lm", "--model", "-h", "--help")
"""Options that ask about a model by itself."""

TIMEOUT_S = 60.0
"""Most seconds that one probe may take; a doctor that waits ten minutes is no help."""


def doctor(arguments: Sequence[str]) -> int:
    """`personalink doctor`: 0 when every check passed or could not be told, 3 otherwise.

    Raises:
        UsageError: the words cannot be read.
    """
    if any(word.partition("=")[0] in ALONE for word in arguments):
        from personalink.cli import parser

        options = parser().parse_args(["doctor", *arguments])
        return _told(asyncio.run(_model_alone(options.lm, options.model)))
    from personalink.cli import run

    return run.doctor(arguments)


def look(config: RunConfig, values: Mapping[str, Any], arguments: Sequence[str]) -> int:
    """Look at a run's model and at where it will stand.

    Args:
        config: the run's. values: the same as Hydra composed them. arguments: what was typed.
    """
    typed = {word.lstrip("+").partition("=")[0] for word in arguments if "=" in word}
    return _told(asyncio.run(_run(config, values, typed)))


def _told(findings: Sequence[Finding]) -> int:
    out(render_findings(findings))
    return LMError.exit_code if any(finding.ok is False for finding in findings) else 0


async def _model_alone(where: str, model: str | None) -> list[Finding]:
    served = where.lower().startswith(("http://", "https://"))
    lm = connect(where, model=model, **({"retries": 0, "timeout_s": TIMEOUT_S} if served else {}))
    given: dict[str, Any] = {"kind": "endpoint" if served else where, "model": model}
    given |= {"base_url": where} if served else {"path": model} if where == "embedded" else {}
    try:
        return [*told_settings(given, ("lm.base_url", "lm.model", "lm.path")), *await diagnose(lm)]
    finally:
        await lm.aclose()


async def _run(config: RunConfig, values: Mapping[str, Any], typed: Collection[str]) -> list[Finding]:
    lm = make_lm(_hasty(config.lm), config.make_task())
    findings = told_settings(values.get("lm") or {}, typed)
    experiment, data = _opened(config)
    try:
        seen = await diagnose(lm)
        answers = any(finding.name == "chat" for finding in seen)
        plan, unplanned = None, []
        if experiment is not None and answers:
            try:
                plan = await asyncio.to_thread(experiment.planned, lm)
            except PersonalinkError as error:
                unplanned.append(Finding("planned prompts", None, f"they could not be worded: {error}"))
    finally:
        await lm.aclose()
    findings += [*seen, *await _rewriter(config, values, typed), data, *unplanned]
    return [*findings, *look_at_run(config, plan)]


def _opened(config: RunConfig) -> tuple[Experiment | None, Finding]:
    """The experiment, and whether its data can be read."""
    try:
        experiment = Experiment(config)
    except UsageError as error:
        detail, _, remedy = str(error).partition("; ")
        return None, Finding("data", False, detail, remedy)
    queries = sum(len(user.queries) for user in experiment.users)
    return experiment, Finding("data", True, f"{len(experiment.users)} users with {queries} queries")


async def _rewriter(config: RunConfig, values: Mapping[str, Any], typed: Collection[str]) -> list[Finding]:
    """The same look at the model that rewrites, where it is another one."""
    if config.rewriter is None:
        return []
    lm = make_lm(_hasty(config.rewriter), config.make_task())
    try:
        seen = [*told_settings(values.get("rewriter") or {}, typed, "rewriter")[:-1], *await diagnose(lm)]
    finally:
        await lm.aclose()
    return [replace(finding, name=f"rewriter: {finding.name}") for finding in seen]


def _hasty(lm: LMConfig) -> LMConfig:
    """The same model asked without patience."""
    return replace(lm, retries=0, timeout_s=min(lm.timeout_s, TIMEOUT_S))

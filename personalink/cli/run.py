"""`personalink run`: Hydra composes the groups of `conf/`, plain values go on, and Hydra is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from personalink.cli.compose import compose, plain_values, run_config
from personalink.cli.streams import out, told, told_error
from personalink.cli.words import explained, to_go_on
from personalink.config import RunConfig
from personalink.errors import ConfigError, Interrupted, PersonalinkError, StorageError
from personalink.experiment import Experiment
from personalink.progress import Progress
from personalink.run_dir import RunDir, file_name
from personalink.running import Finished, arun, command_line
from personalink.text import one_line


def run(arguments: Sequence[str]) -> int:
    """`personalink run`: one run, or a sweep with `-m`; the worst exit code of the jobs."""
    return _compose("run", arguments)


def plan(arguments: Sequence[str]) -> int:
    """`personalink plan`: what the same words would take under `run`; nothing is sent."""
    return _compose("plan", arguments)


def doctor(arguments: Sequence[str]) -> int:
    """`personalink doctor` with the same words: what a run would meet; 3 where a check fails."""
    return _compose("doctor", arguments)


def job(file: str) -> int:
    """`personalink _job`: one job of a sweep, in the process that `sweep.one_job` made for it."""
    from personalink.cli.sweep import Order

    order = Order.read(Path(file))
    return _work(order.command, order.config, order.arguments, starter=sys.stdin.fileno())


def _work(command: str, values: Any, arguments: Sequence[str], starter: int | None = None) -> int:
    config = run_config(values)
    if command == "doctor":
        from personalink.cli.doctor import look

        return look(config, values, arguments)
    return _plan(config) if command == "plan" else _job(config, arguments, starter)


def _plan(config: RunConfig) -> int:
    made, remark = asyncio.run(Experiment(config).plan())
    out(made.as_text())
    if remark:
        told(f"personalink: {remark}")
    return 0


def _compose(command: str, arguments: Sequence[str]) -> int:
    """Let Hydra compose each job's configuration and do what the command says; the worst exit code.

    Raises:
        ConfigError: Hydra could not compose the configuration.
        StorageError: the sweep's folder cannot be written.
    """
    from personalink.cli import sweep

    codes: list[int] = []

    def one(config: Any) -> None:
        _one(command, list(arguments), config, codes)

    with sweep.watched() as sweeps:
        try:
            compose(arguments, one, hooks=[sweep.HOOK])
        except OSError as error:
            raise _unreadable(error, sweeps, codes) from None
        except RuntimeError as error:  # of a launcher that lost a worker; what its jobs came to is in their files
            if not sweeps:
                raise
            codes.append(told_error(PersonalinkError(f"the launcher ended early: {one_line(str(error)):.200}")))
        codes += [sweep.outcome(path) for path in sweeps]
    return max(codes, default=0)


def _one(command: str, arguments: list[str], config: Any, codes: list[int]) -> None:
    """What Hydra calls for each job: the work itself, or in a sweep a process for it."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode
    from omegaconf.errors import OmegaConfBaseException

    hydra, error = HydraConfig.get(), None
    values: Any = {}
    try:
        values = plain_values(config)
    except OmegaConfBaseException as raised:
        error = ConfigError(explained(raised))
    if hydra.mode == RunMode.MULTIRUN:
        _in_sweep(command, arguments, hydra, values, error)
        return
    codes.append(0)  # begun
    try:
        if error is not None:
            raise error
        codes.append(_work(command, values, arguments))
    except PersonalinkError as raised:
        codes.append(told_error(raised))


def _in_sweep(command: str, arguments: list[str], hydra: Any, values: Any, error: ConfigError | None) -> None:
    from personalink.cli import sweep

    order = sweep.Order(hydra.job.num, command, arguments, list(hydra.overrides.task), values)
    if error is not None:
        order = replace(order, code=told_error(error), why=str(error))
    elif command == "run":
        with contextlib.suppress(PersonalinkError):  # the job will say it
            order = replace(order, run=str(run_config(values).folder.absolute()))
    sweep.one_job(sweep.folder_of(hydra), order)


def _unreadable(error: OSError, sweeps: Sequence[Path], codes: Sequence[int]) -> BaseException:
    """What is to be raised for an OSError that came through Hydra."""
    if sweeps:
        return StorageError(f"cannot write the sweep's folder {sweeps[0]}: {error.strerror or error}")
    if codes or isinstance(error, BrokenPipeError):
        return error
    if error.errno is not None and error.filename is None:  # of --cfg and --help, which Hydra prints
        return PersonalinkError(f"cannot write to stdout: {error.strerror}")
    return ConfigError(f"a configuration file cannot be read: {one_line(str(error))}")


def _job(config: RunConfig, arguments: Sequence[str], starter: int | None = None) -> int:
    """One run to its end; its exit code. `starter` is a stream that ends when whoever started this process is gone."""
    stops: list[int] = []
    try:
        finished = asyncio.run(_with_signals(config, stops, starter))
    except Interrupted as error:
        return _interrupted(error, arguments, stops)
    except SystemExit as left:
        msg = f"sys.exit({left.code!r}) was called inside the run; a context must raise instead"
        raise PersonalinkError(msg) from None
    code = 0
    try:
        show(config, finished)
    except PersonalinkError as error:  # what came of the run counts for more than who could read it
        code = told_error(error)
    if isinstance(finished.trouble, Interrupted):
        return _interrupted(finished.trouble, arguments, stops)
    return code if finished.trouble is None else told_error(finished.trouble)


def _interrupted(error: Interrupted, arguments: Sequence[str], stops: Sequence[int]) -> int:
    """Say so, and the command that goes on; 130 for Ctrl-C, 143 for SIGTERM, as a shell would have it."""
    code = told_error(error)
    told(f"go on with: {command_line(['run', *to_go_on(arguments)])}")
    return 128 + stops[0] if stops else code


async def _with_signals(config: RunConfig, stops: list[int], starter: int | None) -> Finished:
    """The run, with Ctrl-C, SIGTERM and the end of its starter draining it once; a second signal ends it at once.

    Args:
        stops: which signal it was is appended. starter: as for `_job`.
    """

    def started(experiment: Experiment) -> None:
        def stop(number: signal.Signals) -> None:
            for other in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(other)
                signal.signal(other, _at_once)
            if starter is not None:
                loop.remove_reader(starter)
            stops.append(number)
            told("\npersonalink: finishing what is in flight; again to stop at once")
            experiment.drain()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, number)
        if starter is not None:
            loop.add_reader(starter, stop, signal.SIGTERM)

    loop = asyncio.get_running_loop()
    return await arun(config, progress=lambda total: Progress(total, label=config.name), started=started)


def _at_once(number: int, frame: Any) -> None:
    """End this process here and now: whatever stands in the journal is whole, and nothing else is lost."""
    os._exit(128 + number)


def show(config: RunConfig, finished: Finished) -> None:
    """The tables of a run, where things are, and what to type next."""
    out(finished.scores.results.as_text())
    if finished.scores.selection is not None:
        out("\n" + finished.scores.selection.as_text())
    _say_what_next(config, finished)


def _say_what_next(config: RunConfig, finished: Finished) -> None:
    """Where things are, and what to type next."""
    from personalink.data import sample_path

    run = finished.result.run.path
    named = shlex.quote(str(run))
    lines = [f"run: {run}   ({finished.result.sent} requests sent)"]
    if (user := _to_read(finished.result.run)) is not None:
        lines.append(f"read the personas:   personalink personas {named}   |   … {_user_option(user)} --diff 0:1")
    lines.append(f"tables and pages:    personalink report {named}")
    lines.append(f"score again:         personalink table {named} --format markdown")
    if config.name.startswith("quickstart"):
        lines.append(f"more users:          personalink run experiment={config.name} data.n_users=15")
        lines.append(
            "a model of your own: … lm=vllm lm.base_url=http://localhost:8000/v1 lm.model=Qwen/Qwen2.5-7B-Instruct"
        )
        if config.name == "quickstart":
            there = sample_path("films") is not None
            lines.append(
                "film ratings:        personalink run experiment=quickstart_films"
                if there
                else "film ratings:        not part of the installed package (GroupLens' terms forbid commercial use); "
                "clone the repository and run experiment=quickstart_films there"
            )
    out("\n" + "\n".join(lines))


def _to_read(run: RunDir) -> str | None:
    """A user of the run whose persona can be read; None when there is none."""
    manifest = run.read_json("sealed/manifest.json") or {}
    users = sorted(entry["user"] for entry in manifest.get("entries", ()))
    return next((user for user in users if (run.sealed / "personas" / f"{file_name(user)}.md").exists()), None)


def _user_option(user: str) -> str:
    return f"--user={shlex.quote(user)}" if user.startswith("-") else f"--user {shlex.quote(user)}"

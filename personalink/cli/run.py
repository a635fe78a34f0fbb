"""`personalink run`: Hydra composes the groups of `conf/`, plain values go on, and Hydra is left behind."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from personalink.cli.streams import out, told, told_error
from personalink.cli.words import explained, readable, to_go_on, unreadable_file
from personalink.config import RunConfig
from personalink.errors import ConfigError, Interrupted, PersonalinkError
from personalink.experiment import Experiment
from personalink.progress import Progress
from personalink.run_dir import RunDir, file_name
from personalink.running import Finished, arun, command_line
from personalink.text import one_line

EMBEDDED_NOTE = (
    "A 135M model: it shows that the pipeline works, not the paper's results. The floors above use no model."
)
"""Stands under every table of the small model that runs in the process."""


def conf_dir() -> Path:
    """Where the configuration groups lie: inside an installed wheel, or beside the package in a checkout.

    Raises:
        ConfigError: neither is there; the installation is broken.
    """
    package = Path(__file__).resolve().parent.parent
    for path in (package / "conf", package.parent / "conf"):
        if (path / "config.yaml").exists():
            return path
    msg = f"no configuration groups at {package / 'conf'}: reinstall personalink"
    raise ConfigError(msg)


def run(arguments: Sequence[str]) -> int:
    """`personalink run`: one job, or a sweep with `-m`; the worst exit code of the jobs."""
    return _compose(arguments, lambda config: _job(config, arguments))


def plan(arguments: Sequence[str]) -> int:
    """`personalink plan`: what the same words would take under `run`; nothing is sent."""
    return _compose(arguments, _plan)


def _plan(config: RunConfig) -> int:
    made, remark = asyncio.run(Experiment(config).plan())
    out(made.as_text())
    if remark:
        told(f"personalink: {remark}")
    return 0


class _Jobs:
    """The jobs that Hydra hands over, one after the other; none is begun after one that was interrupted."""

    def __init__(self, work: Callable[[RunConfig], int]) -> None:
        self.work = work
        self.codes: list[int] = []
        self.begun = self.left = 0

    def __call__(self, config: Any) -> None:
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException

        if Interrupted.exit_code in self.codes:
            self.left += 1
            return
        self.begun += 1
        try:
            values = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
            self.codes.append(self.work(_run_config(values)))
        except OmegaConfBaseException as error:
            self.codes.append(told_error(ConfigError(explained(error))))
        except PersonalinkError as error:
            self.codes.append(told_error(error))


def _compose(arguments: Sequence[str], work: Callable[[RunConfig], int]) -> int:
    """Let Hydra compose each job's configuration and do the work; the worst exit code.

    Raises:
        ConfigError: Hydra could not compose the configuration.
    """
    import hydra
    import yaml  # type: ignore[import-untyped]
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    jobs = _Jobs(work)
    folder = conf_dir()

    def job(config: Any) -> None:
        jobs(config)

    before, sys.argv = sys.argv, ["personalink", *readable(arguments, folder)]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra would otherwise print and exit by itself; we say it in one line
    try:
        hydra.main(version_base="1.3", config_path=str(folder), config_name="config")(job)()
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(explained(error)) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(unreadable_file(error, arguments)) from None
    except OSError as error:
        if jobs.begun or isinstance(error, BrokenPipeError):
            raise
        if error.errno is not None and error.filename is None:  # of --cfg and --help, which Hydra prints
            raise PersonalinkError(f"cannot write to stdout: {error.strerror}") from None
        raise ConfigError(f"a configuration file cannot be read: {one_line(str(error))}") from None
    finally:
        sys.argv = before
    if jobs.left:
        told(f"personalink: {jobs.left} more jobs of the sweep were not started")
    return max(jobs.codes, default=0)


def _run_config(values: Any) -> RunConfig:
    if not isinstance(values, Mapping):
        msg = "the composed configuration is no group of settings"
        raise ConfigError(msg)
    plain = {key: value for key, value in values.items() if key != "hydra"}
    lm, notes = plain.get("lm"), plain.get("notes")
    small = isinstance(lm, Mapping) and lm.get("kind") == "embedded" and lm.get("path") is None
    if small and isinstance(notes, list) and EMBEDDED_NOTE not in notes:
        plain["notes"] = [EMBEDDED_NOTE, *notes]
    return RunConfig.from_mapping(plain)


def _job(config: RunConfig, arguments: Sequence[str]) -> int:
    """One run to its end; its exit code."""
    finished = asyncio.run(_with_signals(config))
    code = 0
    try:
        out(finished.scores.results.as_text())
        if finished.scores.selection is not None:
            out("\n" + finished.scores.selection.as_text())
        _say_what_next(config, finished)
    except PersonalinkError as error:  # what came of the run counts for more than who could read it
        code = told_error(error)
    if finished.trouble is None:
        return code
    code = told_error(finished.trouble)
    if isinstance(finished.trouble, Interrupted):
        told(f"go on with: {command_line(['run', *to_go_on(arguments)])}")
    return code


async def _with_signals(config: RunConfig) -> Finished:
    """The run, with Ctrl-C (and SIGTERM) draining it once and ending it at the second time."""

    def started(experiment: Experiment) -> None:
        def stop() -> None:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
            told("\npersonalink: finishing what is in flight; again to stop at once")
            experiment.drain()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)

    loop = asyncio.get_running_loop()
    return await arun(config, progress=lambda total: Progress(total, label=config.name), started=started)


def _say_what_next(config: RunConfig, finished: Finished) -> None:
    """Where things are, and what to type next."""
    from personalink.data import sample_path

    run = finished.result.run.path
    named = shlex.quote(str(run))
    lines = [f"run: {run}   ({finished.result.sent} requests sent)"]
    if (user := _to_read(finished.result.run)) is not None:
        lines.append(f"read the personas:   personalink personas {named}   |   … {_user_option(user)} --diff 0:1")
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

"""`personalink run`: Hydra composes the groups of `conf/`, plain values go on, and Hydra is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from personalink.config import RunConfig
from personalink.errors import ConfigError, Interrupted, PersonalinkError
from personalink.experiment import Experiment
from personalink.progress import Progress
from personalink.running import Finished, arun, command_line


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
    print(made.as_text())  # noqa: T201
    if remark:
        print(f"personalink: {remark}", file=sys.stderr)  # noqa: T201
    return 0


def _compose(arguments: Sequence[str], work: Callable[[RunConfig], int]) -> int:
    """Let Hydra compose each job's configuration and do the work; the worst exit code.

    Raises:
        ConfigError: Hydra could not compose the configuration.
    """
    import hydra
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    codes: list[int] = []

    def job(config: Any) -> None:
        try:
            values = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
            codes.append(work(_run_config(values)))
        except OmegaConfBaseException as error:
            codes.append(_told(ConfigError(_one_line(error))))
        except PersonalinkError as error:
            codes.append(_told(error))

    before, sys.argv = sys.argv, ["personalink", *arguments]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra would otherwise print and exit by itself; we say it in one line
    try:
        hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="config")(job)()
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_one_line(error)) from None
    finally:
        sys.argv = before
    return max(codes, default=0)


def _told(error: PersonalinkError) -> int:
    print(f"personalink: {error}", file=sys.stderr)  # noqa: T201
    return error.exit_code


def _one_line(error: Exception) -> str:
    """Hydra's message without its advice on debugging, on one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    kept = [line for line in lines if not line.startswith(("full_key:", "object_type=", "reference_type", "See http"))]
    text = "; ".join(kept[:6]) if kept else type(error).__name__
    if "is not in struct" in text:
        text += " (see `personalink run --cfg job` for the settings there are)"
    return text


def _run_config(values: Any) -> RunConfig:
    if not isinstance(values, Mapping):
        msg = "the composed configuration is no group of settings"
        raise ConfigError(msg)
    return RunConfig.from_mapping({key: value for key, value in values.items() if key != "hydra"})


def _job(config: RunConfig, arguments: Sequence[str]) -> int:
    """One run to its end; its exit code."""
    finished = asyncio.run(_with_signals(config))
    print(finished.scores.results.as_text())  # noqa: T201
    if finished.scores.selection is not None:
        print("\n" + finished.scores.selection.as_text())  # noqa: T201
    _say_what_next(config, finished)
    if finished.trouble is None:
        return 0
    code = _told(finished.trouble)
    if isinstance(finished.trouble, Interrupted):
        print(f"go on with: {command_line(['run', *arguments])}", file=sys.stderr)  # noqa: T201
    return code


async def _with_signals(config: RunConfig) -> Finished:
    """The run, with Ctrl-C (and SIGTERM) draining it once and ending it at the second time."""

    def started(experiment: Experiment) -> None:
        def stop() -> None:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
            print("\npersonalink: finishing what is in flight; again to stop at once", file=sys.stderr)  # noqa: T201
            experiment.drain()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)

    loop = asyncio.get_running_loop()
    return await arun(config, progress=lambda total: Progress(total, label=config.name), started=started)


def _say_what_next(config: RunConfig, finished: Finished) -> None:
    """Where things are, and what to type next."""
    from personalink.data import sample_path

    run = finished.result.run.path
    users = sorted(path.stem for path in (run / "sealed" / "personas").glob("*.md"))
    lines = [f"run: {run}   ({finished.result.sent} requests sent)"]
    if users:
        lines.append(f"read the personas:   personalink personas {run}   |   … --user {users[0]} --diff 0:1")
    lines.append(f"score again:         personalink table {run} --format markdown")
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
    print("\n" + "\n".join(lines))  # noqa: T201

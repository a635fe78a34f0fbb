"""Telling one tracker, in the process that `tell` made for it: the order on stdin, the reason of a failure on stderr.

Each tracker is told as its own library does it, and finds its place by its own environment variables. Told again of the
same run, none makes another: MLflow adds the values anew to the run that it has, W&B writes under the same id, and
TensorBoard's files are replaced. Knows no run beyond its record.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

PROJECT = "personalink"
"""The experiment or project, where the tracker's own variables name none."""

_MLFLOW_BATCH = {"metrics": 1000, "params": 100, "tags": 100}  # what one call of log_batch may hold
_MLFLOW_VALUE = 500  # characters of a parameter that every store takes
_RUN_TAG = "personalink.run"


def main() -> None:
    """Do what stdin says and end the process: 0, or 1 with the reason as the last line of stderr.

    It ends at once, whatever threads a library has left, and by itself where nobody is left to end it.
    """
    order = json.load(sys.stdin)
    signal.setitimer(signal.ITIMER_REAL, order["timeout_s"] + 1)
    code = 0
    try:
        SENDERS[order["tracker"]](order["record"])
    except ImportError as error:
        code = _failed(f'{error}; pip install "personalink[trackers]"')
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever somebody's library does
        traceback.print_exc()
        code = _failed(f"{type(error).__name__}: {error}")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _failed(why: str) -> int:
    sys.stderr.write("\n" + " ".join(why.split()) + "\n")
    return 1


def to_mlflow(record: dict[str, Any]) -> None:
    """A run of the experiment MLFLOW_EXPERIMENT_NAME at MLFLOW_TRACKING_URI; the same one when it is told again."""
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param, RunTag

    client = MlflowClient()
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or PROJECT
    experiment = client.get_experiment_by_name(name)
    where = experiment.experiment_id if experiment is not None else client.create_experiment(name)
    found = client.search_runs([where], f"tags.`{_RUN_TAG}` = '{record['run']}'", max_results=1)
    title = f"{record['name']} {record['run']}"
    run = found[0] if found else client.create_run(where, run_name=title, tags={_RUN_TAG: record["run"]})
    now, id_ = int(time.time() * 1000), run.info.run_id
    metrics = [Metric(_spelt(key), value, now, 0) for key, value in record["metrics"].items()]
    for key, values in record["series"].items():
        metrics += [Metric(_spelt(key), value, now, depth) for depth, value in enumerate(values)]
    settings = {_spelt(key): value[:_MLFLOW_VALUE] for key, value in record["settings"].items()}
    params = [Param(key, value) for key, value in settings.items() if key not in run.data.params]
    tags = [RunTag("personalink.state", record["state"]), RunTag("personalink.folder", record["folder"])]
    for kind, entries in (("metrics", metrics), ("params", params), ("tags", tags)):
        for block in _blocks(entries, _MLFLOW_BATCH[kind]):
            client.log_batch(id_, **{kind: block})
    for file in record["files"]:
        client.log_artifact(id_, file, "tables")
    client.set_terminated(id_, "FINISHED" if record["state"] == "complete" else "FAILED")


def to_wandb(record: dict[str, Any]) -> None:
    """A run of WANDB_PROJECT; offline unless WANDB_MODE says otherwise, and in the run's log unless WANDB_DIR does."""
    import wandb

    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT") or PROJECT,
        name=f"{record['name']} {record['run']}",
        id=record["run"],
        resume="allow",
        mode=os.environ.get("WANDB_MODE") or "offline",
        dir=os.environ.get("WANDB_DIR") or _own_folder(record),
        config={**record["settings"], "personalink.state": record["state"]},
        settings=wandb.Settings(silent=True, console="off", save_code=False, disable_git=True),
    )
    for key in record["series"]:
        run.define_metric(key, step_metric="depth")
    for depth, row in enumerate(_by_depth(record["series"])):
        run.log({"depth": depth, **row})
    run.summary.update(record["metrics"])
    if record["files"]:
        tables = wandb.Artifact(f"tables-{record['run']}", type="tables")
        for file in record["files"]:
            tables.add_file(file)
        run.log_artifact(tables)
    run.finish(exit_code=0 if record["state"] == "complete" else 1)


def to_tensorboard(record: dict[str, Any]) -> None:
    """Event files in the run's log, under tensorboard/; those of an earlier time are replaced."""
    from tensorboardX import SummaryWriter

    folder = Path(_own_folder(record)) / "tensorboard"
    shutil.rmtree(folder, ignore_errors=True)
    with SummaryWriter(str(folder)) as writer:
        for key, value in record["metrics"].items():
            writer.add_scalar(key, value, 0)
        for key, values in record["series"].items():
            for depth, value in enumerate(values):
                writer.add_scalar(key, value, depth)
        writer.add_text("settings", _indented(json.dumps(record["settings"], indent=2, ensure_ascii=False)))
        for file in map(Path, record["files"]):
            if file.suffix == ".md":
                writer.add_text(file.stem, file.read_text(encoding="utf-8"))


SENDERS: dict[str, Callable[[dict[str, Any]], None]] = {
    "mlflow": to_mlflow,
    "wandb": to_wandb,
    "tensorboard": to_tensorboard,
}


def _own_folder(record: dict[str, Any]) -> str:
    return str(Path(record["folder"]) / "log")


def _by_depth(series: dict[str, list[float]]) -> Iterator[dict[str, float]]:
    most = max((len(values) for values in series.values()), default=0)
    for depth in range(most):
        yield {key: values[depth] for key, values in series.items() if depth < len(values)}


def _blocks(entries: Sequence[Any], most: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(entries), most):
        yield entries[start : start + most]


def _spelt(key: str) -> str:
    """A key in the letters that MLflow takes."""
    return re.sub(r"[^\w./ -]", "_", key, flags=re.ASCII)


def _indented(text: str) -> str:
    """As a block of code in Markdown."""
    return "\n".join("    " + line for line in text.splitlines())

"""Sweeps: every job of `run -m` in a process of its own and its outcome in a file, whatever launcher starts it.

A launcher (this process, joblib's workers, submitit's jobs) is trusted with starting jobs and with nothing else. It
calls `one_job`, which starts `personalink _job`, waits, and writes down how that ended; so a job that raises, exits or
is killed takes no other along. What came of a sweep is read from those files and from each run's own status.

In the sweep's folder: N.json (the order of job N and how it ended), N.log (what it said on stderr), and `stop` (signals
that the sweep got, handed on to every job at work). Knows Hydra and processes; knows no setting.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from hydra.experimental.callback import Callback

from personalink.canonical import write_atomic
from personalink.cli.streams import told
from personalink.run_dir import RunDir

STOPS = (signal.SIGINT, signal.SIGTERM)
STOPPED = tuple(128 + number for number in STOPS)
"""Exit codes of a run that was interrupted; no job of the sweep is begun after one."""
NOT_STARTED = "not started"
HOOK = "++hydra.callbacks.personalink={_target_: personalink.cli.sweep.Hook}"
"""A word for Hydra, put before what was typed, so that no configuration can leave our hook out."""
_LOOK_S = 0.1
_begun: list[Path] = []  # folders of the sweeps that this very process began


@dataclass(frozen=True, slots=True)
class Order:
    """One job: what to do, and how it ended.

    Attributes:
        number: counted from 0. command: "run", "plan" or "doctor". arguments: of the whole sweep.
        words: the job's overrides.
        config: the composed configuration. run: the run's directory, "" where there is none.
        code: its exit code, None while it is at work. why: what kept it from being complete.
    """

    number: int
    command: str
    arguments: list[str]
    words: list[str]
    config: Mapping[str, Any] = field(default_factory=dict)
    run: str = ""
    code: int | None = None
    why: str = ""

    @classmethod
    def read(cls, path: Path) -> Order:
        """The order in a file that `write` wrote."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))

    def write(self, folder: Path) -> Path:
        """Write it, whole or not at all; where it stands."""
        path = folder / f"{self.number}.json"
        write_atomic(path, json.dumps(asdict(self), indent=2))  # what is no number is for the job to refuse
        return path


class Hook(Callback):
    """Hydra tells it that this process begins a sweep; from then on signals are the jobs' business."""

    def on_multirun_start(self, config: Any, **_: Any) -> None:
        """Note the sweep's folder and hand signals on to its jobs."""
        folder = folder_of(config.hydra)
        _begun.append(folder)
        for number in STOPS:
            signal.signal(number, lambda number, frame: _ask_to_stop(folder, number))


@contextlib.contextmanager
def watched() -> Iterator[list[Path]]:
    """While Hydra works: the folders of the sweeps that it began; signals are as before afterwards."""
    before = {number: signal.getsignal(number) for number in STOPS}
    try:
        yield _begun
    finally:
        if _begun:
            _set_handlers(before)
        _begun.clear()


def folder_of(hydra: Any) -> Path:
    """The sweep's folder, absolute, as Hydra's own part of a configuration tells it."""
    return Path(hydra.runtime.cwd) / str(hydra.sweep.dir)


def one_job(folder: Path, order: Order) -> None:
    """Do one job in a process of its own and write down how it ended; raises nothing that the job did.

    Args:
        folder: the sweep's. order: without its end; with a code, it is written down and nothing is done.
    """
    stopped = _why_stopped(folder)
    if stopped is not None:
        order = replace(order, code=stopped, why=NOT_STARTED)
    path = order.write(folder)
    if order.code is not None:
        return
    code, why = _in_a_process(path, folder)
    replace(order, code=code, why=why).write(folder)
    if code and order.run and (Path(order.run) / "log").is_dir():
        RunDir(Path(order.run)).note_attempt({"ended": code, "why": why, "sweep": str(folder)})


def _in_a_process(order: Path, folder: Path) -> tuple[int, str]:
    """The exit code of a job's process and, where that is not 0, why."""
    log = order.with_suffix(".log")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(name or os.getcwd() for name in sys.path)}
    # a session of its own, for a terminal's Ctrl-C would reach it twice; its stdin ends when this process does
    with (
        log.open("w", encoding="utf-8") as file,
        _deaf(),
        subprocess.Popen(
            [sys.executable, "-P", "-m", "personalink.cli", "_job", str(order)],
            stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8", errors="replace",
            env=environment, start_new_session=True,
        ) as process,
    ):  # fmt: skip
        teller = threading.Thread(target=_tell, args=(process.stderr, file), daemon=True)
        teller.start()
        handed_on = 0
        while process.poll() is None:
            for number in _signals(folder)[handed_on:]:
                process.send_signal(number)
                handed_on += 1
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_LOOK_S)
        teller.join(timeout=5)  # what the job started itself may hold its stderr open
    return _ended(process.returncode, log)


def _ended(code: int, log: Path) -> tuple[int, str]:
    if code < 0:
        number = signal.Signals(-code)
        return (128 + number if number in STOPS else 1), f"killed by {number.name}"
    lines = [line for line in log.read_text(encoding="utf-8").splitlines() if line.strip()]
    ours = [line.removeprefix("personalink: ") for line in lines if line.startswith("personalink: ")]
    return code, (ours or lines or [""])[-1] if code else ""


def _tell(source: IO[str], log: IO[str]) -> None:
    """What a job says on stderr, said here and kept."""
    for line in source:
        log.write(line)
        log.flush()
        told(line.rstrip("\n"))


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """In a launcher's worker: let signals pass while a job is at work; it hears of them from the sweep's folder."""
    if _begun or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda number, frame: None) for number in STOPS}
    try:
        yield
    finally:
        _set_handlers(before)


def _set_handlers(handlers: Mapping[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)


def _ask_to_stop(folder: Path, number: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "stop").open("a", encoding="ascii") as file:
        file.write(f"{number}\n")


def _signals(folder: Path) -> list[int]:
    """The signals that the sweep got so far, in their order."""
    with contextlib.suppress(FileNotFoundError):
        return [int(number) for number in (folder / "stop").read_text(encoding="ascii").split()]
    return []


def _why_stopped(folder: Path) -> int | None:
    """The exit code that a stopped sweep ends with; None for one that goes on."""
    for number in _signals(folder):
        return 128 + number
    return next((order.code for order in _orders(folder) if order.code in STOPPED), None)


def _orders(folder: Path) -> list[Order]:
    found = [Order.read(path) for path in folder.glob("*.json") if path.stem.isdigit()]
    return sorted(found, key=lambda order: order.number)


def outcome(folder: Path) -> int:
    """Say on stderr what came of a sweep; the worst exit code of its jobs. No launcher is asked."""
    orders = [_checked(order) for order in _orders(folder)]
    shared = set.intersection(*(set(order.words) for order in orders)) if len(orders) > 1 else set()
    complete = sum(order.code == 0 for order in orders)
    told(f"sweep: {complete} of {len(orders)} jobs complete; what each said is in {folder}")
    for order in orders:
        if order.code and order.why != NOT_STARTED:
            words = " ".join(word for word in order.words if word not in shared)
            told(f"  job {order.number} ({words}), exit code {order.code}: {order.why}")
    if left := sum(order.why == NOT_STARTED for order in orders):
        told(f"personalink: {left} more jobs of the sweep were not started")
    return max([_why_stopped(folder) or 0, *(order.code or 0 for order in orders)])


def _checked(order: Order) -> Order:
    """An order as its run's own status has it."""
    if order.code is None:
        return replace(order, code=1, why="it left no word: it was killed together with what started it")
    state = RunDir(Path(order.run)).status["state"] if order.run else "complete"
    if order.code == 0 and state != "complete":
        return replace(order, code=1, why=f"the status of {order.run} is {state or 'absent'}")
    return order

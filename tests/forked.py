"""Processes that run a command of ours, forked from one that has imported everything once: many starts, little waiting."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import resource
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from personalink.cli import main
from personalink.cli.sweep import Order

_IMPORTED = ("tests.forked", "aiohttp", "sklearn.metrics", "personalink.cli.run", "personalink.running")


def _command(arguments: Sequence[str], folder: str, said: str, file_bytes: int | None) -> None:
    os.chdir(folder)
    file = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.stdin = os.fdopen(os.pipe()[0])  # open as long as this process lives: nobody who started it goes away
    if file_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    faulthandler.enable()
    os._exit(main(arguments))


class Forked:
    """One run in a process of its own, from where Hydra has composed its configuration; it is started at once.

    Args:
        folder: where it works; what it says stands there in `<number>.said`.
        values: the configuration. number: of this process, to tell it from others.
        file_bytes: no file may grow beyond this; None for no bound.
    """

    def __init__(self, folder: Path, values: dict[str, Any], *, number: int = 0, file_bytes: int | None = None) -> None:
        order = Order(number, "run", [], [], values).write(folder)
        self._said = folder / f"{number}.said"
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(_IMPORTED))
        words = ["_job", order.name]
        self._process = context.Process(target=_command, args=(words, str(folder), self._said.name, file_bytes))
        self._process.start()

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    @property
    def said(self) -> str:
        return self._said.read_text()

    def ended(self) -> int:
        """Its exit code; minus the signal that killed it."""
        self._process.join(60)
        if self._process.exitcode is None:
            os.kill(self.pid, signal.SIGABRT)  # it says where it stands
            self._process.join()
            raise AssertionError(f"it hangs: {self.said}")
        return self._process.exitcode

"""Experiment trackers, off by default: what a run came to, told to MLflow, Weights & Biases or TensorBoard.

A tracker is told when everything is sealed, in a process of its own that is ended after a time. So one that fails,
hangs, prints, crashes or is not there changes nothing of a run but one warning. It is given settings, scores, costs and
tables, and never a persona, an answer or an item. Where it keeps them is said by its own environment variables
(docs/trackers.md). Knows processes; `record` knows what is told, `sending` knows the libraries.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from personalink.errors import PersonalinkError
from personalink.report.results import Scores
from personalink.run_dir import RunDir
from personalink.text import one_line
from personalink.trackers.record import record_of

TIMEOUT_S = 120.0
"""Seconds that one tracker may take; MLflow makes its first database in some 30 on two busy cores."""

_CHILD = "import sys; sys.path.append({package!r}); from personalink.trackers.sending import main; main()"

_log = logging.getLogger(__name__)


def tell(names: Sequence[str], run: RunDir, scores: Scores) -> None:
    """Tell each tracker of a run that is sealed, one after the other; a warning for each that could not be told.

    Args:
        names: of `config.TRACKERS`. run, scores: what it came to.
    """
    for name in names:
        try:
            why = _trouble(name, record_of(run, scores), TIMEOUT_S)
        except (PersonalinkError, OSError) as error:
            why = str(error)
        if why:
            _log.warning("tracker %s was not told of this run, which is whole all the same: %s", name, why)


def _trouble(name: str, record: dict[str, Any], timeout_s: float) -> str:
    """Tell one tracker in a process of its own; why it could not be told, "" where it was.

    Raises:
        OSError: there is no room for a process or its files.
    """
    package = str(Path(__file__).resolve().parents[2])
    command = [sys.executable, "-P", "-c", _CHILD.format(package=package)]
    order = json.dumps({"tracker": name, "timeout_s": timeout_s, "record": record}).encode()
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as said:
        given.write(order)
        given.seek(0)
        child = subprocess.Popen(command, stdin=given, stdout=subprocess.DEVNULL, stderr=said, start_new_session=True)
        try:
            code = child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return f"it took longer than {timeout_s:g} seconds"
        finally:
            _end(child)
        return "" if code == 0 else _last_line(said) or f"its process ended with {code}"


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the process with all that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _last_line(said: IO[bytes]) -> str:
    size = said.seek(0, os.SEEK_END)
    said.seek(max(0, size - 4096))
    lines = said.read().decode("utf-8", "replace").strip().splitlines()
    return one_line(lines[-1])[:300] if lines else ""

"""Scripts that are given something wrong say so in one line, with the exit code of the error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("compare_engines.py --engines nope", 2, "compare_engines: lm: 'nope' is none of"),
        ("compare_engines.py experiment=nope --engines scripted", 2, "compare_engines: "),
        ("compare_engines.py --engines http://127.0.0.1:1/v1", 3, "compare_engines: http://127.0.0.1:1/v1 cannot be"),
        ("bench_fleet.py --users 0", 2, "argument --users: '0' is no whole number of at least 1"),
        ("bench_fleet.py --users -1", 2, "argument --users: '-1' is no whole number of at least 1"),
        ("bench_client.py --requests 0", 2, "argument --requests: '0' is no whole number of at least 1"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(command: str, code: int, words: str) -> None:
    script, *words_given = command.split()
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / script), *words_given], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr

"""The programs of docs/dspy.md (and the README's sketch) run as they stand: with the real small model, and, for the
logic alone, with a server double in its place. Each in a process of its own, since each configures DSPy."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from personalink.testing import FakeVLLM
from tests.people import rewrite_reply

from . import REASON

pytest.importorskip("dspy", reason=REASON)

ROOT = Path(__file__).parents[2]
EMBEDDED = 'connect("embedded")'


def programs(page: str, opening: str = EMBEDDED) -> dict[str, str]:
    """Heading → the program under it, for those that use the embedded model."""
    text = (ROOT / page).read_text()
    found = re.findall(r"^## ([^\n]+)\n(?:(?!^## ).)*?```python\n(.*?)```", text, re.DOTALL | re.MULTILINE)
    return {title: code for title, code in found if opening in code}


PROGRAMS = programs("docs/dspy.md")
README = {
    f"README {i}": code
    for i, code in enumerate(re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL))
    if "personalink.dspy" in code
}


def run(code: str, folder: Path) -> str:
    """What a program prints."""
    kept = {**os.environ, "DSPY_CACHEDIR": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=kept, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_there_are_five() -> None:
    assert list(PROGRAMS) == [
        "One user", "Ten thousand users", "Serving", "Ratings, with feedback", "Handing over to GEPA"
    ]  # fmt: skip


def answer(body: dict) -> str:  # type: ignore[type-arg]
    system = body["messages"][0]["content"]
    if system.startswith("You keep a short profile"):
        return rewrite_reply("Likes what is slow and quiet.", [])
    return "[[ ## rating ## ]]\n5\n\n[[ ## completed ## ]]" if "rating" in system else "```\nSay the stars.\n```"


@pytest.mark.parametrize("title", [*PROGRAMS, *README])
def test_it_runs_with_a_double_in_the_models_place(title: str, tmp_path: Path) -> None:
    with FakeVLLM(answer) as server:
        code = (PROGRAMS | README)[title].replace(EMBEDDED, f'connect("{server.url}", model="fake-7b")')
        said = run(code, tmp_path)
    assert said
    told = re.search(r"^(\d+) calls", said, re.MULTILINE)
    assert server.requests >= 5
    if told:
        assert int(told[1]) == server.requests


@pytest.mark.model
@pytest.mark.parametrize("title", [*PROGRAMS, *README])
def test_it_runs_as_it_stands(title: str, tmp_path: Path) -> None:
    assert run((PROGRAMS | README)[title], tmp_path)

"""Fifty times `kill -9` and a dozen other signals over thirty users: the sealed bytes of a run that nobody stopped, and
no answer paid for twice but those in flight.

The runs are processes of their own, forked from one that has imported everything; what stops them is the server double,
as it answers, so an offset is a number of requests and no time.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from personalink.lm.base import Decoding, Message, Request
from personalink.lm.journal import Journal
from personalink.run_dir import RunDir
from personalink.testing import FakeVLLM
from tests.forked import Forked
from tests.people import LABELS, random_script
from tests.test_experiment import ROWS, settings, write_records

KILLS, USERS, CONCURRENCY = 50, 30, 8
SOME = ("nopers", "random_user_persona", "rag_1", "pag", "personalink_r1", "personalink_r2", "personalink_r3")


class Double:
    """A server that signals its client, when told to, while it makes the n-th answer from then on."""

    def __init__(self) -> None:
        script = random_script(5, LABELS)
        self.answered, self.pid, self.due = 0, 0, dict[int, signal.Signals]()

        def answer(body: dict[str, Any]) -> str:
            self.answered += 1
            if (number := self.due.pop(self.answered, None)) is not None:
                os.kill(self.pid, number)
            made = script(Request(tuple(Message(m["role"], m["content"]) for m in body["messages"]), Decoding(1)))
            return made if isinstance(made, str) else made.text

        self.server = FakeVLLM(answer, latency_s=0.002)

    def aim(self, pid: int, at: Mapping[int, signal.Signals]) -> None:
        """Signal `pid` at these answers from now; what was due before is not any more."""
        self.pid, self.due = pid, {self.answered + offset: number for offset, number in at.items()}


@dataclass
class House:
    """A folder with thirty users, and the double that answers."""

    folder: Path
    double: Double

    def start(self, runs: str) -> Forked:
        """A process that goes on with the run under `runs`. A plain dialect counts without a round trip a text."""
        url = f"{self.double.server.url}/v1"
        model = {"kind": "endpoint", "base_url": url, "dialect": "openai", "concurrency": CONCURRENCY}
        rows = {row: ROWS[row] for row in SOME}
        return Forked(self.folder, settings(self.folder, lm=model, context=rows, runs_dir=runs))

    def ended(self, process: Forked) -> int:
        """The exit code of a process, after which nothing is due any more."""
        code = process.ended()
        self.double.aim(0, {})
        return code

    def run(self, runs: str) -> RunDir:
        (path,) = (self.folder / runs).glob("*/*")
        return RunDir(path)

    def sealed(self, runs: str) -> dict[str, bytes]:
        root = self.run(runs).sealed
        return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    write_records(tmp_path / "people.jsonl", n=USERS)
    double = Double()
    with double.server:
        yield House(tmp_path, double)


def test_fifty_kills_leave_the_same_bytes_and_pay_again_for_no_more_than_was_in_flight(house: House) -> None:
    server = house.double.server
    process = house.start("whole")
    assert house.ended(process) == 0, process.said
    alone, whole = server.requests, house.sealed("whole")
    assert b"personalink_r3" in whole["predictions.jsonl"]
    assert len([name for name in whole if name.startswith("personas/")]) == 2 * USERS
    draw, kills, runs = random.Random(50), 0, 0
    while kills < KILLS:
        runs, before, mine, code = runs + 1, server.requests, 0, -1
        while code != 0:
            process = house.start(f"killed{runs}")
            if kills < KILLS:
                house.double.aim(process.pid, {draw.randint(1, alone // 15): signal.SIGKILL})
            code = house.ended(process)
            assert code in (0, -signal.SIGKILL), process.said
            kills, mine = kills + (code != 0), mine + (code != 0)
        assert house.sealed(f"killed{runs}") == whole
        assert 0 <= server.requests - before - alone <= mine * CONCURRENCY
    assert kills == KILLS


STOPS = {
    "Ctrl-C": ((signal.SIGINT,), 130),
    "SIGTERM": ((signal.SIGTERM,), 143),
    "Ctrl-C twice": ((signal.SIGINT, signal.SIGINT), 130),
}


def test_signals_at_random_points_drain_or_stop_and_lose_nothing(house: House) -> None:
    server = house.double.server
    process = house.start("whole")
    assert house.ended(process) == 0, process.said
    alone, before, at_once = server.requests, server.requests, 0
    draw = random.Random(13)
    for kind in [*STOPS] * 4:
        numbers, wanted = STOPS[kind]
        process = house.start("stopped")
        first = draw.randint(1, alone // 15)
        house.double.aim(process.pid, {first + i: number for i, number in enumerate(numbers)})
        assert house.ended(process) == wanted, (kind, process.said)
        assert "Traceback" not in process.said
        with Journal(house.run("stopped").log / "journal") as journal:
            assert (journal.torn, journal.damaged) == (0, 0)
        if len(numbers) == 1:
            assert "go on with: personalink run" in process.said
            assert house.run("stopped").status["state"] == "interrupted"
            assert not house.run("stopped").broken_seal()
        at_once += len(numbers) == 2
    process = house.start("stopped")
    assert house.ended(process) == 0, process.said
    assert house.sealed("stopped") == house.sealed("whole")
    assert 0 <= server.requests - before - alone <= at_once * CONCURRENCY  # what was drained is not paid for again

"""A whole run whose server dies: back, it goes on to the same bytes; gone or another, it says so and loses nothing."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from personalink.errors import IntegrityError, Unreachable
from personalink.running import Finished, arun
from personalink.testing import FakeVLLM, Fault
from tests.people import LABELS
from tests.test_experiment import ROWS, sealed, settings, write_records

SOME = {row: ROWS[row] for row in ("nopers", "pag", "personalink_r2")}


def go(folder: Path, *servers: FakeVLLM, **lm: Any) -> Finished:
    data = {"kind": "records", "path": str(write_records(folder.parent / "people.jsonl", n=4, m=18))}
    asked = {"kind": "endpoint", "base_url": [s.url for s in servers], "model": "fake-7b", "concurrency": 8, **lm}
    return asyncio.run(arun(settings(folder, lm=asked, context=SOME, data=data)))


def fake(faults: dict[int, Any] | None = None) -> FakeVLLM:
    return FakeVLLM(labels=LABELS, latency_s=0.002, faults=faults or {})


@pytest.fixture
def whole(tmp_path: Path) -> dict[str, bytes]:
    """What an uninterrupted run seals."""
    with fake() as server:
        finished = go(tmp_path / "whole", server)
    assert (finished.result.state, finished.result.sent) == ("complete", server.requests)
    return sealed(tmp_path / "whole")


def test_a_server_that_comes_back_changes_nothing(tmp_path: Path, whole: dict[str, bytes]) -> None:
    with fake({30: "die:0.4", 75: "die:0.2"}) as server:
        finished = go(tmp_path / "died", server)
    assert finished.trouble is None
    assert finished.result.state == "complete"
    assert finished.result.sent < server.requests <= finished.result.sent + 2 * 8 + 2  # twice only what was in flight
    assert sealed(tmp_path / "died") == whole


def test_a_server_that_stays_away_ends_the_run_which_then_goes_on(tmp_path: Path, whole: dict[str, bytes]) -> None:
    with fake({30: "die"}) as server:
        finished = go(tmp_path / "died", server, down_timeout_s=0.3)
    assert finished.trouble is not None
    assert finished.trouble.exit_code in (3, 4)
    assert {type(error) for error in finished.result.incomplete.values()} == {Unreachable}
    with fake() as server:
        again = go(tmp_path / "died", server)
    assert again.result.state == "complete"
    assert sealed(tmp_path / "died") == whole


def test_another_model_at_the_same_address_ends_the_run(tmp_path: Path) -> None:
    with fake({30: Fault("die", seconds=0.2, model="other-7b")}) as server:
        with pytest.raises(IntegrityError, match=r"'fake-7b'.*'other-7b'") as caught:
            go(tmp_path / "died", server)
        assert server.requests <= 30 + 8 + 1
    assert caught.value.exit_code == 5


def test_replicas_seal_the_same_bytes_also_where_one_dies(tmp_path: Path, whole: dict[str, bytes]) -> None:
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(fake(faults)) for faults in ({}, {12: "die"}, {8: "die:0.3"})]
        finished = go(tmp_path / "several", *servers)
    assert finished.result.state == "complete"
    assert sealed(tmp_path / "several") == whole

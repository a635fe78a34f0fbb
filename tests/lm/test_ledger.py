"""The ledger: the same sums packed or not, few bytes a line, and what the server itself counted."""

from __future__ import annotations

import asyncio
import json
import tracemalloc

import pytest

import personalink.lm.ledger
from personalink.errors import LMError
from personalink.lm import EndpointLM
from personalink.lm.base import Usage
from personalink.lm.gateway import Gateway
from personalink.lm.ledger import Bill, Counts, Ledger
from personalink.testing import FakeVLLM

from .asking import ask


def filled() -> Ledger:
    ledger = Ledger()
    for i in range(300):
        bill = Bill(f"u{i % 7}", ("evaluate", "rewrite")[i % 2], i % 3)
        ledger.paid(bill, Usage(i, None if i == 13 else 2, 1), i % 2)
        ledger.replayed(bill)
        if i % 10 == 0:
            ledger.failed(bill, 4)
            ledger.cached(bill)
    return ledger


def test_what_is_packed_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = filled()
    monkeypatch.setattr(personalink.lm.ledger, "OPEN", 5)
    packed = filled()
    assert len(packed.lines) <= 5 < len(whole.lines)
    assert packed.as_dict() == whole.as_dict()
    assert json.loads(packed.as_json()) == whole.as_dict()
    assert packed.by("depth") == whole.by("depth")
    some = [Bill("u1", "evaluate", 0), Bill("u2", "rewrite", 1)]
    assert packed.total(some) == whole.total(some)


def test_unknown_stays_unknown_and_the_rest_adds_up() -> None:
    ledger = filled()
    total = ledger.total()
    assert total == Counts(300, 30, 300, sum(range(300)), None, 300, 150 + 120, 30)
    assert ledger.as_dict()["total"]["cached_tokens"] is None
    known = [line["cached_tokens"] for line in ledger.as_dict()["lines"]]
    assert known.count(None) == 1
    assert [*ledger.as_dict()["lines"][0]] == ["user", "phase", "depth", "row", *total.as_dict()]


def test_an_empty_ledger_is_zero() -> None:
    assert Ledger().total() == Counts()
    assert json.loads(Ledger().as_json()) == Ledger().as_dict()
    assert Ledger().as_dict() == {"total": Counts().as_dict(), "by_phase": {}, "lines": []}


def test_it_takes_few_bytes_of_memory_a_line() -> None:
    tracemalloc.start()
    try:
        ledger = Ledger()
        for user in range(5000):
            for depth in range(8):
                ledger.paid(Bill(f"user-{user}", "evaluate", depth), Usage(300, 200, 5))
        assert tracemalloc.get_traced_memory()[0] < 40_000 * 52 + 5000 * 250 + personalink.lm.ledger.OPEN * 500
    finally:
        tracemalloc.stop()
    assert ledger.total().calls == 40_000


@pytest.mark.parametrize("workers", [1, 8, 64, 256])
async def test_the_totals_are_what_the_server_counted(workers: int) -> None:
    troubles = {i: ("503", "reset", "400", "429:0")[i // 7 % 4] for i in range(3, 200, 7)}
    with FakeVLLM(faults=troubles, labels=("a", "b")) as server:
        lm = EndpointLM(server.url, concurrency=workers, backoff_s=0.0, retries=1)
        await lm.start()
        gateway = Gateway(lm)
        asked = (gateway.complete(ask(f"{i % 150}"), Bill(f"u{i % 7}", "evaluate", i % 3)) for i in range(200))
        ended = await asyncio.gather(*asked, return_exceptions=True)
        await lm.aclose()
        total = gateway.ledger.total()
        assert all(isinstance(e, LMError) for e in ended if isinstance(e, BaseException))
        assert total.failed == gateway.failed > 0
        assert total.retries == lm.retries_made > 0
        assert total.calls + total.failed + total.retries == server.requests
        assert (total.prompt_tokens, total.cached_tokens) == (server.prompt_tokens, server.cached_tokens)
        assert total.completion_tokens == server.completion_tokens
        by_user = gateway.ledger.by("user").values()
        assert sum(c.calls + c.failed + c.retries for c in by_user) == server.requests

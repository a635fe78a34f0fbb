"""The gateway: one send an answer, a ledger that adds up, a drain that keeps what was in flight."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import personalink.lm.gateway
from personalink.errors import Interrupted, Unreachable
from personalink.lm import ScriptedLM
from personalink.lm.base import Completion, Decoding, Message, Request, Usage
from personalink.lm.budget import Budget, Limits
from personalink.lm.gateway import Gateway
from personalink.lm.journal import Journal
from personalink.lm.ledger import Bill


def ask(text: str, **changes: object) -> Request:
    return Request((Message("user", text),), Decoding(8), **changes)  # type: ignore[arg-type]


def counted(request: Request) -> Completion:
    return Completion(request.messages[0].content.upper(), usage=Usage(7, 2, 3))


async def test_identical_requests_in_flight_are_sent_once() -> None:
    lm = ScriptedLM(counted, latency_s=0.01)
    gateway = Gateway(lm)
    answers = await asyncio.gather(*(gateway.complete(ask("a"), Bill(f"u{i}")) for i in range(20)))
    assert {a.text for a in answers} == {"A"}
    assert len(lm.requests) == gateway.sent == 1
    total = gateway.ledger.total()
    assert (total.calls, total.replayed, total.prompt_tokens, total.cached_tokens, total.completion_tokens) == (
        1, 19, 7, 2, 3,
    )  # fmt: skip


async def test_anything_that_decides_an_answer_is_in_the_key() -> None:
    base = ask("a")
    others = [
        ask("b"),
        ask("a", sample=1),
        Request((Message("system", "a"),), Decoding(8)),
        *(Request(base.messages, Decoding(**{"max_tokens": 8, name: value})) for name, value in (
            ("max_tokens", 9), ("temperature", 0.1), ("top_p", 0.9), ("top_k", 1), ("min_p", 0.1), ("seed", 0),
            ("repetition_penalty", 1.1), ("presence_penalty", 0.1), ("frequency_penalty", 0.1),
        )),
    ]  # fmt: skip
    keys = {request.key("one") for request in [base, *others]} | {base.key("two")}
    assert len(keys) == len(others) + 2


async def test_a_journalled_answer_is_not_sent_again_and_costs_nothing(tmp_path: Path) -> None:
    for attempt in range(2):
        lm = ScriptedLM(counted)
        with Journal(tmp_path / "journal") as journal:
            gateway = Gateway(lm, journal)
            for i in range(5):
                await gateway.complete(ask(f"{i}"), Bill(f"u{i}", "answer"))
        assert len(lm.requests) == (5 if attempt == 0 else 0)
        total = gateway.ledger.total()
        assert (total.calls, total.prompt_tokens) == (5, 35)  # what the run cost, over all attempts
        assert total.replayed == (0 if attempt == 0 else 5)


async def test_a_failure_is_not_kept_and_is_asked_again(tmp_path: Path) -> None:
    down = {"yes": True}

    def answer(request: Request) -> Completion | Exception:
        return Unreachable("gone") if down["yes"] else counted(request)

    with Journal(tmp_path / "journal") as journal:
        gateway = Gateway(ScriptedLM(answer), journal)
        with pytest.raises(Unreachable):
            await gateway.complete(ask("a"), Bill())
        down["yes"] = False
        assert (await gateway.complete(ask("a"), Bill())).text == "A"
        assert len(journal) == 1


async def test_unknown_tokens_stay_unknown() -> None:
    gateway = Gateway(ScriptedLM(lambda request: "x"))
    await gateway.complete(ask("a"), Bill("u"))
    assert gateway.ledger.total().prompt_tokens is None
    assert gateway.ledger.as_dict()["total"]["completion_tokens"] is None


async def test_a_drain_finishes_what_is_in_flight_and_sends_nothing_more(tmp_path: Path) -> None:
    lm = ScriptedLM(counted, latency_s=0.05, concurrency=2)
    with Journal(tmp_path / "journal") as journal:
        gateway = Gateway(lm, journal)
        asked = [asyncio.create_task(gateway.complete(ask(f"{i}"), Bill())) for i in range(2)]
        await asyncio.sleep(0.01)
        await gateway.drain()
        assert [(await a).text for a in asked] == ["0", "1"]
        with pytest.raises(Interrupted):
            await gateway.complete(ask("later"), Bill())
        assert (await gateway.complete(ask("1"), Bill())).text == "1"
        assert len(journal) == 2


async def test_an_asker_that_goes_away_does_not_lose_the_answer(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal") as journal:
        gateway = Gateway(ScriptedLM(counted, latency_s=0.02), journal)
        asker = asyncio.create_task(gateway.complete(ask("a"), Bill()))
        await asyncio.sleep(0.005)
        asker.cancel()
        await gateway.drain()
        assert len(journal) == 1


async def test_the_ledger_equals_what_the_model_saw_at_any_concurrency() -> None:
    for concurrency in (1, 8, 64, 256):
        lm = ScriptedLM(counted, concurrency=concurrency, latency_s=0.0005)
        gateway = Gateway(lm)
        await asyncio.gather(*(gateway.complete(ask(f"{i % 150}"), Bill(f"u{i % 7}", "x")) for i in range(300)))
        assert len(lm.requests) == 150 == gateway.ledger.total().calls
        assert sum(c.calls for c in gateway.ledger.by("user").values()) == 150
        assert gateway.ledger.total().prompt_tokens == 7 * 150


def test_one_gateway_serves_one_event_loop_after_another() -> None:
    lm = ScriptedLM(counted, concurrency=1, latency_s=0.001)
    gateway = Gateway(lm)

    async def asked(*texts: str) -> list[str]:
        return [c.text for c in await asyncio.gather(*(gateway.complete(ask(t), Bill()) for t in texts))]

    assert asyncio.run(asked("a", "b", "c")) == ["A", "B", "C"]
    assert asyncio.run(asked("c", "d", "e", "f")) == ["C", "D", "E", "F"]
    assert len(lm.requests) == 6
    asyncio.run(gateway.drain())


async def test_without_a_journal_only_the_answers_asked_for_last_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(personalink.lm.gateway, "MEMORY", 3)
    lm = ScriptedLM(counted)
    gateway = Gateway(lm)
    for text in "abcadaab":  # d takes b's place, since a was asked for after it
        await gateway.complete(ask(text), Bill())
    assert [request.messages[0].content for request in lm.requests] == ["a", "b", "c", "d", "b"]


async def test_going_on_enters_tokens_retries_and_the_budget_as_they_were(tmp_path: Path) -> None:
    def answer(request: Request) -> Completion:
        n = int(request.messages[0].content)
        return Completion("x", usage=Usage(n, None if n % 5 else 1, 1), retries=n % 3)

    ledgers, spent = [], []
    for _ in range(2):
        budget = Budget(Limits(calls=1000))
        with Journal(tmp_path / "journal") as journal:
            gateway = Gateway(ScriptedLM(answer), journal, budget=budget)
            for i in range(40 if not ledgers else 0):
                await gateway.complete(ask(f"{i}"), Bill(f"u{i % 4}", "evaluate", i % 2))
        ledgers.append(gateway.ledger.as_dict())
        spent.append((budget.total, budget.users))
    assert ledgers[0] == ledgers[1]
    assert spent[0] == spent[1]
    assert ledgers[1]["total"]["retries"] == sum(i % 3 for i in range(40))
    assert [line["cached_tokens"] for line in ledgers[1]["lines"]] == [None] * 4  # told for some, so not known

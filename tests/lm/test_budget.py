"""The budget: never exceeded by one, waited for where waiting helps, refused where it does not."""

from __future__ import annotations

import asyncio
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from personalink.errors import BudgetExceeded, ConfigError
from personalink.lm.base import Decoding, Message, Request, Usage
from personalink.lm.budget import Budget, Limits, Prices, most_tokens
from personalink.lm.counters import EstimateCounter


def ask(text: str = "hello", room: int = 8) -> Request:
    return Request((Message("user", text),), Decoding(room))


async def spend(budget: Budget, user: str, usage: Usage | None, hold_s: float = 0.0) -> bool:
    """Whether the request was let through."""
    try:
        async with budget.reserve(user, ask()) as tell:
            await asyncio.sleep(hold_s)
            if usage is not None:
                tell(usage)
    except BudgetExceeded:
        return False
    return True


async def test_calls_are_never_exceeded_at_any_concurrency() -> None:
    for limit in (0, 1, 7, 50):
        budget = Budget(Limits(calls=limit))
        through = await asyncio.gather(*(spend(budget, f"u{i % 3}", Usage(3, 0, 1), 0.001) for i in range(60)))
        assert sum(through) == budget.total.calls == limit


async def test_a_users_limit_is_the_users_own() -> None:
    budget = Budget(Limits(user_calls=5))
    through = [await spend(budget, "a", Usage(1, 0, 1)) for _ in range(8)]
    assert sum(through) == 5
    assert await spend(budget, "b", Usage(1, 0, 1))
    with pytest.raises(BudgetExceeded) as refused:
        async with budget.reserve("a", ask()):
            pass
    assert refused.value.whole_run is False
    assert refused.value.exit_code == 4


async def test_tokens_are_reserved_at_most_and_settled_at_what_they_took() -> None:
    need = most_tokens(ask())
    budget = Budget(Limits(tokens=need))
    assert await spend(budget, "u", Usage(5, 0, 2))
    assert budget.total.tokens == 7
    assert not await spend(budget, "u", Usage(5, 0, 2))  # 7 spent: another could exceed the limit
    assert budget.total.tokens == 7


async def test_random_spending_never_exceeds_any_limit() -> None:
    draw = random.Random(1)
    for _ in range(20):
        limits = Limits(tokens=draw.randint(50, 900), calls=draw.randint(1, 40), user_tokens=draw.randint(50, 400))
        budget = Budget(limits)

        def usage() -> Usage:
            return Usage(draw.randint(0, 13), 0, draw.randint(0, 8))

        await asyncio.gather(*(spend(budget, f"u{i % 4}", usage(), draw.random() / 500) for i in range(50)))
        assert budget.total.tokens <= (limits.tokens or 0)
        assert budget.total.calls <= (limits.calls or 0)
        assert all(spent.tokens <= (limits.user_tokens or 0) for spent in budget.users.values())


async def test_it_waits_for_those_in_flight_where_they_may_give_back() -> None:
    need = most_tokens(ask())
    budget = Budget(Limits(tokens=need + 20))
    first, second = await asyncio.gather(
        spend(budget, "a", Usage(5, 0, 2), 0.02), spend(budget, "b", Usage(5, 0, 2), 0.0)
    )
    assert first
    assert second
    assert budget.total.tokens == 14


async def test_unknown_usage_keeps_its_reservation_and_a_failure_gives_it_back() -> None:
    budget = Budget(Limits(tokens=10_000))
    assert await spend(budget, "u", Usage())
    assert budget.total.tokens == most_tokens(ask())
    assert await spend(budget, "u", None)
    assert budget.total.tokens == most_tokens(ask())
    assert budget.total.calls == 1


async def test_money_and_seconds() -> None:
    prices = Prices(prompt=2.0, cached=0.5, completion=10.0)
    assert prices.of(Usage(1_000_000, 400_000, 100_000)) == pytest.approx(0.6 * 2 + 0.4 * 0.5 + 1.0)
    budget = Budget(Limits(money=0.001, prices=prices))
    spent = [await spend(budget, "u", Usage(30, 0, 8)) for _ in range(20)]
    assert 0 < sum(spent) < 20
    assert budget.total.money <= 0.001
    now = {"t": 0.0}
    budget = Budget(Limits(seconds=5), clock=lambda: now["t"])
    assert await spend(budget, "u", Usage(1, 0, 1))
    now["t"] = 5.0
    assert not await spend(budget, "u", Usage(1, 0, 1))


async def test_earlier_attempts_count() -> None:
    budget = Budget(Limits(calls=3, user_calls=2))
    for _ in range(2):
        budget.paid("a", Usage(3, 0, 1))
    assert not await spend(budget, "a", Usage(1, 0, 1))
    assert await spend(budget, "b", Usage(1, 0, 1))
    assert not await spend(budget, "c", Usage(1, 0, 1))


def test_the_upper_bound_is_one_for_any_text() -> None:
    for text in ("", "plain words", "日本語のテキスト", "🙂🙃", "x" * 1000, "\ud800"):
        assert most_tokens(ask(text)) >= EstimateCounter().count(text) + 8


@pytest.mark.parametrize(("name", "value"), [("calls", -1), ("seconds", -0.1), ("money", float("nan")), ("money", 1.0)])
def test_limits_out_of_range_are_refused(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"budget.{name}"):
        Limits(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("limits", [Limits(calls=200), Limits(tokens=2000), Limits(user_calls=60)])
def test_one_budget_shared_by_several_loops_is_never_exceeded_by_one(limits: Limits) -> None:
    budget, users, each = Budget(limits), 4, 100
    seen: list[tuple[int, int]] = []  # a list, since threads lose updates of a maximum
    start = threading.Barrier(users)

    async def work(n: int) -> list[bool]:
        async def one(i: int) -> bool:
            try:
                async with budget.reserve(f"u{n}", ask()) as tell:
                    seen.append((budget.total.calls, budget.total.tokens))
                    await asyncio.sleep(0.0001 * (i % 7))
                    tell(Usage(5, 0, 2))
            except BudgetExceeded:
                return False
            return True

        return await asyncio.gather(*(one(i) for i in range(each)))

    def on_a_loop_of_its_own(n: int) -> int:
        start.wait()
        return sum(asyncio.run(work(n)))

    with ThreadPoolExecutor(users) as pool:
        through = list(pool.map(on_a_loop_of_its_own, range(users)))
    most_calls, most_spent = (max(column) for column in zip(*seen, strict=True))
    assert budget.total.calls == sum(through)
    assert budget.total.tokens == 7 * sum(through)
    if limits.calls:
        assert sum(through) == most_calls == limits.calls
    if limits.tokens:
        assert most_spent <= limits.tokens
        assert budget.total.tokens > limits.tokens - most_tokens(ask())  # as much as ever fits
    if limits.user_calls:
        assert through == [limits.user_calls] * users


def test_a_loop_that_is_gone_holds_nobody_up() -> None:
    budget = Budget(Limits(calls=1))
    entered, leave = threading.Event(), threading.Event()

    async def hold() -> None:
        async with budget.reserve("a", ask()) as tell:
            entered.set()
            await asyncio.to_thread(leave.wait, 5)
            tell(Usage(1, 0, 1))

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(spend(budget, "b", Usage(1, 0, 1)), 0.02)

    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(asyncio.run, hold())
        entered.wait(5)
        asyncio.run(give_up())  # its loop is closed while it is still in the list of those who wait
        leave.set()
        holding.result(5)
    assert budget.total.calls == 1


@pytest.mark.parametrize(("name", "values"), [
    *((name, (float("nan"), float("inf"), -0.5)) for name in ("prompt", "cached", "completion", "gpu_hour")),
    ("gpus", (0, -1)),
    ("tokens_per_s", (0, -5, float("nan"), float("inf"))),
])  # fmt: skip
def test_prices_that_are_none_are_refused_by_name(name: str, values: tuple[float, ...]) -> None:
    for value in values:
        with pytest.raises(ConfigError, match=f"budget.prices.{name} is {value}; it must be"):
            Prices(**{name: value})  # type: ignore[arg-type]
    Prices(prompt=0, cached=0, completion=0, gpu_hour=0, gpus=1, tokens_per_s=0.1)

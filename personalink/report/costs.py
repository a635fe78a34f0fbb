"""What each row costs: to build once a user, and to ask once a query; and after how many queries building pays.

Read from the ledger (what was paid, over all attempts), the predictions and the log of attempts; asks no model. It
hangs on what servers had cached, so it stands in the log and not among the sealed files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from personalink.config import build
from personalink.lm.base import Usage
from personalink.lm.budget import Prices
from personalink.predictions import Prediction
from personalink.report.layout import Cell, Column, Table
from personalink.report.tables import label_of
from personalink.run_dir import RunDir

_OURS = "personalink.contexts."
_UNBUILT = ("NoPersonalization", "Retrieval", "FullProfile", "RandomUserDemonstrations")
_BUILDING = ("evaluate", "draft", "rewrite")  # the audit is for the record and is left out
_SHOWN = ("rag_5", "rag_20")  # the rivals that people see where they are there; the others stand in the CSV

_NOTE = (
    "Build: calls and tokens paid once a user (without the audit, which is for the record). Query: tokens as the "
    "server counted them. Retries, failed requests: of all requests that the row stands on. “–” is unknown."
)
_PAYS = (
    "Pays after: the number of queries of a user from which on building and asking together have cost less {unit} "
    "than asking behind that RAG row. At once: it costs less a query and nothing to build. Never: a query costs no "
    "less. Same row: it is that row."
)
_MONEY = (
    "Money: at the prices of the last attempt. A query's prompt is priced with the share that the server had cached "
    "when this row was asked, where it told."
)


@dataclass(frozen=True, slots=True)
class RowCost:
    """What one row costs; tokens are prompt and answer, None is unknown.

    Attributes:
        context_tokens: mean size of what is placed before the question.
        query, query_money: tokens and money of one query, as a mean.
        calls, tokens, money: of building, a user; answers of a cache are calls without tokens.
        retries, failed: attempts beyond each request's first, and requests without an answer, of all that the row
            stands on.
    """

    context_tokens: float
    query: float | None
    query_money: float | None
    calls: float | None
    tokens: float | None
    money: float | None
    retries: int | None
    failed: int | None


def cost_table(run: RunDir) -> Table:
    """The costs of a run's rows, in the table's order; money where prices were set.

    Raises:
        IntegrityError: a file of the run is damaged.
    """
    config = run.read_json("sealed/config.json")
    prices = prices_of(run)
    costs = row_costs(run, prices)
    priced = bool(prices.prompt or prices.completion)
    rivals = [row for row in costs if _is_retrieval(config["context"][row])]
    shown = [row for row in rivals if row in _SHOWN] or rivals
    columns = [
        Column("method", "Method", "text"),
        Column("context_tokens", "Context tokens", "mean"),
        Column("query_tokens", "Tokens a query", "mean"),
        Column("build_calls", "Build: calls a user", "metric"),
        Column("build_tokens", "Build: tokens a user", "mean"),
        Column("retries", "Retries", "count"),
        Column("failed", "Failed requests", "count"),
    ]
    if priced:
        columns += [
            Column("money_1000_queries", "Money: 1,000 queries", "metric"),
            Column("money_1000_users", "Money: building for 1,000 users", "metric"),
        ]
    for row in rivals:
        columns.append(Column(f"pays_{row}", f"Pays after ({label_of(row)})", "count", csv_only=row not in shown))
    notes = [_NOTE, *([_PAYS.format(unit="money" if priced else "tokens")] if rivals else [])]
    notes += [*([_MONEY] if priced else []), *gpu_note(run, prices)]
    cells = tuple(_cells(row, costs, rivals, priced) for row in costs)
    return Table(f"{config['name']}: what it costs", tuple(columns), cells, notes=tuple(notes))


def _cells(row: str, costs: Mapping[str, RowCost], rivals: Sequence[str], priced: bool) -> tuple[Cell, ...]:
    cost = costs[row]
    built = cost.money if priced else cost.tokens
    money = [_times(1000, cost.query_money), _times(1000, cost.money)] if priced else []
    pays = [
        "same row" if row == rival else pays_after(built, _asked(cost, priced), _asked(costs[rival], priced))
        for rival in rivals
    ]
    counted = (cost.context_tokens, cost.query, cost.calls, cost.tokens, cost.retries, cost.failed)
    return (label_of(row), *counted, *money, *pays)


def _asked(cost: RowCost, priced: bool) -> float | None:
    return cost.query_money if priced else cost.query


def _times(factor: int, value: float | None) -> float | None:
    return None if value is None else factor * value


def row_costs(run: RunDir, prices: Prices) -> dict[str, RowCost]:
    """Row → what it costs, of the rows that have predictions, in the table's order.

    Raises:
        IntegrityError: a file of the run is damaged.
    """
    config = run.read_json("sealed/config.json")
    ledger = run.read_json("log/ledger.json")
    lines = ledger["lines"] if ledger else []
    predictions: dict[str, list[Prediction]] = {}
    for record in run.read_lines("sealed/predictions.jsonl"):
        prediction = Prediction.from_dict(record)
        predictions.setdefault(prediction.row, []).append(prediction)
    users = len({p.user for group in predictions.values() for p in group})
    costs = {}
    for row in (r for r in config["rows"] if r in predictions):
        group = predictions[row]
        depth = passes_of(config["context"][row], config["optimizer"]["depth"]) if ledger else None
        building = [line for line in lines if depth and line["phase"] in _BUILDING and line["depth"] <= depth]
        asking = [line for line in lines if line["phase"] == "answer" and line["row"] == row]
        calls, tokens, money = (None, None, None) if depth is None else _built(building, users, prices)
        costs[row] = RowCost(
            context_tokens=sum(p.context_tokens for p in group) / len(group),
            **_per_query(group, asking, prices),
            calls=calls,
            tokens=tokens,
            money=money,
            retries=None if depth is None else _total(building + asking, "retries"),
            failed=None if depth is None else _total(building + asking, "failed"),
        )
    return costs


def prices_of(run: RunDir) -> Prices:
    """The prices that the run's last attempt was told; all 0 where none was."""
    told = [attempt["prices"] for attempt in run.attempts() if isinstance(attempt.get("prices"), dict)]
    return build(Prices, told[-1], "prices") if told else Prices()


def _per_query(
    group: Sequence[Prediction], asking: Sequence[Mapping[str, Any]], prices: Prices
) -> dict[str, float | None]:
    """Mean tokens and money of a query; None as soon as the tokens of one are unknown."""
    totals = [(p.usage.prompt, p.usage.completion) for p in group if p.outcome != "too_long"]
    if not totals or any(a is None or b is None for a, b in totals):
        return {"query": None, "query_money": None}
    prompt, answer = sum(a or 0 for a, _ in totals), sum(b or 0 for _, b in totals)
    asked, cached = _total(asking, "prompt_tokens"), _total(asking, "cached_tokens")
    share = cached / asked if asked and cached is not None else 0.0
    money = prices.of(Usage(prompt, round(prompt * share), answer))
    return {"query": (prompt + answer) / len(totals), "query_money": money / len(totals)}


def passes_of(settings: Mapping[str, Any], loop: int) -> int | None:
    """How many passes building a row takes, by its context; None for contexts that this does not know.

    PAG and what stands on it take the first pass; PersonaLink as many as its depth, of the loop's `loop`.
    """
    target = str(settings["_target_"])
    name = target.rsplit(".", 1)[-1] if target.startswith(_OURS) else ""
    if name in _UNBUILT:
        return 0
    if name == "PersonaLink":
        return min(int(settings.get("depth", 2)), loop)
    return {"Draft": 1, "RetrievalWithDraft": 1, "RandomUserPersona": 1, "Refine": loop}.get(name)


def _is_retrieval(settings: Mapping[str, Any]) -> bool:
    return str(settings["_target_"]).startswith(_OURS) and str(settings["_target_"]).endswith(".Retrieval")


def _built(
    building: Sequence[Mapping[str, Any]], users: int, prices: Prices
) -> tuple[float, float | None, float | None]:
    """Calls, tokens and money a user that building took."""
    calls = sum(line["calls"] + line.get("cached_calls", 0) for line in building) / users
    prompt, answer = _total(building, "prompt_tokens"), _total(building, "completion_tokens")
    if prompt is None or answer is None:
        return calls, None, None
    money = prices.of(Usage(prompt, _total(building, "cached_tokens"), answer))
    return calls, (prompt + answer) / users, money / users


def _total(lines: Sequence[Mapping[str, Any]], name: str) -> int | None:
    """The sum of a column of the ledger; None where a line does not have it."""
    found = [line.get(name) for line in lines]
    return None if None in found else sum(value for value in found if value is not None)


def pays_after(built: float | None, query: float | None, rival: float | None) -> Cell:
    """The least number of queries n with built + n · query < n · rival, or in words why there is none.

    Args:
        built: cost of building, once. query, rival: costs of a query, its own and the rival's; in one unit.

    Returns:
        A whole number; "at once" where nothing was built; "never" where a query costs no less; None for unknown.
    """
    if built is None or query is None or rival is None:
        return None
    if query >= rival:
        return "never"
    return math.floor(built / (rival - query)) + 1 if built else "at once"


def gpu_note(run: RunDir, prices: Prices) -> list[str]:
    """What the GPUs cost: hours of wall clock over all attempts × GPUs × the price of one for an hour.

    Empty without such a price. An attempt that was killed did not tell its time, so the figure is then a least one.
    """
    if not prices.gpu_hour:
        return []
    seconds = [attempt["seconds"] for attempt in run.attempts()]
    known = [s for s in seconds if s is not None]
    if not known:
        return ["GPU time: unknown, since no attempt told how long it took."]
    hours = sum(known) / 3600
    lost = len(seconds) - len(known)
    least = f" at least: {lost} of {len(seconds)} attempts ended without telling how long they took" if lost else ""
    return [
        f"GPU time, the whole run: {hours:,.3f} hours × {prices.gpus} GPUs × {prices.gpu_hour:g} an hour = "
        f"{hours * prices.gpus * prices.gpu_hour:,.4f}{least}."
    ]

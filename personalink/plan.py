"""A dry run: the least and the most calls of an experiment, its tokens and money, and the prompts that will not fit.

Nothing is sent. What can be worded now (rows without a product, the slice behind the empty persona) is worded, so those
requests are counted exactly, each distinct one once, and looked up in the run's journal and the cache; what depends on
answers is bounded, and expected halfway between its bounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from personalink.agent import TEMPLATE_MARGIN
from personalink.contexts.base import Context, Products, Tools, closure
from personalink.contexts.persona import Draft, Refine
from personalink.data.types import User
from personalink.lm.base import Request, Usage
from personalink.lm.budget import Prices
from personalink.lm.cache import who_answers
from personalink.lm.counters import EstimateCounter


@dataclass(frozen=True, slots=True)
class KnownPrompt:
    """A prompt that is known word for word: of which row and user, what it asks ("query 7", "slice item 12"), and its
    size in tokens, room for the answer and the chat template included."""

    row: str
    user: str
    asked: str
    tokens: int

    def __str__(self) -> str:
        return f"row {self.row}, user {self.user}, {self.asked}: {self.tokens:,} tokens"


@dataclass(frozen=True, slots=True)
class Expected:
    """What a plan expects: what is known at its own size, what hangs on answers halfway between its bounds.

    A call more or less than is known: halfway between the least and the most. A prompt behind a persona: the mean bare
    question and half the persona's cap. A rewrite: the user's history, within the budgets of the rewriter's prompt,
    and half a persona. An answer: half its `max_tokens`.

    Attributes:
        calls, prompt_tokens, completion_tokens: whole numbers, rounded.
        money: by the prices of tokens, as if nothing were cached; None where they are 0.
        gpu_hours, gpu_money: hours of the server, and those times its GPUs times the price of one for an hour; None
            where no price is set or no speed is known.
    """

    calls: int
    prompt_tokens: int
    completion_tokens: int
    money: float | None = None
    gpu_hours: float | None = None
    gpu_money: float | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What an experiment will take.

    Attributes:
        users, rows, queries: how many.
        least, most: calls, whatever the model answers. `most` is None when a context cannot tell its own calls.
        exact: requests that are known word for word, and their `prompt_tokens` by the counter.
        completion_tokens: most tokens that all answers can have together; None with `most`.
        expected: None with `most`.
        window: tokens; None when unknown. longest: the largest known prompt, None where none is known.
        too_long: known prompts that do not fit the window by the counter; the server has the last word on them.
        untold: contexts whose calls are not in the figures.
        answered: known requests that the run's journal or the cache answers; None where there is neither.
        to_send: least and most requests that are left to send, None for a most that cannot be told.
    """

    users: int
    rows: int
    queries: int
    least: int
    most: int | None
    exact: int
    prompt_tokens: int
    completion_tokens: int | None
    expected: Expected | None
    window: int | None
    longest: KnownPrompt | None
    counter: str
    too_long: tuple[KnownPrompt, ...] = ()
    untold: tuple[str, ...] = ()
    answered: int | None = None
    to_send: tuple[int, int | None] = (0, None)

    def as_text(self) -> str:
        """The plan for people."""
        per_user = (
            "" if self.most is None else f" ({self.least / self.users:.1f} to {self.most / self.users:.1f} a user)"
        )
        lines = [
            f"{self.users} users, {self.queries} queries, {self.rows} rows",
            f"calls: {_range(self.least, self.most)}{per_user}",
            f"known now: {self.exact:,} requests with {self.prompt_tokens:,} prompt tokens (by {self.counter})",
        ]
        if self.completion_tokens is not None:
            lines.append(f"answers: at most {self.completion_tokens:,} tokens")
        lines += _expectation(self.expected) if self.expected else []
        if self.answered is not None:
            lines.append(
                f"answered already: {self.answered:,} of the {self.exact:,} known requests; "
                f"to send: {_range(*self.to_send)}"
            )
        window = "unknown" if self.window is None else f"{self.window:,} tokens"
        longest = f"; the longest known prompt with its answer: {self.longest}" if self.longest else ""
        lines.append(f"window: {window}{longest}")
        lines += [f"  may not fit, the server decides: {long}" for long in self.too_long[:10]]
        if len(self.too_long) > 10:
            lines.append(f"  … and {len(self.too_long) - 10} more")
        lines += [f"not in these figures: what {name} asks in prepare()" for name in self.untold]
        return "\n".join(lines)


def _range(least: int, most: int | None) -> str:
    if least == most:
        return f"{least:,}"
    return f"{least:,} to {'?' if most is None else f'{most:,}'}"


def _expectation(expected: Expected) -> list[str]:
    lines = [
        f"expected: about {expected.prompt_tokens:,} prompt and {expected.completion_tokens:,} answer tokens in "
        f"{expected.calls:,} calls (what hangs on answers is taken halfway between its least and its most)"
    ]
    if expected.money is not None:
        lines.append(f"money: about {_short(expected.money)} for the tokens expected, as if nothing were cached")
    if expected.gpu_hours is not None:
        hours, money = _short(expected.gpu_hours), _short(expected.gpu_money or 0.0)
        lines.append(f"GPU time: about {hours} hours of the server, {money} in money")
    return lines


def _short(value: float) -> str:
    """Two decimals, or two digits where that would be nothing."""
    return f"{value:,.2f}" if value >= 1 or not value else f"{value:.2g}"


@dataclass(slots=True)
class _Sums:
    known: dict[str, int] = field(default_factory=dict)
    bare: set[str] = field(default_factory=set)
    answered: int = 0
    least: int = 0
    most: int = 0
    completion: int = 0
    rewrites: float = 0.0
    rewrite_tokens: float = 0.0
    longest: KnownPrompt | None = None
    too_long: list[KnownPrompt] = field(default_factory=list)
    untold: set[str] = field(default_factory=set)


def make_plan(
    users: Sequence[User],
    rows: Mapping[str, Context],
    tools: Tools,
    *,
    prices: Prices | None = None,
    tokens_per_s: float | None = None,
    finished: bool = False,
) -> Plan:
    """Plan an experiment over `users` (see `Plan`).

    Args:
        users, rows, tools: as the run will have them; a journal and a cache of the agent's gateway are only read.
        prices: of tokens and GPUs; None for none.
        tokens_per_s: prompt and answer tokens that the server takes a second; None when unknown.
        finished: the run is complete, so nothing is left to send.
    """
    sums = _Sums()
    prepared: dict[tuple[str, str], None] = {}
    for user in users:
        donor = tools.donor(user)
        for row, context in rows.items():
            for needed in closure(context):
                _prepare(row, user, needed, tools, sums, prepared)
            if donor is not None:
                for lent in (c for need in context.donor_needs() for c in closure(need)):
                    _prepare(row, donor, lent, tools, sums, prepared)
        _answers(user, rows, tools, sums)
    exact, told = len(sums.known), not sums.untold
    most = exact + sums.most if told else None
    gateway = tools.agent.gateway
    at_hand = gateway.journal is not None or gateway.cache is not None or finished
    return Plan(
        users=len(users),
        rows=len(rows),
        queries=sum(len(user.queries) for user in users),
        least=exact + sums.least,
        most=most,
        exact=exact,
        prompt_tokens=sum(sums.known.values()),
        completion_tokens=exact * tools.task.max_tokens + sums.completion if told else None,
        expected=_expected(sums, tools, prices or Prices(), tokens_per_s) if told else None,
        window=gateway.window,
        longest=sums.longest,
        counter=tools.counter.id,
        too_long=tuple(sums.too_long),
        untold=tuple(sorted(sums.untold)),
        answered=(exact if finished else sums.answered) if at_hand else None,
        to_send=(0, 0) if finished else _to_send(sums, most, tools),
    )


def _to_send(sums: _Sums, most: int | None, tools: Tools) -> tuple[int, int | None]:
    """Least and most requests that are left: every record of the journal is one of the run's, so each is one less.

    A cache may hold the others too, so with one only the known requests that it lacks are sure to be sent.
    """
    gateway = tools.agent.gateway
    exact, journalled = len(sums.known), 0 if gateway.journal is None else len(gateway.journal)
    open_now = exact - sums.answered
    least = open_now if gateway.cache is not None else max(open_now, exact + sums.least - journalled)
    return least, None if most is None else max(least, most - max(journalled, sums.answered))


def _expected(sums: _Sums, tools: Tools, prices: Prices, tokens_per_s: float | None) -> Expected:
    """See `Expected`."""
    config, exact = tools.optimizer.config, len(sums.known)
    bare = [sums.known[key] for key in sums.bare] or [*sums.known.values()]
    behind_a_persona = (sum(bare) / len(bare) if bare else 0.0) + config.caps.total / 2
    calls = exact + (sums.least + sums.most) / 2
    others = max(0.0, calls - exact - sums.rewrites)
    prompt = round(sum(sums.known.values()) + sums.rewrite_tokens + others * behind_a_persona)
    answers = round(((exact + others) * tools.task.max_tokens + sums.rewrites * config.rewrite_tokens) / 2)
    hours = (prompt + answers) / tokens_per_s / 3600 if tokens_per_s and prices.gpu_hour else None
    return Expected(
        calls=round(calls),
        prompt_tokens=prompt,
        completion_tokens=answers,
        money=prices.of(Usage(prompt, 0, answers)) if prices.prompt or prices.completion else None,
        gpu_hours=hours,
        gpu_money=None if hours is None else hours * prices.gpus * prices.gpu_hour,
    )


def _prepare(
    row: str, user: User, context: Context, tools: Tools, sums: _Sums, prepared: dict[tuple[str, str], None]
) -> None:
    """Count what one context asks to be prepared for one user, once."""
    if (user.id, context.key) in prepared:
        return
    prepared[user.id, context.key] = None
    calls = context.calls(user, tools)
    if calls is None:
        sums.untold.add(type(context).__name__)
        return
    least, most = calls
    sums.least += least
    sums.most += most
    sums.completion += most * max(tools.task.max_tokens, tools.optimizer.config.rewrite_tokens)
    if isinstance(context, Draft | Refine):
        config = tools.optimizer.config
        both = all((user.id, c.key) in prepared for c in (Draft(), Refine()))
        split = tools.optimizer.slicer.split(user, tools.optimizer.seed)
        if both and split.slice and config.depth:
            sums.most -= 1  # the draft is what the first pass proposes: asked once
        passes = 1 if isinstance(context, Draft) else config.depth
        rewrites = (min(least, passes) + min(most, passes) - bool(both and passes)) / 2
        sums.rewrites += rewrites
        sums.rewrite_tokens += rewrites * _rewrite_tokens(user, tools)
        held = split.slice + (split.audit if isinstance(context, Refine) else ())
        for item in held:
            _known(_request("", item.input, tools), KnownPrompt(row, user.id, f"slice item {item.id}", 0), tools, sums)


def _rewrite_tokens(user: User, tools: Tools) -> float:
    """Prompt tokens that a rewrite for a user is expected to take (see `Expected`)."""
    config, counter = tools.optimizer.config, EstimateCounter()
    history = sum(min(config.item_tokens, counter.count(item.input)) for item in user.history)
    return min(config.sample_tokens + config.mistake_tokens, history) + config.caps.total / 2


def _answers(user: User, rows: Mapping[str, Context], tools: Tools, sums: _Sums) -> None:
    """Count the answers to one user's queries: known prompts exactly, the others as at most one a row."""
    nothing = Products({}, {})
    for query in user.queries:
        open_rows = 0
        bare = _request("", query.input, tools).key("plan")
        for row, context in rows.items():
            if context.needs() or context.donor_needs() or type(context).prepare is not Context.prepare:
                open_rows += 1
                continue
            placed = context.place(user, query, nothing, tools)
            asked = KnownPrompt(row, user.id, f"query {query.id}", 0)
            _known(_request(placed.text, query.input, tools), asked, tools, sums, bare=not placed.text)
        sums.least += bool(open_rows) and bare not in sums.known  # an empty persona asks the bare question again
        sums.most += open_rows
        sums.completion += open_rows * tools.task.max_tokens


def _request(context: str, text: str, tools: Tools) -> Request:
    return tools.agent.request(context, text)


def _known(request: Request, where: KnownPrompt, tools: Tools, sums: _Sums, *, bare: bool = True) -> None:
    """Enter a request that is known word for word: count it, look it up, and measure it against the window."""
    key = request.key("plan")
    if key not in sums.known:
        sums.known[key] = tools.counter.count("\n".join(message.content for message in request.messages))
        sums.answered += _is_answered(request, tools)
        if bare:
            sums.bare.add(key)
    sized = replace(where, tokens=sums.known[key] + tools.task.max_tokens + TEMPLATE_MARGIN)
    if sums.longest is None or sized.tokens > sums.longest.tokens:
        sums.longest = sized
    window = tools.agent.gateway.window
    if window is not None and sized.tokens > window:
        sums.too_long.append(sized)


def _is_answered(request: Request, tools: Tools) -> bool:
    """Whether the run's journal or the cache across runs holds the answer."""
    gateway = tools.agent.gateway
    if gateway.journal is None and gateway.cache is None:
        return False
    key = request.key(gateway.lm.identity)
    if gateway.journal is not None and key in gateway.journal:
        return True
    return gateway.cache is not None and gateway.cache.get(key, who_answers(gateway.lm)) is not None

"""A dry run: the least and the most calls of an experiment, its tokens, and the prompts that will not fit.

Nothing is sent. What can be worded now (rows without a product, the slice behind the empty persona) is worded, so those
requests are counted exactly, each distinct one once; what depends on answers is bounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from personalink.agent import TEMPLATE_MARGIN
from personalink.contexts.base import Context, Products, Tools
from personalink.contexts.persona import Draft, Refine
from personalink.data.types import User
from personalink.lm.base import Request


@dataclass(frozen=True, slots=True)
class TooLong:
    """A prompt that will not fit: of which row, user and query, and its size in tokens."""

    row: str
    user: str
    query: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What an experiment will take.

    Attributes:
        users, rows, queries: how many.
        least, most: calls, whatever the model answers. `most` is None when a context cannot tell its own calls.
        exact: requests that are known word for word, and their `prompt_tokens` by the counter.
        completion_tokens: most tokens that all answers can have together; None with `most`.
        window: tokens; None when unknown. longest: the largest known prompt, room for its answer included.
        too_long: known prompts that do not fit the window.
        untold: contexts whose calls are not in the figures.
    """

    users: int
    rows: int
    queries: int
    least: int
    most: int | None
    exact: int
    prompt_tokens: int
    completion_tokens: int | None
    window: int | None
    longest: int
    counter: str
    too_long: tuple[TooLong, ...] = ()
    untold: tuple[str, ...] = ()

    def as_text(self) -> str:
        """The plan for people."""
        most = "?" if self.most is None else f"{self.most:,}"
        per_user = (
            "" if self.most is None else f" ({self.least / self.users:.1f} to {self.most / self.users:.1f} a user)"
        )
        lines = [
            f"{self.users} users, {self.queries} queries, {self.rows} rows",
            f"calls: {self.least:,} to {most}{per_user}",
            f"known now: {self.exact:,} requests with {self.prompt_tokens:,} prompt tokens (by {self.counter})",
        ]
        if self.completion_tokens is not None:
            lines.append(f"answers: at most {self.completion_tokens:,} tokens")
        window = "unknown" if self.window is None else f"{self.window:,} tokens"
        lines.append(f"window: {window}; the longest known prompt takes {self.longest:,} with its answer")
        for long in self.too_long[:10]:
            lines.append(
                f"  does not fit: row {long.row}, user {long.user}, query {long.query}: {long.tokens:,} tokens"
            )
        if len(self.too_long) > 10:
            lines.append(f"  … and {len(self.too_long) - 10} more")
        lines += [f"not in these figures: what {name} asks in prepare()" for name in self.untold]
        return "\n".join(lines)


@dataclass(slots=True)
class _Sums:
    known: dict[str, int] = field(default_factory=dict)
    least: int = 0
    most: int = 0
    completion: int = 0
    too_long: list[TooLong] = field(default_factory=list)
    untold: set[str] = field(default_factory=set)


def make_plan(users: Sequence[User], rows: Mapping[str, Context], tools: Tools) -> Plan:
    """Plan an experiment over `users` (see `Plan`)."""
    sums = _Sums()
    prepared: dict[tuple[str, str], None] = {}
    for user in users:
        donor = tools.donor(user)
        for context in rows.values():
            for needed in _closure(context):
                _prepare(user, needed, tools, sums, prepared)
            if donor is not None:
                for lent in (c for need in context.donor_needs() for c in _closure(need)):
                    _prepare(donor, lent, tools, sums, prepared)
        _answers(user, rows, tools, sums)
    window = tools.agent.gateway.window
    room = tools.task.max_tokens + TEMPLATE_MARGIN
    told = not sums.untold
    return Plan(
        users=len(users),
        rows=len(rows),
        queries=sum(len(user.queries) for user in users),
        least=len(sums.known) + sums.least,
        most=len(sums.known) + sums.most if told else None,
        exact=len(sums.known),
        prompt_tokens=sum(sums.known.values()),
        completion_tokens=len(sums.known) * tools.task.max_tokens + sums.completion if told else None,
        window=window,
        longest=max(sums.known.values(), default=0) + room,
        counter=tools.counter.id,
        too_long=tuple(sums.too_long),
        untold=tuple(sorted(sums.untold)),
    )


def _closure(context: Context) -> list[Context]:
    return [*(c for need in context.needs() for c in _closure(need)), context]


def _prepare(user: User, context: Context, tools: Tools, sums: _Sums, prepared: dict[tuple[str, str], None]) -> None:
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
        both = all((user.id, c.key) in prepared for c in (Draft(), Refine()))
        split = tools.optimizer.slicer.split(user, tools.optimizer.seed)
        if both and split.slice and tools.optimizer.config.depth:
            sums.most -= 1  # the draft is what the first pass proposes: asked once
        held = split.slice + (split.audit if isinstance(context, Refine) else ())
        for item in held:
            _known(_request("", item.input, tools), tools, sums)


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
            tokens = _known(_request(placed.text, query.input, tools), tools, sums)
            needed = tokens + tools.task.max_tokens + TEMPLATE_MARGIN
            if tools.agent.gateway.window is not None and needed > tools.agent.gateway.window:
                sums.too_long.append(TooLong(row, user.id, query.id, needed))
        sums.least += bool(open_rows) and bare not in sums.known  # an empty persona asks the bare question again
        sums.most += open_rows
        sums.completion += open_rows * tools.task.max_tokens


def _request(context: str, text: str, tools: Tools) -> Request:
    return Request(tools.agent.messages(context, text), tools.agent.decoding, tools.agent.constraint)


def _known(request: Request, tools: Tools, sums: _Sums) -> int:
    """Enter a request that is known word for word; its prompt's tokens."""
    key = request.key("plan")
    if key not in sums.known:
        sums.known[key] = tools.counter.count("\n".join(message.content for message in request.messages))
    return sums.known[key]

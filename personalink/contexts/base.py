"""What a context is: a way to build the text placed before a question. Methods differ only in this.

A context may *prepare* a product once a user (that may call the model) and then *places* text before each query
(pure, calls nothing). It names the contexts whose products it reads, so one refinement serves every row that uses it.
Knows nothing of runs or files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

from personalink.agent import Agent
from personalink.bm25 import Bm25Index, Preset
from personalink.canonical import canonical_json, digest
from personalink.contexts.frozen import frozen
from personalink.data.types import Item, Query, User
from personalink.errors import ConfigError
from personalink.lm.base import Counter
from personalink.optimizer import Optimizer
from personalink.tasks.base import Task

Product = Mapping[str, Any]
MOST_NEEDS = 32
"""Contexts that may stand behind one another; a longer chain has no end."""


@dataclass(frozen=True, slots=True)
class Placed:
    """The text before a question, the history items it shows, and what should be known of it ({"kept": .8})."""

    text: str
    item_ids: tuple[str, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tools:
    """What contexts work with.

    Attributes:
        agent: the frozen model on its task. optimizer: the loop.
        donor: another user, frozen in the manifest, for the random-user controls; None when there is none.
        seed: the run's.
    """

    agent: Agent
    optimizer: Optimizer
    donor: Callable[[User], User | None]
    seed: int

    @property
    def task(self) -> Task:
        """The task at hand."""
        return self.agent.task

    @property
    def counter(self) -> Counter:
        """Counts tokens as the agent does."""
        return self.agent.gateway.counter

    def demonstrations(self, items: Sequence[Item]) -> list[str]:
        """Items worded as demonstrations."""
        return [self.task.demonstration(item.input, item.label) for item in items]


class Products:
    """The products of the contexts that a row needs, for one user and for that user's donor; none can be changed."""

    def __init__(self, own: Mapping[str, Product], donors: Mapping[str, Product]) -> None:
        self._own = {key: frozen(product) for key, product in own.items()}
        self._donors = {key: frozen(product) for key, product in donors.items()}

    def __getitem__(self, context: Context) -> Product:
        """This user's product of `context`.

        Raises:
            ConfigError: the context that asks does not name `context` in `needs()`.
        """
        if context.key not in self._own:
            msg = f"the product of {_name(context)} is not at hand; name it in needs() (or donor_needs(), of_donor())"
            raise ConfigError(msg)
        product: Product = self._own[context.key]
        return product

    def of_donor(self, context: Context) -> Product | None:
        """The donor's product of `context`; None when the user has no donor."""
        return self._donors.get(context.key)


@dataclass(frozen=True)
class Context:
    """Base of all contexts: a frozen dataclass whose fields are its configuration. Override what you need."""

    def needs(self) -> tuple[Context, ...]:
        """Contexts whose product for this user is read in `prepare` or `place`."""
        return ()

    def donor_needs(self) -> tuple[Context, ...]:
        """Contexts whose product for the *donor* is read in `place`."""
        return ()

    async def prepare(self, user: User, products: Products, tools: Tools) -> Product:
        """Build once a user; may call the model. Plain JSON."""
        return {}

    def place(self, user: User, query: Query, products: Products, tools: Tools) -> Placed:
        """The text before this query. Pure: the same arguments give the same text, and nothing is called."""
        raise NotImplementedError

    def calls(self, user: User, tools: Tools) -> tuple[int, int] | None:
        """Least and most model calls of `prepare` for a user, for the plan; None when that cannot be told.

        The slice's answers behind the empty persona are not in it: the plan counts them once for all contexts.
        """
        return (0, 0) if type(self).prepare is Context.prepare else None

    @property
    def key(self) -> str:
        """Digest of class and configuration: equal contexts share a product."""
        return digest([type(self).__module__, type(self).__qualname__, asdict(self)])


def closure(context: Context) -> list[Context]:
    """A context behind all that it needs, needed ones first; one that two others need stands there twice.

    What it needs of a donor is not in it: that is `closure` of each of `donor_needs()`.
    """
    return [*(c for need in context.needs() for c in closure(need)), context]


@lru_cache(maxsize=64)
def index_of(user: User, preset: Preset) -> Bm25Index:
    """The user's index, built once. The official preset searches "{title} {text}" where a title stands."""
    official = preset == "official"
    return Bm25Index([f"{i.title} {i.input}" if official and i.title else i.input for i in user.history], preset)


def fit_to_room(
    texts: Sequence[str],
    room: int | None,
    count: Callable[[str], int],
    joiner: str = "\n\n",
    *,
    backwards: bool = False,
) -> list[int]:
    """Indices of the first texts that fit `room` tokens together, most wanted first; all when the room is unknown.

    A text that does not fit ends the filling, so what is kept is always a prefix of what was wanted. The joined text
    is what is counted at the end, in the order in which it will stand (`backwards`: the most wanted last), so it never
    exceeds the room, whatever the counter.
    """
    if room is None:
        return list(range(len(texts)))

    def together(n: int) -> int:
        return count(joiner.join(texts[:n][::-1] if backwards else texts[:n]))

    n = used = 0
    for text in texts:  # a first guess, so that a long history is not joined and counted once an item
        used += count(text + joiner)
        if used > room:
            break
        n += 1
    while n and together(n) > room:
        n -= 1
    while n < len(texts) and together(n + 1) <= room:
        n += 1
    return list(range(n))


def checked_product(context: Context, value: Any) -> Product:
    """What `prepare` returned, as plain JSON that nobody can change.

    Raises:
        ConfigError: it is no mapping, or holds what JSON cannot.
    """
    if not isinstance(value, Mapping):
        msg = f"context {_name(context)}: prepare() returned {_kind(value)}; it must return a dictionary of plain JSON"
        raise ConfigError(msg)
    try:
        plain = json.loads(canonical_json(dict(value)))
    except (TypeError, ValueError, RecursionError) as error:
        msg = f"context {_name(context)}: prepare() returned what is no plain JSON ({_reason(error)})"
        raise ConfigError(msg) from None
    product: Product = frozen(plain)
    return product


def checked_placed(context: Context, value: Any) -> Placed:
    """What `place` returned.

    Raises:
        ConfigError: it is no `Placed` of a text, a tuple of item ids and notes of plain JSON.
    """
    what = ""
    if not isinstance(value, Placed):
        what = f"{_kind(value)}; it must return Placed(text, item_ids, notes)"
    elif not isinstance(value.text, str):
        what = f"a Placed whose text is {_kind(value.text)}; it must be a text"
    elif not isinstance(value.item_ids, tuple) or not all(isinstance(id_, str) for id_ in value.item_ids):
        what = f"a Placed whose item_ids are {value.item_ids!r:.60}; they must be a tuple of item ids (texts)"
    elif not isinstance(value.notes, Mapping):
        what = f"a Placed whose notes are {_kind(value.notes)}; they must be a dictionary of plain JSON"
    else:
        try:
            canonical_json(dict(value.notes))
        except (TypeError, ValueError, RecursionError) as error:
            what = f"a Placed whose notes are no plain JSON ({_reason(error)})"
    if what:
        msg = f"context {_name(context)}: place() returned {what}"
        raise ConfigError(msg)
    placed: Placed = value
    return placed


def check_needs(context: Context) -> None:
    """Follow what a context needs, and what that needs, to its end.

    Raises:
        ConfigError: it needs itself, directly or not, or what is no context; or its settings are no plain JSON.
    """
    _follow(context, ())
    for lent in _named(context, "donor_needs"):
        _follow(lent, ())


def _follow(context: Context, behind: tuple[str, ...]) -> None:
    try:
        key = context.key
    except (TypeError, ValueError, RecursionError) as error:
        msg = f"context {_name(context)}: its settings are no plain JSON ({_reason(error)})"
        raise ConfigError(msg) from None
    if key in behind or len(behind) >= MOST_NEEDS:
        msg = f"context {_name(context)} needs itself, directly or through another; take it out of needs()"
        raise ConfigError(msg)
    for needed in _named(context, "needs"):
        _follow(needed, (*behind, key))


def _named(context: Context, method: str) -> tuple[Context, ...]:
    """What `needs` or `donor_needs` names, checked."""
    named = getattr(context, method)()
    if not isinstance(named, tuple | list) or not all(isinstance(one, Context) for one in named):
        msg = f"context {_name(context)}: {method}() returned {named!r:.60}; it must return a tuple of contexts"
        raise ConfigError(msg)
    return tuple(named)


def _name(context: Context) -> str:
    return type(context).__qualname__


def _kind(value: Any) -> str:
    return "nothing (None)" if value is None else f"a {type(value).__name__}"


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:120]

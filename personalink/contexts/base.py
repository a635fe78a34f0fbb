"""What a context is: a way to build the text placed before a question. Methods differ only in this.

A context may *prepare* a product once a user (that may call the model) and then *places* text before each query
(pure, calls nothing). It names the contexts whose products it reads, so one refinement serves every row that uses it.
Knows nothing of runs or files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

from personalink.agent import Agent
from personalink.bm25 import Bm25Index, Preset
from personalink.canonical import digest
from personalink.data.types import Item, Query, User
from personalink.lm.base import Counter
from personalink.optimizer import Optimizer
from personalink.tasks.base import Task

Product = Mapping[str, Any]


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
    """The products of the contexts that a row needs, for one user and for that user's donor."""

    def __init__(self, own: Mapping[str, Product], donors: Mapping[str, Product]) -> None:
        self._own = own
        self._donors = donors

    def __getitem__(self, context: Context) -> Product:
        """This user's product of `context`."""
        return self._own[context.key]

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


@lru_cache(maxsize=64)
def index_of(user: User, preset: Preset) -> Bm25Index:
    """The user's index, built once. The official preset searches "{title} {text}" where a title stands."""
    official = preset == "official"
    return Bm25Index([f"{i.title} {i.input}" if official and i.title else i.input for i in user.history], preset)


def fit_to_room(texts: Sequence[str], room: int | None, count: Callable[[str], int], joiner: str = "\n\n") -> list[int]:
    """Indices of the first texts that fit `room` tokens together, most wanted first; all when the room is unknown.

    A text that does not fit ends the filling, so what is kept is always a prefix of what was wanted.
    """
    if room is None:
        return list(range(len(texts)))
    kept: list[int] = []
    used = 0
    for i, text in enumerate(texts):
        used += count(text + joiner)
        if used > room:
            break
        kept.append(i)
    return kept

"""The rows of a table for one user: prepare what they need, place, ask. Products are made once, whoever asks first.

A product that is made goes to the spool, and whoever needs it later reads it there: in memory are those of the users at
work alone. Knows contexts and the agent, and no other user but the donor.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from personalink.canonical import canonical_json
from personalink.contexts.base import (
    Context,
    Placed,
    Product,
    Products,
    Tools,
    check_needs,
    checked_placed,
    checked_product,
    closure,
)
from personalink.contexts.frozen import frozen
from personalink.data import User
from personalink.data.types import Query
from personalink.errors import ConfigError, PersonalinkError
from personalink.lm.ledger import Bill
from personalink.predictions import Prediction
from personalink.spool import Spool

AtHand = dict[tuple[str, str], Product]
"""Products by user and context, as long as one user is at work."""


class Rows:
    """Every row over any user.

    Args:
        contexts: row name → context, in the table's order (long prompts last).
        tools: what contexts work with.
        spool: where products are kept, by the context's key.

    Raises:
        ConfigError: contexts that need each other in a circle.
    """

    def __init__(self, contexts: Mapping[str, Context], tools: Tools, spool: Spool) -> None:
        for context in contexts.values():
            check_needs(context)
        self.contexts, self.tools, self.spool = contexts, tools, spool
        self._preparing: dict[tuple[str, str], asyncio.Task[Product]] = {}

    async def one_user(self, user: User) -> list[Prediction]:
        """Every row's answer to every query of a user."""
        at_hand: AtHand = {}
        products = {row: await self._products_for(user, context, at_hand) for row, context in self.contexts.items()}
        jobs = [
            self._answer(user, query, row, context, products[row])
            for query in user.queries
            for row, context in self.contexts.items()
        ]
        return list(await asyncio.gather(*jobs))

    def all_contexts(self) -> list[Context]:
        """Every context of the rows and what they need, each once, in a fixed order."""
        rows = [one for row in self.contexts.values() for one in (row, *row.donor_needs())]
        return sorted({context for row in rows for context in closure(row)}, key=lambda context: context.key)

    async def _products_for(self, user: User, context: Context, at_hand: AtHand) -> Products:
        own = {c.key: await self._product(user, c, at_hand) for c in (*context.needs(), context)}
        donor = self.tools.donor(user)
        lent = {c.key: await self._product(donor, c, at_hand) for c in context.donor_needs()} if donor else {}
        return Products(own, lent)

    async def _product(self, user: User, context: Context, at_hand: AtHand) -> Product:
        """A product: at hand, being prepared for somebody else, kept, or prepared now."""
        key = (user.id, context.key)
        if key not in at_hand:
            task = self._preparing.get(key)
            if task is None and (kept := self.spool.get(context.key, user.id)) is not None:
                at_hand[key] = frozen(json.loads(kept)["product"])
                return at_hand[key]
            if task is None:
                task = self._preparing[key] = asyncio.create_task(self._prepare(user, context))
                task.add_done_callback(lambda done: self._forget(key, done))
            at_hand[key] = await asyncio.shield(task)
        return at_hand[key]

    def _forget(self, key: tuple[str, str], done: asyncio.Task[Product]) -> None:
        del self._preparing[key]
        if not done.cancelled():
            done.exception()  # a user who was cancelled while waiting leaves nobody to read it

    async def _prepare(self, user: User, context: Context) -> Product:
        """Prepare a product and keep it; an empty one is as quickly made again."""
        at_hand: AtHand = {}
        needed = {c.key: await self._product(user, c, at_hand) for c in context.needs()}
        with _named_failure(context, "prepare", user):
            made = await context.prepare(user, Products(needed, {}), self.tools)
        product = checked_product(context, made)
        if product:
            self.spool.put(context.key, user.id, canonical_json({"user": user.id, "product": product}) + "\n")
        return product

    async def _answer(self, user: User, query: Query, row: str, context: Context, products: Products) -> Prediction:
        def place() -> tuple[Placed, int]:
            with _named_failure(context, "place", user):
                made = context.place(user, query, products, self.tools)
            placed = checked_placed(context, made)
            return placed, self.tools.counter.count(placed.text)

        placed, tokens = await asyncio.to_thread(place) if self.tools.counter.remote else place()
        answer = await self.tools.agent.answer(placed.text, query.input, Bill(user.id, "answer", row=row))
        return Prediction.of(user.id, query.id, row, placed, tokens, answer)


@contextmanager
def _named_failure(context: Context, step: str, user: User) -> Iterator[None]:
    """A fault in a context's own code, told in one line that names it; ours pass as they are.

    Raises:
        ConfigError: the context's code raised.
    """
    try:
        yield
    except (PersonalinkError, asyncio.CancelledError):
        raise
    except Exception as error:  # the boundary to other people's code, and named as such
        msg = f"context {type(context).__name__}: {step}() raised {type(error).__name__} for user {user.id}: {error}"
        raise ConfigError(msg) from error

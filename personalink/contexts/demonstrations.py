"""Retrieval: the k most relevant past items as demonstrations (RAG-k)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from personalink.bm25 import Preset
from personalink.contexts.base import Context, Placed, Products, Tools, fit_to_room, index_of
from personalink.data.types import Query, User
from personalink.errors import ConfigError


@dataclass(frozen=True)
class Retrieval(Context):
    """RAG-k: BM25 over the user's items, all k from one ranking, k = min(k, m).

    Attributes:
        k: demonstrations, at least 1.
        order: "best_last" (nearest the question) or "best_first" (RAG-1 ⊂ RAG-3 ⊂ … share a prefix).
        preset: "lucene", or "official" for the semantics of LaMP's own code.

    The least relevant are left out where k do not fit the window, and the share kept is told.
    """

    k: int = 5
    order: Literal["best_last", "best_first"] = "best_last"
    preset: Preset = "lucene"

    def __post_init__(self) -> None:
        if self.k < 1:
            msg = f"k is {self.k}; it must be at least 1"
            raise ConfigError(msg)
        if self.order not in ("best_last", "best_first") or self.preset not in ("lucene", "official"):
            msg = f"order is {self.order!r} and preset {self.preset!r}; known: best_last, best_first; lucene, official"
            raise ConfigError(msg)

    def place(self, user: User, query: Query, products: Products, tools: Tools) -> Placed:
        """The demonstrations, a blank line between them."""
        return self.within(user, query, tools, tools.agent.room(query.input))

    def within(self, user: User, query: Query, tools: Tools, room: int | None) -> Placed:
        """The same within a given room in tokens."""
        items = [user.history[i] for i in index_of(user, self.preset).rank(query.input, self.k)]
        texts = tools.demonstrations(items)
        kept = fit_to_room(texts, room, tools.counter.count, backwards=self.order == "best_last")
        places = kept if self.order == "best_first" else kept[::-1]
        return Placed(
            "\n\n".join(texts[i] for i in places),
            tuple(items[i].id for i in places),
            {} if len(kept) == len(items) else {"kept": round(len(kept) / len(items), 4)},
        )

"""Controls: nothing, another user's items, and the whole profile (the "oracle": most tokens, not most right)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from personalink.contexts.base import Context, Placed, Products, Tools, fit_to_room, index_of
from personalink.contexts.demonstrations import Retrieval
from personalink.data.leaks import holds_query
from personalink.data.types import Query, User
from personalink.errors import ConfigError


@dataclass(frozen=True)
class NoPersonalization(Context):
    """NoPers: nothing is placed; the prompt is the question alone."""

    def place(self, user: User, query: Query, products: Products, tools: Tools) -> Placed:
        """Nothing."""
        return Placed("")


@dataclass(frozen=True)
class RandomUserDemonstrations(Context):
    """RandomUser (demonstrations): RAG-k over the donor's items, within the tokens that the user's own RAG-k takes."""

    k: int = 5

    def place(self, user: User, query: Query, products: Products, tools: Tools) -> Placed:
        """The donor's best k, cut to the user's own budget; nothing when there is no donor."""
        donor = tools.donor(user)
        if donor is None:
            return Placed("", notes={"donor": None})
        own = Retrieval(self.k).place(user, query, products, tools)
        budget = tools.counter.count(own.text)
        ranked = [donor.history[i] for i in index_of(donor, "lucene").rank(query.input)]
        ranked = [item for item in ranked if not holds_query(item, user.queries)][: self.k]
        texts = tools.demonstrations(ranked)
        kept = fit_to_room(texts, budget, tools.counter.count, backwards=True)
        return Placed(
            "\n\n".join(texts[i] for i in reversed(kept)),
            tuple(ranked[i].id for i in reversed(kept)),
            {"donor": donor.id, "budget": budget},
        )


@dataclass(frozen=True)
class FullProfile(Context):
    """Oracle: every item of the history, oldest first.

    Attributes:
        keep: what to do when it does not fit the window: keep the most "recent" items, the "earliest", or "fail"
            (the query is then recorded as too long).
        max_tokens: a further bound, to shorten a demonstration run; None for the window alone.
    """

    keep: Literal["recent", "earliest", "fail"] = "recent"
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.keep not in ("recent", "earliest", "fail"):
            msg = f"keep is {self.keep!r}; it must be one of recent, earliest, fail"
            raise ConfigError(msg)

    def place(self, user: User, query: Query, products: Products, tools: Tools) -> Placed:
        """All that fits, with the share kept."""
        texts = tools.demonstrations(user.history)
        room = tools.agent.room(query.input)
        if self.max_tokens is not None:
            room = self.max_tokens if room is None else min(room, self.max_tokens)
        if self.keep == "fail":
            room = None
        wanted = texts[::-1] if self.keep == "recent" else texts
        kept = fit_to_room(wanted, room, tools.counter.count, backwards=self.keep == "recent")
        places = sorted(len(texts) - 1 - i for i in kept) if self.keep == "recent" else kept
        return Placed(
            "\n\n".join(texts[i] for i in places),
            tuple(user.history[i].id for i in places),
            {"kept": round(len(places) / len(texts), 4) if texts else 1.0},
        )

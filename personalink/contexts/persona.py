"""Personas as contexts: the ungated draft (PAG), the loop's product at each depth, its field ablations, a stranger's
draft, and a draft beside retrieval. One draft and one refinement a user serve all of these rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from personalink.contexts.base import Context, Placed, Product, Products, Tools
from personalink.contexts.demonstrations import Retrieval
from personalink.data.types import Query, User
from personalink.errors import ConfigError
from personalink.persona import FIELDS, PersonaState
from personalink.persona_io import from_dict, to_dict
from personalink.refinement import Refinement

AT_HAND = 128
"""Products whose parse is kept, so that all rows and queries of the users at work share it."""


class _Same:
    """A product as a key: the very object, which is frozen, and not what stands in it."""

    def __init__(self, product: Mapping[str, Any]) -> None:
        self.product = product

    def __hash__(self) -> int:
        return id(self.product)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.product is other.product


def _persona(product: Mapping[str, Any] | None) -> PersonaState | None:
    """The persona of a draft, None when there is none."""
    return _draft_of(_Same(product)) if product and product["persona"] else None


@lru_cache(maxsize=AT_HAND)
def _draft_of(same: _Same) -> PersonaState:
    return from_dict(same.product["persona"])


@lru_cache(maxsize=AT_HAND)
def _refinement_of(same: _Same) -> Refinement:
    return Refinement.from_dict(same.product)


@dataclass(frozen=True)
class Draft(Context):
    """PAG: one distillation pass, kept whatever its score. Its product is the draft of pass 1 of the loop."""

    async def prepare(self, user: User, products: Products, tools: Tools) -> Product:
        """Write the draft; an unusable reply leaves no persona and its reason."""
        proposal = await tools.optimizer.draft(user)
        persona = to_dict(proposal.persona) if proposal.persona else None
        return {"persona": persona, "reason": proposal.reason, "notes": list(proposal.notes)}

    def calls(self, user: User, tools: Tools) -> tuple[int, int]:
        """One, or none without anything to write from; the loop's first pass asks the same, and it is sent once."""
        return tools.optimizer.draft_calls(user)

    def place(self, user: User, query: Query, products: Products, tools: Tools) -> Placed:
        """The draft's render."""
        persona = _persona(products[self])
        return Placed(persona.render() if persona else "")


@dataclass(frozen=True)
class RandomUserPersona(Context):
    """RandomUser (persona): the donor's draft, under the same caps (a kept persona may be empty, a draft is not)."""

    def donor_needs(self) -> tuple[Context, ...]:
        """The donor's draft."""
        return (Draft(),)

    def place(self, user: User, query: Query, products: Products, tools: Tools) -> Placed:
        """The donor's draft; nothing when there is no donor."""
        persona = _persona(products.of_donor(Draft()))
        donor = tools.donor(user)
        return Placed(persona.render() if persona else "", notes={"donor": donor.id if donor else None})


@dataclass(frozen=True)
class RetrievalWithDraft(Context):
    """RAG+PAG: the draft first, then k demonstrations."""

    k: int = 5

    def needs(self) -> tuple[Context, ...]:
        """The draft."""
        return (Draft(),)

    def place(self, user: User, query: Query, products: Products, tools: Tools) -> Placed:
        """Draft, blank line, demonstrations."""
        persona = _persona(products[Draft()])
        room = tools.agent.room(query.input)
        if room is not None and persona:
            room -= tools.counter.count(persona.render() + "\n\n")
        demos = Retrieval(self.k).within(user, query, tools, room)
        parts = [persona.render() if persona else "", demos.text]
        return Placed("\n\n".join(part for part in parts if part), demos.item_ids, demos.notes)


@dataclass(frozen=True)
class Refine(Context):
    """The loop itself: its product is the whole `Refinement`; placed, it is the persona kept at the end."""

    async def prepare(self, user: User, products: Products, tools: Tools) -> Product:
        """Run the loop."""
        return (await tools.optimizer.refine(user)).as_dict()

    def calls(self, user: User, tools: Tools) -> tuple[int, int]:
        """From a slice without errors to a full evaluation of every pass, with the audit of every persona."""
        split = tools.optimizer.slicer.split(user, tools.optimizer.seed)
        config = tools.optimizer.config
        if not split.slice:
            return (0, 0)
        least = 0 if config.skip_if_no_errors or not config.depth else tools.optimizer.draft_calls(user)[0]
        return least, config.depth * (1 + len(split.slice) + len(split.audit))

    def place(self, user: User, query: Query, products: Products, tools: Tools) -> Placed:
        """The persona kept at the end."""
        return Placed(_refinement_of(_Same(products[self])).persona.render())


@dataclass(frozen=True)
class PersonaLink(Context):
    """PersonaLink at depth r, from the one refinement.

    Attributes:
        depth: how many passes (r ≥ 0; beyond the loop's depth it is the last).
        without: a field to blank (the ablation): preference_summary, exemplars or decision_rules.
    """

    depth: int = 2
    without: str | None = None

    def __post_init__(self) -> None:
        if self.without is not None and self.without not in FIELDS:
            msg = f"without is {self.without!r}; it must be one of {', '.join(FIELDS)}"
            raise ConfigError(msg)
        if self.depth < 0:
            msg = f"depth is {self.depth}; it must be at least 0"
            raise ConfigError(msg)

    def needs(self) -> tuple[Context, ...]:
        """The refinement."""
        return (Refine(),)

    def place(self, user: User, query: Query, products: Products, tools: Tools) -> Placed:
        """The render at that depth."""
        persona = _refinement_of(_Same(products[Refine()])).at(self.depth)
        return Placed(persona.without(self.without) if self.without else persona.render())

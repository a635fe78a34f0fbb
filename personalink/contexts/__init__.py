"""One file a family of contexts: controls, demonstrations, persona."""

from personalink.contexts.base import Context, Placed, Product, Products, Tools
from personalink.contexts.controls import FullProfile, NoPersonalization, RandomUserDemonstrations
from personalink.contexts.demonstrations import Retrieval
from personalink.contexts.persona import Draft, PersonaLink, RandomUserPersona, Refine, RetrievalWithDraft

__all__ = [
    "Context",
    "Draft",
    "FullProfile",
    "NoPersonalization",
    "PersonaLink",
    "Placed",
    "Product",
    "Products",
    "RandomUserDemonstrations",
    "RandomUserPersona",
    "Refine",
    "Retrieval",
    "RetrievalWithDraft",
    "Tools",
]

"""Contexts that do not keep their word, for tests."""

from __future__ import annotations

from dataclasses import dataclass

from personalink.contexts import Context, Placed


@dataclass(frozen=True)
class Raises(Context):
    async def prepare(self, user, products, tools):
        return {"a": 1 / 0}

    def place(self, user, query, products, tools):
        return Placed("x")


@dataclass(frozen=True)
class Nothing(Context):
    def place(self, user, query, products, tools):
        return None


@dataclass(frozen=True)
class Sets(Context):
    async def prepare(self, user, products, tools):
        return {"a": {1}}

    def place(self, user, query, products, tools):
        return Placed("x")


@dataclass(frozen=True)
class Itself(Context):
    def needs(self):
        return (self,)

    def place(self, user, query, products, tools):
        return Placed("x")

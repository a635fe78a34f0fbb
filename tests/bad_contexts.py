"""Contexts that do not keep their word, for tests."""

from __future__ import annotations

import os
import signal
import sys
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


@dataclass(frozen=True)
class Exits(Context):
    async def prepare(self, user, products, tools):
        sys.exit(0)

    def place(self, user, query, products, tools):
        return Placed("x")


@dataclass(frozen=True)
class Killed(Context):
    """Kills its own process, or with `starter` the one that started it."""

    starter: bool = False

    async def prepare(self, user, products, tools):
        os.kill(os.getppid() if self.starter else os.getpid(), signal.SIGKILL)
        return {}

    def place(self, user, query, products, tools):
        return Placed("x")

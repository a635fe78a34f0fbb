"""PersonaLink, the face of the optimizer: fit one user, fit many, predict. Sync calls have async twins (`a…`).

Knows nothing of files beyond an optional journal and cache, and nothing of configuration files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from personalink import background
from personalink.agent import Agent, Answer, Constrain
from personalink.data.types import User
from personalink.errors import ConfigError, IncompleteRun, PersonalinkError
from personalink.fleet import Incomplete, each_user
from personalink.lm.base import LM
from personalink.lm.cache import Cache, cache_path
from personalink.lm.gateway import Gateway
from personalink.lm.journal import Journal
from personalink.lm.ledger import Bill, Ledger
from personalink.optimizer import Optimizer, OptimizerConfig
from personalink.persona import PersonaState
from personalink.refinement import Refinement
from personalink.text import nearest


class PersonaLink(background.Closes):
    """Distil personas with one frozen model.

    Args:
        task: what is asked (`personalink.task("lamp2")`, or a `LabelTask` or `RatingTask` of your own).
        lm: the frozen model (`personalink.connect(…)`).
        depth: passes of the loop. holdout: items held out to score personas. gate: "strict", "no_regress", "margin"
            or "mcnemar". seed: of every random choice; 0 is a seed.
        rewriter: another model that drafts and rewrites; the agent's own by default.
        constrain: what the server is asked to allow: "none", "label" or "line" (see `agent.Agent`).
        config: all other constants; `depth`, `holdout`, `gate` given here win over it.
        store: a folder for a journal, so that an interrupted fit goes on where it was and pays nothing twice.
        cache: answers kept across runs and projects: True for the default file, or a path (see `lm.cache.cache_path`).
        **changes: any other field of `OptimizerConfig`.

    Attributes:
        incomplete: user id → error of those the last `fit` could not finish.
        ledger: calls and tokens by user, phase and depth.

    Raises:
        ConfigError: an unknown setting or a value out of range.
    """

    def __init__(
        self,
        task: Any,
        lm: LM,
        *,
        depth: int | None = None,
        holdout: float | None = None,
        gate: str | None = None,
        seed: int = 12345,
        rewriter: LM | None = None,
        constrain: Constrain = "none",
        config: OptimizerConfig | None = None,
        store: str | Path | None = None,
        cache: bool | str | Path | None = None,
        **changes: Any,
    ) -> None:
        given = {"depth": depth, "holdout": holdout, "gate": gate}
        changes |= {name: value for name, value in given.items() if value is not None}
        known = {f.name for f in dataclasses.fields(OptimizerConfig)}
        for name in changes:
            if name not in known:
                near = nearest(name, known)
                msg = f"PersonaLink has no setting {name!r}" + (f"; did you mean {near!r}?" if near else "")
                raise ConfigError(msg)
        self.config = dataclasses.replace(config or OptimizerConfig(), **changes)
        self.task, self.lm, self.rewriter, self.seed, self.constrain = task, lm, rewriter, seed, constrain
        self.ledger = Ledger()
        self.incomplete: dict[str, PersonalinkError] = {}
        self._journal = Journal(Path(store) / "log" / "journal") if store is not None else None
        cache_file = cache_path(cache)
        self._cache = Cache(cache_file) if cache_file is not None else None
        self._optimizer: Optimizer | None = None

    async def _ready(self) -> Optimizer:
        """Models started, the loop put together; once."""
        if self._optimizer is None:
            await self.lm.start()
            gateway = Gateway(self.lm, self._journal, self.ledger, cache=self._cache)
            rewriting = None
            if self.rewriter is not None and self.rewriter is not self.lm:
                await self.rewriter.start()
                rewriting = Gateway(self.rewriter, self._journal, self.ledger, cache=self._cache, scan=False)
            agent = Agent(self.task, gateway, constrain=self.constrain, seed=self.seed)
            self._optimizer = Optimizer(agent, self.config, rewriting=rewriting, seed=self.seed)
        return self._optimizer

    async def afit_user(self, user: User) -> Refinement:
        """Run the loop for one user.

        Raises:
            LeakError: a query of the user stands in the history.
            LMError: the model could not be asked.
        """
        return await (await self._ready()).refine(user)

    def fit_user(self, user: User) -> Refinement:
        """`afit_user` for scripts and notebooks."""
        return background.run(self.afit_user(user))

    async def afit(self, users: Iterable[User]) -> AsyncIterator[Refinement]:
        """Run the loop for many users; refinements come as they finish, in no fixed order.

        Raises:
            IncompleteRun: at the end, when some users could not be finished; `incomplete` says who and why.
            PersonalinkError: at once, for what no other user can get past.
        """
        optimizer = await self._ready()
        self.incomplete = {}
        finished = 0
        async for ended in each_user(users, optimizer.refine, at_once=self.lm.users_in_flight):
            if isinstance(ended, Incomplete):
                self.incomplete[ended.user.id] = ended.error
            else:
                finished += 1
                yield ended.value
        if self.incomplete:
            user, error = next(iter(self.incomplete.items()))
            msg = f"{len(self.incomplete)} users were not finished ({finished} were); the first, {user}: {error}"
            raise IncompleteRun(msg) from error

    def fit(self, users: Iterable[User]) -> Iterator[Refinement]:
        """`afit` for scripts and notebooks."""
        return background.iterate(self.afit(users))

    async def apredict(self, persona: PersonaState | str, text: str) -> Answer:
        """Answer a new input behind a persona (or any text placed before the question); "" is no personalization."""
        agent = (await self._ready()).agent
        context = persona if isinstance(persona, str) else persona.render()
        return await agent.answer(context, text, Bill(phase="predict"))

    def predict(self, persona: PersonaState | str, text: str) -> Answer:
        """`apredict` for scripts and notebooks; `answer.label` is the label, None when none could be read."""
        return background.run(self.apredict(persona, text))

    async def aclose(self) -> None:
        """Give back models, journal and cache. Idempotent."""
        await self.lm.aclose()
        if self.rewriter is not None:
            await self.rewriter.aclose()
        if self._journal is not None:
            self._journal.close()
        if self._cache is not None:
            self._cache.close()
        self._optimizer = None

    def __enter__(self) -> PersonaLink:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

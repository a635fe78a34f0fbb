"""PersonaLink, the face of the optimizer: fit one user, fit many, predict. Sync calls have async twins (`a…`).

Knows nothing of files beyond an optional journal and cache, and nothing of configuration files.
"""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any
from weakref import WeakKeyDictionary

from personalink import background
from personalink.agent import Agent, Answer, Constrain
from personalink.data.types import User
from personalink.errors import ConfigError, DataError, IncompleteRun, PersonalinkError
from personalink.fleet import Incomplete, each_user
from personalink.lm.base import LM
from personalink.lm.cache import Cache, cache_path
from personalink.lm.gateway import Gateway
from personalink.lm.journal import Journal
from personalink.lm.ledger import Bill, Ledger
from personalink.lm.settings import check_seed
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
        _check_given(task, lm, rewriter, seed, config)
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
        self._journal_file = Path(store) / "log" / "journal" if store is not None else None
        self._cache_file = cache_path(cache)
        self._journal: Journal | None = None
        self._cache: Cache | None = None
        self._optimizer: Optimizer | None = None
        self._told_before = False  # whether the ledger holds what the journal says was paid before
        self._building = threading.Lock()
        self._starting: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
        self._open()

    def _open(self) -> None:
        """Journal and cache, where they are wanted and not open: at first, and after a `close`."""
        if self._journal is None and self._journal_file is not None:
            self._journal = Journal(self._journal_file)
        if self._cache is None and self._cache_file is not None:
            self._cache = Cache(self._cache_file)

    async def _ready(self) -> Optimizer:
        """Models started, the loop put together; once, however many ask at a time and in whichever event loop."""
        async with self._starting.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            if self._optimizer is None:
                await self.lm.start()
                if self.rewriter is not None and self.rewriter is not self.lm:
                    await self.rewriter.start()
            with self._building:
                if self._optimizer is None:
                    self._optimizer = self._build()
                return self._optimizer

    def _build(self) -> Optimizer:
        self._open()
        gateway = Gateway(self.lm, self._journal, self.ledger, cache=self._cache, scan=not self._told_before)
        self._told_before = True
        rewriting = None
        if self.rewriter is not None and self.rewriter is not self.lm:
            rewriting = Gateway(self.rewriter, self._journal, self.ledger, cache=self._cache, scan=False)
        agent = Agent(self.task, gateway, constrain=self.constrain, seed=self.seed)
        return Optimizer(agent, self.config, rewriting=rewriting, seed=self.seed)

    async def afit_user(self, user: User) -> Refinement:
        """Run the loop for one user.

        Raises:
            LeakError: a query of the user stands in the history.
            DataError: a label of the history is none of the task's.
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
        async for ended in each_user(_checked(users), optimizer.refine, at_once=self.lm.users_in_flight):
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
        """Answer a new input behind a persona (or any text placed before the question); "" is no personalization.

        Raises:
            DataError: `persona` is neither a persona nor text, or `text` is none.
            LMError: the model could not be asked.
        """
        if not isinstance(persona, PersonaState | str):
            raise DataError(
                f"persona is {persona!r:.60}; it must be a PersonaState, such as fit_user(…).persona, or text"
            )
        if not isinstance(text, str):
            raise DataError(f"text is {text!r:.60}; it must be text")
        agent = (await self._ready()).agent
        context = persona if isinstance(persona, str) else persona.render()
        return await agent.answer(context, text, Bill(phase="predict"))

    def predict(self, persona: PersonaState | str, text: str) -> Answer:
        """`apredict` for scripts and notebooks; `answer.label` is the label, None when none could be read."""
        return background.run(self.apredict(persona, text))

    async def aclose(self) -> None:
        """Give back models, journal and cache. Idempotent; a later call opens them again."""
        await self.lm.aclose()
        if self.rewriter is not None:
            await self.rewriter.aclose()
        if self._journal is not None:
            self._journal.close()
        if self._cache is not None:
            self._cache.close()
        self._journal = self._cache = self._optimizer = None

    def __enter__(self) -> PersonaLink:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def _checked(users: Iterable[User]) -> Iterator[User]:
    """Users, one by one.

    Raises:
        DataError: one is none.
    """
    for user in users if isinstance(users, Iterable) else [users]:
        if not isinstance(user, User):
            msg = f"fit takes users, such as load_records(…).users, not {user!r:.60}"
            raise DataError(msg)
        yield user


def _check_given(task: Any, lm: Any, rewriter: Any, seed: Any, config: Any) -> None:
    """Refuse what can only be a mix-up, in one line each."""
    if not all(hasattr(task, name) for name in ("check_label", "parse", "labels", "system")):
        msg = f'task is {task!r:.60}; it must be personalink.task("lamp2"), or a LabelTask or RatingTask of your own'
        raise ConfigError(msg)
    for name, model in (("lm", lm), ("rewriter", rewriter)):
        if not (hasattr(model, "complete") and hasattr(model, "start")) and not (name == "rewriter" and model is None):
            msg = f"{name} is {model!r:.60}; it must be a model, such as personalink.connect(…) makes"
            raise ConfigError(msg)
    check_seed(seed)
    if config is not None and not isinstance(config, OptimizerConfig):
        msg = f"config is {config!r:.60}; it must be an OptimizerConfig"
        raise ConfigError(msg)

"""One compile at work: the program's models metered by engines of ours, threads to run on, and the loop a user.

Opened for a `with`, closed after it. Knows no book and no module that comes of it.
"""

from __future__ import annotations

import contextvars
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import dspy
from dspy.clients.base_lm import BaseLM

from personalink import background
from personalink.data.types import User
from personalink.dspy.borrowed import BorrowedLM
from personalink.dspy.engine import DECODING, Engine, lm_over
from personalink.dspy.metric import Metric
from personalink.dspy.program import Program, ProgramAgent
from personalink.dspy.spaces import Space, space_of
from personalink.dspy.task import GivenSlicer, Past, ProgramTask, Shape, past_of, written
from personalink.dspy.translate import CARRIED
from personalink.errors import ConfigError
from personalink.lm.budget import Budget
from personalink.lm.journal import Journal
from personalink.lm.ledger import Ledger
from personalink.optimizer import Optimizer, OptimizerConfig
from personalink.refinement import Refinement
from personalink.text import normalised

MOST_THREADS = 64


@dataclass(frozen=True, slots=True)
class Settings:
    """What a `PersonaLink` was given, checked. `direct`: ask a bare `Predict` directly, where that is open."""

    metric: Metric
    config: OptimizerConfig
    seed: int
    space: Space | None
    constrain: bool
    rewriter: Any
    direct: bool = True


class Compiling:
    """The loop for users of one program.

    `spaces` are the program's answers by output field; `given`, those of them that its types do not tell.

    Args:
        student: the program; it is copied. settings: the optimizer's.
        ledger: counts this compile apart; None leaves it to the LM's own engine.
        store: a folder for a journal, so that what was paid is not paid again; None for none.
        budget: what may be spent; None for the LM's own. Both need a ledger.

    Raises:
        ConfigError: there is no LM, or it is none.
    """

    def __init__(
        self,
        student: Any,
        settings: Settings,
        *,
        ledger: Ledger | None = None,
        store: str | Path | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.settings = settings
        self._ledger, self._budget = ledger, budget
        self._engines: dict[int, tuple[Any, Engine]] = {}  # by the LM, which is kept so that its id stays its own
        module = student.deepcopy()
        predictors = module.predictors()
        lm = _checked(dspy.settings.lm or next((p.lm for p in predictors if p.lm is not None), None))
        own, *_ = [*(_checked(p.lm) for p in predictors if p.lm is not None), lm]
        self._journal = Journal(Path(store) / "log" / "journal") if store is not None else None
        self._main = self.engine(own)
        self._rewriting = self.engine(settings.rewriter) if settings.rewriter is not None else self._main
        metered = self._metered(lm)
        for predictor in predictors:
            if predictor.lm is not None:
                predictor.lm = self._metered(predictor.lm)
        shape = Shape.of(module)
        self.spaces = spaces(module, settings.space)
        self.given = self.spaces if settings.space is not None else {}
        self._threads = ThreadPoolExecutor(min(self._main.lm.concurrency, MOST_THREADS), "personalink-dspy")
        self._program = Program(
            module=module,
            lm=metered,
            engine=self._main,
            shape=shape,
            metric=settings.metric,
            spaces=self.spaces,
            say=self._say,
            constrain=settings.constrain,
            adapter=dspy.settings.adapter,
            context=contextvars.copy_context(),
            threads=self._threads,
            direct=settings.direct and not dspy.settings.callbacks and not own.callbacks,
        )
        closed = settings.space or (next(iter(self.spaces.values()), None) if shape.single else None)
        self._task = ProgramTask(instructions(module), closed, settings.metric.best)
        caps = settings.config.caps
        if self._task.space is None:  # a rule names one of a closed set of answers
            caps = replace(caps, rules=0)
        self._config = replace(settings.config, caps=caps)

    @property
    def ledger(self) -> Ledger:
        """Calls and tokens of the program's model."""
        return self._main.ledger

    @property
    def users_in_flight(self) -> int:
        """How many users should be worked on at once."""
        return self._main.lm.users_in_flight

    def engine(self, lm: Any) -> Engine:
        """The engine behind an LM for this compile: its own model, this compile's journal, ledger and budget."""
        _, known = self._engines.get(id(lm), (None, None))
        if known is not None:
            return known
        theirs = getattr(_checked(lm), "engine", None)
        if isinstance(theirs, Engine):
            model, budget, cache, decoding = theirs.lm, theirs.gateway.budget, theirs.gateway.cache, theirs.decoding
        else:
            model, budget, cache, decoding = BorrowedLM(lm, DECODING), None, None, DECODING
        if isinstance(theirs, Engine) and self._ledger is None:
            made = theirs
        else:
            scan = not self._engines
            made = Engine(
                model, self._journal, self._ledger, budget=self._budget, cache=cache, scan=scan, decoding=decoding
            )
            if self._budget is None:  # the LM's own has counted already what this process paid
                made.gateway.budget = budget
        self._engines[id(lm)] = (lm, made)
        return made

    def _metered(self, lm: Any) -> Any:
        """An LM with the same settings whose calls pass this compile's engine."""
        kept = {name: value for name, value in lm.kwargs.items() if name in CARRIED and value is not None}
        return lm_over(self.engine(lm), lm.model, callbacks=lm.callbacks, **kept)

    def _say(self, answer: dict[str, Any]) -> str:
        """An answer as text, a label as its space spells it."""
        if len(answer) == 1:
            ((name, value),) = answer.items()
            space = self.spaces.get(name, self.settings.space)
            if space is not None:
                read = space.read(value)
                return space.label(value if read is None else read)
        return written(answer)

    async def refine(self, user: str, examples: Iterable[Any], held: Sequence[Any] | None = None) -> Refinement:
        """The loop for one user; `held` is the slice where it was given.

        Raises:
            DataError: an example cannot be used. LMError: a model could not be asked.
        """
        await self._main.lm.start()
        await self._rewriting.lm.start()
        slice_size = len(held or ())
        pasts = past_of(user, [*(held or ()), *examples], self._program.shape, self._say)
        by_text: dict[str, Past] = {past.item.input: past for past in reversed(pasts)}
        agent = ProgramAgent(self._program, self._task, by_text)
        optimizer = Optimizer(agent, self._config, rewriting=self._rewriting.gateway, seed=self.settings.seed)
        if slice_size:
            distinct = {normalised(past.item.input): past.item.id for past in reversed(pasts[:slice_size])}
            optimizer.slicer = GivenSlicer(frozenset(distinct.values()))
        return await optimizer.refine(User(user, "dspy", tuple(past.item for past in pasts)))

    def __enter__(self) -> Compiling:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for _, engine in self._engines.values():
            if self._ledger is not None:  # it is this compile's own: what still runs after an error asks no more
                engine.gateway.draining = True
            if isinstance(engine.lm, BorrowedLM):
                background.run(engine.lm.aclose())
        if self._journal is not None:
            self._journal.close()


def spaces(program: Any, given: Space | None) -> dict[str, Space]:
    """Output field → space, of the last predictor's last field, which is what a program answers; as given, else as its
    type tells. Empty where it is open.
    """
    fields = program.predictors()[-1].signature.output_fields if program.predictors() else {}
    if not fields:
        return {}
    name = list(fields)[-1]
    space = given or space_of(fields[name].annotation)
    return {} if space is None else {name: space}


def instructions(program: Any) -> str:
    """What a program's predictors are told to do, each text once, in order."""
    texts = dict.fromkeys(" ".join(p.signature.instructions.split()) for p in program.predictors())
    return "\n".join(texts) or "Answer as this person would."


def _checked(lm: Any) -> Any:
    """The LM; ConfigError where it is none."""
    if isinstance(lm, BaseLM):
        return lm
    what = "there is no LM" if lm is None else f"{lm!r:.60} is no dspy.LM"
    msg = f"{what}; set one with dspy.configure(lm=personalink.dspy.connect(…)) or program.set_lm(…)"
    raise ConfigError(msg)

"""`PersonaLink`: the refinement loop as a DSPy optimizer, for one user or for many at once.

A thin layer: the loop, gate, rewriter and fleet are the core's. It never calls `dspy.configure`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dspy.teleprompt.teleprompt import Teleprompter

from personalink import background
from personalink.data.types import User
from personalink.dspy.book import Book
from personalink.dspy.compiling import Compiling, Settings
from personalink.dspy.metric import SCALE, Metric
from personalink.dspy.module import Personalized, Personas
from personalink.dspy.spaces import given_space
from personalink.errors import ConfigError
from personalink.fleet import Incomplete, each_user
from personalink.lm.budget import Budget, Limits
from personalink.lm.ledger import Ledger
from personalink.optimizer import OptimizerConfig
from personalink.refinement import Refinement


class PersonaLink(Teleprompter):  # type: ignore[misc]
    """Give a program what it needs to know of one person: a persona of at most some 250 tokens, kept only if better.

    Args:
        metric: DSPy's kind: (example, prediction[, trace[, name, its trace]]) → float, bool, or
            `dspy.Prediction(score=…, feedback="…")`; feedback is shown to the rewriter.
        labels: the answers there are (a list of labels, or `range(1, 6)`), where the output's type does not tell; they
            belong to the program's last output field.
        depth: passes of the loop. holdout: examples held out to score personas, or a share below 1.
        accept: "strict", "no_regress", "margin" (in the metric's unit) or "mcnemar"; see `gate`.
        failure_score, perfect_score: the least and the most that the metric returns. An answer that cannot be read
            scores the least; an outage scores nothing, it ends that user's loop.
        rewriter: another `dspy.LM` that writes personas; the program's own by default.
        constrain: have our engines allow nothing but readable labels, where a predictor answers one closed field.
        seed: of every random choice; 0 is a seed.
        config: all other constants of the loop; depth, holdout and accept given here win over it.

    Raises:
        ConfigError: a setting is out of range.
    """

    def __init__(
        self,
        *,
        metric: Callable[..., Any],
        labels: Sequence[Any] | None = None,
        depth: int | None = None,
        holdout: float | None = None,
        accept: str | None = None,
        failure_score: float = 0.0,
        perfect_score: float = 1.0,
        rewriter: Any = None,
        constrain: bool = True,
        seed: int = 12345,
        config: OptimizerConfig | None = None,
    ) -> None:
        super().__init__()
        given = {"depth": depth, "holdout": holdout, "gate": accept}
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        base = replace(config or OptimizerConfig(), **changes)
        self.settings = Settings(
            metric=Metric(metric, failure_score, perfect_score),
            config=replace(base, margin=base.margin * SCALE),
            seed=seed,
            space=given_space(labels),
            constrain=constrain,
            rewriter=rewriter,
        )

    def compile(
        self, student: Any, *, trainset: Sequence[Any], teacher: Any = None, valset: Sequence[Any] | None = None
    ) -> Personalized:
        """The program with the persona of one user.

        Args:
            student: any program. trainset: the user's history, oldest first.
            teacher: not taken; `rewriter` names another model.
            valset: examples that score personas, in place of a slice of the history.

        Raises:
            ConfigError: a teacher, no LM, or a metric out of its range. DataError: an example cannot be used.
            LMError: a model could not be asked; nothing is scored for it.
        """
        _no_teacher(teacher)
        with Compiling(_bare(student), self.settings) as work:
            refinement = background.run(work.refine("", trainset, valset))
        personas = Personas(
            {"": refinement.persona}, spaces=work.given, constrain=self.settings.constrain, refinement=refinement
        )
        return Personalized(student, personas)

    def compile_users(
        self,
        student: Any,
        *,
        users: Mapping[Any, Sequence[Any]] | Iterable[tuple[Any, Sequence[Any]]],
        store: str | Path | None = None,
        budget: Limits | None = None,
    ) -> Book:
        """Personas of many users in one run, each user advancing alone.

        Args:
            student: any program. users: id → history, or pairs of them, taken one by one.
            store: a folder for the journal: the same call goes on where it was, and pays nothing twice.
            budget: what may be spent by the run and by a user, over all attempts; what it stops is incomplete.

        Raises:
            ConfigError: no LM, or a metric out of its range. PersonalinkError: what concerns no single user.
        """
        allowed = None if budget is None else Budget(budget)
        with Compiling(_bare(student), self.settings, ledger=Ledger(), store=store, budget=allowed) as work:
            book = Book(work.given, self.settings.constrain, work.ledger)
            background.run(_fill(book, work, users))
        return book


async def _fill(book: Book, work: Compiling, users: Any) -> None:
    """Every user's loop, as many at once as the model has room for."""
    pairs = iter(users.items() if isinstance(users, Mapping) else users)
    waiting: dict[str, Sequence[Any]] = {}

    def named() -> Iterable[User]:
        for user, history in pairs:
            waiting[str(user)] = history
            yield User(str(user), "dspy", ())

    async def refine(user: User) -> Refinement:
        return await work.refine(user.id, waiting.pop(user.id))

    async for ended in each_user(named(), refine, at_once=work.users_in_flight):
        if isinstance(ended, Incomplete):
            waiting.pop(ended.user.id, None)
            book.incomplete[ended.user.id] = ended.error
        else:
            book.refinements[ended.user.id] = ended.value


def _bare(student: Any) -> Any:
    """The program without a persona of its own."""
    return student.student if isinstance(student, Personalized) else student


def _no_teacher(teacher: Any) -> None:
    if teacher is not None:
        msg = "PersonaLink takes no teacher; PersonaLink(rewriter=…) names the model that writes personas"
        raise ConfigError(msg)

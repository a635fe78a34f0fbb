"""The loop for one user: render → self-evaluate → rewrite → keep if better (the PersonaLink paper, §3.2).

Its policies (slicing, gate, rewriting) are small Protocols in files of their own. Exact call savings, none of which
changes a verdict or a later prompt: the incumbent's score is reused, a slice without errors ends the loop, a candidate
that renders as one already scored is not scored again, a request that would be the last one over again is not sent.
Knows nothing of files, other users or the command line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from personalink.agent import Agent
from personalink.brief import Brief, Rejected, draw_sample, fit_mistakes
from personalink.data.labels import labelled
from personalink.data.leaks import check_user
from personalink.data.types import Item, User
from personalink.errors import ConfigError, PromptTooLong
from personalink.gate import GATES, Gate, SliceScore, make_gate
from personalink.lm.base import Request
from personalink.lm.gateway import Gateway
from personalink.lm.ledger import Bill
from personalink.persona import Caps, PersonaState
from personalink.refinement import Pass, Refinement
from personalink.rewrite import JsonRewriter, Proposal, Rewriter, budget_counter, quotes_slice
from personalink.slicing import MIN_HISTORY, HoldoutSlicer, Slicer, Split
from personalink.tasks.base import GateMetric, Task
from personalink.tasks.rating import RatingTask
from personalink.trial import Trial, hopeless, waves

T = TypeVar("T")
_LEAST = {
    "depth": 0, "audit": 0, "audit_from": 0, "quote_words": 0, "sample_tokens": 0, "mistake_tokens": 0,
    "item_tokens": 1, "rewrite_tokens": 16,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class OptimizerConfig:
    """Every constant of the loop; the defaults are what a careful user wants, `paper()` what the paper likely did.

    Attributes:
        depth: passes (r). holdout: slice items, or a share below 1. gate, margin, alpha: see `gate.make_gate`.
        slice_by, audit, audit_from, pool: see `slicing.HoldoutSlicer`.
        after_rejection: "feedback" shows the next rewrite what was refused, "stop" ends the loop (greedy decoding
            would give the same rewrite again), "resample" draws again at temperature 0.7.
        skip_if_no_errors: nothing to mend, nothing to rewrite: recorded as converged.
        draft_sees: what the first draft is made from: "profile", "errors" or "both". rewrite_sees: the same later.
        sample_tokens, mistake_tokens, item_tokens: budgets of the rewriter's prompt, in its own tokens.
        quote_words: a candidate that copies this many words in a row of a slice item is rejected; 0 switches it off.
        rewrite_tokens: room for the reply. constrain_rewrite: ask the server to enforce the schema.
        gate_metric: what the gate counts on ratings: "mae", "rmse" or "exact"; None leaves it to the task.
        race: ask for the incumbent's errors first and stop where the gate can no longer accept; False scores every
            candidate in full, for the record. Both keep the same personas.
        caps: the persona's bounds.
    """

    depth: int = 3
    holdout: float = 8
    gate: str = "strict"
    margin: float = 0.1
    alpha: float = 0.05
    slice_by: Literal["random", "stratified", "recent"] = "random"
    audit: int = 8
    audit_from: int = 24
    pool: Literal["minus_slice", "full"] = "minus_slice"
    after_rejection: Literal["feedback", "stop", "resample"] = "feedback"
    skip_if_no_errors: bool = True
    draft_sees: Literal["profile", "errors", "both"] = "both"
    rewrite_sees: Literal["profile", "errors", "both"] = "both"
    sample_tokens: int = 1200
    mistake_tokens: int = 600
    item_tokens: int = 60
    quote_words: int = 8
    gate_metric: GateMetric | None = None
    rewrite_tokens: int = 512
    constrain_rewrite: bool = True
    race: bool = True
    caps: Caps = field(default_factory=Caps)

    def __post_init__(self) -> None:
        for name, value, choices in (
            ("gate", self.gate, GATES),
            ("after_rejection", self.after_rejection, ("feedback", "stop", "resample")),
            ("draft_sees", self.draft_sees, ("profile", "errors", "both")),
            ("rewrite_sees", self.rewrite_sees, ("profile", "errors", "both")),
            ("pool", self.pool, ("minus_slice", "full")),
            ("gate_metric", self.gate_metric, (None, "mae", "rmse", "exact")),
        ):
            if value not in choices:
                msg = f"optimizer.{name} is {value!r}; it must be one of {', '.join(map(str, choices))}"
                raise ConfigError(msg)
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                msg = f"optimizer.{name} is {value!r}; it must be a whole number of at least {least}"
                raise ConfigError(msg)
            if value < least:
                msg = f"optimizer.{name} is {value}; it must be at least {least}"
                raise ConfigError(msg)
        for name in ("skip_if_no_errors", "constrain_rewrite", "race"):
            if not isinstance(getattr(self, name), bool):
                msg = f"optimizer.{name} is {getattr(self, name)!r}; it must be true or false"
                raise ConfigError(msg)
        if not isinstance(self.caps, Caps):
            msg = f"optimizer.caps is {self.caps!r:.60}; it must be a Caps(summary=…, rules=…, …)"
            raise ConfigError(msg)
        make_gate(self.gate, margin=self.margin, alpha=self.alpha)
        self.slicer()

    @classmethod
    def paper(cls) -> OptimizerConfig:
        """The paper's likely choices (SPEC §1): ties accepted, one rejection ends the loop, no audit, no schema."""
        return cls(gate="no_regress", after_rejection="stop", audit=0, gate_metric="exact", constrain_rewrite=False)

    def slicer(self) -> Slicer:
        """The slicer of these settings."""
        return HoldoutSlicer(self.slice_by, self.holdout, self.audit, self.audit_from, self.pool)


class Optimizer:
    """The loop over one agent.

    Args:
        agent: the frozen model on its task.
        config: the loop's constants.
        rewriting: another model that drafts and rewrites; the agent's own by default.
        seed: of slices and samples.
    """

    def __init__(
        self, agent: Agent, config: OptimizerConfig, *, rewriting: Gateway | None = None, seed: int = 12345
    ) -> None:
        self.agent = agent
        self.config = config
        self.rewriting = rewriting or agent.gateway
        self.seed = seed
        self.task: Task = (
            replace(agent.task, metric=config.gate_metric)
            if config.gate_metric and isinstance(agent.task, RatingTask)
            else agent.task
        )
        self.gate: Gate = make_gate(config.gate, margin=config.margin, alpha=config.alpha, unit=self.task.unit)
        if config.slice_by == "stratified" and not self.task.labels:
            msg = f"optimizer.slice_by is 'stratified', but the labels of task {self.task.name} are texts; use random"
            raise ConfigError(msg)
        self.slicer: Slicer = config.slicer()
        self.rewriter: Rewriter = JsonRewriter(
            agent.task,
            config.caps,
            agent.gateway.counter,
            item_cap=config.item_tokens,
            max_tokens=config.rewrite_tokens,
            constrain=config.constrain_rewrite,
            seed=seed,
            temperature=0.7 if config.after_rejection == "resample" else 0.0,
        )

    async def refine(self, user: User) -> Refinement:
        """Run the loop for one user.

        Raises:
            LeakError: one of the user's queries stands in the history.
            DataError: a label of the history is none of the task's.
            LMError: a model could not be asked; what was answered stays in the journal.
        """
        user = self._at_the_door(user)
        split = self.slicer.split(user, self.seed)
        empty = PersonaState.empty(self.agent.gateway.counter, self.config.caps)
        first = kept = await self._evaluate(user, empty, split.slice, "evaluate", 0)
        tried = {empty.render(): first}
        rejected: Rejected | None = None
        asked_last: Request | None = None
        passes: list[Pass] = []
        for depth in range(1, self.config.depth + 1):
            if idle := self._nothing_to_do(split, kept, passes):
                passes.append(_idle_pass(depth, kept, idle))
                continue
            brief = self._brief(user, split, kept, rejected, depth)
            request = self.rewriter.request(brief)
            if _out_of_nothing(brief) or request == asked_last:
                passes.append(_idle_pass(depth, kept, _FIXED if asked_last else _NOTHING))
                continue
            asked_last = request
            proposal = await self._propose(user, brief, request, split)
            trial, reason, asked = await self._try(user, proposal, split, tried, kept, depth)
            better = trial is not None and trial.complete and self.gate.accepts(kept.score, trial.score)
            new = trial if better and trial is not None else kept
            passes.append(_pass(depth, kept, new, proposal, trial, reason, 1 + asked))
            if reason != _SAME:  # which is no refusal: what the rewriter is told stays as it was
                rejected = None if better else self._feedback(passes[-1], kept, trial)
            kept = new
        audit = await self._audit(user, split, [first.persona, *(p.persona for p in passes)])
        return Refinement(
            user=user.id,
            seed=self.seed,
            slice_ids=tuple(item.id for item in split.slice),
            audit_ids=tuple(item.id for item in split.audit),
            initial=first.score,
            empty=empty,
            passes=tuple(passes),
            audit=audit,
            calls=len(split.slice) + sum(p.calls for p in passes),
            audit_calls=len({p.persona.render() for p in passes} | {""}) * len(split.audit),
            flags=() if split.slice else (f"history too short: under {MIN_HISTORY} distinct items",),
        )

    async def draft(self, user: User) -> Proposal:
        """The ungated draft (PAG): what pass 1 proposes, made also for users with no error or a tiny history.

        Nothing is asked where there is neither an item nor a mistake to write from.

        Raises:
            LeakError, DataError, LMError: as `refine`.
        """
        user = self._at_the_door(user)
        split = self.slicer.split(user, self.seed)
        empty = PersonaState.empty(self.agent.gateway.counter, self.config.caps)
        first = await self._evaluate(user, empty, split.slice, "evaluate", 0)
        brief = self._brief(user, split, first, None, 1)
        if _out_of_nothing(brief):
            return Proposal(None, _NOTHING)
        return await self._propose(user, brief, self.rewriter.request(brief), split, phase="draft")

    def draft_calls(self, user: User) -> tuple[int, int]:
        """Least and most rewrites of `draft`: one, or none where there may be nothing to write from."""
        split = self.slicer.split(user, self.seed)
        bare = Trial(PersonaState.empty(self.agent.gateway.counter, self.config.caps), (), self.task)
        if self._brief(user, split, bare, None, 1).sample:
            return 1, 1
        return 0, int(bool(split.slice) and self.config.draft_sees != "profile")

    def _at_the_door(self, user: User) -> User:
        """The user in the task's own spelling, checked, before anything is sent."""
        user = labelled(user, self.task)
        check_user(user)
        return user

    def _nothing_to_do(self, split: Split, kept: Trial, passes: Sequence[Pass]) -> str:
        """Why a pass would change nothing, as far as that is known without its brief; "" otherwise."""
        if not split.slice:
            return "history too short"
        if self.config.skip_if_no_errors and not kept.mistakes():
            return "converged: no errors on the slice"
        if passes and not passes[-1].calls:
            return passes[-1].reason
        if self.config.after_rejection == "stop" and passes and not passes[-1].accepted:
            return "" if passes[-1].reason == _SAME else "stopped after a rejection"
        return ""

    def _brief(self, user: User, split: Split, kept: Trial, rejected: Rejected | None, depth: int) -> Brief:
        config, count = self.config, budget_counter(self.rewriting.counter).count
        sample_budget, mistake_budget = self._budgets()
        sees = config.draft_sees if kept.persona.is_empty else config.rewrite_sees
        if sees == "errors":
            exemplars = {e.item_id for e in kept.persona.exemplars}
            sample = tuple(item for item in split.pool if item.id in exemplars)
        else:
            limits, by_label = (sample_budget, config.item_tokens), bool(self.task.labels)
            sample = draw_sample(split.pool, user.id, self.seed, *limits, count, by_label=by_label)
        mistakes = kept.mistakes() if sees != "profile" else ()
        shown, left_out = fit_mistakes(mistakes, mistake_budget, config.item_tokens, count)
        if rejected is not None:
            still, _ = fit_mistakes(rejected.mistakes, mistake_budget, config.item_tokens, count)
            rejected = replace(rejected, mistakes=still)
        return Brief(kept.persona, sample, shown, left_out, rejected, depth)

    def _budgets(self) -> tuple[int, int]:
        """Tokens for sample and mistakes, cut where the rewriter's window is small."""
        config = self.config
        if self.rewriting.window is None:
            return config.sample_tokens, config.mistake_tokens
        fixed = config.rewrite_tokens + 2 * config.caps.total + 500
        free = max(0, self.rewriting.window - fixed)
        return min(config.sample_tokens, free // 2), min(config.mistake_tokens, free // 4)

    async def _propose(
        self, user: User, brief: Brief, request: Request, split: Split, phase: str = "rewrite"
    ) -> Proposal:
        """One call; its reply as a persona, or the reason why there is none."""
        try:
            completion = await self.rewriting.complete(request, Bill(user.id, phase, brief.depth))
        except PromptTooLong as error:
            return Proposal(None, f"the rewriter's prompt does not fit its window: {error}")
        proposal = await self._measured(lambda: self.rewriter.read(completion, brief))
        if proposal.persona is not None and self.config.quote_words:
            held = {item.id for item in split.slice}
            elsewhere = [item for item in user.history if item.id not in held]
            if quote := quotes_slice(proposal.persona, split.slice, elsewhere, self.config.quote_words):
                return replace(proposal, persona=None, reason=f"quotes the slice: {quote!r}")
        return proposal

    async def _measured(self, work: Callable[[], T]) -> T:
        """Run work that counts tokens, off the loop where a count is a round trip."""
        return await asyncio.to_thread(work) if self.agent.gateway.counter.remote else work()

    async def _try(
        self, user: User, proposal: Proposal, split: Split, tried: dict[str, Trial], kept: Trial, depth: int
    ) -> tuple[Trial | None, str, int]:
        """Race a proposal against the incumbent; the trial, why there is none or no news of it, and the calls made."""
        if proposal.persona is None:
            return None, proposal.reason, 0
        text = proposal.persona.render()
        if text == kept.persona.render():
            return None, _SAME, 0
        known = text in tried
        trial = tried.setdefault(text, Trial(proposal.persona, split.slice, self.task))
        asked = await self._race(user, kept, trial, depth)
        return trial, "tried before" if known else "", asked

    async def _race(self, user: User, kept: Trial, trial: Trial, depth: int) -> int:
        """Ask what the incumbent got wrong first, and the rest only while the gate could still accept.

        It stops early only to reject: an accepted candidate is always scored in full, since its errors feed the next
        rewrite. Returns the number of answers asked for.
        """
        asked = 0
        for wave in waves(kept, trial, race=self.config.race):
            if self.config.race and hopeless(self.gate, kept, trial):
                break
            await self._ask(user, trial, wave, Bill(user.id, "evaluate", depth))
            asked += len(wave)
        return asked

    async def _ask(self, user: User, trial: Trial, places: Sequence[int], bill: Bill) -> None:
        """Ask the agent behind a persona; the items go out together, in order."""
        context = trial.persona.render()
        answers = await asyncio.gather(*(self.agent.answer(context, trial.items[i].input, bill) for i in places))
        trial.answers.update(zip(places, answers, strict=True))

    async def _evaluate(
        self, user: User, persona: PersonaState, items: Sequence[Item], phase: str, depth: int
    ) -> Trial:
        """A complete trial."""
        trial = Trial(persona, items, self.task)
        await self._ask(user, trial, range(len(items)), Bill(user.id, phase, depth))
        return trial

    def _feedback(self, refused: Pass, kept: Trial, trial: Trial | None) -> Rejected | None:
        """What the next rewrite is told of a refused candidate: which of the incumbent's errors stayed wrong.

        Only those, since they are known whether or not the race was cut short: racing changes no later prompt.
        """
        if self.config.after_rejection != "feedback":
            return None
        still = trial.mistakes(kept.wrong_places()) if trial else ()
        return Rejected(refused.reason, refused.candidate if trial else None, still)

    async def _audit(self, user: User, split: Split, personas: Sequence[PersonaState]) -> tuple[SliceScore, ...]:
        """Audit scores by depth; each distinct persona is asked once."""
        if not split.audit:
            return ()
        scores: dict[str, SliceScore] = {}
        for depth, persona in enumerate(personas):
            if persona.render() not in scores:
                trial = await self._evaluate(user, persona, split.audit, "audit", depth)
                scores[persona.render()] = trial.score
        return tuple(scores[persona.render()] for persona in personas)


_SAME = "identical to the incumbent"
_FIXED = "fixed point: the same rewrite again"
_NOTHING = "no item and no mistake to write from"


def _out_of_nothing(brief: Brief) -> bool:
    """Whether a first persona would have to be invented."""
    return brief.incumbent.is_empty and not brief.sample and not brief.mistakes


def _idle_pass(depth: int, kept: Trial, reason: str) -> Pass:
    return Pass(depth, kept.score, kept.score, None, False, reason, None, kept.persona)


def _pass(
    depth: int, kept: Trial, new: Trial, proposal: Proposal, trial: Trial | None, reason: str, calls: int
) -> Pass:
    """The record of a pass that made a call."""
    accepted = new is not kept
    return Pass(
        depth=depth,
        before=kept.score,
        after=new.score,
        trial=trial.score if trial and trial.complete else None,
        at_best=trial.score.value if trial and not trial.complete else None,
        accepted=accepted,
        reason=reason or ("accepted" if accepted else "not better on the slice"),
        candidate=proposal.persona,
        persona=new.persona,
        errors=tuple(m.item.id for m in kept.mistakes()),
        unreadable=sum(a.reading.label is None for a in trial.answers.values()) if trial else 0,
        calls=calls,
        notes=proposal.notes,
        constrained=proposal.constrained,
    )

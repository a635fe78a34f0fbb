"""An experiment: every row of a table over every user of a manifest, journalled, resumable, sealed.

Ties the rooms together and holds no method of its own: contexts build, the agent answers, `report` scores what is
sealed here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from personalink.agent import Agent
from personalink.canonical import pretty_json, write_atomic
from personalink.config import RunConfig
from personalink.contexts.base import Tools, check_needs
from personalink.data import User, make_manifest
from personalink.errors import IntegrityError, Interrupted, LMError, PersonalinkError, StorageError, UsageError
from personalink.fleet import Done, each_user
from personalink.lm import LM, ScriptedLM
from personalink.lm.budget import Budget, Limits
from personalink.lm.cache import Cache, cache_path, open_cache
from personalink.lm.gateway import Gateway
from personalink.lm.journal import Journal
from personalink.optimizer import Optimizer
from personalink.plan import Plan, make_plan
from personalink.predictions import Prediction
from personalink.progress import Progress
from personalink.rows import Rows
from personalink.run_dir import RunDir
from personalink.sealing import keep, seal
from personalink.sources import load_data, make_lm, versions
from personalink.spool import Spool


@dataclass(frozen=True, slots=True)
class RunResult:
    """What an experiment came to.

    Attributes:
        run: its directory. state: "complete", "incomplete" or "interrupted".
        incomplete: user → why that user could not be finished.
        sent: requests sent by this attempt. cached: requests that the cache answered.
        remarks: what should be known of how it went, such as a journal that was damaged.
    """

    run: RunDir
    state: str
    incomplete: Mapping[str, PersonalinkError]
    sent: int
    cached: int = 0
    remarks: tuple[str, ...] = ()


@dataclass(slots=True)
class _Progress:
    """What is finished so far."""

    done: set[str] = field(default_factory=set)
    answered: int = 0
    incomplete: dict[str, PersonalinkError] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """The state that this amounts to."""
        stopped = any(isinstance(error, Interrupted) for error in self.incomplete.values())
        return "interrupted" if stopped else "incomplete" if self.incomplete else "complete"


class Experiment:
    """One run of a configuration.

    Args:
        config: what to do.
        lm, rewriter: models to use in place of the configuration's (for tests and embedding in other programs).
        progress: make the display of a total; None shows nothing.
    """

    def __init__(
        self,
        config: RunConfig,
        *,
        lm: LM | None = None,
        rewriter: LM | None = None,
        progress: Callable[[int], Progress] | None = None,
    ) -> None:
        self.config = config
        self.task = config.make_task()
        self.contexts = config.make_contexts()
        for context in self.contexts.values():
            check_needs(context)
        self.dataset = load_data(config.data, self.task)
        self.manifest = make_manifest(
            self.dataset,
            n_users=config.data.n_users,
            seed=config.seed,
            max_top_label_share=config.data.max_top_label_share,
            min_history=config.data.min_history,
            max_history=config.data.max_history,
        )
        self.everyone = self.manifest.select(self.dataset)
        self.users = [user for user in self.everyone if config.shard.holds(user.id)]
        self.run_dir = RunDir(config.folder)
        self._lm = lm or make_lm(config.lm, self.task)
        self._rewriter = rewriter or (make_lm(config.rewriter, self.task) if config.rewriter else None)
        self._progress = progress
        self._gateways: list[Gateway] = []
        self._starting: asyncio.Task[None] | None = None
        self._stopped = False

    def drain(self) -> None:
        """Send nothing more; what is in flight is finished and sealed, and the run ends as interrupted."""
        self._stopped = True
        for gateway in self._gateways:
            gateway.draining = True
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()

    async def run(self) -> RunResult:
        """Do what is not done yet and seal it. A finished run asks nothing and is scored from its files.

        Raises:
            LMError: the model cannot be asked at all; nothing was sent.
            IntegrityError: the data or the model are not those that this run was begun with.
            StorageError: the run's folder cannot be written.
            UsageError: another process works in this directory.
        """
        self.run_dir.open(self.config.as_dict(), fresh=self.config.fresh)
        self._check_data()
        before = self.run_dir.status["state"]
        if before == "complete" and not self.run_dir.broken_seal():
            self._check_model()
            return RunResult(self.run_dir, "complete", {}, 0)
        log = self.run_dir.log
        with Journal(log / "journal") as journal, open_cache(self.config.cache) as cache, Spool(log) as spool:
            self._write(self.run_dir.sweep)  # not before the journal is ours: another process may be writing
            if before == "failed":  # empty and refused answers may have been the server's trouble of that day
                journal.forget(("empty", "refused"))
            try:
                tools = await self._connect(journal, cache)
                return await self._work(Rows(self.contexts, tools, spool), tuple(journal.remarks()))
            finally:
                await self._lm.aclose()
                if self._rewriter:
                    await self._rewriter.aclose()

    def _check_data(self) -> None:
        standing = self.run_dir.read_json("sealed/manifest.json")
        made = json.loads(pretty_json(self.manifest.as_dict()))
        if standing is not None and standing != made:
            msg = (
                f"{self.run_dir.path} was begun with other data (the users or their texts differ); "
                "put the files back, or use fresh=true"
            )
            raise IntegrityError(msg)

    def _check_model(self) -> None:
        """Refuse another model than the one that a run was begun with, as far as it is known by now."""
        standing = self.run_dir.read_json("sealed/model.json") or {}
        for role, lm in (("lm", self._lm), ("rewriter", self._rewriter)):
            now, then = getattr(lm, "identity", None), standing.get(role)
            if now is not None and then is not None and now != then:
                msg = f"{self.run_dir.path} was begun with the model {then} and {now} is given; use fresh=true"
                raise IntegrityError(msg)

    async def plan(self) -> tuple[Plan, str]:
        """What the run will take, and a remark where the model could not be reached for its window and counter."""
        lm, remark = self._lm, ""
        try:
            await self._lm.start()
        except LMError as error:
            then = (self.run_dir.read_json("sealed/model.json") or {}).get("lm") or "not reached"
            lm = ScriptedLM(lambda request: "", identity=then, window=self.config.lm.window)
            remark = f"the model was not reached ({error}); tokens are estimated"
        try:
            return self.planned(lm), remark
        finally:
            await self._lm.aclose()

    def planned(self, lm: LM) -> Plan:
        """What the run will take with `lm`, which is started; sends nothing, and may count by its tokenizer."""
        prices, standing = self.config.budget.prices, not self.config.fresh
        state = self.run_dir.status["state"] if standing else ""
        with self._at_hand() as (journal, cache):
            if journal is not None and state == "failed":
                journal.forget(("empty", "refused"))
            return make_plan(
                self.users,
                self.contexts,
                self._tools(Gateway(lm, journal, cache=cache, scan=False), None),
                prices=prices,
                tokens_per_s=prices.tokens_per_s or (self._measured_speed() if standing else None),
                finished=state == "complete" and not self.run_dir.broken_seal(),
            )

    @contextlib.contextmanager
    def _at_hand(self) -> Iterator[tuple[Journal | None, Cache | None]]:
        """The run's journal and the cache where they are there already; None for one that another process holds."""
        journal, where = self.run_dir.log / "journal", cache_path(self.config.cache)
        with contextlib.ExitStack() as held:
            found = None
            if journal.exists() and not self.config.fresh:
                with contextlib.suppress(UsageError, StorageError):
                    found = held.enter_context(Journal(journal))
            cache = held.enter_context(Cache(where)) if where is not None and where.exists() else None
            yield found, cache

    def _measured_speed(self) -> float | None:
        """Tokens a second over all attempts of this run; None where an attempt or an answer did not tell."""
        total = (self.run_dir.read_json("log/ledger.json") or {}).get("total", {})
        tokens = (total.get("prompt_tokens"), total.get("completion_tokens"))
        seconds = [attempt["seconds"] for attempt in self.run_dir.attempts()]
        if None in tokens or None in seconds or not sum(seconds):
            return None
        return float(sum(tokens) / sum(seconds))

    async def _start(self, lm: LM) -> None:
        """Start a model, unless told to stop meanwhile."""
        if self._stopped:
            raise Interrupted(_BEFORE)
        self._starting = asyncio.create_task(lm.start())
        try:
            await self._starting
        except asyncio.CancelledError:
            if self._stopped:
                raise Interrupted(_BEFORE) from None
            raise

    async def _connect(self, journal: Journal, cache: Cache | None) -> Tools:
        await self._start(self._lm)
        if self._rewriter:
            await self._start(self._rewriter)
        self._check_model()
        budget = Budget(self.config.budget) if self.config.budget != Limits() else None
        gateway = Gateway(self._lm, journal, budget=budget, cache=cache)
        self._gateways = [gateway]
        facts = {"versions": versions(), "lm": self._lm.describe(), "prices": asdict(self.config.budget.prices)}
        who = {"lm": self._lm.identity, "model": self._lm.model, "rewriter": None}
        rewriting = None
        if self._rewriter:
            rewriting = Gateway(self._rewriter, journal, gateway.ledger, budget=budget, cache=cache, scan=False)
            self._gateways.append(rewriting)
            facts["rewriter"] = self._rewriter.describe()
            who["rewriter"] = self._rewriter.identity
        if self._stopped:
            self.drain()
        self._write(lambda: self.run_dir.seal("model.json", pretty_json(who)))
        self._write(lambda: self.run_dir.note_attempt(facts))
        return self._tools(gateway, rewriting)

    def _tools(self, gateway: Gateway, rewriting: Gateway | None) -> Tools:
        asked = self.config
        agent = Agent(self.task, gateway, constrain=asked.constrain, seed=asked.seed, logprobs=asked.logprobs)
        optimizer = Optimizer(agent, self.config.optimizer, rewriting=rewriting, seed=self.config.seed)
        by_id = {user.id: user for user in self.everyone}
        donors = {e.user: by_id.get(e.donor) if e.donor is not None else None for e in self.manifest.entries}
        return Tools(agent, optimizer, lambda user: donors.get(user.id), self.config.seed)

    async def _work(self, rows: Rows, remarks: tuple[str, ...]) -> RunResult:
        self._write(lambda: self.run_dir.seal("manifest.json", pretty_json(self.manifest.as_dict())))
        so_far = _Progress()
        try:
            await self._all_users(rows, so_far)
            await self._replay(rows, so_far)
        finally:  # also when a fault of ours ends it: what is finished is kept
            self._write(lambda: self._seal(rows, so_far))
        sent, cached = (sum(getattr(g, name) for g in self._gateways) for name in ("sent", "cached"))
        return RunResult(self.run_dir, so_far.state, so_far.incomplete, sent, cached, remarks)

    async def _all_users(self, rows: Rows, so_far: _Progress) -> None:
        """Every user, many at once, until they are done or something stops them all."""
        total = sum(len(user.queries) for user in self.users) * len(self.contexts)
        progress = self._progress(total) if self._progress else None

        def show() -> None:
            if progress:
                names = ("sent", "cached", "in_flight", "tokens", "failed")
                sums = {n: sum(getattr(g, n) for g in self._gateways) for n in names}
                progress.update(
                    done=so_far.answered,
                    requests=sums["sent"],
                    cached=sums["cached"],
                    tokens=sums["tokens"],
                    failures=sums["failed"],
                    in_flight=sums["in_flight"],
                )

        for gateway in self._gateways:
            gateway.on_answer = show
        at_once, draining = self._lm.users_in_flight, lambda: self._gateways[0].draining
        try:
            async with _every_second(show):
                async for ended in each_user(self.users, rows.one_user, at_once=at_once, stopping=draining):
                    if isinstance(ended, Done):
                        self._finished(ended.user, ended.value, rows, so_far)
                    else:
                        so_far.incomplete[ended.user.id] = ended.error
                    show()
        finally:
            if progress:
                progress.close()
            for gateway in self._gateways:
                await gateway.drain()

    async def _replay(self, rows: Rows, so_far: _Progress) -> None:
        """Finish from the journal alone those whom an outage or a stop left unfinished, so that none is lost again."""
        for user in [user for user in self.users if user.id in so_far.incomplete]:
            try:
                predictions = await rows.one_user(user)
            except PersonalinkError:
                continue
            self._finished(user, predictions, rows, so_far)
            del so_far.incomplete[user.id]

    def _finished(self, user: User, predictions: Sequence[Prediction], rows: Rows, so_far: _Progress) -> None:
        """Put away what a user came to."""
        keep(rows.spool, user, predictions)
        so_far.done.add(user.id)
        so_far.answered += len(predictions)

    def _seal(self, rows: Rows, so_far: _Progress) -> None:
        """Write all that is finished, and the log beside it."""
        seal(self.run_dir, self.users, self.dataset, rows, self.task)
        ledger = self._gateways[0].ledger
        write_atomic(self.run_dir.log / "ledger.json", ledger.as_json())
        reasons = {user: str(error) for user, error in so_far.incomplete.items()}
        left = {user.id for user in self.users} - so_far.done - set(reasons)
        state = so_far.state if not left else "incomplete"
        self.run_dir.set_status(state, incomplete=reasons, users=len(self.users), finished=len(so_far.done))
        self.run_dir.end_attempt()

    def _write(self, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as error:
            why = error.strerror or error
            msg = f"cannot write {self.run_dir.path}: {why}; make room, then the same command goes on"
            raise StorageError(msg) from None


@contextlib.asynccontextmanager
async def _every_second(show: Callable[[], None]) -> AsyncIterator[None]:
    """Call `show` once a second meanwhile, so that a display also tells that nothing comes."""

    async def tick() -> None:
        while True:
            await asyncio.sleep(1)
            show()

    ticking = asyncio.create_task(tick())
    try:
        yield
    finally:
        ticking.cancel()


_BEFORE = "interrupted before anything was sent"

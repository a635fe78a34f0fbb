"""An experiment: every row of a table over every user of a manifest, journalled, resumable, sealed.

Ties the rooms together and holds no method of its own: contexts build, the agent answers, `report` scores what is
sealed here.
"""

from __future__ import annotations

import asyncio
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import metadata

import personalink
from personalink.agent import Agent
from personalink.canonical import pretty_json
from personalink.config import DataConfig, LMConfig, RunConfig
from personalink.contexts.base import Context, Placed, Product, Products, Tools
from personalink.contexts.persona import Refine
from personalink.data import Dataset, User, find_lamp, load_lamp, load_records, load_sample, make_manifest
from personalink.data.types import Query
from personalink.errors import ConfigError, DataError, Interrupted, LMError, PersonalinkError
from personalink.fleet import Done, each_user
from personalink.floors import floors_for
from personalink.lm import LM, ScriptedLM, connect
from personalink.lm.budget import Budget, Limits
from personalink.lm.cache import Cache, open_cache
from personalink.lm.gateway import Gateway
from personalink.lm.journal import Journal
from personalink.lm.ledger import Bill
from personalink.optimizer import Optimizer
from personalink.persona_io import to_json, to_markdown
from personalink.plan import Plan, make_plan
from personalink.predictions import Prediction
from personalink.progress import Progress
from personalink.refinement import Refinement
from personalink.run_dir import RunDir, file_name
from personalink.tasks import Task


@dataclass(frozen=True, slots=True)
class RunResult:
    """What an experiment came to.

    Attributes:
        run: its directory. state: "complete", "incomplete" or "interrupted".
        incomplete: user → why that user could not be finished.
        sent: requests sent by this attempt. cached: requests that the cache across runs answered in it.
    """

    run: RunDir
    state: str
    incomplete: Mapping[str, PersonalinkError]
    sent: int
    cached: int = 0


def load_data(config: DataConfig, task: Task) -> Dataset:
    """The dataset of a configuration, its labels in the task's canonical spelling.

    Raises:
        DataError: a file is missing or wrong, or a label is none of the task's.
        ConfigError: the data belong to another task.
    """
    if config.kind == "sample":
        dataset = load_sample(config.name)
    elif config.kind == "records":
        if not config.path:
            msg = "data.path is missing: give your own JSONL or CSV file"
            raise ConfigError(msg)
        dataset = load_records(config.path, columns=dict(config.columns) or None)
    else:
        if not config.root:
            msg = "data.root is missing: the folder of the official LaMP files (scripts/download_lamp.py fetches them)"
            raise ConfigError(msg)
        questions, outputs = find_lamp(config.root, task.name, config.split, config.split_kind)
        dataset = load_lamp(questions, outputs, task=task.name)
    if dataset.task and dataset.task != task.name and not set(task.labels) >= _labels(dataset):
        msg = f"the data are of task {dataset.task!r} and the task is {task.name!r}; use task={dataset.task}"
        raise ConfigError(msg)
    return _canonical_labels(dataset, task)


def _labels(dataset: Dataset) -> set[str]:
    return {item.label for user in dataset.users for item in user.history}


def _canonical_labels(dataset: Dataset, task: Task) -> Dataset:
    """Every label checked and spelt as the task spells it."""

    def checked(label: str, where: str) -> str:
        try:
            return task.check_label(label)
        except DataError as error:
            msg = f"{dataset.source}, {where}: {error}"
            raise DataError(msg) from None

    users = tuple(
        replace(
            user,
            history=tuple(replace(i, label=checked(i.label, f"user {user.id}, item {i.id}")) for i in user.history),
        )
        for user in dataset.users
    )
    golds = {key: checked(gold, f"user {key[0]}, query {key[1]}") for key, gold in dataset.golds.items()}
    return replace(dataset, users=users, golds=golds)


def make_lm(config: LMConfig, task: Task) -> LM:
    """The model of a configuration; nothing is started yet."""
    if config.kind == "embedded":
        return connect(
            "embedded", model=config.path, context=config.context, threads=config.threads, slots=config.slots
        )
    if config.kind == "scripted":
        return connect("scripted", labels=task.labels)
    if not config.base_url:
        msg = "lm.base_url is missing: the address of an OpenAI-compatible server, such as http://localhost:8000/v1"
        raise ConfigError(msg)
    names = ("api_key_env", "dialect", "revision", "tokenizer", "window", "concurrency", "users_in_flight", "timeout_s")
    options = {name: getattr(config, name) for name in (*names, "retries", "down_timeout_s")}
    return connect(config.base_url, model=config.model, **options)


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
        self.rows = config.make_contexts()
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
        self._products: dict[tuple[str, str], asyncio.Task[Product]] = {}

    def drain(self) -> None:
        """Send nothing more; what is in flight is finished and sealed, and the run ends as interrupted."""
        for gateway in self._gateways:
            gateway.draining = True

    async def run(self) -> RunResult:
        """Do what is not done yet and seal it. A finished run asks nothing and is scored from its files.

        Raises:
            LMError: the model cannot be asked at all; nothing was sent.
            UsageError: another process works in this directory.
        """
        plain = self.config.as_dict()
        self.run_dir.open(plain, fresh=self.config.fresh)
        if self.run_dir.status["state"] == "complete":
            return RunResult(self.run_dir, "complete", {}, 0)
        with Journal(self.run_dir.log / "journal") as journal, open_cache(self.config.cache) as cache:
            try:
                tools = await self._connect(journal, cache)
                return await self._work(tools)
            finally:
                await self._lm.aclose()
                if self._rewriter:
                    await self._rewriter.aclose()

    async def plan(self) -> tuple[Plan, str]:
        """What the run will take, and a remark where the model could not be reached for its window and counter."""
        lm, remark = self._lm, ""
        try:
            await self._lm.start()
        except LMError as error:
            lm = ScriptedLM(lambda request: "", window=self.config.lm.window)
            remark = f"the model was not reached ({error}); tokens are estimated"
        try:
            return make_plan(self.users, self.rows, self._tools(Gateway(lm), None)), remark
        finally:
            await self._lm.aclose()

    async def _connect(self, journal: Journal, cache: Cache | None) -> Tools:
        await self._lm.start()
        budget = Budget(self.config.budget) if self.config.budget != Limits() else None
        gateway = Gateway(self._lm, journal, budget=budget, cache=cache)
        self._gateways = [gateway]
        facts = {"versions": versions(), "lm": self._lm.describe()}
        rewriting = None
        if self._rewriter:
            await self._rewriter.start()
            rewriting = Gateway(self._rewriter, journal, gateway.ledger, budget=budget, cache=cache, scan=False)
            self._gateways.append(rewriting)
            facts["rewriter"] = self._rewriter.describe()
        self.run_dir.note_attempt(facts)
        return self._tools(gateway, rewriting)

    def _tools(self, gateway: Gateway, rewriting: Gateway | None) -> Tools:
        agent = Agent(self.task, gateway, constrain=self.config.constrain, seed=self.config.seed)
        optimizer = Optimizer(agent, self.config.optimizer, rewriting=rewriting, seed=self.config.seed)
        by_id = {user.id: user for user in self.everyone}
        donors = {e.user: by_id.get(e.donor) if e.donor is not None else None for e in self.manifest.entries}
        return Tools(agent, optimizer, lambda user: donors.get(user.id), self.config.seed)

    async def _work(self, tools: Tools) -> RunResult:
        self.run_dir.seal("manifest.json", pretty_json(self.manifest.as_dict()))
        done: dict[str, list[Prediction]] = {}
        incomplete: dict[str, PersonalinkError] = {}
        interrupted = False
        total = sum(len(user.queries) for user in self.users) * len(self.rows)
        progress = self._progress(total) if self._progress else None
        answered = 0

        def show() -> None:
            if progress:
                sent, flying = (sum(getattr(g, name) for g in self._gateways) for name in ("sent", "in_flight"))
                tokens, failed = (sum(getattr(g, name) for g in self._gateways) for name in ("tokens", "failed"))
                progress.update(done=answered, requests=sent, tokens=tokens, failures=failed, in_flight=flying)

        for gateway in self._gateways:
            gateway.on_answer = show
        fleet = each_user(
            self.users,
            lambda user: self._one_user(user, tools),
            at_once=self._lm.users_in_flight,
            stopping=lambda: self._gateways[0].draining,
        )
        try:
            async for ended in fleet:
                if isinstance(ended, Done):
                    done[ended.user.id] = ended.value
                    answered += len(ended.value)
                else:
                    incomplete[ended.user.id] = ended.error
                    interrupted |= isinstance(ended.error, Interrupted)
                show()
        finally:
            if progress:
                progress.close()
            for gateway in self._gateways:
                await gateway.drain()
        state = "interrupted" if interrupted else "incomplete" if incomplete else "complete"
        self._seal(done, incomplete, state)
        sent, cached = (sum(getattr(g, name) for g in self._gateways) for name in ("sent", "cached"))
        return RunResult(self.run_dir, state, incomplete, sent, cached)

    async def _one_user(self, user: User, tools: Tools) -> list[Prediction]:
        """Prepare every product the rows need, then answer every query behind every row; long rows stand last."""
        products = {}
        for row, context in self.rows.items():
            products[row] = await self._products_for(user, context, tools)
        jobs = [
            self._answer(user, query, row, context, products[row], tools)
            for query in user.queries
            for row, context in self.rows.items()
        ]
        return list(await asyncio.gather(*jobs))

    async def _products_for(self, user: User, context: Context, tools: Tools) -> Products:
        own = {c.key: await self._product(user, c, tools) for c in (*context.needs(), context)}
        donor = tools.donor(user)
        lent = {c.key: await self._product(donor, c, tools) for c in context.donor_needs()} if donor else {}
        return Products(own, lent)

    async def _product(self, user: User, context: Context, tools: Tools) -> Product:
        """A product, prepared once a user, whoever asks first."""
        key = (user.id, context.key)
        if key not in self._products:
            self._products[key] = asyncio.create_task(self._prepare(user, context, tools))
        return await asyncio.shield(self._products[key])

    async def _prepare(self, user: User, context: Context, tools: Tools) -> Product:
        needed = {c.key: await self._product(user, c, tools) for c in context.needs()}
        return await context.prepare(user, Products(needed, {}), tools)

    async def _answer(
        self, user: User, query: Query, row: str, context: Context, products: Products, tools: Tools
    ) -> Prediction:
        def place() -> tuple[Placed, int]:
            placed = context.place(user, query, products, tools)
            return placed, tools.counter.count(placed.text)

        placed, tokens = await asyncio.to_thread(place) if tools.counter.remote else place()
        answer = await tools.agent.answer(placed.text, query.input, Bill(user.id, "answer", row=row))
        return Prediction.of(user.id, query.id, row, placed, tokens, answer)

    def _seal(
        self, done: Mapping[str, list[Prediction]], incomplete: Mapping[str, PersonalinkError], state: str
    ) -> None:
        """Write all that is finished, sorted, without a clock."""
        run, users = self.run_dir, [user for user in self.users if user.id in done]
        run.seal_lines("predictions.jsonl", (p.as_dict() for user in users for p in done[user.id]))
        run.seal_lines("floors.jsonl", (p.as_dict() for user in users for p in floor_predictions(user, self.task)))
        golds = [(u.id, q.id, self.dataset.gold(u.id, q.id)) for u in users for q in u.queries]
        run.seal_lines("golds.jsonl", ({"user": u, "query": q, "gold": gold} for u, q, gold in golds))
        finished = {user.id for user in users}
        prepared: dict[str, dict[str, Product]] = {}
        for (user_id, key), task in self._products.items():
            if user_id in finished and task.done() and not task.cancelled() and not task.exception():
                prepared.setdefault(key, {})[user_id] = task.result()
        for context in sorted({c for row in self.rows.values() for c in _closure(row)}, key=lambda c: c.key):
            products = {user: p for user, p in prepared.get(context.key, {}).items() if p}
            if products:
                name = f"products/{type(context).__name__}-{context.key[:8]}.jsonl"
                run.seal_lines(name, ({"user": u, "product": products[u]} for u in sorted(products)))
            if isinstance(context, Refine):
                for user_id, product in products.items():
                    persona = Refinement.from_dict(product).persona
                    run.seal(f"personas/{file_name(user_id)}.json", to_json(persona))
                    run.seal(f"personas/{file_name(user_id)}.md", to_markdown(persona))
        run.path.joinpath("log", "ledger.json").write_text(pretty_json(self._gateways[0].ledger.as_dict()))
        reasons = {user: str(error) for user, error in incomplete.items()}
        run.set_status(state, incomplete=reasons, users=len(self.users), finished=len(users))


def _closure(context: Context) -> list[Context]:
    """A context and all that it needs."""
    needed = (*context.needs(), *context.donor_needs())
    return [context, *(c for n in needed for c in _closure(n))]


def floor_predictions(user: User, task: Task) -> list[Prediction]:
    """The model-free floors for one user, as predictions."""
    made = []
    for query in user.queries:
        for row, floor in floors_for(task).items():
            label = floor(user, query)
            made.append(Prediction(user.id, query.id, row, label, "exact", "ok" if label else "empty", label or "", 0))
    return made


def versions() -> dict[str, str]:
    """What ran: Python, platform and the packages that can change a result."""
    found = {"personalink": personalink.__version__, "python": sys.version.split()[0], "platform": platform.platform()}
    for name in ("numpy", "scikit-learn", "aiohttp", "xllamacpp", "transformers", "vllm"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found

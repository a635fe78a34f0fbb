"""A DSPy program at work behind a persona: called as it is on a thread, or, a bare `Predict`, asked directly.

Both send the same requests (a test holds them equal); the direct way leaves out DSPy's call stack, and no thread waits
for an answer. Every call of the program, of whichever model, passes an engine of ours.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

import dspy
from dspy import lm15
from dspy.utils.exceptions import AdapterParseError
from dspy.utils.exceptions import LMError as DSPyError

from personalink.agent import Agent, Answer
from personalink.dspy.adapter import is_default, placing
from personalink.dspy.borrowed import CLIENT, CONTROL
from personalink.dspy.engine import Asking, Engine, asking
from personalink.dspy.metric import Metric
from personalink.dspy.spaces import Space
from personalink.dspy.task import Judged, Past, ProgramTask, Shape, judged
from personalink.dspy.translate import CARRIED, to_ours
from personalink.errors import BadRequest, PromptTooLong
from personalink.lm.ledger import Bill

T = TypeVar("T")
Said = tuple[Any, list[Any], "str | None"]
"""(the prediction, None where it cannot be read; the trace; the name of the last call's predictor)."""


@dataclass(frozen=True, slots=True)
class Program:
    """One program with all that it needs to be asked and judged.

    Attributes:
        module: the program, its models metered. lm: what its predictors ask that have none of their own.
        engine: behind the predictor of a bare `Predict`. shape, metric, spaces, say: see `task` and `spaces`.
        constrain: ask engines to allow readable answers only.
        adapter: the user's, None for DSPy's default. context: the user's settings. threads: where it runs.
        direct: take the direct way where it is open.
    """

    module: Any
    lm: Any
    engine: Engine
    shape: Shape
    metric: Metric
    spaces: Mapping[str, Space]
    say: Callable[[dict[str, Any]], str]
    constrain: bool
    adapter: Any
    context: contextvars.Context
    threads: Executor
    direct: bool

    async def answer(self, context: str, past: Past, bill: Bill) -> Judged | None:
        """What it says of an example behind a context, judged; None where nothing can be read.

        Raises:
            PersonalinkError: a model could not be asked.
        """
        adapter = placing(self.adapter, context, self.spaces, constrain=self.constrain)
        inputs = self.shape.given(past.example)
        if self.direct and is_direct(self.module, adapter, inputs):
            return await self._directly(adapter, inputs, past, bill)
        return await self._on_thread(lambda: self._judge(past, self._call(adapter, inputs, bill), bill))

    async def _directly(self, adapter: Any, inputs: dict[str, Any], past: Past, bill: Bill) -> Judged | None:
        predict = self.module
        messages = self.context.copy().run(adapter.format, predict.signature, predict.demos, inputs)
        settings = {**(predict.lm or self.lm).kwargs, **predict.config}
        body = {name: value for name, value in settings.items() if name not in CONTROL and value is not None}
        request = lm15.request_from_openai_chat({**body, "model": self.lm.model, "messages": messages})
        completion, _ = await self.engine.ask(request, bill, adapter.choices(predict.signature))

        def read() -> Judged | None:
            try:
                fields = adapter.parse(predict.signature, completion.text) if completion.text else None
            except AdapterParseError:
                fields = None
            if fields is None:
                return None
            prediction = dspy.Prediction.from_completions([fields], signature=predict.signature)
            return self._judge(past, (prediction, [(predict, inputs, prediction)], "self"), bill)

        return await self._on_thread(read)

    async def _on_thread(self, work: Callable[[], T]) -> T:
        """Run work under the user's settings."""

        def under() -> T:
            with dspy.context(lm=self.lm, disable_history=True):
                return work()

        return await asyncio.get_running_loop().run_in_executor(self.threads, self.context.copy().run, under)

    def _call(self, adapter: Any, inputs: dict[str, Any], bill: Bill) -> Said:
        """Call the program; an outage that it swallowed is an outage."""
        asked = Asking(bill)
        with dspy.context(adapter=adapter, trace=[]), asking(asked):
            try:
                prediction = self.module(**inputs)
            except AdapterParseError:
                prediction = None
            except DSPyError as error:
                raise to_ours(error) from error
            trace = list(dspy.settings.trace)
        for swallowed in asked.failed:
            if not isinstance(swallowed, PromptTooLong | BadRequest):  # which a program may well deal with
                raise swallowed
        names = {id(predictor): name for name, predictor in self.module.named_predictors()}
        return prediction, trace, names.get(id(trace[-1][0])) if trace else None

    def _judge(self, past: Past, said: Said, bill: Bill) -> Judged | None:
        """The metric's verdict; what it asks a model itself stands in the ledger as the phase "judge"."""
        prediction, trace, name = said
        if prediction is None:
            return None
        with asking(Asking(bill._replace(phase="judge"))):
            try:
                judgement = self.metric.judge(past.example, prediction, trace, name)
            except DSPyError as error:
                raise to_ours(error) from error
        fields = dict(prediction.items()) if isinstance(prediction, dspy.Example) else {}
        return judged(past, fields, judgement, self.metric.best, self.say)


class ProgramAgent(Agent):
    """A program as the agent of the loop, for one user.

    Args:
        program: what is asked. task: the same, as the loop knows it. pasts: the user's examples by the item's input.
    """

    def __init__(self, program: Program, task: ProgramTask, pasts: Mapping[str, Past]) -> None:
        super().__init__(task, program.engine.gateway)
        self.program, self.pasts = program, pasts

    async def answer(self, context: str, text: str, bill: Bill) -> Answer:
        """What the program says; unreadable has the metric's `failure_score`.

        Raises:
            PersonalinkError: a model could not be asked.
        """
        try:
            reading = await self.program.answer(context, self.pasts[text], bill)
        except PromptTooLong as error:
            return Answer(self._nothing, "too_long", str(error))
        return Answer(self._nothing, "unreadable") if reading is None else Answer(reading, "ok")

    @property
    def _nothing(self) -> Judged:
        return Judged(None, "none", self.program.metric.worst)


def is_direct(module: Any, adapter: Any, inputs: Mapping[str, Any]) -> bool:
    """Whether a program is a bare `Predict` of text under DSPy's default adapter, with every input given."""
    if type(module) is not dspy.Predict or not is_default(adapter) or module.fields:
        return False
    if adapter.use_native_function_calling or adapter.callbacks or module.callbacks:
        return False
    lm = getattr(module.lm, "kwargs", {})
    settings = {name for name, value in {**lm, **module.config}.items() if value is not None} - {*CLIENT, *CONTROL}
    several = {**lm, **module.config}.get("n") not in (None, 1)
    fields = module.signature.fields
    plain = all(_is_plain(f.annotation) for f in fields.values())
    return plain and settings <= {*CARRIED} and not several and set(inputs) == set(module.signature.input_fields)


def _is_plain(annotation: Any) -> bool:
    """Whether a field is text, a number or a choice, and none of DSPy's own types, which change the call."""
    if isinstance(annotation, type) and issubclass(annotation, dspy.Type):
        return False
    return all(_is_plain(part) for part in get_args(annotation) if isinstance(part, type) or get_args(part))

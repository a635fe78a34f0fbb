"""The agent: a frozen model with a task and a context. (task, context, question) → messages → completion → Answer.

Messages: system = instruction and labels; user = context, then the question. An empty context adds no byte, and
nothing that varies stands before the question. A failure is not an answer: each kind keeps its own name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from personalink.errors import ConfigError, PromptTooLong
from personalink.lm.base import Completion, Constraint, Decoding, Message, Request, Usage
from personalink.lm.constraints import satisfies
from personalink.lm.gateway import Gateway
from personalink.lm.ledger import Bill
from personalink.lm.settings import check_seed
from personalink.logprobs import MOST, margin
from personalink.tasks.base import INVALID, Reading, Task

AnswerOutcome = Literal["ok", "empty", "truncated", "refused", "unreadable", "too_long"]
Constrain = Literal["none", "label", "line"]
TEMPLATE_MARGIN = 48
"""Tokens allowed for the chat template's own marks when a prompt is measured against the window."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the agent said and what was read from it.

    `outcome`: "ok"; "unreadable" (an answer that names no label); "empty", "truncated" and "refused" as the server
    told; "too_long" (the prompt does not fit the window, nothing was sent). A truncated answer may still name a label.
    `margin` foretells flips (see `logprobs.margin`, in nats); `expected` is the expected rating (see
    `tasks.RatingTask.expected`), another reading of the same answer. Both are None where log-probabilities were not
    asked for or do not tell.
    """

    reading: Reading
    outcome: AnswerOutcome
    text: str = ""
    usage: Usage = Usage()
    constrained: str = ""
    margin: float | None = None
    expected: float | None = None

    @property
    def label(self) -> str | None:
        """The label that was read; None when the answer names none."""
        return self.reading.label

    def __str__(self) -> str:
        return self.reading.label or f"({self.outcome})"


class Agent:
    """One frozen model on one task.

    Args:
        task: what is asked.
        gateway: where completions come from.
        constrain: "none" reproduces the papers; "label" asks the server to allow labels only; "line" the same behind
            the label's name ("Rating: 4"), as demonstrations word it, which lets a very small model follow them.
            Answers tell whether the server did.
        seed: sent with every request.
        logprobs: how many alternatives a token the server is asked to tell, from 0 (none) to 20; 5 is enough for
            margins and expected ratings. It takes no further call.

    Raises:
        ConfigError: `constrain` is none of the three or constrains a free text, or `logprobs` or
            `seed` is out of range.
    """

    def __init__(
        self,
        task: Task,
        gateway: Gateway,
        *,
        constrain: Constrain = "none",
        seed: int = 12345,
        logprobs: int = 0,
    ) -> None:
        if not isinstance(logprobs, int) or isinstance(logprobs, bool) or not 0 <= logprobs <= MOST:
            raise ConfigError(f"logprobs is {logprobs!r:.60}; it must be a whole number from 0 to {MOST}")
        check_seed(seed)
        if constrain not in ("none", "label", "line"):
            msg = f"constrain is {constrain!r}; it must be none, label or line"
            raise ConfigError(msg)
        if constrain != "none" and not task.labels:
            msg = f"constrain is {constrain!r}, but an answer to task {task.name} is any text; use none"
            raise ConfigError(msg)
        self.task = task
        self.gateway = gateway
        self.line = f"{task.wording.label_name}: " if constrain == "line" else ""
        choices = tuple(self.line + label for label in task.labels)
        self.constraint = None if constrain == "none" else Constraint(choices=choices)
        self.decoding = Decoding(max_tokens=task.max_tokens, seed=seed)
        self.logprobs = logprobs

    def messages(self, context: str, text: str) -> tuple[Message, ...]:
        """The two messages for an input behind a context."""
        question = self.task.question(text)
        return (
            Message("system", self.task.system()),
            Message("user", f"{context}\n\n{question}" if context else question),
        )

    def request(self, context: str, text: str) -> Request:
        """What is sent for an input behind a context."""
        return Request(self.messages(context, text), self.decoding, self.constraint, logprobs=self.logprobs)

    def room(self, text: str) -> int | None:
        """Tokens left for a context before this input; None when the window is unknown; may be negative."""
        window = self.gateway.window
        if window is None:
            return None
        bare = "\n".join(m.content for m in self.messages("", text))
        return window - self.task.max_tokens - TEMPLATE_MARGIN - self.gateway.counter.count(bare)

    async def answer(self, context: str, text: str, bill: Bill) -> Answer:
        """Ask about one input.

        Raises:
            LMError: the model could not be asked (an outage is never an answer).
        """
        try:
            completion = await self.gateway.complete(self.request(context, text), bill)
        except PromptTooLong as error:
            return Answer(INVALID, "too_long", str(error))
        return self.read(completion)

    def read(self, completion: Completion) -> Answer:
        """Parse a completion. A label's name that the constraint forced is not part of the answer."""
        text = completion.text.removeprefix(self.line) if completion.constrained else completion.text
        reading = INVALID if completion.outcome in ("empty", "refused") else self.task.parse(text)
        outcome: AnswerOutcome = completion.outcome
        if outcome == "ok" and reading.label is None:
            outcome = "unreadable"
        answer = Answer(reading, outcome, text, completion.usage, completion.constrained)
        if completion.tokens is None:
            return answer
        held = self.constraint if completion.constrained else None
        choices = held.choices if held is not None and satisfies(held, completion.text) else ()
        tokens = completion.tokens
        return replace(answer, margin=margin(tokens, choices), expected=self.task.expected(tokens))

"""`BatchLM`: answers from a batch's results, and the requests that are still to be put into the next one.

Knows the OpenAI batch form, one JSON object a line, as `vllm run-batch` and batch services read and write it. Knows no
service and sends nothing. Files: https://platform.openai.com/docs/api-reference/batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from personalink.background import Closes
from personalink.canonical import write_atomic
from personalink.errors import ConfigError, DataError, IntegrityError, NotAnswered, PromptTooLong
from personalink.lm import wire
from personalink.lm.base import Completion, Counter, Request
from personalink.lm.counters import EstimateCounter
from personalink.lm.settings import check_whole
from personalink.text import one_line

URL = "/v1/chat/completions"
_PENDING = "its answer is in no results file yet"


@dataclass(slots=True)
class Results:
    """What batches answered, by `custom_id`, which is the request's key.

    Attributes:
        answered: the completions. failed: why a request has none; no longer there once another line answers it.
        repeated: lines that answer anew what was answered; the first is kept.
        model: what the lines say answered; "" while none does.
    """

    answered: dict[str, Completion] = field(default_factory=dict)
    failed: dict[str, NotAnswered | PromptTooLong] = field(default_factory=dict)
    repeated: int = 0
    model: str = ""

    @classmethod
    def read(cls, paths: Iterable[Path]) -> Results:
        """The results in these files, in any order of lines.

        Raises:
            DataError: a file cannot be read, or a line is none of a batch's results; names file and line.
            IntegrityError: the lines are of two models.
        """
        results = cls()
        for path in paths:
            try:
                with path.open("rb") as lines:
                    for number, raw in enumerate(lines, 1):
                        if raw.strip():
                            results._add(raw, f"{path}, line {number}")
            except OSError as error:
                raise DataError(f"cannot read {path}: {error.strerror or error}") from None
        return results

    def _add(self, raw: bytes, where: str) -> None:
        key, line = _parsed(raw, where)
        completion = _completion(line)
        if isinstance(completion, Completion):
            if completion.model and self.model not in ("", completion.model):
                raise IntegrityError(
                    f"{where}: answered by {completion.model!r} and the lines before by {self.model!r}; "
                    "answers of two models are not mixed"
                )
            self.model = completion.model or self.model
            self.repeated += key in self.answered
            self.answered.setdefault(key, completion)
            self.failed.pop(key, None)
        elif key not in self.answered:
            self.failed[key] = completion


def _parsed(raw: bytes, where: str) -> tuple[str, dict[str, Any]]:
    """(custom_id, the line).

    Raises:
        DataError: it is no line of results.
    """
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError):
        raise DataError(f"{where}: it is not JSON, perhaps cut off; fetch the results anew") from None
    key = line.get("custom_id") if isinstance(line, dict) else None
    if not isinstance(key, str):
        raise DataError(f"{where}: it has no custom_id; a batch's results are wanted")
    if "response" not in line and "error" not in line:
        raise DataError(f"{where}: it has neither response nor error; is it the file of requests?")
    return key, line


def _completion(line: Mapping[str, Any]) -> Completion | NotAnswered | PromptTooLong:
    """The completion in a line, or why it holds none: a failure is not an answer."""
    response = line.get("response")
    told = response if isinstance(response, dict) else {}
    status, body = told.get("status_code"), told.get("body")
    if status == 200 and not line.get("error"):
        reply = wire.parse_reply(json.dumps(body).encode(), _as_it_is)
        return wire.read_reply(reply) if isinstance(reply, dict) else NotAnswered(f"the batch {reply}")
    raw = json.dumps(body or line.get("error")).encode()
    if status in (400, 413, 422) and (long := wire.too_long(raw, _as_it_is)) is not None:
        return long
    shown = "no status" if status is None else status
    return NotAnswered(f"the batch failed on it ({shown}): {one_line(wire.server_words(raw, _as_it_is))}")


def _as_it_is(text: str) -> str:
    """Results hold no key that would have to be taken out."""
    return text


class BatchLM(Closes):
    """A model that is asked by files: what `results` answer is answered, everything else stands in `pending`.

    A request without an answer raises `NotAnswered`, which concerns its user alone, so that a run goes on with all
    others and asks for everything that it can ask for now. `identity` is that of `EndpointLM` for the same server,
    model and revision, so that the same run goes on with either.

    Args:
        model: as the server that runs the batch calls it.
        results: what was answered; None for nothing.
        dialect: what else than plain OpenAI it understands.
        revision: as for `EndpointLM`.
        window: context length in tokens; None for unknown.
        counter: default: the estimate, since there is no server to count.

    Attributes:
        pending: key → body of the requests that were asked and are not answered.

    Raises:
        ConfigError: no model, or a number out of range.
        IntegrityError: the results are of another model.
    """

    def __init__(
        self,
        model: str,
        results: Results | None = None,
        *,
        dialect: wire.Dialect = "vllm",
        revision: str | None = None,
        window: int | None = None,
        counter: Counter | None = None,
    ) -> None:
        if not model:
            raise ConfigError("lm.model is missing: a batch names the model, and there is no server to ask for it")
        check_whole(1, window=window)
        self.model, self.dialect, self.window = model, dialect, window
        self.counter: Counter = counter or EstimateCounter()
        self.identity = wire.identity(dialect, model, revision)
        self.concurrency = self.users_in_flight = 64
        self.pending: dict[str, dict[str, Any]] = {}
        self._revision, self._results = revision, results or Results()
        self._check_model(self._results.model)

    def _check_model(self, answers_as: str) -> None:
        """A service tells the version behind a name ("gpt-x-2026-01-01" for "gpt-x"), a server of one's own the name.

        Raises:
            IntegrityError: it is another model.
        """
        version = self.dialect == "openai" and answers_as.startswith(f"{self.model}-")
        if answers_as not in ("", self.model) and not version:
            raise IntegrityError(f"the results are of the model {answers_as!r} and lm.model is {self.model!r}")

    async def start(self) -> None:
        """Nothing to check."""

    async def complete(self, request: Request) -> Completion:
        """The answer in the results.

        Raises:
            NotAnswered: there is none; the request is pending from now on.
            PromptTooLong: the server refused it as too long, which it would do again.
        """
        key = request.key(self.identity)
        body, constrained = wire.chat_body(request, self.dialect, self.model)
        if (found := self._results.answered.get(key)) is not None:
            return replace(found, constrained=constrained)
        why = self._results.failed.get(key)
        if isinstance(why, PromptTooLong):
            raise PromptTooLong(str(why))
        self.pending[key] = body
        raise NotAnswered(str(why or _PENDING))

    async def aclose(self) -> None:
        """Nothing to give back."""

    def describe(self) -> dict[str, Any]:
        """Its names; plain JSON."""
        return {
            "kind": "openai-chat",
            "dialect": self.dialect,
            "model": self.model,
            "revision": self._revision,
            "window": self.window,
            "counter": self.counter.id,
            "asked_by": "batch",
        }

    def write(self, path: Path) -> None:
        """Write what is pending in the batch form, sorted by prompt, so that common starts stand together.

        Raises:
            OSError: the file cannot be written; an older one is as it was.
        """
        by_prompt = sorted(self.pending.items(), key=lambda one: [m["content"] for m in one[1]["messages"]])
        lines = (json.dumps({"custom_id": key, "method": "POST", "url": URL, "body": body}) for key, body in by_prompt)
        write_atomic(path, "".join(f"{line}\n" for line in lines))

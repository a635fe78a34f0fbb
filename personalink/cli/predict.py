"""`personalink predict`: answer one input behind a persona, or show what would be asked."""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from personalink.cli.streams import out, told
from personalink.errors import ConfigError, DataError, IncompleteRun, PersonaError, UsageError
from personalink.lm import EstimateCounter, connect
from personalink.persona import PersonaState, TokenCounter
from personalink.persona_io import from_json, from_markdown
from personalink.tasks import Task, task_from
from personalink.tasks import task as task_named


def predict(options: argparse.Namespace) -> int:
    """`personalink predict --persona FILE --task NAME|FILE TEXT`.

    Raises:
        UsageError: the task, the text or the persona cannot be used.
        LMError: the model could not be asked. IncompleteRun: it answered, and the answer names no label.
    """
    task = _task(options.task)
    text = _text(options.text)
    edited = False
    if options.persona:  # before any model is started
        persona, edited = _opened(options.persona)
        _check_labels(options.persona, persona, task)
    return asyncio.run(_predict(options, task, text, edited))


async def _predict(options: argparse.Namespace, task: Task, text: str, edited: bool) -> int:
    from personalink.agent import Agent
    from personalink.lm.gateway import Gateway
    from personalink.lm.ledger import Bill

    lm = connect(options.lm, model=options.model)
    agent = Agent(task, Gateway(lm), constrain=options.constrain)
    if options.prompt:
        persona = read_persona(options.persona, _Uncounted() if edited else None) if options.persona else ""
        if edited:
            about = EstimateCounter().count(str(persona))
            told(f"personalink: {options.persona} was edited: about {about} tokens by an estimate, no model counted it")
        messages = [vars_of(m) for m in agent.messages(str(persona), text)]
        out(json.dumps(messages, ensure_ascii=not _is_unicode(), indent=2))
        return 0
    try:
        await lm.start()
        persona = read_persona(options.persona, lm.counter if edited else None) if options.persona else ""
        answer = await agent.answer(str(persona), text, Bill(phase="predict"))
    finally:
        await lm.aclose()
    if options.raw:
        out(answer.text)
        return 0
    if answer.label is None:
        msg = f"the answer names no label ({answer.outcome}): {answer.text[:80]!r}"
        raise IncompleteRun(msg)
    out(answer.label)
    return 0


def _is_unicode() -> bool:
    return (getattr(sys.stdout, "encoding", None) or "").lower().startswith("utf")


def _text(given: str | None) -> str:
    """The input: the argument, or what is piped in."""
    try:
        text = given if given is not None else sys.stdin.read() if sys.stdin is not None else ""
        text.encode("utf-8")
    except UnicodeError:
        msg = "the text to answer is not valid UTF-8; give it as UTF-8"
        raise UsageError(msg) from None
    if not text.strip():
        msg = "nothing to answer: give a text, or pipe one in"
        raise UsageError(msg)
    return text.strip()


def _task(name: str) -> Task:
    """A task of the catalogue by name, or one's own from a YAML or JSON file (also a run's sealed/config.json)."""
    if not name.lower().endswith((".yaml", ".yml", ".json")):
        return task_named(name)
    import yaml  # type: ignore[import-untyped]

    file = Path(name).expanduser()
    try:
        settings = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        what = getattr(error, "strerror", None) or getattr(error, "problem", None) or str(error)
        msg = f"cannot read the task {file}: {what}"
        raise UsageError(msg) from None
    if isinstance(settings, Mapping) and isinstance(settings.get("task"), Mapping):
        settings = settings["task"]
    if not isinstance(settings, Mapping):
        msg = f"{file} holds no task: it must be settings such as name, instruction and labels"
        raise UsageError(msg)
    try:
        return task_from({str(key): value for key, value in settings.items()})
    except ConfigError as error:
        msg = f"{file}: {error}"
        raise ConfigError(msg) from None


def read_persona(path: str, counter: TokenCounter | None = None) -> PersonaState:
    """A persona's .json or .md file.

    Raises:
        UsageError: it cannot be read. PersonaError: it is no persona, or breaks its bounds.
    """
    file = Path(path).expanduser()
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"cannot read the persona {file}: {getattr(error, 'strerror', None) or error}"
        raise UsageError(msg) from None
    try:
        return from_markdown(text, counter) if file.suffix.lower() in (".md", ".markdown") else from_json(text, counter)
    except PersonaError as error:
        msg = f"{file}: {error}"
        raise PersonaError(msg) from None


class _Uncounted:
    """Stands in for a counter until there is one: all but the tokens is checked."""

    id = "uncounted"
    remote = False

    def count(self, text: str) -> int:
        return 0


def _opened(path: str) -> tuple[PersonaState, bool]:
    """A persona, and whether it was edited since it was sealed, so that its tokens have to be counted again."""
    try:
        return read_persona(path), False
    except PersonaError:
        return read_persona(path, _Uncounted()), True


def _check_labels(path: str, persona: PersonaState, task: Task) -> None:
    """Refuse a persona of another task; a rule about ratings may name any number, and advice any words."""
    for what, pieces in (("exemplar", persona.exemplars), ("rule", persona.decision_rules)):
        for piece in pieces:
            if what == "rule" and (not task.rule_labels or (task.kind == "rating" and _is_number(piece.label))):
                continue
            try:
                task.check_label(piece.label)
            except DataError as error:
                msg = (
                    f"{path}: the {what} {piece.render()[2:]!r:.60} is of another task ({error}); choose it with --task"
                )
                raise PersonaError(msg) from None


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def vars_of(message: Any) -> dict[str, str]:
    """A message as plain JSON."""
    return {"role": message.role, "content": message.content}

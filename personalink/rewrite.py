"""Drafting and rewriting: one structured call that proposes all three fields, read strictly.

A proposal that is truncated, empty, half, unreadable, over a cap or quotes the slice is a rejected candidate with a
reason; it is never a crash and never adopted in part. Exemplars are chosen by handle and copied here, by code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from personalink.brief import Brief, system_prompt, user_prompt
from personalink.data.types import Item
from personalink.errors import PersonaError
from personalink.lm.base import Completion, Constraint, Counter, Decoding, Message, Request
from personalink.lm.constraints import satisfies
from personalink.lm.counters import EstimateCounter
from personalink.persona import Caps, Exemplar, PersonaState, Rule
from personalink.persona_fit import drop_sentence, fit_persona
from personalink.tasks.base import Task
from personalink.tasks.parsing import visible
from personalink.text import one_line, word_runs

MAX_REPLY_CHARACTERS = 20_000
CHARACTERS_PER_TOKEN = 6
"""Bound of a text in the schema, in characters a token of its cap: far enough that whatever the server cuts there is
over the cap anyway, so that half a thought is dropped by code and never adopted."""
_IF = re.compile(r"^if\b[\s:,]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Proposal:
    """What came of one rewrite: a persona, or None with the reason why there is none; `notes` tell each cut.

    `constrained` says by what the reply was held to the schema ("response_format", …), "" for nothing.
    """

    persona: PersonaState | None
    reason: str = ""
    notes: tuple[str, ...] = ()
    constrained: str = ""


def budget_counter(counter: Counter) -> Counter:
    """What a prompt's budgets are counted by: the counter itself, or the estimate where a count is a round trip.

    Caps are always counted by the counter itself; a budget only has to keep a prompt within bounds.
    """
    return EstimateCounter() if counter.remote else counter


class Rewriter(Protocol):
    """Turns a brief into one request and its completion into a proposal; both pure."""

    def request(self, brief: Brief) -> Request:
        """The call to make."""
        ...

    def read(self, completion: Completion, brief: Brief) -> Proposal:
        """What came of it; never raises for what a model wrote."""
        ...


@dataclass(frozen=True, slots=True)
class JsonRewriter:
    """The standard rewriter: one JSON object with three fields.

    Attributes:
        task: says what rules may lead to. caps, counter: the persona's bounds.
        item_cap: tokens shown of one item. max_tokens: room for the reply.
        constrain: ask the server to enforce the schema. seed: sent with the request.
        temperature: above 0 only when rejected proposals are drawn again.
    """

    task: Task
    caps: Caps
    counter: Counter
    item_cap: int = 60
    max_tokens: int = 512
    constrain: bool = True
    seed: int = 12345
    temperature: float = 0.0

    def request(self, brief: Brief) -> Request:
        """One call; drawn again (`sample` = depth) where the temperature is above 0."""
        prompt = user_prompt(brief, self.task, self.caps, self.item_cap, budget_counter(self.counter).count)
        drawn = self.temperature > 0
        return Request(
            (Message("system", system_prompt()), Message("user", prompt)),
            Decoding(self.max_tokens, temperature=self.temperature, seed=self.seed),
            Constraint(schema=self.schema(brief)) if self.constrain else None,
            sample=brief.depth if drawn else 0,
        )

    def schema(self, brief: Brief) -> dict[str, Any]:
        """The JSON schema of a reply to this brief."""

        def text(cap: int) -> dict[str, Any]:
            return {"type": "string", "maxLength": cap * CHARACTERS_PER_TOKEN}

        labels = self.task.rule_labels
        then = {"type": "string", "enum": list(labels)} if labels else text(self.caps.rule)
        rule = {
            "type": "object",
            "properties": {"if": text(self.caps.rule), "then": then},
            "required": ["if", "then"],
            "additionalProperties": False,
        }
        handle = {"type": "string", "enum": list(brief.handles()) or ["none"]}
        return {
            "type": "object",
            "properties": {
                "preference_summary": text(self.caps.summary),
                "decision_rules": {"type": "array", "items": rule, "maxItems": self.caps.rules},
                "exemplars": {"type": "array", "items": handle, "maxItems": self.caps.exemplars},
            },
            "required": ["preference_summary", "decision_rules", "exemplars"],
            "additionalProperties": False,
        }

    def read(self, completion: Completion, brief: Brief) -> Proposal:
        """Truncated, empty and refused replies are refused as such; the rest must be one whole object."""
        if completion.outcome != "ok":
            return Proposal(None, f"the reply was {completion.outcome}")
        kept = satisfies(Constraint(schema=self.schema(brief)), completion.text)  # servers ignore what they do not know
        constrained = completion.constrained if kept else ""
        try:
            proposal = self._build(read_object(completion.text), brief, bounded=bool(constrained))
        except PersonaError as error:
            proposal = Proposal(None, str(error))
        return replace(proposal, constrained=constrained)

    def _build(self, fields: Mapping[str, Any], brief: Brief, *, bounded: bool) -> Proposal:
        handles = brief.handles()
        summary, rules, chosen = _three_fields(fields)
        notes: list[str] = []
        if bounded:
            summary, rules = self._without_cut(summary, rules, notes)
        exemplars = []
        for handle in chosen:
            item = handles.get(handle.strip("[] "))
            if item is None:
                notes.append(f"exemplar {handle!r:.40} dropped: it is none of the choices shown")
            else:
                depth = _known(brief.incumbent.exemplars, "item_id", item.id, brief.depth)
                exemplars.append(Exemplar(item.id, item.input, item.label, depth))
        persona, cuts = fit_persona(
            summary,
            exemplars,
            [rule for pair in rules if (rule := self._rule(pair, brief, notes))],
            caps=self.caps,
            counter=self.counter,
        )
        notes += cuts
        if persona.is_empty:
            return Proposal(None, "the reply holds nothing usable", tuple(notes))
        return Proposal(persona, "", tuple(notes))

    def _without_cut(
        self, summary: str, rules: list[tuple[str, str]], notes: list[str]
    ) -> tuple[str, list[tuple[str, str]]]:
        """Summary and rules less what fills the schema's limit, where the server may have cut it in mid-thought."""
        if summary and len(summary) >= self.caps.summary * CHARACTERS_PER_TOKEN:
            summary = drop_sentence(one_line(summary), self.caps.summary, notes)
        limit = self.caps.rule * CHARACTERS_PER_TOKEN
        cut = [pair for pair in rules if max(map(len, pair)) >= limit]
        notes += [f"rule {pair[0]!r:.40} dropped: it may be cut off" for pair in cut]
        return summary, [pair for pair in rules if pair not in cut]

    def _rule(self, pair: tuple[str, str], brief: Brief, notes: list[str]) -> Rule | None:
        """A rule with where it came from: as it stood in the incumbent, or from the items shown with its label.

        It must name a label of the task, not only hold one ("not sports"). Ratings may name what lies between two of
        them ("4.5"). Where rules give advice, any words will do.
        """
        condition = _IF.sub("", one_line(pair[0]))
        label = one_line(pair[1])
        if self.task.rule_labels:
            read = self.task.parse(label)
            if read.label is None or read.how in ("contained", "clamped"):
                notes.append(f"rule {condition!r:.40} dropped: {label!r:.40} is no label")
                return None
            label = label if read.how == "rounded" else read.label
        for old in brief.incumbent.decision_rules:
            if (old.condition, old.label) == (condition, label):
                return old
        shown = [m.item for m in brief.mistakes] + list(brief.sample)
        return Rule(condition, label, brief.depth, tuple(one_line(i.id) for i in shown if i.label == label))


def _known(pieces: Sequence[Exemplar], name: str, value: str, depth: int) -> int:
    """The pass of the incumbent's piece with that value, or this one."""
    return next((piece.depth for piece in pieces if getattr(piece, name) == value), depth)


def read_object(text: str) -> dict[str, Any]:
    """The one JSON object of a reply: bare, fenced, or with words around it; thinking is not part of a reply.

    Raises:
        PersonaError: none is found, it is cut off, or the reply is absurdly long.
    """
    answer = visible(text)
    if len(answer) > MAX_REPLY_CHARACTERS:
        msg = f"the reply has {len(answer)} characters"
        raise PersonaError(msg)
    start = answer.find("{")
    if start < 0 or answer[:start].rstrip().endswith("["):
        msg = "the reply holds no JSON object" if start < 0 else "the reply is a list and not one JSON object"
        raise PersonaError(msg)
    try:
        value, _ = json.JSONDecoder(object_pairs_hook=_distinct).raw_decode(answer[start:])
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits
        msg = f"the reply is not whole JSON ({getattr(error, 'msg', 'too deep or too large a number')})"
        raise PersonaError(msg) from None
    return dict(value)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object's members, each of which may stand once: of two, neither is known to be meant."""
    members = dict(pairs)
    if len(members) < len(pairs):
        msg = "the reply names a key twice"
        raise PersonaError(msg)
    return members


def _three_fields(fields: Mapping[str, Any]) -> tuple[str, list[tuple[str, str]], list[str]]:
    """The three fields of a reply.

    Raises:
        PersonaError: one is missing or has another type (half a persona is none).
    """
    for name in ("preference_summary", "decision_rules", "exemplars"):
        if name not in fields:
            msg = f"the reply lacks {name}"
            raise PersonaError(msg)
    summary, rules, exemplars = fields["preference_summary"], fields["decision_rules"], fields["exemplars"]
    if not isinstance(summary, str):
        msg = "preference_summary is not text"
        raise PersonaError(msg)
    if not isinstance(rules, list) or not all(
        isinstance(rule, dict) and isinstance(rule.get("if"), str) and isinstance(rule.get("then"), str | int | float)
        for rule in rules
    ):
        msg = 'decision_rules is not a list of {"if", "then"}'
        raise PersonaError(msg)
    if not isinstance(exemplars, list) or not all(isinstance(handle, str) for handle in exemplars):
        msg = "exemplars is not a list of handles"
        raise PersonaError(msg)
    return summary, [(rule["if"], str(rule["then"])) for rule in rules], exemplars


def quotes_slice(persona: PersonaState, held: Sequence[Item], elsewhere: Sequence[Item], length: int) -> str | None:
    """The run of `length` words that the summary or a rule copies from a held item and no other item holds, or None.

    Words are `[a-z0-9']+` (SPEC §1); of an item, its input and its label. Exemplars are not looked at: they are pool
    items by construction.
    """
    written = word_runs(persona.preference_summary, length)
    for rule in persona.decision_rules:
        written |= word_runs(rule.condition, length) | word_runs(rule.label, length)
    if not written:
        return None
    copied = written & _runs(held, length)
    if copied:
        copied -= _runs(elsewhere, length)
    return " ".join(min(copied)) if copied else None


def _runs(items: Sequence[Item], length: int) -> set[tuple[str, ...]]:
    return set().union(*(word_runs(text, length) for item in items for text in (item.input, item.label)))

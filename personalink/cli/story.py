"""The whole story of one user: the persona, how it came about, what it did, as text and as plain JSON.

Knows refinements, answers and the texts behind them where the data are at hand; reads no option.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

from personalink.agent import Agent
from personalink.cli.terminal import Ink, line, padded, safe, width
from personalink.data.types import Item
from personalink.errors import DataError, UsageError
from personalink.gate import SliceScore, discordant
from personalink.lm.base import Message
from personalink.lm.gateway import Gateway
from personalink.lm.scripted import ScriptedLM
from personalink.persona import PersonaState
from personalink.persona_io import to_dict
from personalink.refinement import Pass, Refinement
from personalink.report.answers import Judged
from personalink.report.diff import persona_changes
from personalink.report.evidence import Evidence
from personalink.report.pages.texts import Texts
from personalink.report.people import People, line_of
from personalink.report.tables import ROW_LABELS
from personalink.text import nearest

_MOST = 100  # characters of an item in a list


@dataclass(frozen=True)
class _Told:
    """What `Texts` reads of a run, for one user alone."""

    run: Any
    config: Mapping[str, Any]
    task: Any
    manifest: Mapping[str, Any]
    refinements: Mapping[str, Refinement]


@dataclass(frozen=True)
class Story:
    """One user of a run.

    Args:
        people: the run's users. one: the user's loop. depth: of the persona that is shown, 0…R.
        ink: how words stand out.
    """

    people: People
    one: Refinement
    depth: int
    ink: Ink = field(default_factory=Ink)

    @property
    def persona(self) -> PersonaState:
        """The persona kept after `depth` passes."""
        return self.one.at(self.depth)

    @cached_property
    def texts(self) -> Texts:
        """The run's data, read again where they are at hand and still the same."""
        p = self.people
        told = _Told(p.run, p.config, p.task, p.manifest, {self.one.user: self.one})
        return Texts.of(cast(Evidence, told))

    @cached_property
    def answers(self) -> Sequence[tuple[str, Judged]]:
        """What floors and methods answered."""
        return self.people.answers(self.one.user)

    def as_text(self) -> str:
        """All of it, to be read from top to bottom."""
        parts = [self._about(), *(self._pass(p) for p in self.one.passes), self._kept(), *self._answers()]
        if self.texts.missing and any(p.errors for p in self.one.passes):
            parts.append([self.ink.quiet(line(self.texts.missing))])
        return "\n\n".join("\n".join(lines) for lines in parts)

    def as_dict(self) -> dict[str, Any]:
        """The same as plain JSON: the line of the list, the persona, the whole refinement, the answers."""
        one, entry = self.one, self.people.entries.get(self.one.user, {})
        return {
            "run": str(self.people.run.path),
            "user": one.user,
            "donor": entry.get("donor"),
            "line": line_of(one.user, entry.get("history"), one, self.people.best_points).as_dict(),
            "depth": self.depth,
            "persona": to_dict(self.persona),
            "render": self.persona.render(),
            "refinement": one.as_dict(),
            "answers": [
                {**judged.prediction.as_dict(), "kind": kind, "gold": judged.gold,
                 "right": judged.right if judged.gold is not None else None}
                for kind, judged in self.answers
            ],
        }  # fmt: skip

    def prompts(self, row: str | None) -> list[tuple[str, tuple[Message, ...]]]:
        """(query, the exact messages) for each of the user's queries.

        Args:
            row: as that row sent them; None for the persona of this depth.

        Raises:
            DataError: the data are not at hand, or hold no query of the user.
            UsageError: there is no such row, or what it placed cannot be built from the run.
        """
        user = self.one.user
        if self.texts.missing:
            raise DataError(self.texts.missing.rstrip("."))
        if row is None:
            agent = Agent(self.people.task, Gateway(ScriptedLM(lambda request: ""), None))
            queries = self.texts.users[user].queries
            return [(query.id, agent.messages(self.persona.render(), query.input)) for query in queries]
        asked = [
            judged.prediction for kind, judged in self.answers if kind == "method" and judged.prediction.row == row
        ]
        if not asked:
            rows = [str(known) for known in self.people.config["rows"]]
            near = nearest(row, rows)
            raise UsageError(f"no row {row!r}; " + (f"did you mean {near!r}?" if near else f"rows: {', '.join(rows)}"))
        found = []
        for prediction in asked:
            messages = self.texts.prompt(prediction)
            if messages is None:
                raise UsageError(f"the prompt of {row} cannot be built from the run: its context is not the package's")
            found.append((prediction.query, messages))
        return found

    def _about(self) -> list[str]:
        one, entry = self.one, self.people.entries.get(self.one.user, {})
        parts = [f"{entry['history']:,} items of history"] if "history" in entry else []
        parts += [f"slice of {len(one.slice_ids)}"] if one.slice_ids else []
        parts += [f"audit slice of {len(one.audit_ids)}"] if one.audit_ids else []
        parts.append(_count(one.calls + one.audit_calls, "call"))
        lines = [self.ink.strong(f"user {line(one.user)}") + "   " + ", ".join(parts)]
        if one.slice_ids:
            lines.append(f"the empty persona: slice {self._score(one.initial)}{self._audit(0)}")
        return [*lines, *(line(flag) for flag in one.flags)]

    def _score(self, score: SliceScore) -> str:
        right = sum(points >= self.people.best_points for points in score.points)
        return f"{_number(score.value)} ({right} of {len(score.points)} right)"

    def _audit(self, depth: int) -> str:
        return f", audit {_number(self.one.audit[depth].value)}" if depth < len(self.one.audit) else ""

    def _pass(self, p: Pass) -> list[str]:
        if not p.calls:
            return [self.ink.strong(f"pass {p.depth}: nothing to do") + f" ({line(p.reason)})"]
        mark = self.ink.strong(f"pass {p.depth}: {'kept' if p.accepted else 'refused'}")
        why = "" if p.accepted else f" ({line(p.reason)})"
        lines = [f"{mark}{why}; {self._went(p)}; {_count(p.calls, 'call')}", *self._drove(p)]
        lines += self._proposed(p)
        notes = Counter(p.notes)
        return [*lines, *(f"  · {line(note)}" + (f" × {n}" if n > 1 else "") for note, n in notes.items())]

    def _drove(self, p: Pass) -> list[str]:
        """The errors that drove a rewrite; those of the pass before are not told again."""
        errors = _count(len(p.errors), "error") + " on the slice"
        if not p.errors:
            return []
        if p.depth > 1 and self.one.passes[p.depth - 2].errors == p.errors:
            return [f"  driven by the same {errors}"]
        items = self.texts.items(self.one.user)
        return [f"  driven by {errors}:", *(f"    {_item(id_, items.get(id_))}" for id_ in p.errors)]

    def _proposed(self, p: Pass) -> list[str]:
        """The candidate against the persona that stood; one that was proposed before is named by its pass."""
        before = self.one.at(p.depth - 1)
        if p.candidate is None:
            return []
        text = p.candidate.render()
        if text == before.render():
            return ["  proposed the persona that stood"]
        for earlier in self.one.passes[: p.depth - 1]:
            if earlier.candidate is not None and earlier.candidate.render() == text:
                return [f"  proposed what pass {earlier.depth} had proposed"]
        against = "" if before.is_empty else ", against the persona that stood"
        changes = self.ink.changes(persona_changes(before, p.candidate))
        return [f"  proposed ({p.candidate.tokens} tokens{against}):", *(f"    {change}" for change in changes)]

    def _went(self, p: Pass) -> str:
        """The scores that the gate compared."""
        if p.trial is not None:
            better, worse = discordant(p.before, p.trial)
            audit = self._audit(p.depth) if p.accepted else ""
            unread = f", {p.unreadable} unreadable" if p.unreadable else ""
            moved = f"{_count(better, 'item')} better, {worse} worse"
            return f"slice {_number(p.before.value)} → {self._score(p.trial)}, {moved}{unread}{audit}"
        if p.at_best is not None:
            return f"slice {_number(p.before.value)}, the candidate at best {_number(p.at_best)}"
        return f"slice {_number(p.before.value)}, no candidate scored"

    def _kept(self) -> list[str]:
        persona, caps = self.persona, self.persona.caps
        used = [
            f"{persona.tokens} of {caps.total} tokens",
            f"{len(persona.exemplars)} of {caps.exemplars} exemplars",
            f"{len(persona.decision_rules)} of {caps.rules} rules",
        ]
        each = f"a summary may have {caps.summary} tokens, an exemplar {caps.exemplar}, a rule {caps.rule}"
        return [
            self.ink.strong(f"persona after pass {self.depth}") + f" ({', '.join(used)})",
            self.ink.quiet(f"counted by {line(persona.counter_id)}; {each}"),
            "",
            safe(persona.render()) or "(empty: the prompt is the question alone)",
        ]

    def _answers(self) -> list[list[str]]:
        queries: dict[str, list[Judged]] = {}
        for _, judged in self.answers:
            queries.setdefault(judged.prediction.query, []).append(judged)
        return [self._query(query, judged) for query, judged in queries.items()]

    def _query(self, query: str, answers: Sequence[Judged]) -> list[str]:
        gold, asked = answers[0].gold, self.texts.query(self.one.user, query)
        head = [
            self.ink.strong(f"query {line(query)}") + f", gold label: {line(gold) if gold is not None else 'unknown'}"
        ]
        head += [f"  {line(asked.input, _MOST)}"] if asked is not None else []
        rows = []
        for one in answers:
            p = one.prediction
            label = line(p.label) if p.label is not None else f"none ({p.outcome}: {line(p.text, 40)})"
            right = "" if gold is None else "right" if one.right else "wrong"
            rows.append((ROW_LABELS.get(p.row, line(p.row)), label, right))
        wide = [max(width(row[i]) for row in rows) for i in range(2)]
        shown = [f"  {padded(a, wide[0])}  {padded(b, wide[1])}  {right}".rstrip() for a, b, right in rows]
        return [*head, *shown]


def prompt_text(messages: Sequence[Message]) -> str:
    """Messages as text, each under its role."""
    return "\n\n".join(f"[{message.role}]\n{safe(message.content)}" for message in messages)


def _number(value: float) -> str:
    return f"{value:.3f}".replace("-", "−")


def _count(n: int, thing: str) -> str:
    return f"{n:,} {thing}" if n == 1 else f"{n:,} {thing}s"


def _item(id_: str, item: Item | None) -> str:
    return line(id_) if item is None else f"{line(id_)}  {line(item.input, _MOST)} → {line(item.label)}"

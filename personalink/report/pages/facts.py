"""What a run tells of each user in a line, and which of its rows stand for what: what the pages are made from.

Derived from the evidence alone; knows no markup.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from personalink.canonical import digest
from personalink.persona import PersonaState
from personalink.refinement import Pass, Refinement
from personalink.report.answers import Judged
from personalink.report.evidence import Evidence
from personalink.report.people import Line, People, line_of
from personalink.report.tables import ROW_LABELS

CONTEXTS = "personalink.contexts."
_PLAIN = re.compile("[a-z0-9_][a-z0-9._-]{0,79}")
_NOT_PLAIN = re.compile("[^a-z0-9._]+")


@dataclass(frozen=True)
class Run:
    """A run as the pages see it: its evidence, sorted by user.

    Attributes:
        evidence: what was read of it.
    """

    evidence: Evidence

    @cached_property
    def answers(self) -> Mapping[str, Mapping[str, Mapping[str, Judged]]]:
        """User → query → row → answer, rows in the table's order."""
        found: dict[str, dict[str, dict[str, Judged]]] = {user: {} for user in self.evidence.users}
        for row, judged in self.evidence.rows.items():
            for one in judged:
                found[one.prediction.user].setdefault(one.prediction.query, {})[row] = one
        return found

    @cached_property
    def best_points(self) -> int:
        """The most points of a slice item, by what the gate counted."""
        return People(self.evidence.run, self.evidence.config, self.evidence.task).best_points

    @cached_property
    def plain_row(self) -> str | None:
        """The row of no personalization."""
        return next(iter(self._rows("NoPersonalization")), None)

    @cached_property
    def rag_row(self) -> str | None:
        """The row that stands for retrieval: RAG-5 where it is there, as in the paper's text, else the first."""
        rows = self._rows("Retrieval")
        return next((row for row in rows if self.settings(row).get("k", 5) == 5), next(iter(rows), None))

    @cached_property
    def persona_row(self) -> str | None:
        """The row of the deepest whole persona."""
        rows = [row for row in self._rows("PersonaLink") if self.settings(row).get("without") is None]
        deepest = max(rows, key=self._depth, default=None)
        return deepest or next(iter(self._rows("Refine")), None)

    def settings(self, row: str) -> Mapping[str, object]:
        """The settings of a row's context; empty for a floor."""
        settings: Mapping[str, object] = self.evidence.config["context"].get(row, {})
        return settings

    def _rows(self, kind: str) -> list[str]:
        return [row for row in self.evidence.methods if self.settings(row).get("_target_") == CONTEXTS + kind]

    def _depth(self, row: str) -> int:
        depth = self.settings(row).get("depth", 2)
        return depth if isinstance(depth, int) else 0

    def sums(self, user: str) -> Facts:
        """What the list says of a user."""
        history, refinement = self.evidence.history_size.get(user), self.evidence.refinements.get(user)
        line = line_of(user, history, refinement, self.best_points) if refinement else None
        return Facts(user, history, self.effect(user), refinement, line)

    def effect(self, user: str) -> str:
        """What the persona did to the user's answers, against no personalization: "" where that cannot be told."""
        before, after = self.loss(user, self.plain_row), self.loss(user, self.persona_row)
        if before is None or after is None:
            return ""
        if before == after:
            return "the same" if self.evidence.task.kind == "text" else f"the same, {'wrong' if after else 'right'}"
        return "better" if after < before else "worse"

    def loss(self, user: str, row: str | None) -> float | None:
        """What a row's answers lost in all, lower is better (see `Judged.error`); None where no gold label is known."""
        found = [rows[row] for rows in self.answers[user].values() if row in rows] if row is not None else []
        losses = [one.error(self.evidence.task) for one in found if one.gold is not None]
        return sum(losses) if losses else None


@dataclass(frozen=True)
class Facts:
    """One user of a run.

    Attributes:
        user: the id. history: items; None when unknown.
        effect: see `Run.effect`.
        refinement: the record of the loop, and line: the same in numbers; None where no row refined a persona.
    """

    user: str
    history: int | None
    effect: str
    refinement: Refinement | None
    line: Line | None

    @property
    def persona(self) -> PersonaState | None:
        """The persona kept at the end."""
        return self.refinement.persona if self.refinement else None

    @property
    def kept(self) -> int:
        """Candidates that the gate accepted."""
        return self.line.kept if self.line else 0

    @property
    def tried(self) -> int:
        """Passes in which a rewrite was asked for."""
        return self.line.tried if self.line else 0

    @property
    def gain(self) -> float | None:
        """See `Line.gain`."""
        return self.line.gain if self.line else None


def was_tried(one: Pass) -> bool:
    """Whether a rewrite was asked for in a pass."""
    return one.calls > 0


def by_gain(facts: Sequence[Facts]) -> list[Facts]:
    """The order of the list: those who gained most first, then those for whom something was tried, then by id."""
    return sorted(facts, key=lambda f: (-(f.gain if f.gain is not None else -1.0), -f.kept, -f.tried, f.user))


def row_label(row: str) -> str:
    """A row as people read it."""
    return ROW_LABELS.get(row, row)


def page_name(user: str) -> str:
    """A user's page, from the id alone, so that its address stays: the id itself where it is plain, else what is plain
    of it and a digest. Distinct also where files ignore case, and nothing in it that an address would have to quote."""
    if _PLAIN.fullmatch(user):
        return f"{user}.html"
    readable = _NOT_PLAIN.sub("-", user.lower())[:60].strip("-.")
    return f"{readable}~{digest(user)[:12]}.html"

"""The record of one user's loop: every pass with its candidate, scores and reason. Plain JSON both ways.

Knows nothing of models; everything in it is the same whether an answer was asked for or came from a journal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from personalink.errors import IntegrityError
from personalink.gate import SliceScore
from personalink.persona import PersonaState
from personalink.persona_io import from_dict, to_dict


@dataclass(frozen=True, slots=True)
class Pass:
    """One round of the loop.

    Attributes:
        depth: the round, from 1.
        before, after: slice score of the persona kept before and after this round.
        trial: the candidate's score; None when it was not evaluated in full.
        at_best: what the candidate could have reached at best when the race was cut short; None otherwise.
        accepted: whether the candidate was kept. reason: why or why not, in words.
        candidate: what was proposed; None when there was nothing usable.
        persona: the persona kept after this round.
        errors: ids of the slice items that the incumbent got wrong (they drove the rewrite).
        unreadable: slice answers of the candidate that named no label.
        calls: model calls asked for in this round, whether or not a journal answered them.
        notes: what was cut or dropped from the proposal.
        constrained: by what the rewriter's reply was held to the schema; "" for nothing. Recorded only where it was.
    """

    depth: int
    before: SliceScore
    after: SliceScore
    trial: SliceScore | None
    accepted: bool
    reason: str
    candidate: PersonaState | None
    persona: PersonaState
    errors: tuple[str, ...] = ()
    at_best: float | None = None
    unreadable: int = 0
    calls: int = 0
    notes: tuple[str, ...] = ()
    constrained: str = ""

    @property
    def score_before(self) -> float:
        """Slice score before, in the metric's unit; higher is better."""
        return self.before.value

    @property
    def score_after(self) -> float:
        """Slice score after; never below `score_before`."""
        return self.after.value


@dataclass(frozen=True, slots=True)
class Refinement:
    """One user's whole loop.

    Attributes:
        user: the user's id. seed: the run's.
        slice_ids, audit_ids: items held out for the gate, and for the record only.
        initial: slice score of the empty persona.
        empty: the empty persona (depth 0).
        passes: one a depth, also those that had nothing left to do.
        audit: audit score of the persona kept at each depth 0…R; empty when there is no audit slice. It is the honest
            one of the two scores, since nobody selected on it.
        calls: all model calls of the loop, the audit's apart in `audit_calls`.
        flags: such as "history too short".
    """

    user: str
    seed: int
    slice_ids: tuple[str, ...]
    audit_ids: tuple[str, ...]
    initial: SliceScore
    empty: PersonaState
    passes: tuple[Pass, ...]
    audit: tuple[SliceScore, ...] = ()
    calls: int = 0
    audit_calls: int = 0
    flags: tuple[str, ...] = ()

    @property
    def persona(self) -> PersonaState:
        """The persona kept at the end."""
        return self.at(len(self.passes))

    def at(self, depth: int) -> PersonaState:
        """The persona kept after `depth` rounds; 0 is the empty one, beyond the last is the last."""
        return self.passes[min(depth, len(self.passes)) - 1].persona if depth > 0 and self.passes else self.empty

    def score_at(self, depth: int) -> SliceScore:
        """Slice score of `at(depth)`."""
        return self.passes[min(depth, len(self.passes)) - 1].after if depth > 0 and self.passes else self.initial

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "user": self.user,
            "seed": self.seed,
            "slice": list(self.slice_ids),
            "audit_slice": list(self.audit_ids),
            "initial": _score(self.initial),
            "empty": to_dict(self.empty),
            "passes": [_pass(p) for p in self.passes],
            "audit": [_score(s) for s in self.audit],
            "calls": self.calls,
            "audit_calls": self.audit_calls,
            "flags": list(self.flags),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Refinement:
        """The inverse of `as_dict`.

        Raises:
            IntegrityError: it is not a refinement, or was altered.
        """
        try:
            return cls(
                user=data["user"],
                seed=data["seed"],
                slice_ids=tuple(data["slice"]),
                audit_ids=tuple(data["audit_slice"]),
                initial=_read_score(data["initial"]),
                empty=from_dict(data["empty"]),
                passes=tuple(_read_pass(p) for p in data["passes"]),
                audit=tuple(_read_score(s) for s in data["audit"]),
                calls=data["calls"],
                audit_calls=data["audit_calls"],
                flags=tuple(data["flags"]),
            )
        except (KeyError, TypeError) as error:
            msg = f"this is not the record of a refinement: {type(error).__name__} {error}"
            raise IntegrityError(msg) from None


def _score(score: SliceScore) -> dict[str, Any]:
    return {"points": list(score.points), "value": score.value}


def _read_score(data: Mapping[str, Any]) -> SliceScore:
    return SliceScore(tuple(data["points"]), data["value"])


def _pass(p: Pass) -> dict[str, Any]:
    held = {"constrained": p.constrained} if p.constrained else {}
    return held | {
        "depth": p.depth,
        "before": _score(p.before),
        "after": _score(p.after),
        "trial": _score(p.trial) if p.trial else None,
        "at_best": p.at_best,
        "accepted": p.accepted,
        "reason": p.reason,
        "candidate": to_dict(p.candidate) if p.candidate else None,
        "persona": to_dict(p.persona),
        "errors": list(p.errors),
        "unreadable": p.unreadable,
        "calls": p.calls,
        "notes": list(p.notes),
    }


def _read_pass(data: Mapping[str, Any]) -> Pass:
    return Pass(
        depth=data["depth"],
        before=_read_score(data["before"]),
        after=_read_score(data["after"]),
        trial=_read_score(data["trial"]) if data["trial"] else None,
        at_best=data.get("at_best"),
        accepted=data["accepted"],
        reason=data["reason"],
        candidate=from_dict(data["candidate"]) if data["candidate"] else None,
        persona=from_dict(data["persona"]),
        errors=tuple(data["errors"]),
        unreadable=data["unreadable"],
        calls=data["calls"],
        notes=tuple(data["notes"]),
        constrained=data.get("constrained", ""),
    )

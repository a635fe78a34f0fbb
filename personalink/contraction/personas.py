"""What the analyser measures of personas: refinements, whole and by field, and drift between two sets of personas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from personalink.contraction.analysis import EMPTY, TOLERANCE, analyse
from personalink.contraction.embedding import Remembered, distances
from personalink.contraction.record import Contraction, Drift, UserDrift
from personalink.encoder import Encoder
from personalink.errors import DataError
from personalink.persona import FIELDS, PersonaState, render_fields
from personalink.refinement import Refinement

HEADINGS = dict(zip(("exemplars", "preference_summary", "decision_rules"), EMPTY.split("\n"), strict=True))
"""What stands for an empty field: its heading."""

SHORT = "history too short for the loop"


def of_refinements(
    refinements: Iterable[Refinement],
    encoder: Encoder,
    *,
    seed: int | None = None,
    draws: int = 10_000,
    confidence: float = 0.95,
    tolerance: float = TOLERANCE,
) -> Contraction:
    """How the kept personas of refinements move, whole and by field; depth 0 is the empty one.

    Args:
        refinements: in the order wanted, one a user. One without a loop is left out, and named in `left_out`.
        seed: of the bootstrap; default: the refinements' own.
        encoder, draws, confidence, tolerance: see `analyse`.

    Raises:
        DataError: no refinement has a loop, or as `analyse`.
        ConfigError: a setting is out of range.
    """
    everyone = list(refinements)
    some = [one for one in everyone if has_loop(one)]
    if not some:
        msg = f"none of {len(everyone)} refinements has a pass to measure: no depth, or histories too short"
        raise DataError(msg)
    passes = max(len(one.passes) for one in some)
    kept = {one.user: [one.at(depth) for depth in range(passes + 1)] for one in some}
    measured = analyse(
        {user: [persona.render() for persona in row] for user, row in kept.items()},
        encoder,
        seed=some[0].seed if seed is None else seed,
        draws=draws,
        confidence=confidence,
        tolerance=tolerance,
        accepted={one.user: _accepted(one, passes) for one in some},
        fields={name: {user: [field_text(p, name) for p in row] for user, row in kept.items()} for name in FIELDS},
    )
    return replace(measured, left_out={one.user: SHORT for one in everyone if not has_loop(one)})


def has_loop(refinement: Refinement) -> bool:
    """Whether there was anything to measure: a slice to score on, and a pass."""
    return bool(refinement.slice_ids and refinement.passes)


def field_text(persona: PersonaState, name: str) -> str:
    """One field as it is rendered, its heading included; the heading alone where it is empty."""
    summary = persona.preference_summary if name == "preference_summary" else ""
    exemplars = persona.exemplars if name == "exemplars" else ()
    rules = persona.decision_rules if name == "decision_rules" else ()
    return render_fields(summary, exemplars, rules) or HEADINGS[name]


def drift(
    new: Mapping[str, PersonaState], old: Mapping[str, PersonaState], encoder: Encoder, *, against: str = ""
) -> Drift:
    """How far personas lie from older ones of the same users, whole and field by field.

    Args:
        new, old: user → persona. encoder: see `encoder.Encoder`.
        against: what the older ones are called.

    Raises:
        DataError: no user is in both, or the encoder gave no unit vectors.
    """
    users = [user for user in new if user in old]
    if not users:
        msg = f"no user of {against or 'the older personas'} is among these; drift needs the same users"
        raise DataError(msg)
    memory = Remembered.of(encoder)
    before, after = ([_texts(side[user]) for user in users] for side in (old, new))
    memory.remember(text for row in (*before, *after) for text in row)
    whole, *parts = (
        distances(memory.encode(a), memory.encode(b)).tolist()
        for a, b in zip(zip(*before, strict=True), zip(*after, strict=True), strict=True)
    )
    found = tuple(
        UserDrift(
            user=user,
            same=before[i] == after[i],
            whole=whole[i],
            fields={name: part[i] for name, part in zip(FIELDS, parts, strict=True)},
        )
        for i, user in enumerate(users)
    )
    return Drift(against, found, len(new) - len(users), len(old) - len(users))


def _texts(persona: PersonaState) -> tuple[str, ...]:
    """The whole persona, then its fields."""
    return persona.render() or EMPTY, *(field_text(persona, name) for name in FIELDS)


def _accepted(one: Refinement, passes: int) -> tuple[bool, ...]:
    return tuple(p.accepted for p in one.passes) + (False,) * (passes - len(one.passes))

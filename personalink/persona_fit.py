"""Cutting a proposed persona to its caps, by code and not by a sentence in a prompt.

Whole rules, whole exemplars and whole trailing sentences of the summary are dropped, or an exemplar's *input* is
clipped; a label is never touched; and every cut is told. What cannot be cut (a first sentence over its cap) is an
error, so that half a thought is never adopted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

from personalink.errors import PersonaError
from personalink.persona import (
    ELLIPSIS,
    Caps,
    Exemplar,
    PersonaState,
    Rule,
    TokenCounter,
    measured,
    render_fields,
    render_summary,
)
from personalink.text import one_line

_SENTENCE_END = re.compile(
    r"(?<=[.!?。！？])(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\bvs\.)(?<!\bcf\.)(?<!\d\.)\s+|(?<=[。！？])"
)
"""Where a sentence ends. "e.g." and the number of a list ("2.") end none: what they leave would be half a thought."""


def fit_persona(
    summary: str,
    exemplars: Iterable[Exemplar],
    rules: Iterable[Rule],
    *,
    caps: Caps,
    counter: TokenCounter,
) -> tuple[PersonaState, tuple[str, ...]]:
    """A state within its caps, made from texts of any size, with a note on each cut.

    Returns:
        The state, and one line a cut, such as "rule 7 of 8 dropped: 6 are kept".

    Raises:
        PersonaError: the summary's first sentence alone is over its cap, or nothing fits the whole cap.
    """
    notes: list[str] = []

    def count(text: str) -> int:
        return measured(text, counter)

    kept_summary = fit_summary(one_line(summary), caps.summary, count, notes)
    kept_rules = _fit_rules(rules, caps, count, notes)
    kept_exemplars = _fit_exemplars(exemplars, caps, count, notes)
    while count(render_fields(kept_summary, tuple(kept_exemplars), tuple(kept_rules))) > caps.total:
        if kept_exemplars and len(kept_exemplars) >= len(kept_rules):
            notes.append(f"exemplar {kept_exemplars.pop().item_id} dropped: the whole is over {caps.total} tokens")
        elif kept_rules:
            notes.append(f"rule {kept_rules.pop().condition!r} dropped: the whole is over {caps.total} tokens")
        else:
            kept_summary = drop_sentence(kept_summary, caps.total, notes)
    state = PersonaState(kept_summary, tuple(kept_exemplars), tuple(kept_rules), caps, counter=counter)
    return state, tuple(notes)


def fit_summary(summary: str, cap: int, count: Callable[[str], int], notes: list[str]) -> str:
    """The summary within its cap, whole trailing sentences dropped."""
    while summary and count(render_summary(summary)) > cap:
        summary = drop_sentence(summary, cap, notes)
    return summary


def drop_sentence(summary: str, cap: int, notes: list[str]) -> str:
    """The summary without its last sentence, which a note tells.

    Raises:
        PersonaError: it is a single sentence.
    """
    sentences = [s for s in _SENTENCE_END.split(summary) if s]
    if len(sentences) < 2:
        msg = f"preference_summary does not fit {cap} tokens, and a single sentence is not cut"
        raise PersonaError(msg)
    shorter = summary[: summary.rindex(sentences[-1])].rstrip()
    notes.append(f"a sentence of the summary dropped: it is over {cap} tokens")
    return shorter


def _fit_rules(rules: Iterable[Rule], caps: Caps, count: Callable[[str], int], notes: list[str]) -> list[Rule]:
    kept: list[Rule] = []
    seen: set[tuple[str, str]] = set()
    for i, raw in enumerate(rules, 1):
        rule = replace(raw, condition=one_line(raw.condition), label=one_line(raw.label))
        same = (rule.condition.casefold(), rule.label.casefold())
        if not rule.condition or not rule.label or "->" in rule.label:
            notes.append(f"rule {i} dropped: it has no condition or no label")
        elif same in seen:
            notes.append(f"rule {i} dropped: it stands twice")
        elif len(kept) == caps.rules:
            notes.append(f"rule {i} dropped: {caps.rules} are kept")
        elif count(rule.render()) > caps.rule:
            notes.append(f"rule {i} dropped: it is over {caps.rule} tokens")
        else:
            kept.append(rule)
            seen.add(same)
    return kept


def _fit_exemplars(
    exemplars: Iterable[Exemplar], caps: Caps, count: Callable[[str], int], notes: list[str]
) -> list[Exemplar]:
    kept: list[Exemplar] = []
    for raw in exemplars:
        exemplar = replace(raw, item_id=one_line(raw.item_id), input=one_line(raw.input), label=one_line(raw.label))
        if any(exemplar.item_id == other.item_id for other in kept):
            continue
        if len(kept) == caps.exemplars:
            notes.append(f"exemplar {exemplar.item_id} dropped: {caps.exemplars} are kept")
            continue
        if not exemplar.item_id or not exemplar.input or not exemplar.label or "->" in exemplar.label:
            notes.append(f"exemplar {exemplar.item_id!r} dropped: it has no id, no text or no label to show")
            continue
        clipped = clip_exemplar(exemplar, caps.exemplar, count)
        if clipped is None:
            notes.append(f"exemplar {exemplar.item_id} dropped: its label leaves no room in {caps.exemplar} tokens")
        else:
            kept.append(clipped)
    return kept


def clip_exemplar(exemplar: Exemplar, cap: int, count: Callable[[str], int]) -> Exemplar | None:
    """The exemplar with its input clipped to whole words (or characters of a single long word); None if none fits."""
    if count(exemplar.render()) <= cap:
        return exemplar
    parts, joiner = exemplar.input.split(" "), " "
    if len(parts) == 1 or count(replace(exemplar, input=parts[0] + ELLIPSIS).render()) > cap:
        parts, joiner = list(parts[0]), ""

    def clipped(n: int) -> Exemplar:
        return replace(exemplar, input=joiner.join(parts[:n]).rstrip() + ELLIPSIS, clipped=True)

    # less than all of it, and no more parts than tokens, since a count may cost a round trip
    low, high = 0, min(cap, len(parts) - (joiner.join(parts) == exemplar.input))
    while low < high:
        middle = (low + high + 1) // 2
        if count(clipped(middle).render()) <= cap:
            low = middle
        else:
            high = middle - 1
    # a counter need not be monotone, so the answer is checked and not only searched for
    return clipped(low) if low and count(clipped(low).render()) <= cap else None

"""Deterministic readers of a model's answer: the nearest valid class, or a number on a scale. No model judges here.

The rules and their order are SPEC'd in docs/tasks.md: fold → exact → the only label contained → edit distance within
.34 of the label's length → INVALID; ratings round half up, then clamp (never banker's rounding).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from personalink.tasks.base import INVALID, Reading
from personalink.text import edit_distance

MAX_EDIT_SHARE = 0.34
_THINK = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.IGNORECASE | re.DOTALL)
_EDGE = " \t\r\n\"'`*_.,:;!?()[]{}<>#-–—“”‘’"
_OUT_OF = re.compile(r"(?<![\d.,])(-?\d+(?:[.,]\d+)?)\s*(?:/|out\s+of)\s*\d+(?:[.,]\d+)?", re.IGNORECASE)
_NUMBER = re.compile(r"(?<![\w.,])-?\d+(?:[.,]\d+)?(?![\w])")
_NUMBER_WORDS = {"zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8,
                 "nine": 9, "ten": 10}  # fmt: skip
_NUMBER_WORD = re.compile(rf"\b({'|'.join(_NUMBER_WORDS)})\b", re.IGNORECASE)


def visible(text: str) -> str:
    """`text` without `<think>` blocks; an unclosed block hides everything after it. Thinking is not an answer."""
    return _THINK.sub("", text)


def _fold(text: str) -> str:
    return " ".join(text.casefold().split()).strip(_EDGE)


def read_label(text: str, labels: Sequence[str]) -> Reading:
    """The label that `text` names, or INVALID.

    Args:
        text: the raw completion.
        labels: the label space, in canonical order, which breaks ties of the edit distance.
    """
    answer = visible(text).strip()
    if answer in labels:
        return Reading(answer, "exact")
    folded = {_fold(label): label for label in labels}
    first_line = answer.splitlines()[0] if answer else ""
    for part in (answer, first_line):
        if label := folded.get(_fold(part)):
            return Reading(label, "folded")
    whole = _fold(answer)
    if not whole:
        return INVALID
    contained = _contained(whole, folded)
    if contained:
        return Reading(folded[next(iter(contained))], "contained") if len(contained) == 1 else INVALID
    near = [
        (edit_distance(candidate, fold), order, label)
        for candidate in {whole, _fold(first_line)}
        for order, (fold, label) in enumerate(folded.items())
        if abs(len(candidate) - len(fold)) <= MAX_EDIT_SHARE * len(fold)
    ]
    near = [(d, order, label) for d, order, label in near if d <= MAX_EDIT_SHARE * len(label)]
    return Reading(min(near)[2], "near") if near else INVALID


def _contained(whole: str, folded: dict[str, str]) -> set[str]:
    """Folded labels that stand in `whole` between word boundaries, less those that only stand inside a longer one."""
    spans = {
        (m.start(), m.end(), fold) for fold in folded for m in re.finditer(rf"(?<!\w){re.escape(fold)}(?!\w)", whole)
    }
    return {
        fold
        for start, end, fold in spans
        if not any(s <= start and end <= e and (e - s) > (end - start) for s, e, _ in spans)
    }


def read_number(text: str) -> float | None:
    """The one number that `text` states, or None where it states none, or several of which none stands first.

    "4/5" and "4 out of 5" state 4; "4,5" states 4.5; number words count where no digits stand.
    """
    answer = visible(text).strip()
    if scored := _OUT_OF.findall(answer):
        values = [_to_float(value) for value in scored]
    else:
        values = [_to_float(value) for value in _NUMBER.findall(answer)]
        if not values:
            values = [float(_NUMBER_WORDS[word.lower()]) for word in _NUMBER_WORD.findall(answer)]
    if len(set(values)) == 1:
        return values[0]
    leading = _NUMBER.match(answer.lstrip(_EDGE.replace("-", "")))
    return _to_float(leading.group()) if values and leading else None


def _to_float(text: str) -> float:
    return float(text.replace(",", "."))


def half_up(value: float) -> int:
    """The nearest integer, halves towards +∞: 4.5 → 5, 2.5 → 3, −0.5 → 0."""
    return math.floor(value + 0.5)


def read_rating(text: str, low: int, high: int, *, halves: str = "half_up") -> Reading:
    """An integer rating in [low, high] as text, or INVALID.

    Args:
        text: the raw completion.
        low: the lowest rating.
        high: the highest; numbers beyond either end are clamped, which `how` tells.
        halves: "half_up" rounds a fraction; "reject" makes it INVALID.
    """
    value = read_number(text)
    if value is None or abs(value) > 1e9:
        return INVALID
    whole = half_up(value)
    if halves == "reject" and whole != value:
        return INVALID
    if not low <= whole <= high:
        return Reading(str(min(max(whole, low), high)), "clamped")
    if whole != value:
        return Reading(str(whole), "rounded")
    return Reading(str(whole), "exact" if text.strip() == str(whole) else "number")

"""Deterministic readers of a model's answer: the nearest valid class, an option, a number on a scale, a text. No model
judges here.

The rules and their order are SPEC'd in docs/tasks.md: fold → exact → the only label contained → edit distance within
.34 of the label's length → INVALID; ratings round half up, then clamp (never banker's rounding); texts lose what
stands around them.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from personalink.tasks.base import INVALID, Reading
from personalink.text import edit_distance, one_line

MAX_EDIT_SHARE = 0.34
_THINK = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.IGNORECASE | re.DOTALL)
_UNOPENED = re.compile(r"\A.*</think(?:ing)?>", re.IGNORECASE | re.DOTALL)
_EDGE = " \t\r\n\"'`*_.,:;!?()[]{}<>#-–—“”‘’"
_OUT_OF = re.compile(
    r"(?<![\d.,])(-?\d+(?:[.,]\d+)?)\s*(?:(?:stars?|points?)\s*)?(?:\(\s*)?(?:/|out\s+of)\s*\d+(?:[.,]\d+)?",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"(?<![\w.,])-?\d+(?:[.,]\d+)?(?![\w])")
_ALONE = re.compile(
    r"[^\w-]*(?:(?:the\s+)?(?:rating|score)\b[^\w-]*(?:is\b[^\w-]*)?)?(-?\d+(?:[.,]\d+)?)\s*(?:stars?|points?)?\W*",
    re.IGNORECASE,
)
_AROUND = (
    *(("**", "**"), ("*", "*"), ("__", "__"), ("_", "_"), ("`", "`")),
    *(('"', '"'), ("'", "'"), ("“", "”"), ("‘", "’"), ("«", "»")),
)  # emphasis and quotation marks
_SHORT = 80  # characters of an answer that is a number and no sentence
_RANGE_TO = r"\s*(?:[-–—~/,&]|to\b|or\b|and\b)\s*"
_RANGE = re.compile(r"\s*(?:[-–—~]|to\b|or\b|and\b)\s*\d", re.IGNORECASE)
_NUMBER_WORDS = {"zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8,
                 "nine": 9, "ten": 10}  # fmt: skip
_NUMBER_WORD = re.compile(rf"\b({'|'.join(_NUMBER_WORDS)})\b", re.IGNORECASE)


def visible(text: str) -> str:
    """`text` without `<think>` blocks. Thinking is not an answer.

    An unclosed block hides everything after it; a block whose opening stood in the prompt, everything before its end.
    """
    return _UNOPENED.sub("", _THINK.sub("", text))


def _light(text: str) -> str:
    return " ".join(text.casefold().split())


def _fold(text: str) -> str:
    return _light(text).strip(_EDGE)


def read_label(text: str, labels: Sequence[str]) -> Reading:
    """The label that `text` names, or INVALID.

    Args:
        text: the raw completion.
        labels: the label space, in canonical order, which breaks ties of the edit distance.
    """
    answer = visible(text).strip()
    if answer in labels:
        return Reading(answer, "exact")
    light, bare = {_light(label): label for label in labels}, _bare(labels)
    first_line = answer.splitlines()[0] if answer else ""
    for part in (answer, first_line):
        if label := light.get(_light(part)) or bare.get(_fold(part)):
            return Reading(label, "folded")
    if not _fold(answer):
        return INVALID
    forms = bare | {form: label for form, label in light.items() if label not in bare.values() and _fold(label)}
    contained = _contained(_light(answer), forms)
    if contained:
        return Reading(forms[next(iter(contained))], "contained") if len(contained) == 1 else INVALID
    near = [
        (distance, labels.index(label), label)
        for candidate in {_fold(answer), _fold(first_line)}
        for form, label in forms.items()
        if abs(len(candidate) - len(form)) <= MAX_EDIT_SHARE * len(form)
        and (distance := edit_distance(candidate, form)) <= MAX_EDIT_SHARE * len(form)
    ]
    return Reading(min(near)[2], "near") if near else INVALID


def _bare(labels: Sequence[str]) -> dict[str, str]:
    """Folded form → label, for the labels that outer punctuation does not tell apart ("C" and "C#" are left out)."""
    how_many = Counter(_fold(label) for label in labels)
    return {_fold(label): label for label in labels if _fold(label) and how_many[_fold(label)] == 1}


def _contained(whole: str, folded: dict[str, str]) -> set[str]:
    """Folded labels that stand in `whole` between word boundaries, less those that only stand inside a longer one."""
    spans = {
        (m.start(), m.end(), fold) for fold in folded for m in re.finditer(rf"(?<!\w){re.escape(fold)}(?!\w)", whole)
    }
    standing, reach = set(), 0
    for _, end, fold in sorted(spans, key=lambda span: (span[0], -span[1])):
        if end > reach:
            standing.add(fold)
            reach = end
    return standing


def read_choice(text: str, marks: Sequence[str]) -> Reading:
    """The option that `text` names by its mark, such as "[1]", or INVALID.

    An answer may repeat the option's text, in which the other marks' bare digits may stand. So: the whole answer is a
    mark, with or without its brackets → it begins with one → it holds one mark written out → the rules of `read_label`.

    Args:
        text: the raw completion.
        marks: the options' marks, in order.
    """
    whole = read_label(text, marks)
    if whole.how in ("exact", "folded"):
        return whole
    answer = _light(visible(text)).lstrip("*\"'` ")
    forms = {form: mark for mark in marks for form in (_light(mark), _fold(mark)) if form}
    any_form = "|".join(map(re.escape, sorted(forms, key=len, reverse=True)))
    opening = re.match(rf"({any_form})(?!\w)(?!{_RANGE_TO}(?:{any_form})(?!\w))", answer)
    if opening:
        return Reading(forms[opening[1]], "contained")
    written = [mark for mark in marks if _light(mark) in answer]
    return Reading(written[0], "contained") if len(written) == 1 else whole


def read_text(text: str, name: str) -> Reading:
    """The first line of an answer that is the answer itself, or INVALID where nothing is left.

    Taken off: `<think>` blocks; a line that only announces ("Here is a headline:") where another follows; the label's
    own name ("Headline: …"), with Markdown's emphasis around it; quotation marks and emphasis around the whole.

    Args:
        text: the raw completion.
        name: the label's name in prompts.
    """
    lines = [line for line in (one_line(part) for part in visible(text).splitlines()) if line]
    if len(lines) > 1 and lines[0].rstrip("*_ ").endswith(":"):
        lines = lines[1:]
    line = re.sub(rf"^[*_#\s]*{re.escape(name)}\s*:[*_\s]*", "", lines[0], flags=re.IGNORECASE) if lines else ""
    while (inside := _unwrapped(line)) != line:
        line = inside
    if not line:
        return INVALID
    return Reading(line, "exact" if line == text.strip() else "trimmed")


def _unwrapped(line: str) -> str:
    """`line` without one pair of marks around the whole of it."""
    for left, right in _AROUND:
        inside = line[len(left) : -len(right)]
        if line == left + inside + right and inside.strip() and left not in inside and right not in inside:
            return inside.strip()
    return line


def read_number(text: str, low: int, high: int) -> float | None:
    """The one number that `text` states, or None where it states none, or several of which none stands first.

    "4/5" and "4 out of 5" state 4; "4,5" states 4.5; number words count where no digits stand; "3-4" and "3 or 4"
    state none. A number alone, or out of a total, may lie beyond [low, high]; among other words only one that rounds
    into it counts, since a film's year is no rating.
    """
    answer = _plain(visible(text))
    stated = [_to_float(value) for value in _OUT_OF.findall(answer)]
    if not stated and len(answer) <= _SHORT and (alone := _ALONE.fullmatch(answer)):
        return _to_float(alone.group(1))
    values = stated or [v for v in map(_to_float, _NUMBER.findall(answer)) if low <= v + 0.5 < high + 1]
    if len(set(values)) == 1:
        return values[0]
    opening = answer.lstrip(_EDGE.replace("-", ""))
    leading = _NUMBER.match(opening)
    if leading and _to_float(leading.group()) in values and not _RANGE.match(opening, leading.end()):
        return _to_float(leading.group())
    return None


def _plain(text: str) -> str:
    """`text` without Markdown's emphasis, with one minus sign, and with digits for number words where none stand."""
    plain = re.sub(r"[*_`]+", " ", text).replace("−", "-").strip()
    if not re.search(r"\d", plain):
        plain = _NUMBER_WORD.sub(lambda found: str(_NUMBER_WORDS[found.group().lower()]), plain)
    return plain


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
    value = read_number(text, low, high)
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

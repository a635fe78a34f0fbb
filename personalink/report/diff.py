"""What changed from one persona to another, field by field and word by word, as plain data for whoever shows it.

An entry that was rewritten is told as one that changed, not as one gone and one new. Knows personas alone.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from personalink.persona import ARROW, Exemplar, PersonaState, Rule

MOST_WORDS = 600
"""Texts of more words than this are told whole, the old before the new: comparing takes the square of their number."""

ALIKE = 0.5
"""Share of words in common from which on two rules are one that was rewritten."""

Entry = Exemplar | Rule
Segment = tuple[Literal["same", "gone", "new"], str]


@dataclass(frozen=True, slots=True)
class Change:
    """One entry that is not as it was: `kind` is "new", "gone" or "changed", `segments` its words in order."""

    kind: Literal["new", "gone", "changed"]
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class FieldChange:
    """What changed in one of the three fields; `reordered` where it holds the same entries in another order."""

    name: str
    changes: tuple[Change, ...]
    reordered: bool = False

    def as_dict(self) -> dict[str, object]:
        """Plain JSON."""
        changes = [{"kind": c.kind, "segments": [list(segment) for segment in c.segments]} for c in self.changes]
        return {"field": self.name, "reordered": self.reordered, "changes": changes}


def persona_changes(old: PersonaState, new: PersonaState) -> tuple[FieldChange, ...]:
    """The fields that changed, in the order in which they are rendered; empty where both render alike."""
    found = []
    for name in ("exemplars", "preference_summary", "decision_rules"):
        before, after = getattr(old, name), getattr(new, name)
        if name == "preference_summary":
            changes, reordered = _summary(before, after), False
        else:
            changes = _entries(before, after)
            reordered = not changes and [e.render() for e in before] != [e.render() for e in after]
        if changes or reordered:
            found.append(FieldChange(name, changes, reordered))
    return tuple(found)


def word_segments(old: str, new: str) -> tuple[Segment, ...]:
    """Two texts as one, word by word; white space is one blank between words."""
    a, b = old.split(), new.split()
    if max(len(a), len(b)) > MOST_WORDS and a != b:
        opcodes = [("replace", 0, len(a), 0, len(b))]
    else:
        opcodes = list(difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes())
    segments: list[Segment] = []
    for op, i1, i2, j1, j2 in opcodes:
        if op == "equal":
            segments.append(("same", " ".join(a[i1:i2])))
            continue
        segments += [("gone", " ".join(a[i1:i2]))] if i2 > i1 else []
        segments += [("new", " ".join(b[j1:j2]))] if j2 > j1 else []
    return tuple(segments)


def _summary(old: str, new: str) -> tuple[Change, ...]:
    if old == new:
        return ()
    kind: Literal["new", "gone", "changed"] = "new" if not old else "gone" if not new else "changed"
    return (Change(kind, word_segments(old, new)),)


def paired(before: Sequence[Entry], after: Sequence[Entry]) -> tuple[list[tuple[Entry | None, Entry]], list[Entry]]:
    """(each entry of `after` beside what it was before, None where it is new; what is gone), both in their order.

    An entry was the one of the same text, else of the same item or condition, else a rule that is `ALIKE`.
    """
    left = list(before)
    was: dict[int, Entry] = {}
    for same in (_equal, _same_source, _alike):
        for place, entry in enumerate(after):
            found = next((i for i, old in enumerate(left) if same(old, entry)), None) if place not in was else None
            if found is not None:
                was[place] = left.pop(found)
    return [(was.get(place), entry) for place, entry in enumerate(after)], left


def left_of(entry: Entry) -> str:
    """What stands left of the arrow, without the "if" of a rule."""
    return entry.input if isinstance(entry, Exemplar) else entry.condition


def _entries(before: Sequence[Entry], after: Sequence[Entry]) -> tuple[Change, ...]:
    """Entries that changed or are new, in the new order; those that are gone stand last."""
    pairs, gone = paired(before, after)
    changes = []
    for old, entry in pairs:
        if old is None:
            changes.append(Change("new", (("new", _text(entry)),)))
        elif not _equal(old, entry):
            changes.append(Change("changed", _changed(old, entry)))
    return (*changes, *(Change("gone", (("gone", _text(entry)),)) for entry in gone))


def _changed(old: Entry, new: Entry) -> tuple[Segment, ...]:
    """An entry beside what it was: what stands left of the arrow, and the label."""
    label = (("same", new.label),) if old.label == new.label else (("gone", old.label), ("new", new.label))
    return (*word_segments(_condition(old), _condition(new)), ("same", ARROW.strip()), *label)


def _equal(old: Entry, new: Entry) -> bool:
    return old.render() == new.render()


def _same_source(old: Entry, new: Entry) -> bool:
    """Whether two exemplars are of one item, or two rules have one condition."""
    if isinstance(old, Exemplar) and isinstance(new, Exemplar):
        return old.item_id == new.item_id
    return left_of(old) == left_of(new)


def _alike(old: Entry, new: Entry) -> bool:
    if not isinstance(old, Rule) or not isinstance(new, Rule):
        return False  # another item is another exemplar
    a, b = old.condition.split()[:MOST_WORDS], new.condition.split()[:MOST_WORDS]
    return difflib.SequenceMatcher(None, a, b, autojunk=False).ratio() >= ALIKE


def _condition(entry: Entry) -> str:
    return entry.input if isinstance(entry, Exemplar) else f"if {entry.condition}"


def _text(entry: Entry) -> str:
    return entry.render().removeprefix("- ")

"""What changed from one persona to another, shown word by word and field by field.

Knows personas and markup; reads no run.
"""

from __future__ import annotations

from collections.abc import Sequence

from personalink.persona import PersonaState, Rule
from personalink.report.diff import Entry, left_of, paired, word_segments
from personalink.report.pages.markup import Html, el, text

_MARKS = {"gone": "del", "new": "ins"}


def persona_fields(persona: PersonaState) -> Html:
    """A persona, nothing marked."""
    return persona_changes(persona, persona)


def persona_changes(old: PersonaState, new: PersonaState) -> Html:
    """The three fields of `new` with what it does not share with `old` marked; a field empty in both is left out."""
    parts: list[Html] = []
    if old.preference_summary or new.preference_summary:
        words = word_changes(old.preference_summary, new.preference_summary)
        shown = el("p", words, class_="summary", dir="auto")
        parts.append(el("section", el("h4", "Preference summary"), shown, class_="field prose"))
    for title, before, after in (
        ("Decision rules", old.decision_rules, new.decision_rules),
        ("Exemplars", old.exemplars, new.exemplars),
    ):
        if before or after:
            shown = el("ul", _entries(before, after), class_="entries")
            parts.append(el("section", el("h4", title), shown, class_="field"))
    return el("div", parts, class_="fields")


def word_changes(old: str, new: str) -> Html:
    """Two texts as one: words that are gone in <del>, new ones in <ins>."""
    shown = (words if kind == "same" else el(_MARKS[kind], words) for kind, words in word_segments(old, new))
    return Html(" ".join(text(words) for words in shown))


def _entries(before: Sequence[Entry], after: Sequence[Entry]) -> list[Html]:
    """Entries in the new order, each beside what it was before; those that are gone stand last."""
    pairs, gone = paired(before, after)
    return [*(_entry(old, entry) for old, entry in pairs), *(_gone(entry) for entry in gone)]


def _entry(old: Entry | None, new: Entry) -> Html:
    """A line of the new persona, beside what it was before; None where it is new."""
    if old is None:
        return _line(new, el("ins", left_of(new)), el("ins", new.label))
    return _line(new, word_changes(left_of(old), left_of(new)), word_changes(old.label, new.label))


def _gone(old: Entry) -> Html:
    return _line(old, el("del", left_of(old)), el("del", old.label))


def _line(entry: Entry, left: Html, label: Html) -> Html:
    """What stands left of the arrow, and the label."""
    condition = el("span", "if ", class_="quiet") if isinstance(entry, Rule) else None
    return el("li", condition, el("bdi", left), el("span", " → ", class_="arrow"), el("bdi", label, class_="label"))

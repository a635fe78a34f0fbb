"""How a persona came about: each pass with what drove it, what was proposed, how it scored, and what the gate said.

Candidates that were refused stand here as those that were kept: a strict gate keeps few, and a reader wants to know
what was tried. Knows refinements and markup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from personalink.data.types import Item
from personalink.gate import SliceScore, discordant
from personalink.persona import PersonaState
from personalink.refinement import Pass, Refinement
from personalink.report.pages.changes import persona_changes, persona_fields
from personalink.report.pages.facts import was_tried
from personalink.report.pages.listing import decimals
from personalink.report.pages.markup import Html, clipped, el, joined, said, said_block

_SHOWN = 140  # characters of an item in a list


def passes_section(refinement: Refinement, best: int, items: Mapping[str, Item]) -> Html:
    """All passes of a refinement.

    Args:
        refinement: the record of the loop.
        best: the most points of one slice item.
        items: the user's history by id; empty where the data are not at hand.
    """
    shown, incumbent = [], refinement.empty
    for one in refinement.passes:
        shown.append(_pass(one, incumbent, refinement.slice_ids, best, items))
        incumbent = one.persona
    start = el(
        "p",
        "It starts from nothing: the empty persona",
        _scored(" scores ", refinement.initial, best) if refinement.slice_ids else " (there is no slice)",
        ". A pass shows the model what the persona kept so far gets wrong and asks for a better one; the gate decides "
        "by the slice. A square is one of its items: filled where the candidate was right, ringed where that is new.",
    )
    return el("section", el("h2", "How it came about"), start, shown, class_="passes", id="passes")


def _scored(before: str, score: SliceScore, best: int) -> Html:
    right = sum(points >= best for points in score.points)
    return joined(before, value(score.value), f" ({right} of {len(score.points)} right)")


def value(number: float) -> Html:
    """A score in the gate's unit."""
    return el("span", decimals(number), class_="number")


def _pass(one: Pass, incumbent: PersonaState, slice_ids: Sequence[str], best: int, items: Mapping[str, Item]) -> Html:
    if not was_tried(one):
        return el(
            "article",
            el("h3", f"Pass {one.depth}", badge("nothing to do", "idle")),
            el("p", "No rewrite was asked for: ", said(one.reason), "."),
            class_="pass idle",
            id=f"pass-{one.depth}",
        )
    verdict = badge("kept", "kept") if one.accepted else badge("refused", "refused")
    return el(
        "article",
        el("h3", f"Pass {one.depth}", verdict),
        el("p", _verdict(one), class_="verdict"),
        _strip(one, one.trial.points, slice_ids, best) if one.trial else None,
        _proposal(one, incumbent),
        _notes(one.notes),
        _drove(one, items),
        _whole(one),
        class_=f"pass {'kept' if one.accepted else 'refused'}",
        id=f"pass-{one.depth}",
    )


def badge(words: str, kind: str) -> Html:
    """A word that stands out; the word says it, the colour only repeats it."""
    return el("span", words, class_=f"badge {kind}")


def _verdict(one: Pass) -> Html:
    """What the gate said, in a sentence or two."""
    if one.candidate is None:
        return joined("Nothing that could be used was proposed: ", said(one.reason), ". The persona stays as it was.")
    if one.trial is not None:
        better, worse = discordant(one.before, one.trial)
        went = joined(value(one.before.value), " → ", value(one.trial.value), " on the slice: ")
        moved = f"{better} item{'s' * (better != 1)} better, {worse} worse. "
        unread = f"{one.unreadable} answers could not be read. " if one.unreadable else ""
        return joined(went, moved, unread, "" if one.accepted else joined("Refused: ", said(one.reason), "."))
    if one.at_best is not None:
        return joined(
            "Refused: ", said(one.reason), ". Asked first about the items the kept persona gets wrong, it could reach "
            "at best ", value(one.at_best), "; the kept one has ", value(one.before.value),
            ", so the rest was not asked.",
        )  # fmt: skip
    return joined("Not kept: ", said(one.reason), ".")


def _strip(one: Pass, points: Sequence[int], slice_ids: Sequence[str], best: int) -> Html:
    """The slice item by item, a mark each; the sentence above says the same in words."""
    marks = []
    for id_, old, new in zip(slice_ids, one.before.points, points, strict=True):
        kind = "right" if new >= best else "wrong"
        moved = " better" if new > old else " worse" if new < old else ""
        marks.append(el("li", class_=kind + moved, title=f"{clipped(id_, 60)}: {kind}{',' if moved else ''}{moved}"))
    return el("ol", marks, class_="strip", aria_hidden="true")


def _proposal(one: Pass, incumbent: PersonaState) -> Html | None:
    if one.candidate is None:
        return None
    if one.candidate.render() == incumbent.render():
        return el("p", "It proposed the persona that stood already.", class_="quiet")
    kind = "What changed" if one.accepted else "What was tried"
    new = incumbent.is_empty  # then everything is, and marking it would only tire
    return el(
        "div",
        el("p", kind, ", all of it new" if new else ", against the persona that stood", class_="eyebrow"),
        persona_fields(one.candidate) if new else persona_changes(incumbent, one.candidate),
        class_="card" if one.accepted else "card tried",
    )


def _notes(notes: Sequence[str]) -> Html | None:
    if not notes:
        return None
    lines = [el("li", said(note), f" × {n}" if n > 1 else "") for note, n in Counter(notes).items()]
    return el("details", el("summary", f"What was cut from the reply ({len(notes)})"), el("ul", lines, class_="notes"))


def _drove(one: Pass, items: Mapping[str, Item]) -> Html | None:
    if not one.errors:
        return None
    n = len(one.errors)
    what = f"The {n} mistakes that drove this rewrite" if n > 1 else "The mistake that drove this rewrite"
    return el("details", el("summary", what), item_list(one.errors, items), class_="drove")


def item_list(ids: Iterable[str], items: Mapping[str, Item], *, whole: bool = False) -> Html:
    """Items by id with the user's own label; the id alone where the data are not at hand.

    Args:
        ids: which. items: the history by id.
        whole: show a long text under its beginning; False shows its beginning alone.
    """
    return el("ul", (_item(id_, items.get(id_), whole=whole) for id_ in ids), class_="items")


def _item(id_: str, item: Item | None, *, whole: bool) -> Html:
    if item is None:
        return el("li", el("code", said(id_)))
    short = whole and len(item.input) > _SHOWN
    shown = el("details", el("summary", said(clipped(item.input, _SHOWN))), said_block(item.input), class_="long")
    line = shown if short else said(clipped(item.input, _SHOWN))
    return el("li", line, el("span", " → ", class_="arrow"), el("bdi", item.label, class_="label"))


def _whole(one: Pass) -> Html:
    """The persona that stood after the pass, as it is placed before a question."""
    title = f"The persona after pass {one.depth}, as placed before a question"
    if one.persona.is_empty:
        return el("p", f"After pass {one.depth} the persona is empty: nothing is placed.", class_="quiet")
    return el("details", el("summary", title), el("pre", one.persona.render(), dir="auto"))

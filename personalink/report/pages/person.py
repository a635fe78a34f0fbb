"""A user's page: the persona first, then how it came about, then what it did on a new question.

Knows one user at a time.
"""

from __future__ import annotations

from collections.abc import Mapping

from personalink.data.types import Item
from personalink.persona import PersonaState
from personalink.refinement import Refinement
from personalink.report.pages.answers import answers_section
from personalink.report.pages.changes import persona_fields
from personalink.report.pages.facts import Facts, Run
from personalink.report.pages.markup import Html, called, document, el, joined, said, short
from personalink.report.pages.passes import item_list, passes_section, value
from personalink.report.pages.texts import Texts


def person_page(run: Run, texts: Texts, facts: Facts, before: Html | None, after: Html | None) -> str:
    """The page of one user.

    Args:
        run, texts: what is known. facts: the user's line in the list.
        before, after: links to the neighbours in the list.
    """
    refinement, items = facts.refinement, texts.items(facts.user)
    body = [
        el("p", _about(facts), class_="eyebrow"),
        el("h1", "User ", called(facts.user)),
        _persona(facts, refinement),
        passes_section(refinement, run.best_points, items) if refinement else None,
        answers_section(run, texts, facts.user),
        _held(refinement, items, texts.missing) if refinement else None,
        el("nav", el("ul", (el("li", link) for link in (before, after) if link is not None)), class_="next",
           aria_label="Neighbours in the list"),
    ]  # fmt: skip
    trail = (
        el("a", run.evidence.config["name"], href="../index.html"),
        el("a", "Users", href="../users.html"),
        el("span", called(facts.user), aria_current="page"),
    )
    return document(f"User {short(facts.user)} · {run.evidence.config['name']}", body, root="../", trail=trail)


def _about(facts: Facts) -> Html:
    size = "–" if facts.history is None else f"{facts.history:,}"
    parts = [f"{size} past items"]
    r = facts.refinement
    if r is not None:
        parts.append(f"{len(r.slice_ids)} held out to score personas")
        parts += [f"{len(r.audit_ids)} to audit the choice"] if r.audit_ids else []
    return joined(" · ".join(parts))


def _persona(facts: Facts, refinement: Refinement | None) -> Html:
    """The hero: what was kept, or why there is nothing."""
    if refinement is None:
        return el("p", "No row of this run refined a persona; its answers stand below.", class_="lede")
    persona = refinement.persona
    if persona.is_empty:
        told = (
            f"{facts.tried} rewrites were tried and none was kept; they stand below."
            if facts.tried > 1
            else "One rewrite was tried and not kept; it stands below."
            if facts.tried
            else "Nothing was tried."
        )
        return el(
            "section",
            el("p", "The persona is empty", class_="eyebrow"),
            el("p", "Nothing beat no persona at all, so nothing is placed before this user’s questions. ", told,
               class_="lede"),
            _flags(refinement),
            class_="persona empty",
            aria_label="The persona",
        )  # fmt: skip
    depth = max(p.depth for p in refinement.passes if p.accepted)
    return el(
        "section",
        el("p", f"The persona, as kept after pass {depth}", class_="eyebrow"),
        persona_fields(persona),
        _meters(persona),
        _scores(facts, refinement),
        _flags(refinement),
        class_="persona",
        aria_label="The persona",
    )


def _scores(facts: Facts, refinement: Refinement) -> Html | None:
    if facts.gain is None:
        return None
    pairs = [("On the slice, which chose it", refinement.initial.value, refinement.passes[-1].after.value)]
    if refinement.audit:
        pairs.append(("On the audit slice, which nothing saw", refinement.audit[0].value, refinement.audit[-1].value))
    shown = [el("div", el("dt", name), el("dd", value(old), " → ", value(new))) for name, old, new in pairs]
    return el("dl", shown, class_="scores")


def _meters(persona: PersonaState) -> Html:
    """The caps that can be told without a tokenizer: the whole in tokens, rules and exemplars by number."""
    caps = persona.caps
    used = (
        ("Tokens", persona.tokens, caps.total),
        ("Rules", len(persona.decision_rules), caps.rules),
        ("Exemplars", len(persona.exemplars), caps.exemplars),
    )
    shown = [
        el(
            "div",
            el("dt", name),
            el("dd", el("meter", f"{n} of {cap}", min=0, max=max(cap, 1), value=n, aria_label=f"{name} used"),
               el("span", f" {n} of {cap}", class_="number")),
        )
        for name, n, cap in used
    ]  # fmt: skip
    return el("dl", shown, class_="meters", title=f"counted by {persona.counter_id}")


def _flags(refinement: Refinement) -> Html | None:
    return el("p", (said(flag) for flag in refinement.flags), class_="quiet") if refinement.flags else None


def _held(refinement: Refinement, items: Mapping[str, Item], missing: str) -> Html | None:
    if not refinement.slice_ids:
        return None
    parts = [el("details", el("summary", f"The slice: {len(refinement.slice_ids)} items that scored each persona"),
                item_list(refinement.slice_ids, items, whole=True))]  # fmt: skip
    if refinement.audit_ids:
        parts.append(el("details", el("summary", f"The audit slice: {len(refinement.audit_ids)} items"),
                        item_list(refinement.audit_ids, items, whole=True)))  # fmt: skip
    note = el("p", missing, class_="quiet") if missing else None
    return el("section", el("h2", "What was held out"), note, parts, id="held-out")

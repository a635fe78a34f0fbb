"""Two runs side by side: the users whom both have, each run's persona, what differs between the two, and the answers.

Knows two runs; which is better is for the statistics to say (`personalink compare`).
"""

from __future__ import annotations

from collections.abc import Sequence

from personalink.report.pages.answers import answer, gold_line
from personalink.report.pages.changes import persona_changes, persona_fields
from personalink.report.pages.facts import Facts, Run, row_label
from personalink.report.pages.listing import Column, Listing
from personalink.report.pages.markup import Html, called, document, el, folded, joined, said, short
from personalink.report.pages.overview import link
from personalink.report.pages.passes import value
from personalink.report.pages.texts import Texts

COLUMNS = (
    Column("user", "User", "user"),
    Column("history", "History", "count"),
    Column("gain_a", "Slice gain, A", "gain"),
    Column("gain_b", "Slice gain, B", "gain"),
    Column("tokens_a", "Tokens, A", "count"),
    Column("tokens_b", "Tokens, B", "count"),
    Column("answers", "Answers", "choice"),
)
_NOTE = (
    "Slice gain: what the kept persona gained on the items that chose it. Tokens: the size of the persona. Answers: "
    "whose deepest persona answered new questions better."
)


def comparison_listing(a: Run, b: Run, users: Sequence[str]) -> Listing:
    """The users of both runs, in the order of A's list."""
    rows = []
    for user in users:
        one, other = a.sums(user), b.sums(user)
        tokens = [f.persona.tokens if f.persona else None for f in (one, other)]
        rows.append((user, one.history, one.gain, other.gain, *tokens, _answers(a, b, user)))
    return Listing(COLUMNS, rows, [link(user) for user in users], _NOTE)


def _answers(a: Run, b: Run, user: str) -> str:
    """Whose persona rows answered better; "" where that cannot be told."""
    losses = [run.loss(user, run.persona_row) for run in (a, b)]
    if losses[0] is None or losses[1] is None:
        return ""
    return "the same" if losses[0] == losses[1] else "A better" if losses[0] < losses[1] else "B better"


def comparison_overview(a: Run, b: Run, users: Sequence[str]) -> str:
    """The first page of a comparison."""
    sides = [
        el("section", el("h2", f"{letter}: ", said(run.evidence.name)), Html(run.evidence.results.results.as_html()))
        for letter, run in (("A", a), ("B", b))
    ]
    only = [f"{len(run.evidence.users) - len(users):,} only in {letter}" for letter, run in (("A", a), ("B", b))]
    body = [
        el("p", "Two runs side by side", class_="eyebrow"),
        el("h1", said(a.evidence.name), " and ", said(b.evidence.name)),
        el("p", f"{len(users):,} users are in both; {' and '.join(only)}.", class_="lede"),
        el("p", el("a", "Users of both", href="users.html", class_="button"), class_="actions"),
        *sides,
    ]
    trail = (el("span", "Two runs", aria_current="page"), el("a", "Users", href="users.html"))
    return document(f"{a.evidence.name} and {b.evidence.name}", body, root="", trail=trail)


def comparison_page(a: Run, b: Run, texts: Texts, user: str) -> str:
    """One user in both runs."""
    facts = {"A": (a, a.sums(user)), "B": (b, b.sums(user))}
    columns = [_side(letter, run, one) for letter, (run, one) in facts.items()]
    body = [
        el("p", "Two runs side by side", class_="eyebrow"),
        el("h1", "User ", called(user)),
        el("div", columns, class_="sides"),
        _changes(facts["A"][1], facts["B"][1]),
        _on_questions(a, b, texts, user),
    ]
    trail = (
        el("a", "Two runs", href="../index.html"),
        el("a", "Users", href="../users.html"),
        el("span", called(user), aria_current="page"),
    )
    return document(f"User {short(user)} in two runs", body, root="../", trail=trail)


def _side(letter: str, run: Run, facts: Facts) -> Html:
    persona, refinement = facts.persona, facts.refinement
    if persona is None or persona.is_empty:
        shown = el("p", "The persona is empty." if persona else "No row refined a persona.", class_="lede")
    else:
        shown = persona_fields(persona)
    scores = None
    if refinement is not None and refinement.slice_ids:
        went = joined(value(refinement.initial.value), " → ", value(refinement.passes[-1].after.value))
        scores = el("p", "Slice ", went, f" · {facts.kept} of {facts.tried} kept", class_="quiet")
    head = el("p", f"{letter} · ", said(run.evidence.name), class_="eyebrow")
    return el("section", head, shown, scores, class_="persona", aria_label=f"The persona in run {letter}")


def _changes(a: Facts, b: Facts) -> Html | None:
    if a.persona is None or b.persona is None or (a.persona.is_empty and b.persona.is_empty):
        return None
    if a.persona.render() == b.persona.render():
        return el("p", "Both personas render alike.", class_="quiet")
    return el("section", el("h2", "From A to B"), el("div", persona_changes(a.persona, b.persona), class_="card"))


def _on_questions(a: Run, b: Run, texts: Texts, user: str) -> Html:
    """What every row of either run answered to the questions that both asked."""
    shown = []
    for query, rows in a.answers[user].items():
        others = b.answers[user].get(query, {})
        names = list(dict.fromkeys([*rows, *others]))
        body = [
            el(
                "tr",
                el("th", row_label(row), scope="row"),
                *(el("td", answer(side[row], a.evidence.task) if row in side else "–") for side in (rows, others)),
            )
            for row in names
        ]
        asked = texts.query(user, query)
        head = el("tr", (el("th", name, scope="col") for name in ("Method", "A", "B")))
        shown.append(
            el(
                "article",
                el("p", "Question ", el("code", said(query)), class_="eyebrow"),
                folded(asked.input) if asked is not None else None,
                gold_line(rows),
                el(
                    "div",
                    el("table", el("thead", head), el("tbody", body)),
                    class_="wide",
                    tabindex="0",
                    role="region",
                    aria_label="What every method answered in both runs",
                ),
                class_="query",
            )
        )
    return el("section", el("h2", "On a new question"), shown)

"""A user's queries: what was asked, what each method answered beside the gold label, and the exact prompts.

Knows answers, texts and markup.
"""

from __future__ import annotations

from collections.abc import Mapping

from personalink.report.answers import Judged
from personalink.report.pages.facts import Run, row_label
from personalink.report.pages.listing import decimals
from personalink.report.pages.markup import Html, clipped, el, folded, joined, said
from personalink.report.pages.passes import badge
from personalink.report.pages.texts import Texts
from personalink.tasks import Task

MOST_PROMPT = 60_000
"""Prompts of more characters than this are not written into a page; it says how they can be seen."""
_SHOWN = 80  # characters of an answer in the table


def answers_section(run: Run, texts: Texts, user: str) -> Html:
    """Every query of a user."""
    queries = [_query(run, texts, user, query, rows) for query, rows in run.answers[user].items()]
    return el("section", el("h2", "On a new question"), queries, class_="answers", id="answers")


def _query(run: Run, texts: Texts, user: str, query: str, rows: Mapping[str, Judged]) -> Html:
    asked = texts.query(user, query)
    chosen = [row for row in (run.plain_row, run.rag_row, run.persona_row) if row in rows]
    return el(
        "article",
        el("p", "Question ", el("code", said(query)), class_="eyebrow"),
        folded(asked.input) if asked is not None else None,
        gold_line(rows),
        el("ul", (_card(row, rows[row], run.evidence.task) for row in chosen if row is not None), class_="cards"),
        _all(run, rows),
        _prompts(texts, {row: rows[row] for row in chosen if row is not None}),
        class_="query",
    )


def gold_line(rows: Mapping[str, Judged]) -> Html:
    """The gold label of a query, whose answers these are."""
    gold = next((one.gold for one in rows.values()), None)
    if gold is None:
        return el("p", "Its gold label is not in the files, so nothing here is scored.", class_="quiet")
    return el("p", "This person’s own answer: ", el("bdi", gold, class_="label"))


def _card(row: str, one: Judged, task: Task) -> Html:
    return el(
        "li",
        el("p", row_label(row), class_="eyebrow"),
        el("p", answer(one, task), class_="answer"),
        el("p", _tokens(one), class_="quiet"),
        class_="card",
    )


def answer(one: Judged, task: Task) -> Html:
    """The label that was read, or what there was instead, with its verdict."""
    label = one.prediction.label
    shown = (
        el("bdi", label, class_="label") if label is not None else el("span", f"no label ({one.prediction.outcome})")
    )
    return joined(shown, " ", _verdict(one, task))


def _verdict(one: Judged, task: Task) -> Html | None:
    """How far an answer is from the gold label, as the task counts it; None where that is unknown."""
    if one.gold is None:
        return None
    if one.right:
        return badge("right", "kept")
    if task.kind == "text":
        return badge(f"F1 {decimals(1 - one.error(task))}", "idle")
    off = task.kind == "rating" and one.prediction.label is not None
    return badge(f"off by {one.error(task):.0f}" if off else "wrong", "refused")


def _tokens(one: Judged) -> str:
    tokens = one.prediction.context_tokens
    return f"{tokens:,} tokens of context" if tokens else "nothing placed before the question"


def _all(run: Run, rows: Mapping[str, Judged]) -> Html:
    body = [
        el(
            "tr",
            el("th", row_label(row), scope="row"),
            el("td", said(clipped(one.prediction.label or one.prediction.outcome, _SHOWN))),
            el("td", _verdict(one, run.evidence.task)),
            el("td", "–" if row in run.evidence.floors else f"{one.prediction.context_tokens:,}", class_="n"),
            el("td", said(clipped(one.prediction.text, _SHOWN))),
        )
        for row, one in rows.items()
    ]
    head = el("tr", (el("th", name, scope="col") for name in ("Method", "Answer", "", "Context tokens", "Raw answer")))
    table = el("div", el("table", el("thead", head), el("tbody", body)), class_="wide", tabindex="0", role="region",
               aria_label="What every method answered")  # fmt: skip
    return el("details", el("summary", f"What all {len(rows)} methods answered"), table)


def _prompts(texts: Texts, rows: Mapping[str, Judged]) -> Html | None:
    """The exact prompts of some rows, on demand; two rows that sent the same share one."""
    if texts.missing:
        return el("p", "The exact prompts are not here, since the run’s data are not at hand.", class_="quiet")
    shared: dict[str, list[str]] = {}
    system, parts = "", []
    for row, one in rows.items():
        messages = texts.prompt(one.prediction)
        if messages is None:
            parts.append(el("p", f"The prompt of {row_label(row)} cannot be built from the run.", class_="quiet"))
        else:
            system = messages[0].content
            shared.setdefault(messages[1].content, []).append(row_label(row))
    for prompt, names in shared.items():
        parts.append(_prompt(system, prompt, " and ".join(names)))
    return joined(parts)


def _prompt(system: str, prompt: str, names: str) -> Html:
    title = el("summary", "The exact prompt of ", names)
    if len(prompt) > MOST_PROMPT:
        line = f"It has {len(prompt):,} characters; `personalink personas RUN --user … --prompt` shows it."
        return el("details", title, el("p", line))
    sent = joined(
        el("p", "system", class_="eyebrow"), el("pre", system, dir="auto"),
        el("p", "user", class_="eyebrow"), el("pre", prompt, dir="auto"),
    )  # fmt: skip
    return el("details", title, sent, class_="prompt")

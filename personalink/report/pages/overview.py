"""The overview of a run: what it was, what came of it, the personas worth a look first, and every table and figure.

Knows the evidence and where `personalink report` leaves its files; draws nothing itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from personalink.report.evidence import Evidence
from personalink.report.figures import FIGURES
from personalink.report.pages.facts import Facts, Run, page_name
from personalink.report.pages.markup import Html, called, clipped, document, el, joined, said

FEATURED = 6
"""Personas that the overview shows."""
_IMAGES = ("svg", "png")
_FILES = ("html", "md", "csv", "tex", "pdf", "svg", "png")


def overview_page(run: Run, ordered: Sequence[Facts], folder: Path, remarks: Sequence[str]) -> str:
    """The first page.

    Args:
        run: the run. ordered: its users, those who gained most first.
        folder: where the pages stand; tables and figures are looked for beside it.
        remarks: what the reader should know of the pages, a line each.
    """
    evidence, scores = run.evidence, run.evidence.results
    tables = [scores.results, *([scores.selection] if scores.selection else [])]
    body = [
        el("p", f"{evidence.config['task']['name']} · seed {evidence.config['seed']}", class_="eyebrow"),
        el("h1", said(evidence.config["name"])),
        _lede(ordered),
        el("p", el("a", "All users", href="users.html", class_="button"), class_="actions"),
        _featured(ordered),
        el("section", el("h2", "What each method scored"), (Html(table.as_html()) for table in tables), id="tables"),
        _figures(folder),
        _about(evidence),
        el("ul", (el("li", remark) for remark in remarks), class_="quiet") if remarks else None,
    ]
    trail = (el("span", evidence.config["name"], aria_current="page"), el("a", "Users", href="users.html"))
    return document(f"{evidence.config['name']} · personalink", body, root="", trail=trail)


def _lede(ordered: Sequence[Facts]) -> Html:
    """What came of it, in two sentences."""
    n = len(ordered)
    kept = sum(f.persona is not None and not f.persona.is_empty for f in ordered)
    tried, accepted = sum(f.tried for f in ordered), sum(f.kept for f in ordered)
    users = f"{n:,} user{'s' * (n != 1)}"
    if not any(f.refinement for f in ordered):
        return el("p", f"{users}; no row of this run refined a persona.", class_="lede")
    return el(
        "p",
        f"{users}. {tried:,} rewrites were tried and {accepted:,} kept; {kept:,} end with a persona, "
        f"{n - kept:,} with none, and so with the prompts of no personalization.",
        class_="lede",
    )


def _featured(ordered: Sequence[Facts]) -> Html | None:
    shown = [f for f in ordered if f.persona is not None and not f.persona.is_empty][:FEATURED]
    if not shown:
        return None
    return el("section", el("h2", "Personas that gained most"), el("ul", map(_quote, shown), class_="cards wide-cards"))


def _quote(facts: Facts) -> Html:
    persona = facts.persona
    words = persona.preference_summary if persona else ""
    rules = persona.decision_rules if persona else ()
    first = joined("if ", said(rules[0].condition), " → ", el("bdi", rules[0].label, class_="label")) if rules else None
    return el(
        "li",
        el("p", el("a", "User ", called(facts.user), href=link(facts.user)), class_="eyebrow"),
        el("p", clipped(words, 200), class_="summary", dir="auto") if words else None,
        el("p", first, class_="quiet") if first else None,
        class_="card",
    )


def link(user: str, root: str = "") -> str:
    """The address of a user's page."""
    return f"{root}users/{page_name(user)}"


def _figures(folder: Path) -> Html | None:
    """What `personalink report` drew and wrote beside the pages' folder."""
    figures, tables = (_by_name(folder.parent / kind, kind) for kind in ("figures", "tables"))
    drawn = [_figure(one.title, figures[one.name]) for one in FIGURES if one.name in figures]
    lines = [el("li", name.replace("_", " ").capitalize(), _links(files)) for name, files in tables.items()]
    if not drawn and not lines:
        return None
    files = el("section", el("h3", "Tables as files"), el("ul", lines)) if lines else None
    return el("section", el("h2", "Figures and files"), drawn, files, id="figures")


def _figure(title: str, files: Mapping[str, str]) -> Html:
    image = next((files[ending] for ending in _IMAGES if ending in files), None)
    shown = el("a", el("img", src=image, alt=title), href=image) if image else None
    return el("figure", shown, el("figcaption", title, _links(files)), class_="drawn")


def _by_name(where: Path, kind: str) -> Mapping[str, Mapping[str, str]]:
    """Name → ending → address, of the files in a folder; empty where it is absent."""
    found: dict[str, dict[str, str]] = {}
    for path in sorted(where.glob("*.*")) if where.is_dir() else ():
        if (ending := path.suffix[1:]) in _FILES:
            found.setdefault(path.stem, {})[ending] = f"../{kind}/{quote(path.name)}"
    return found


def _links(files: Mapping[str, str]) -> Html:
    return joined(*(joined(" ", el("a", ending.upper(), href=files[ending])) for ending in _FILES if ending in files))


def _about(evidence: Evidence) -> Html:
    """Where it comes from."""
    model = evidence.run.read_json("sealed/model.json") or {}
    facts = {
        "Model": str(model.get("model")),
        "Data": str(evidence.manifest.get("source")),
        "Gate": str(evidence.config["optimizer"]["gate"]),
        "Passes": str(evidence.config["optimizer"]["depth"]),
        "Configuration": evidence.run.path.resolve().name,
        "Unfinished users": f"{len(evidence.incomplete):,}",
    }
    shown = (el("div", el("dt", name), el("dd", said(value))) for name, value in facts.items())
    return el("section", el("h2", "The run"), el("dl", shown, class_="about"))

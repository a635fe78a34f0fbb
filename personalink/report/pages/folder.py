"""Writing the pages: what files there are, for one run or for two side by side.

Everything is derived from what runs have sealed, so a folder is written over; what of it is not written again is taken
away. The same evidence gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import chain
from pathlib import Path

from personalink.errors import StorageError, UsageError
from personalink.report.evidence import Evidence
from personalink.report.pages.compare import comparison_listing, comparison_overview, comparison_page
from personalink.report.pages.facts import Facts, Run, by_gain, page_name
from personalink.report.pages.listing import Column, Listing, Value, page_file
from personalink.report.pages.markup import Html, called, el, joined
from personalink.report.pages.overview import link, overview_page
from personalink.report.pages.person import person_page
from personalink.report.pages.texts import Texts

INDEX = "index.html"
_OURS = '<meta name="generator" content="personalink">'
_ASSETS = ("style.css", "list.js")
_COLUMNS = (
    Column("user", "User", "user"),
    Column("history", "History", "count"),
    Column("gain", "Slice gain", "gain"),
    Column("audit", "Audit gain", "gain"),
    Column("kept", "Kept", "of"),
    Column("errors", "Errors", "change"),
    Column("ended", "Ended", "choice"),
    Column("tokens", "Tokens", "count"),
    Column("answers", "Answers", "choice"),
)
_NOTE = (
    "Slice gain: what the kept persona gained on the items that chose it. Audit gain: on items that nothing saw. Kept: "
    "rewrites that were kept of those that were tried. Errors: items of the slice answered wrong, with the empty "
    "persona and with the kept one. Answers: the deepest persona’s, to new questions, against no personalization’s."
)
Page = tuple[str, str]
"""A file's name within the folder, and its text."""


@dataclass(frozen=True, slots=True)
class Written:
    """What was written.

    Attributes:
        index: the page to open. users: how many have a page of their own.
        files, size: how many files there are, and their bytes together.
        remarks: what was left out and why, a line each.
    """

    index: Path
    users: int
    files: int
    size: int
    remarks: tuple[str, ...] = ()


def write(evidence: Evidence | Sequence[Evidence], folder: Path) -> Written:
    """Write the pages of a run, or of two side by side.

    Args:
        evidence: one run, or two.
        folder: where to; made when absent, written over when it holds such pages.

    Raises:
        UsageError: more than two runs, two without a user in common, or a folder that holds something else.
        StorageError: the folder cannot be written.
    """
    runs = [Run(one) for one in ([evidence] if isinstance(evidence, Evidence) else evidence)]
    if not 1 <= len(runs) <= 2:
        msg = f"pages show one run or two side by side, not {len(runs)}"
        raise UsageError(msg)
    _check_folder(folder)
    texts = Texts.of(runs[0].evidence)
    remarks = (texts.missing,) if texts.missing else ()
    if len(runs) == 1:
        users: Sequence[str] = runs[0].evidence.users
        pages = _one(runs[0], texts, folder, remarks)
    else:
        users = _common(runs[0], runs[1])
        pages = _two(runs[0], runs[1], texts, users)
    files, size = _put(folder, pages)
    return Written(folder / INDEX, len(users), files, size, remarks)


def _one(run: Run, texts: Texts, folder: Path, remarks: Sequence[str]) -> Iterator[Page]:
    """Every page of a run."""
    ordered = by_gain([run.sums(user) for user in run.evidence.users])
    yield INDEX, overview_page(run, ordered, folder, remarks)
    listing = Listing(_COLUMNS, [_row(f) for f in ordered], [link(f.user) for f in ordered], _NOTE)
    yield from _list_pages(listing, f"Users of {run.evidence.config['name']}", run.evidence.config["name"])
    neighbours: list[Facts | None] = [None, *ordered, None]
    for before, facts, after in zip(neighbours, ordered, neighbours[2:], strict=False):
        page = person_page(run, texts, facts, _beside("← ", before), _beside("", after, " →"))
        yield f"users/{page_name(facts.user)}", page


def _two(a: Run, b: Run, texts: Texts, users: Sequence[str]) -> Iterator[Page]:
    """Every page of a comparison."""
    yield INDEX, comparison_overview(a, b, users)
    yield from _list_pages(comparison_listing(a, b, users), "Users of both runs", "Two runs")
    for user in users:
        yield f"users/{page_name(user)}", comparison_page(a, b, texts, user)


def _common(a: Run, b: Run) -> list[str]:
    """Users of both runs, in the order of A's list.

    Raises:
        UsageError: there is none.
    """
    others = set(b.evidence.users)
    users = [f.user for f in by_gain([a.sums(user) for user in a.evidence.users if user in others])]
    if not users:
        msg = f"{a.evidence.name} and {b.evidence.name} have no user in common, so nothing stands side by side"
        raise UsageError(msg)
    return users


def _list_pages(listing: Listing, title: str, home: str) -> Iterator[Page]:
    trail = (el("a", home, href=INDEX), el("span", "Users", aria_current="page"))
    for number in range(1, listing.pages + 1):
        yield page_file(number), listing.page(number, title, trail)
    for number, chunk in enumerate(listing.chunks()):
        yield f"data/users-{number}.js", chunk


def _row(facts: Facts) -> tuple[Value, ...]:
    """The values of `_COLUMNS`."""
    if (one := facts.line) is None:
        return (facts.user, facts.history, None, None, None, None, None, None, facts.effect)
    kept, errors = (one.kept, one.tried), (one.errors[0], one.errors[-1]) if one.errors else None
    return (one.user, one.history, one.gain, one.audit_gain, kept, errors, one.ended, one.tokens, facts.effect)


def _beside(before: str, facts: Facts | None, after: str = "") -> Html | None:
    if facts is None:
        return None
    return joined(el("a", before, "User ", called(facts.user), after, href=link(facts.user, "../")))


def _check_folder(folder: Path) -> None:
    """Refuse to write over what is not ours."""
    index = folder / INDEX
    if folder.is_dir() and any(folder.iterdir()) and not (index.is_file() and _OURS in _beginning(index)):
        msg = f"{folder} holds something else than persona pages; give an empty or a new folder"
        raise UsageError(msg)


def _beginning(path: Path) -> str:
    return path.read_bytes()[:2_000].decode("utf-8", "replace")


def _put(folder: Path, pages: Iterator[Page]) -> tuple[int, int]:
    """Write pages and assets, and take away the pages that are no longer among them; how many files and bytes.

    Raises:
        StorageError: the folder cannot be written.
    """
    assets = resources.files("personalink.report.pages") / "assets"
    written: set[Path] = set()
    made: set[Path] = set()
    size = 0
    try:
        for name, text in chain(pages, ((f"assets/{name}", (assets / name).read_text("utf-8")) for name in _ASSETS)):
            path, content = folder / name, text.encode()
            if path.parent not in made:
                path.parent.mkdir(parents=True, exist_ok=True)
                made.add(path.parent)
            path.write_bytes(content)
            written.add(path)
            size += len(content)
        for old in (*folder.glob("users*.html"), *folder.glob("users/*.html"), *folder.glob("data/*.js")):
            if old not in written:
                old.unlink()
    except OSError as error:
        msg = f"cannot write the pages in {folder}: {error.strerror}; give another folder"
        raise StorageError(msg) from None
    return len(written), size

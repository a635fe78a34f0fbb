"""A run's report: every table and figure that its evidence allows, the persona pages, and an index of it all.

Reads what `evidence.load` reads and writes beside `sealed/`, never into it; asks no model and no network. The same
evidence gives the same bytes. What is left out is said in one line, with its reason.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from personalink.errors import UsageError
from personalink.report.contrasts import Choices
from personalink.report.costs import cost_table, prices_of, row_costs
from personalink.report.evidence import REPORT, Evidence
from personalink.report.families import Tests, tests_table
from personalink.report.files import Index, Picture, write_index, write_tables
from personalink.report.layout import Table
from personalink.report.paper_tables import incomplete, paper_tables
from personalink.text import nearest

Part = Literal["tables", "figures", "pages"]
PARTS: tuple[Part, ...] = get_args(Part)


@dataclass(frozen=True, slots=True)
class Report:
    """What was written of one run.

    Attributes:
        evidence: of the run. folder: where the report stands.
        index: the page to open; None where only a part was asked for.
        tables: file name → table. figures: names of those drawn.
        pages: the persona pages' first one; None where they were not asked for.
        remarks: what is left out or should be known, and why, a line each.
    """

    evidence: Evidence
    folder: Path
    index: Path | None
    tables: Mapping[str, Table]
    figures: tuple[str, ...]
    pages: Path | None
    remarks: tuple[str, ...]


def write_report(
    evidence: Evidence,
    folder: Path | None = None,
    *,
    only: Collection[Part] = PARTS,
    choices: Choices | None = None,
) -> Report:
    """Write a run's report.

    Args:
        evidence: of the run. folder: where to; `report/` in the run's directory when None.
        only: which parts; the index is written with all of them.
        choices: how rows are compared.

    Raises:
        UsageError: the reference is no row of the run, or `folder` would lie among the sealed files.
        StorageError: the folder cannot be written.
    """
    choices = choices or Choices()
    folder = evidence.run.path / REPORT if folder is None else folder
    _check(evidence, folder, choices)
    remarks = _state(evidence)
    made, left_out = make_tables(evidence, choices) if "tables" in only else ({}, [])
    remarks += left_out
    if "tables" in only:
        write_tables(made, folder / "tables")
    pictures: list[Picture] = []
    if "figures" in only:
        pictures, left_out = _figures(evidence, folder / "figures")
        remarks += left_out
    pages = None
    if "pages" in only:
        from personalink.report.pages import write

        written = write(evidence, folder / "pages")
        pages, remarks = written.index, remarks + [f"pages: {remark}" for remark in written.remarks]
    index = None
    if set(only) == set(PARTS):
        links = {"Personas, user by user": "pages/index.html"}
        index = write_index(Index(_title(evidence), made, pictures, links, remarks), folder)
    drawn = tuple(picture.name for picture in pictures)
    return Report(evidence, folder, index, made, drawn, pages, tuple(remarks))


def make_tables(evidence: Evidence, choices: Choices) -> tuple[dict[str, Table], list[str]]:
    """Every table of a run by its file's name, and a line for each that is left out or lacks something.

    Raises:
        IntegrityError: the ledger or the log of attempts is damaged.
    """
    run = evidence.run
    paper = paper_tables(Tests(evidence, choices), row_costs(run, prices_of(run)))
    tables, remarks = {"results": evidence.results.results, **paper.tables}, list(paper.remarks)
    if paper.families:
        tables["tests"] = tests_table(evidence, paper.families, choices)
    else:
        remarks.append("tests is left out: no table has a reference to test against")
    if evidence.results.selection is not None:
        tables["selection"] = evidence.results.selection
    else:
        remarks.append("selection is left out: no row of the run refined a persona, so there are no slice scores")
    tables["costs"] = cost_table(run)
    return {name: replace(table, compact=True) for name, table in tables.items()}, remarks


def _check(evidence: Evidence, folder: Path, choices: Choices) -> None:
    row = choices.reference
    if row is not None and row not in evidence.methods:
        near = nearest(row, evidence.methods)
        hint = f"did you mean {near!r}?" if near else f"its rows are {', '.join(evidence.methods)}"
        msg = f"reference {row!r} is no row of {evidence.run.path}; {hint}"
        raise UsageError(msg)
    sealed = evidence.run.sealed.resolve()
    if sealed in (folder.resolve(), *folder.resolve().parents):
        msg = f"{folder} lies among the run's sealed files; give another folder for the report"
        raise UsageError(msg)


def _state(evidence: Evidence) -> list[str]:
    """What of the run is not as it should be."""
    lines = []
    if evidence.incomplete:
        lines.append(f"not finished: {incomplete(evidence)}; the report is of the others")
    state, why = evidence.run.status["state"], evidence.run.status.get("why")
    if state == "failed":
        lines.append(f"the run ended as failed: {why}")
    elif not state:
        lines.append("the run has no log/status.json, so whether it was complete is unknown")
    return lines


def _title(evidence: Evidence) -> str:
    return f"{evidence.name}: task {evidence.task.name}, n = {len(evidence.users)} users"


def _figures(evidence: Evidence, folder: Path) -> tuple[list[Picture], list[str]]:
    """Draw them; those that were drawn, and a line for each that was not."""
    from personalink.report.figures import draw

    drawn = draw(evidence, folder)
    pictures = [Picture(d.name, d.title, d.caption, d.paths) for d in drawn if d.paths]
    return pictures, [f"{d.name} is left out: {d.left_out}" for d in drawn if d.left_out]

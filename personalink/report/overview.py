"""Several runs at once: what each is and where its report stands, and tables 2 to 5 with the runs side by side.

Knows reports that are written; computes nothing anew. Two runs' personas side by side are the pages' (see `pages`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from personalink.metrics import headline, primary
from personalink.report.evidence import REPORT
from personalink.report.files import Index, write_index, write_tables
from personalink.report.layout import At, Cell, Column, Table
from personalink.report.paper import PAPER_TABLES, PaperTable
from personalink.report.paper_tables import headings
from personalink.report.report import Report
from personalink.report.tables import ARROWS, METRIC_NAMES, best, label_of


def write_overview(reports: Sequence[Report], folder: Path | None = None) -> Path:
    """Write the overview of reports that are written, tables included; the way to its index.

    Args:
        reports: at least two. folder: where to; when None, `report/` in the folder that all runs lie in.

    Raises:
        StorageError: the folder cannot be written.
    """
    folder = folder or _common(reports) / REPORT
    tables = {"runs": runs_table(reports)}
    for paper in PAPER_TABLES:
        if any(paper.name in report.tables for report in reports):
            tables[paper.name] = side_by_side(paper, reports)
    write_tables(tables, folder / "tables")
    links = _pages_of_two(reports, folder) | {
        report.evidence.name: quote(Path(os.path.relpath(report.index or report.folder, folder)).as_posix())
        for report in reports
    }
    remarks = [f"{report.evidence.name}: {remark}" for report in reports for remark in report.remarks]
    return write_index(Index(f"{len(reports)} runs", tables, (), links, remarks), folder)


def _pages_of_two(reports: Sequence[Report], folder: Path) -> dict[str, str]:
    """The pages of two runs side by side, where they share users; what a link to them says → where it leads."""
    first, *others = [set(report.evidence.users) for report in reports]
    if len(others) != 1 or not first & others[0] or any(report.pages is None for report in reports):
        return {}
    from personalink.report.pages import write

    write([report.evidence for report in reports], folder / "pages")
    return {"Personas of both runs, user by user": "pages/index.html"}


def runs_table(reports: Sequence[Report]) -> Table:
    """What each run is, and its best method."""
    rows: list[tuple[Cell, ...]] = []
    for report in reports:
        evidence = report.evidence
        metric, direction = primary(evidence.task)
        scores = [(row, evidence.results.metrics[row][metric]) for row in evidence.methods]
        first = best(scores, direction)
        model = (evidence.run.read_json("sealed/model.json") or {}).get("model")
        rows.append(
            (
                evidence.name,
                evidence.task.name,
                str(model),
                evidence.config["seed"],
                len(evidence.users),
                len(evidence.incomplete),
                evidence.run.status["state"] or "unknown",
                METRIC_NAMES[metric] + f" {ARROWS[direction]}",
                ", ".join(label_of(scores[number][0]) for number in first),
                scores[first[0]][1] if first else None,
            )
        )
    columns = (
        Column("run", "Run", "text"),
        Column("task", "Task", "remark"),
        Column("model", "Model", "remark"),
        Column("seed", "Seed", "count"),
        Column("users", "Users", "count"),
        Column("incomplete", "Incomplete", "count"),
        Column("state", "State", "remark"),
        Column("metric", "Metric", "remark"),
        Column("best", "Best method", "remark"),
        Column("value", "Its score", "metric"),
    )
    return Table("The runs", columns, tuple(rows), compact=True)


def side_by_side(paper: PaperTable, reports: Sequence[Report]) -> Table:
    """One of the paper's tables as the paper has it: the methods below one another, and the tasks side by side.

    Values, bold and stars are those of each run's own table; "–" where a run has no such row or no such table.
    """
    rows = [row for row in paper.rows if any(row in _rows(paper, report) for report in reports)]
    columns = [Column("row", "Row", "text", csv_only=True), Column("method", "Method", "text")]
    cells: list[list[Cell]] = [[row, paper.labels.get(row, label_of(row))] for row in rows]
    bold: set[At] = set()
    marks: dict[At, str] = {}
    for number, report in enumerate(reports, 1):
        direction = primary(report.evidence.task)[1]
        for name in headline(report.evidence.task):
            for place, row in enumerate(rows):
                value, is_bold, mark = _cell(paper, report, row, name)
                cells[place].append(value)
                bold |= {(place, len(columns))} if is_bold else set()
                marks |= {(place, len(columns)): mark} if mark else {}
            title = f"{report.evidence.name}: {METRIC_NAMES[name]} {ARROWS[direction]}"
            columns.append(Column(f"run{number}_{name}", title, "metric"))
    return Table(
        f"The paper's table {paper.number}: {paper.title}",
        tuple(columns),
        tuple(tuple(line) for line in cells),
        notes=(_AS_THERE,),
        bold=frozenset(bold),
        marks=marks,
        groups=headings(paper, rows),
        compact=True,
    )


_AS_THERE = (
    "Bold and stars as in each run's own table, where intervals, tests and the paper's values are. Runs over different "
    "users cannot be tested against each other; for runs over the same ones see `personalink compare`."
)


def _rows(paper: PaperTable, report: Report) -> dict[str, int]:
    """Row → its number in a run's own table."""
    own = report.tables.get(paper.name)
    return {str(cells[0]): number for number, cells in enumerate(own.rows)} if own else {}


def _cell(paper: PaperTable, report: Report, row: str, metric: str) -> tuple[Cell, bool, str]:
    """A metric of a row in a run's own table, whether it is bold there, and its mark; None where there is none."""
    there = _rows(paper, report)
    if row not in there:
        return None, False, ""
    own = report.tables[paper.name]
    at = (there[row], [column.key for column in own.columns].index(metric))
    return own.rows[at[0]][at[1]], at in own.bold, own.marks.get(at, "")


def _common(reports: Sequence[Report]) -> Path:
    """The nearest folder that holds all runs."""
    return Path(os.path.commonpath([report.evidence.run.path.resolve().parent for report in reports]))

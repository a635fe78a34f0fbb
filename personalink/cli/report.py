"""`personalink report RUN…`: tables, figures and persona pages of finished runs, from their files alone."""

from __future__ import annotations

import argparse
from pathlib import Path

from personalink.cli.streams import out, told
from personalink.errors import UsageError
from personalink.run_dir import find_run


def report(options: argparse.Namespace) -> int:
    """Write a report for each run, and an overview where there are several.

    Raises:
        UsageError: no run, the same one twice, or a row that is not there.
        IncompleteRun: a run of which nothing is finished.
        IntegrityError: a sealed file is missing, altered or damaged.
        StorageError: a folder cannot be written.
    """
    from personalink.report.contrasts import Choices
    from personalink.report.evidence import load
    from personalink.report.overview import write_overview
    from personalink.report.report import PARTS, write_report

    choices = Choices(options.reference, options.mcnemar, options.margin)
    runs = [find_run(path) for path in options.runs]
    names = [f"{run.path.resolve().parent.name}/{run.path.resolve().name}" for run in runs]
    if twice := next((name for i, name in enumerate(names) if name in names[:i]), None):
        msg = f"two of the runs are {twice}; name each run once"
        raise UsageError(msg)
    only = options.only or PARTS
    target = Path(options.out).expanduser() if options.out else None
    reports = []
    for run, name in zip(runs, names, strict=True):
        told(f"reading {run.path} …")
        folder = target / name if target and len(runs) > 1 else target
        made = write_report(load(run), folder, only=only, choices=choices)
        reports.append(made)
        out(f"report: {made.index or made.folder}")
        parts = {"tables": ", ".join(made.tables), "figures": ", ".join(made.figures), "pages": made.pages}
        for line in (*(f"{part}: {what}" for part, what in parts.items() if what), *made.remarks):
            out(f"  {line}")
    if len(reports) > 1 and "tables" in only:
        out(f"overview: {write_overview(reports, target)}")
    return 0

"""The commands that need no configuration groups: table, merge."""

from __future__ import annotations

import argparse

from personalink.canonical import pretty_json
from personalink.cli.streams import out
from personalink.errors import UsageError
from personalink.run_dir import find_run


def table(options: argparse.Namespace) -> int:
    """`personalink table RUN`."""
    from personalink.report.costs import cost_table
    from personalink.report.results import score_run

    run = find_run(options.run)
    scores = score_run(run)
    if options.format == "json":
        out(pretty_json(scores.metrics).rstrip("\n"))
        return 0
    shown = cost_table(run) if options.cost else scores.selection if options.selection else scores.results
    if shown is None:
        msg = "this run has no refinement, so there are no slice scores"
        raise UsageError(msg)
    as_wanted = {"text": shown.as_text, "markdown": shown.as_markdown, "csv": shown.as_csv, "latex": shown.as_latex}
    out(as_wanted[options.format]().rstrip("\n"))
    return 0


def merge(options: argparse.Namespace) -> int:
    """`personalink merge RUN… | FOLDER`."""
    from personalink.merge import find_shards
    from personalink.merge import merge as joined
    from personalink.report.results import score_run

    given = options.runs
    target = joined(find_shards(given[0]) if len(given) == 1 else [find_run(path) for path in given])
    scores = score_run(target)
    scores.seal(target)
    out(scores.results.as_text())
    out(f"\nrun: {target.path}")
    return 0

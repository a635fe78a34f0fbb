"""The commands that need no configuration groups: table, merge."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from personalink.canonical import pretty_json
from personalink.cli.streams import out, told
from personalink.errors import PersonalinkError, UsageError
from personalink.run_dir import RunDir, find_run


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
    """`personalink merge RUN… | FOLDER`: each configuration in a folder by itself; the exit code.

    Raises:
        PersonalinkError: of the only configuration, why it cannot be merged.
    """
    from personalink.merge import find_shards, merged_already

    given = options.runs
    groups = find_shards(given[0]) if len(given) == 1 else {"": [find_run(path) for path in given]}
    if len(groups) == 1:
        _merge_one(next(iter(groups.values())), "")
        return 0
    code = 0
    for name, shards in groups.items():
        try:
            if (standing := merged_already(shards)) is not None:
                out(f"{name}: merged already, run: {standing.path}\n")
                continue
            _merge_one(shards, name)
            out("")
        except PersonalinkError as error:
            told(f"personalink: {name}: {error}")
            code = code or error.exit_code
    return code


def _merge_one(shards: Sequence[RunDir], name: str) -> None:
    """Merge the shards of one configuration, seal its scores and show them, under its name where it has one."""
    from personalink.merge import merge as joined
    from personalink.report.results import score_run

    target = joined(shards)
    scores = score_run(target)
    scores.seal(target)
    if name:
        out(name)
    out(scores.results.as_text())
    out(f"\nrun: {target.path}")

"""`personalink compare A B`: two runs over the same users, row by row."""

from __future__ import annotations

import argparse

from personalink.canonical import pretty_json
from personalink.cli.streams import out


def compare(options: argparse.Namespace) -> int:
    """Compare and tell, as text, JSON or CSV.

    Raises:
        UsageError: there is no such run or row, or the tasks' answers differ.
        IntegrityError: the runs have different manifests, or a sealed file is missing, altered or damaged.
        IncompleteRun: a run of which nothing is finished.
    """
    from personalink.report.compare import compare as compared
    from personalink.report.comparing import as_dict, as_text, flips_table, rows_table
    from personalink.report.contrasts import Choices
    from personalink.report.evidence import load

    choices = Choices(None, options.mcnemar, options.margin)
    pairs = [_pair(text) for text in options.row or ()]
    made = compared(load(options.a), load(options.b), pairs=pairs, choices=choices)
    if options.json:
        out(pretty_json(as_dict(made)).rstrip("\n"))
    elif options.csv:
        out((flips_table if options.flips else rows_table)(made).as_csv().rstrip("\n"))
    else:
        out(as_text(made, flips=options.flips))
    return 0


def _pair(text: str) -> tuple[str, str]:
    """The rows that `--row` names: one for both runs, or `ROW_OF_A:ROW_OF_B`."""
    first, colon, second = text.partition(":")
    return (first, second) if colon else (text, text)

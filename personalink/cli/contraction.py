"""`personalink contraction RUN…`: how the kept personas of runs move from pass to pass."""

from __future__ import annotations

import argparse

from personalink.canonical import canonical_json
from personalink.cli.streams import out, told
from personalink.errors import UsageError
from personalink.run_dir import find_run


def contraction(options: argparse.Namespace) -> int:
    """Measure each run, write `report/contraction.json` and `.csv` into it, and tell it.

    Raises:
        UsageError: `--users` is neither a number nor "all"; or as `contraction.of_run`.
    """
    users = _users(options.users)
    runs = [find_run(path) for path in options.runs]
    older = None if options.against is None else find_run(options.against)

    from personalink.contraction import of_run, save, table
    from personalink.encoder import SentenceEncoder

    encoder = SentenceEncoder(options.encoder, progress=_progress)
    for run in runs:
        told(f"measuring {run.path} …")
        measured = of_run(run, encoder, users=users, against=older)
        files = save(run, measured)
        if options.json:
            out(canonical_json(measured.as_dict()))
        else:
            out(table(measured, title=str(run.path)).as_text())
            out("\n".join(f"written: {file}" for file in files))
    return 0


def _progress(done: int, total: int) -> None:
    if done < total:
        told(f"encoded {done:,} of {total:,} texts")


def _users(text: str) -> int | None:
    if text == "all":
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text)):
        msg = f"--users is {text!r}; it must be a number of at least 1, or all"
        raise UsageError(msg)
    return int(text)

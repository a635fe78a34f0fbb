"""The commands that need no configuration groups: table, merge, personas."""

from __future__ import annotations

import argparse

from personalink.canonical import pretty_json
from personalink.cli.streams import out
from personalink.errors import UsageError
from personalink.persona_io import diff, to_json, to_markdown
from personalink.refinement import Refinement
from personalink.run_dir import RunDir, find_run
from personalink.text import nearest


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


def refinements(run: RunDir) -> dict[str, Refinement]:
    """Every refinement of a run by user.

    Raises:
        UsageError: the run has none.
        IntegrityError: a file of them is damaged.
    """
    from personalink.report.results import refinements_of

    found = refinements_of(run)
    if not found:
        msg = f"{run.path} holds no refinement: none of its rows is a PersonaLink row, or no user was finished"
        raise UsageError(msg)
    return found


def personas(options: argparse.Namespace) -> int:
    """`personalink personas RUN [--user U] [--depth r | --diff A:B]`."""
    found = refinements(find_run(options.run))
    if options.user is None:
        for user in sorted(found):
            out(_summary_line(found[user]))
        return 0
    if options.user not in found:
        near = nearest(options.user, found)
        msg = f"no user {options.user!r} in this run" + (f"; did you mean {near!r}?" if near else "")
        raise UsageError(msg)
    one = found[options.user]
    if options.diff:
        a, b = _depths(options.diff, one)
        out(f"user {one.user}, pass {a} → {b}")
        out(diff(one.at(a), one.at(b)).as_text())
        return 0
    last = len(one.passes)
    depth = last if options.depth is None else _depth(str(options.depth), one)
    persona = one.at(depth)
    if options.format == "json":
        out(to_json(persona).rstrip("\n"))
    elif options.format == "markdown":
        out(to_markdown(persona).rstrip("\n"))
    else:
        out(_story(one, depth))
    return 0


def _summary_line(one: Refinement) -> str:
    audit = f", audit {one.audit[0].value:.3f} → {one.audit[-1].value:.3f}" if one.audit else ""
    accepted = sum(p.accepted for p in one.passes)
    flags = f"  [{'; '.join(one.flags)}]" if one.flags else ""
    return (
        f"{one.user}: {one.persona.tokens} tokens, {accepted} of {len(one.passes)} passes accepted, "
        f"slice {one.initial.value:.3f} → {one.score_at(len(one.passes)).value:.3f}{audit}, {one.calls} calls{flags}"
    )


def _story(one: Refinement, depth: int) -> str:
    """One user's loop, pass by pass, and the persona kept."""
    persona = one.at(depth)
    lines = [_summary_line(one), ""]
    for p in one.passes:
        trial = f"candidate {p.trial.value:.3f}" if p.trial else "no candidate scored"
        if p.at_best is not None:
            trial = f"candidate at best {p.at_best:.3f}"
        mark = "kept" if p.accepted else "refused"
        lines.append(f"pass {p.depth}: {mark} ({p.reason}); slice {p.score_before:.3f}, {trial}; {p.calls} calls")
        lines += [f"  · {note}" for note in p.notes]
    counted = f"{persona.tokens} of {persona.caps.total} tokens by {persona.counter_id}"
    lines += [
        "",
        f"persona after pass {depth} ({counted}):",
        "",
        persona.render() or "(empty: the prompt is the question alone)",
    ]
    return "\n".join(lines)


def _depths(text: str, one: Refinement) -> tuple[int, int]:
    first, colon, second = text.partition(":")
    if not colon:
        msg = f"--diff is {text!r}; it must be two passes, such as 1:2"
        raise UsageError(msg)
    return _depth(first, one), _depth(second, one)


def _depth(text: str, one: Refinement) -> int:
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) < 10 and int(digits) <= len(one.passes)):
        msg = f"pass {text!r} is none of 0…{len(one.passes)} (0 is the empty persona)"
        raise UsageError(msg)
    return int(digits)

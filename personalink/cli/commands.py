"""The commands that need no configuration groups: table, personas, predict, doctor."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from personalink.canonical import pretty_json
from personalink.errors import LMError, PersonaError, UsageError
from personalink.lm import connect
from personalink.persona import PersonaState
from personalink.persona_io import diff, from_json, from_markdown, to_json, to_markdown
from personalink.refinement import Refinement
from personalink.run_dir import RunDir, find_run
from personalink.tasks import task as task_named
from personalink.text import nearest


def table(options: argparse.Namespace) -> int:
    """`personalink table RUN`."""
    from personalink.report.costs import cost_table
    from personalink.report.results import score_run

    run = find_run(options.run)
    scores = score_run(run)
    if options.format == "json":
        _out(pretty_json(scores.metrics).rstrip("\n"))
        return 0
    shown = cost_table(run) if options.cost else scores.selection if options.selection else scores.results
    if shown is None:
        msg = "this run has no refinement, so there are no slice scores"
        raise UsageError(msg)
    as_wanted = {"text": shown.as_text, "markdown": shown.as_markdown, "csv": shown.as_csv, "latex": shown.as_latex}
    _out(as_wanted[options.format]().rstrip("\n"))
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
    _out(scores.results.as_text())
    _out(f"\nrun: {target.path}")
    return 0


def refinements(run: RunDir) -> dict[str, Refinement]:
    """Every refinement of a run by user.

    Raises:
        UsageError: the run has none.
    """
    found = {
        record["user"]: Refinement.from_dict(record["product"])
        for path in sorted(run.sealed.glob("products/Refine-*.jsonl"))
        for record in run.read_lines(str(path.relative_to(run.path)))
    }
    if not found:
        msg = f"{run.path} holds no refinement: none of its rows is a PersonaLink row, or no user was finished"
        raise UsageError(msg)
    return found


def personas(options: argparse.Namespace) -> int:
    """`personalink personas RUN [--user U] [--depth r | --diff A:B]`."""
    found = refinements(find_run(options.run))
    if options.user is None:
        for user in sorted(found):
            _out(_summary_line(found[user]))
        return 0
    if options.user not in found:
        near = nearest(options.user, found)
        msg = f"no user {options.user!r} in this run" + (f"; did you mean {near!r}?" if near else "")
        raise UsageError(msg)
    one = found[options.user]
    if options.diff:
        a, b = _depths(options.diff, one)
        _out(f"user {one.user}, pass {a} → {b}")
        _out(diff(one.at(a), one.at(b)).as_text())
        return 0
    last = len(one.passes)
    depth = last if options.depth is None else _depth(str(options.depth), one)
    persona = one.at(depth)
    if options.format == "json":
        _out(to_json(persona).rstrip("\n"))
    elif options.format == "markdown":
        _out(to_markdown(persona).rstrip("\n"))
    else:
        _out(_story(one, depth))
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
    if not text.strip().isdigit() or int(text) > len(one.passes):
        msg = f"pass {text!r} is none of 0…{len(one.passes)} (0 is the empty persona)"
        raise UsageError(msg)
    return int(text)


def read_persona(path: str, counter: Any = None) -> PersonaState:
    """A persona's .json or .md file.

    Raises:
        UsageError: it cannot be read. PersonaError: it is no persona, or breaks its bounds.
    """
    file = Path(path).expanduser()
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"cannot read the persona {file}: {getattr(error, 'strerror', None) or error}"
        raise UsageError(msg) from None
    try:
        return from_markdown(text, counter) if file.suffix.lower() in (".md", ".markdown") else from_json(text, counter)
    except PersonaError as error:
        msg = f"{file}: {error}"
        raise PersonaError(msg) from None


def predict(options: argparse.Namespace) -> int:
    """`personalink predict --persona FILE --task NAME TEXT`."""
    task = task_named(options.task)
    text = options.text if options.text is not None else sys.stdin.read()
    if not text.strip():
        msg = "nothing to answer: give a text, or pipe one in"
        raise UsageError(msg)
    return asyncio.run(_predict(options, task, text.strip()))


async def _predict(options: argparse.Namespace, task: Any, text: str) -> int:
    from personalink.agent import Agent
    from personalink.lm.gateway import Gateway
    from personalink.lm.ledger import Bill

    lm = connect(options.lm, model=options.model)
    agent = Agent(task, Gateway(lm), constrain=options.constrain)
    if options.prompt:
        persona = read_persona(options.persona) if options.persona else None
        _out(json.dumps([vars_of(m) for m in agent.messages(str(persona or ""), text)], ensure_ascii=False, indent=2))
        return 0
    try:
        await lm.start()
        persona = _persona(options.persona, lm.counter) if options.persona else None
        answer = await agent.answer(str(persona or ""), text, Bill(phase="predict"))
    finally:
        await lm.aclose()
    if options.raw:
        _out(answer.text)
    elif answer.label is not None:
        _out(answer.label)
    else:
        msg = f"the answer names no label ({answer.outcome}): {answer.text[:80]!r}"
        raise LMError(msg)
    return 0


def _persona(path: str, counter: Any) -> PersonaState:
    """A persona as sealed where it is intact (its count was by the model it was made with), else measured again."""
    try:
        return read_persona(path)
    except PersonaError:
        return read_persona(path, counter)


def vars_of(message: Any) -> dict[str, str]:
    """A message as plain JSON."""
    return {"role": message.role, "content": message.content}


def doctor(options: argparse.Namespace) -> int:
    """`personalink doctor`: 0 when every check passed or could not be told, 3 otherwise."""
    from personalink.doctor import diagnose, render_findings

    async def check() -> list[Any]:
        lm = connect(options.lm, model=options.model)
        try:
            return await diagnose(lm)
        finally:
            await lm.aclose()

    findings = asyncio.run(check())
    _out(render_findings(findings))
    return 3 if any(finding.ok is False for finding in findings) else 0


def _out(text: str) -> None:
    print(text)  # noqa: T201

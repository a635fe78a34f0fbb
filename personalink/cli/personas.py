"""`personalink personas RUN`: what a run wrote about its users, as a table of all or as the story of one.

Knows the options and the table; `story` tells of one user.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from personalink.cli.story import Story, prompt_text
from personalink.cli.streams import out, told
from personalink.cli.terminal import Ink, columns, line, padded, width
from personalink.errors import UsageError
from personalink.persona_io import to_json, to_markdown
from personalink.refinement import Refinement
from personalink.report.diff import persona_changes
from personalink.report.people import Line, People

_WIDEST = 32  # characters of a user's id in the table

Key = str | float | int | None


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the table: its title, how wide it is, what stands in it, and what it is sorted by (None: unknown,
    last)."""

    title: str
    width: int
    cell: Callable[[Line], str]
    key: Callable[[Line], Key]
    right: bool = True


COLUMNS: dict[str, Column] = {
    "user": Column("user", 4, lambda x: line(x.user, _WIDEST), lambda x: x.user, right=False),
    "gain": Column("gain", 6, lambda x: _signed(x.gain), lambda x: x.gain),
    "slice": Column("slice", 15, lambda x: _went(x.slice), lambda x: x.slice[-1] if x.slice else None),
    "audit": Column("audit", 6, lambda x: _signed(x.audit_gain), lambda x: x.audit_gain),
    "kept": Column("kept", 6, lambda x: f"{x.kept} of {x.tried}", lambda x: x.kept),
    "passes": Column("passes", 6, lambda x: str(x.passes), lambda x: x.passes),
    "ended": Column("ended", 14, lambda x: line(x.ended, 14), lambda x: x.ended, right=False),
    "errors": Column(
        "errors",
        7,
        lambda x: f"{x.errors[0]} → {x.errors[-1]}" if x.errors else "–",
        lambda x: x.errors[-1] if x.errors else None,
    ),
    "history": Column("history", 7, lambda x: "–" if x.history is None else f"{x.history:,}", lambda x: x.history),
    "tokens": Column("tokens", 6, lambda x: f"{x.tokens:,}", lambda x: x.tokens),
    "calls": Column("calls", 5, lambda x: f"{x.calls:,}", lambda x: x.calls),
}
"""The table, left to right; what a terminal has no room for is left out, from the right. `--sort` takes these names."""


def personas(options: argparse.Namespace) -> int:
    """`personalink personas RUN [--user U …]`.

    Raises:
        UsageError: no such run, user, pass or row; options that do not go together.
        IncompleteRun: nothing of the run, or of the user, is finished and sealed yet.
        IntegrityError: a file of the run is damaged.
    """
    _check(options)
    people = People.of(options.run)
    return _list(people, options) if options.user is None else _one(people, options)


def _check(options: argparse.Namespace) -> None:
    listed = {"--sort": options.sort, "--reverse": options.reverse, "--top": options.top is not None}
    ours = {
        "--depth": options.depth is not None,
        "--diff": options.diff,
        "--prompt": options.prompt,
        "--row": options.row,
    }
    ours["--format"] = options.format != "text"
    for name, given in (ours if options.user is None else listed).items():
        if given:
            raise UsageError(
                f"{name} is about {'one user; name one with --user' if options.user is None else 'the list'}"
            )
    if options.top is not None and options.top < 1:
        raise UsageError(f"--top is {options.top}; it must be at least 1")
    if options.row is not None and not options.prompt:
        raise UsageError("--row is about --prompt; give both")
    if options.format != "text" and (options.json or options.prompt or options.diff):
        raise UsageError(f"--format {options.format} gives the persona alone; leave out --json, --prompt and --diff")


def _list(people: People, options: argparse.Namespace) -> int:
    seen: set[str] = set()

    def read() -> Iterator[Line]:
        for one in people.lines():
            seen.add(one.user)
            yield one

    lines: Iterable[Line] = read()
    if options.sort is not None or options.reverse:
        lines = _sorted(lines, options.sort or "user", options.reverse)
    shown = lines if options.top is None else islice(lines, options.top)
    texts = (json.dumps(one.as_dict()) for one in shown) if options.json else _table(people, shown)
    for text in texts:
        out(text)
    whole = options.top is None or options.sort is not None or options.reverse
    if not seen:
        raise people.nothing()
    if whole and (left := people.unfinished(seen)):
        user, why = next(iter(left.items()))
        told(f"personalink: {len(left)} of {len(people.entries)} users are not finished ({line(user)}: {line(why)})")
    return 0


def _table(people: People, lines: Iterable[Line]) -> Iterator[str]:
    """The head and a line a user; nothing at all where there is no user."""
    room, chosen = columns(), dict(COLUMNS)
    longest = max((width(line(user, _WIDEST)) for user in people.entries), default=_WIDEST)
    wide = {name: max(c.width, width(c.title)) for name, c in chosen.items()} | {"user": max(4, longest)}
    while room is not None and len(chosen) > 2 and sum(wide[name] + 2 for name in chosen) - 2 > room:
        chosen.popitem()
    for number, one in enumerate(lines):
        if number == 0:
            heads = (padded(c.title, wide[name], right=c.right) for name, c in chosen.items())
            yield Ink.of_stdout().strong("  ".join(heads).rstrip())
        yield "  ".join(padded(c.cell(one), wide[name], right=c.right) for name, c in chosen.items()).rstrip()


def _sorted(lines: Iterable[Line], name: str, reverse: bool) -> list[Line]:
    """By one column, texts ascending and numbers descending, or the other way round; unknown last, ties by id."""
    key: Callable[[Line], Any] = COLUMNS[name].key
    by_id = sorted(lines, key=lambda one: one.user)
    known = [one for one in by_id if key(one) is not None]
    known.sort(key=key, reverse=(name not in ("user", "ended")) != reverse)
    return known + [one for one in by_id if key(one) is None]


def _one(people: People, options: argparse.Namespace) -> int:
    one = people.refinement(options.user)
    if one is None:
        raise people.nobody(options.user, [found.user for found in people.lines()])
    depth = len(one.passes) if options.depth is None else _depth(str(options.depth), one)
    ink = Ink.of_stdout()
    story = Story(people, one, depth, ink)
    if options.format != "text":
        out((to_json if options.format == "json" else to_markdown)(story.persona).rstrip("\n"))
    elif options.json:
        out(json.dumps(_as_json(story, options), indent=2))
    elif options.diff:
        a, b = _depths(options.diff, one)
        out(ink.strong(f"user {line(one.user)}, pass {a} → {b}"))
        out("\n".join(ink.changes(persona_changes(one.at(a), one.at(b)))))
    elif options.prompt:
        prompts = story.prompts(options.row)
        several = len(prompts) > 1
        shown = [(f"query {line(query)}\n\n" if several else "") + prompt_text(sent) for query, sent in prompts]
        out("\n\n".join(shown))
    else:
        out(story.as_text())
    return 0


def _as_json(story: Story, options: argparse.Namespace) -> dict[str, Any]:
    """Everything about a user; with the difference and the prompts where they are asked for."""
    found = story.as_dict()
    if options.diff:
        a, b = _depths(options.diff, story.one)
        fields = persona_changes(story.one.at(a), story.one.at(b))
        found["diff"] = {"from": a, "to": b, "fields": [one.as_dict() for one in fields]}
    if options.prompt:
        found["prompts"] = [
            {"query": query, "messages": [{"role": m.role, "content": m.content} for m in messages]}
            for query, messages in story.prompts(options.row)
        ]
    return found


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


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.3f}".replace("-", "−")


def _went(scores: Sequence[float]) -> str:
    return f"{scores[0]:.3f} → {scores[-1]:.3f}".replace("-", "−") if scores else "–"

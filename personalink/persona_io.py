"""Personas as JSON and Markdown, both ways and exact, and the difference of two.

A file carries a seal over its whole content, so an unaltered one loads without a counter; an edited one is validated
again and needs one. Knows nothing of tasks, models or the loop.
"""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from personalink.canonical import digest, pretty_json
from personalink.errors import PersonaError
from personalink.persona import ARROW, Caps, Exemplar, PersonaState, Rule, TokenCounter
from personalink.text import one_line

P = TypeVar("P", Exemplar, Rule)
VERSION = 1
_META = re.compile(r"^<!-- personalink (\{.*\}) -->$")
_ESCAPED = re.compile(r"([\\→<#])")
_UNESCAPE = re.compile(r"\\(.)")
_HEADINGS = {"Preference summary": "summary", "Exemplars": "exemplars", "Decision rules": "rules"}


def to_dict(state: PersonaState) -> dict[str, Any]:
    """Plain JSON with caps, count, counter and seal."""
    body = {
        "version": VERSION,
        "preference_summary": state.preference_summary,
        "exemplars": [asdict(e) for e in state.exemplars],
        "decision_rules": [{**asdict(r), "item_ids": list(r.item_ids)} for r in state.decision_rules],
        "caps": asdict(state.caps),
        "tokens": state.tokens,
        "counter": state.counter_id,
    }
    return {**body, "seal": digest(body)}


def from_dict(data: Any, counter: TokenCounter | None = None) -> PersonaState:
    """The state that `to_dict` wrote.

    Args:
        data: the parsed JSON.
        counter: counts again; may be left out while the seal is intact.

    Raises:
        PersonaError: not a persona, over a cap, or altered with no counter given.
    """
    try:
        caps = Caps(**data["caps"])
        exemplars = tuple(Exemplar(**e) for e in data["exemplars"])
        rules = tuple(Rule(**{**r, "item_ids": _ids(r["item_ids"])}) for r in data["decision_rules"])
        summary, version = data["preference_summary"], data["version"]
        tokens, counter_id, seal = data.get("tokens"), data.get("counter"), data.get("seal")
    except (TypeError, KeyError, AttributeError) as error:
        what = f"{type(error).__name__} {one_line(str(error))}"
        msg = f"this is not a persona: {what:.120}; expected what `personalink personas` writes"
        raise PersonaError(msg) from None
    if version != VERSION:
        msg = f"this persona has version {version!r:.60}; this personalink reads version {VERSION}"
        raise PersonaError(msg)
    if counter is not None:
        return PersonaState(summary, exemplars, rules, caps, counter=counter)
    body = {name: value for name, value in data.items() if name != "seal"}
    if seal != _seal(body) or type(tokens) is not int or tokens < 0 or not isinstance(counter_id, str):
        msg = "this persona was altered since it was sealed; give a counter (a model) to measure it again"
        raise PersonaError(msg)
    return _sealed(summary, exemplars, rules, caps, tokens, counter_id)


def _seal(body: dict[str, Any]) -> str | None:
    """The seal of a persona's body; None for what canonical JSON cannot hold (NaN), which was never sealed."""
    try:
        return digest(body)
    except (ValueError, TypeError, RecursionError):
        return None


def _ids(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        msg = f"item_ids is {value!r:.60}, not a list"
        raise TypeError(msg)
    return tuple(value)


def _sealed(
    summary: str,
    exemplars: tuple[Exemplar, ...],
    rules: tuple[Rule, ...],
    caps: Caps,
    tokens: int,
    counter_id: str,
) -> PersonaState:
    """A state whose count was proven when it was sealed."""
    if tokens > caps.total:
        msg = f"persona is {tokens} tokens; its cap is {caps.total}"
        raise PersonaError(msg)

    class Sealed:
        id = counter_id

        def count(self, text: str) -> int:
            return 0

    state = PersonaState(summary, exemplars, rules, caps, counter=Sealed())
    object.__setattr__(state, "tokens", tokens)
    return state


def to_json(state: PersonaState) -> str:
    """`to_dict` as text."""
    return pretty_json(to_dict(state))


def from_json(text: str, counter: TokenCounter | None = None) -> PersonaState:
    """The inverse of `to_json` (see `from_dict`)."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        msg = f"this persona is not JSON: {error.msg} (line {error.lineno}, column {error.colno})"
        raise PersonaError(msg) from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits; thousands of brackets
        msg = f"this persona is not JSON that can be read: {one_line(str(error))}"
        raise PersonaError(msg) from None
    return from_dict(data, counter)


def to_markdown(state: PersonaState) -> str:
    """The persona as a page for people; edit it and read it back."""
    data = to_dict(state)
    meta = {key: data[key] for key in ("version", "caps", "tokens", "counter", "seal")}
    lines = [
        "# Persona",
        "",
        f"<!-- personalink {_comment(meta)} -->",
        f"{state.tokens} of {state.caps.total} tokens by {_escape(one_line(state.counter_id))}",
        "",
        "## Preference summary",
        "",
        *([_escape(state.preference_summary), ""] if state.preference_summary else []),
        "## Exemplars",
        "",
    ]
    for e in state.exemplars:
        note = {"item": e.item_id, "pass": e.depth, "clipped": e.clipped}
        lines.append(f"- {_escape(e.input)} → {_escape(e.label)} <!-- {_comment(note)} -->")
    lines += ["", "## Decision rules", ""] if state.exemplars else ["## Decision rules", ""]
    for r in state.decision_rules:
        note = {"pass": r.depth, "items": list(r.item_ids)}
        lines.append(f"- if {_escape(r.condition)} → {_escape(r.label)} <!-- {_comment(note)} -->")
    return "\n".join(lines).rstrip("\n") + "\n"


def from_markdown(text: str, counter: TokenCounter | None = None) -> PersonaState:
    """Read `to_markdown`'s page back; hand-made rules (without a note) become rules of pass 0.

    By hand, an arrow may be typed as `->`, and doubled spaces do not matter.

    Raises:
        PersonaError: a heading or line is not understood (its number is told), an exemplar has no item, a bound is
            broken, or the page was edited and no counter is given.
    """
    meta: dict[str, Any] | None = None
    section = ""
    summary: list[str] = []
    exemplars: list[dict[str, Any]] = []
    rules: list[dict[str, Any]] = []
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip(" \t\r")
        if found := _META.match(line):
            meta = _read_comment(found.group(1), number)
        elif line.startswith("## "):
            section = _HEADINGS.get(line[3:].strip(), "")
            if not section:
                msg = f"line {number}: no section {line[3:]!r}; sections are {', '.join(_HEADINGS)}"
                raise PersonaError(msg)
        elif not line or line.startswith("# ") or not section:
            continue
        elif section == "summary":
            summary.append(_unescape(line))
        else:
            _read_entry(line, number, section, exemplars, rules)
    if meta is None:
        msg = "no `<!-- personalink {…} -->` line: this page was not written by personalink"
        raise PersonaError(msg)
    return from_dict(
        {**meta, "preference_summary": one_line(" ".join(summary)), "exemplars": exemplars, "decision_rules": rules},
        counter,
    )


def _read_entry(
    line: str, number: int, section: str, exemplars: list[dict[str, Any]], rules: list[dict[str, Any]]
) -> None:
    found = _split_entry(line)
    if found is None:
        msg = f"line {number}: expected `- … → label` (another arrow in it is written `\\→`), got {line!r:.60}"
        raise PersonaError(msg)
    body, label, raw_note = found
    note = _read_comment(raw_note, number) if raw_note else {}
    if section == "exemplars":
        if "item" not in note:
            msg = f"line {number}: an exemplar is a real item; keep its `<!-- {{…}} -->` note"
            raise PersonaError(msg)
        exemplars.append(
            {
                "item_id": note["item"],
                "input": body,
                "label": label,
                "depth": note.get("pass", 0),
                "clipped": note.get("clipped", False),
            }
        )
    else:
        rules.append(
            {
                "condition": body.removeprefix("if "),
                "label": label,
                "depth": note.get("pass", 0),
                "item_ids": note.get("items", []),
            }
        )


def _split_entry(line: str) -> tuple[str, str, str] | None:
    """Body, label and note of an entry; the arrow that counts is the one that is not escaped."""
    found = re.match(r"^- ((?:[^\\→]|\\.)*) → ((?:[^\\→<]|\\.)*?)(?: <!-- (\{.*\}) -->)?$", line)
    if found is None and "→" not in line:
        found = re.match(rf"^- (.*){ARROW}([^<]*?)(?: <!-- (\{{.*\}}) -->)?$", line)
    return (one_line(_unescape(found[1])), one_line(_unescape(found[2])), found[3] or "") if found else None


def _escape(text: str) -> str:
    return _ESCAPED.sub(r"\\\1", text)


def _unescape(text: str) -> str:
    return _UNESCAPE.sub(r"\1", text)


def _comment(value: dict[str, Any]) -> str:
    """JSON that cannot end an HTML comment."""
    return json.dumps(value, sort_keys=True).replace("<", "\\u003c").replace(">", "\\u003e")


def _read_comment(text: str, number: int) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        what = getattr(error, "msg", type(error).__name__)
        msg = f"line {number}: the note is not JSON ({what}); restore it or take it out"
        raise PersonaError(msg) from None
    return dict(value)


@dataclass(frozen=True, slots=True)
class PersonaDiff:
    """What changed from one persona to another, field by field. Empty when both render alike.

    `reordered` names the fields that hold the same entries in another order.
    """

    summary: tuple[str, str] | None
    exemplars_added: tuple[Exemplar, ...]
    exemplars_removed: tuple[Exemplar, ...]
    rules_added: tuple[Rule, ...]
    rules_removed: tuple[Rule, ...]
    reordered: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        entries = (self.exemplars_added, self.exemplars_removed, self.rules_added, self.rules_removed)
        return any((self.summary, *entries, self.reordered))

    def as_text(self) -> str:
        """Lines with + and −; the summary word by word as [-gone-] and {+new+}."""
        if not self:
            return "no change"
        lines = []
        if self.summary:
            lines += ["preference_summary", f"  {word_diff(*self.summary)}"]
        for name, added, removed in (
            ("exemplars", self.exemplars_added, self.exemplars_removed),
            ("decision_rules", self.rules_added, self.rules_removed),
        ):
            if added or removed or name in self.reordered:
                lines.append(name)
                lines += ["  (the same, in another order)"] if name in self.reordered else []
                lines += [f"  − {piece.render()[2:]}" for piece in removed]
                lines += [f"  + {piece.render()[2:]}" for piece in added]
        return "\n".join(lines)


def diff(old: PersonaState, new: PersonaState) -> PersonaDiff:
    """The field-level difference; provenance (pass, items) is not content and does not count."""

    exemplars_added = _beyond(new.exemplars, old.exemplars)
    exemplars_removed = _beyond(old.exemplars, new.exemplars)
    rules_added = _beyond(new.decision_rules, old.decision_rules)
    rules_removed = _beyond(old.decision_rules, new.decision_rules)
    reordered = tuple(
        name
        for name, changed in (
            ("exemplars", exemplars_added + exemplars_removed),
            ("decision_rules", rules_added + rules_removed),
        )
        if not changed and [p.render() for p in getattr(old, name)] != [p.render() for p in getattr(new, name)]
    )
    before, after = old.preference_summary, new.preference_summary
    summary = (before, after) if before != after else None
    return PersonaDiff(summary, exemplars_added, exemplars_removed, rules_added, rules_removed, reordered)


def _beyond(pieces: Sequence[P], others: Sequence[P]) -> tuple[P, ...]:
    """The pieces that `others` does not hold, or holds less often."""
    left = Counter(piece.render() for piece in others)
    extra = []
    for piece in pieces:
        if left[piece.render()]:
            left[piece.render()] -= 1
        else:
            extra.append(piece)
    return tuple(extra)


def word_diff(old: str, new: str) -> str:
    """Two texts as one, word by word: [-gone-] {+new+}."""
    a, b = old.split(), new.split()
    out = []
    for op, i1, i2, j1, j2 in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if op == "equal":
            out += a[i1:i2]
        else:
            out += [f"[-{' '.join(a[i1:i2])}-]"] if i2 > i1 else []
            out += [f"{{+{' '.join(b[j1:j2])}+}}"] if j2 > j1 else []
    return " ".join(out)

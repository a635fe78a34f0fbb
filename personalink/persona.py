"""PersonaState: what is known of one user, in three bounded fields, and how it is rendered.

Every door (constructor, `fit`, `edit`, JSON, Markdown) ends in the same validation, so an over-cap state cannot
exist. Caps are counted on the rendered text, headers included, by a named counter; the state keeps its count and the
counter's id, so it loads and shows without one. Knows nothing of tasks, models or the loop.
"""

from __future__ import annotations

from dataclasses import InitVar, asdict, dataclass, field
from numbers import Integral
from typing import Any, Protocol

from personalink.canonical import digest
from personalink.errors import PersonaError
from personalink.text import one_line

FIELDS = ("preference_summary", "exemplars", "decision_rules")
ARROW = " -> "
ELLIPSIS = "…"
_EXEMPLARS = "This user's choices:"
_SUMMARY = "This user's preferences:"
_RULES = "This user's rules:"


class TokenCounter(Protocol):
    """What a persona needs of a counter (see `lm.base.Counter`)."""

    id: str

    def count(self, text: str) -> int:
        """Tokens of `text`."""
        ...


@dataclass(frozen=True, slots=True)
class Caps:
    """Hard bounds, in tokens of the agent's tokenizer unless said otherwise.

    Attributes:
        summary: the preference summary with its header.
        rules: how many decision rules. rule: one rule, bullet and label included.
        exemplars: how many exemplars. exemplar: one exemplar, bullet and label included.
        total: the whole render, all headers included (the paper's "about 250").
    """

    summary: int = 70
    rules: int = 6
    rule: int = 12
    exemplars: int = 6
    exemplar: int = 14
    total: int = 250

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                msg = f"caps.{name} is {value!r}; it must be a whole number of at least 0"
                raise PersonaError(msg)


@dataclass(frozen=True, slots=True)
class Exemplar:
    """A real history item as a demonstration: copied by code, its input perhaps clipped, its label never.

    `depth` is the pass that chose it.
    """

    item_id: str
    input: str
    label: str
    depth: int = 0
    clipped: bool = False

    def render(self) -> str:
        """One line."""
        return f"- {self.input}{ARROW}{self.label}"


@dataclass(frozen=True, slots=True)
class Rule:
    """A conditional heuristic: `if condition -> label`, drawn from `item_ids`; depth 0: by hand."""

    condition: str
    label: str
    depth: int = 0
    item_ids: tuple[str, ...] = ()

    def render(self) -> str:
        """One line."""
        return f"- if {self.condition}{ARROW}{self.label}"


def render_fields(summary: str, exemplars: tuple[Exemplar, ...], rules: tuple[Rule, ...]) -> str:
    """The preamble. Exemplars stand first, rules last, since rules change most and a prefix cache then holds longer."""
    lines: list[str] = []
    if exemplars:
        lines += [_EXEMPLARS, *(e.render() for e in exemplars)]
    if summary:
        lines.append(render_summary(summary))
    if rules:
        lines += [_RULES, *(r.render() for r in rules)]
    return "\n".join(lines)


def render_summary(summary: str) -> str:
    """The summary with its header; empty for an empty one."""
    return f"{_SUMMARY} {summary}" if summary else ""


@dataclass(frozen=True, slots=True)
class PersonaState:
    """A bounded persona. Immutable; equal when its three fields, caps and count are equal.

    Args:
        preference_summary: imperative prose, one line.
        exemplars: past items of the user, distinct by item id.
        decision_rules: conditional heuristics.
        caps: the bounds.
        counter: counts tokens; needed once, here.

    Raises:
        PersonaError: a field or the whole is over its cap, or a text is not one clean line; names field, size and cap.
    """

    preference_summary: str = ""
    exemplars: tuple[Exemplar, ...] = ()
    decision_rules: tuple[Rule, ...] = ()
    caps: Caps = Caps()
    counter: InitVar[TokenCounter] = field(kw_only=True)
    tokens: int = field(init=False)
    counter_id: str = field(init=False)

    def __post_init__(self, counter: TokenCounter) -> None:
        check_shape(self)
        check_sizes(self, counter)
        size = measured(self.render(), counter)
        if size > self.caps.total:
            msg = f"persona is {size} tokens by {counter.id}; its cap is {self.caps.total}"
            raise PersonaError(msg)
        object.__setattr__(self, "tokens", size)
        object.__setattr__(self, "counter_id", counter.id)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled and copied as its sealed JSON, so that this is no door of its own."""
        from personalink.persona_io import from_dict, to_dict

        return from_dict, (to_dict(self),)

    def render(self) -> str:
        """The text placed before a question; "" for an empty persona."""
        return render_fields(self.preference_summary, self.exemplars, self.decision_rules)

    def __str__(self) -> str:
        return self.render()

    @property
    def is_empty(self) -> bool:
        """Whether all three fields are empty, so that nothing is placed."""
        return not (self.preference_summary or self.exemplars or self.decision_rules)

    @property
    def hash(self) -> str:
        """SHA-256 of the three fields' content; provenance, caps and counter do not enter it."""
        return digest(
            [
                self.preference_summary,
                [[e.item_id, e.input, e.label] for e in self.exemplars],
                [[r.condition, r.label] for r in self.decision_rules],
            ]
        )

    def edit(self, counter: TokenCounter, **changes: Any) -> PersonaState:
        """A new state with some of the three fields (or `caps`) changed, under the same validation.

        Raises:
            PersonaError: the result breaks a bound, or a name is no field; this state is untouched.
        """
        values: dict[str, Any] = {name: getattr(self, name) for name in (*FIELDS, "caps")}
        if unknown := set(changes) - set(values):
            msg = f"a persona has no field {sorted(unknown)[0]!r}; its fields are {', '.join(FIELDS)}"
            raise PersonaError(msg)
        return PersonaState(**{**values, **changes}, counter=counter)

    def without(self, name: str) -> str:
        """The render with one field blanked (the field ablation of table 5). Removing text needs no new count.

        Raises:
            PersonaError: `name` is none of the three fields.
        """
        if name not in FIELDS:
            msg = f"a persona has no field {name!r}; its fields are {', '.join(FIELDS)}"
            raise PersonaError(msg)
        return render_fields(
            "" if name == "preference_summary" else self.preference_summary,
            () if name == "exemplars" else self.exemplars,
            () if name == "decision_rules" else self.decision_rules,
        )

    @classmethod
    def empty(cls, counter: TokenCounter, caps: Caps | None = None) -> PersonaState:
        """The persona of depth 0: renders to nothing."""
        return cls(caps=caps or Caps(), counter=counter)


# dataclasses give a frozen class with slots a `__setstate__` that checks nothing; see `__reduce__`
del PersonaState.__setstate__  # type: ignore[attr-defined]


def measured(text: str, counter: TokenCounter) -> int:
    """Tokens of `text`; 0 for the empty text, which is not placed.

    Raises:
        PersonaError: the counter gave something else than a whole number of at least 0.
    """
    size = counter.count(text) if text else 0
    if not isinstance(size, Integral) or size < 0:
        msg = f"counter {counter.id} counted {size!r} tokens; it must give a whole number of at least 0"
        raise PersonaError(msg)
    return int(size)


def check_shape(state: PersonaState) -> None:
    """Everything that can be checked without a counter: types, clean single lines, how many, distinct items."""
    if not isinstance(state.caps, Caps):
        msg = f"caps must be Caps, got {state.caps!r:.60}"
        raise PersonaError(msg)
    _check_line("preference_summary", state.preference_summary)
    for name, pieces, kind in (
        ("exemplars", state.exemplars, Exemplar),
        ("decision_rules", state.decision_rules, Rule),
    ):
        if not isinstance(pieces, tuple) or not all(isinstance(piece, kind) for piece in pieces):
            msg = f"{name} must be a tuple of {kind.__name__}"
            raise PersonaError(msg)
    for i, exemplar in enumerate(state.exemplars):
        _check_line(f"exemplars[{i}].input", exemplar.input, required=True)
        _check_label(f"exemplars[{i}].label", exemplar.label)
        _check_line(f"exemplars[{i}].item_id", exemplar.item_id, required=True)
        _check_depth(f"exemplars[{i}].depth", exemplar.depth)
        if not isinstance(exemplar.clipped, bool):
            msg = f"exemplars[{i}].clipped is {exemplar.clipped!r:.60}; it must be true or false"
            raise PersonaError(msg)
    for i, rule in enumerate(state.decision_rules):
        _check_line(f"decision_rules[{i}].condition", rule.condition, required=True)
        _check_label(f"decision_rules[{i}].label", rule.label)
        _check_depth(f"decision_rules[{i}].depth", rule.depth)
        if not isinstance(rule.item_ids, tuple):
            msg = f"decision_rules[{i}].item_ids must be a tuple of item ids"
            raise PersonaError(msg)
        for item_id in rule.item_ids:
            _check_line(f"decision_rules[{i}].item_ids", item_id, required=True)
    if len({e.item_id for e in state.exemplars}) < len(state.exemplars):
        msg = "exemplars must be distinct items"
        raise PersonaError(msg)
    for name, number, cap in (
        ("exemplars", len(state.exemplars), state.caps.exemplars),
        ("decision_rules", len(state.decision_rules), state.caps.rules),
    ):
        if number > cap:
            msg = f"{name} has {number} entries; its cap is {cap}"
            raise PersonaError(msg)


def check_sizes(state: PersonaState, counter: TokenCounter) -> None:
    """Every field and entry within its cap."""
    sized = [("preference_summary", render_summary(state.preference_summary), state.caps.summary)]
    sized += [(f"exemplars[{i}]", e.render(), state.caps.exemplar) for i, e in enumerate(state.exemplars)]
    sized += [(f"decision_rules[{i}]", r.render(), state.caps.rule) for i, r in enumerate(state.decision_rules)]
    for name, text, cap in sized:
        if (size := measured(text, counter)) > cap:
            msg = f"{name} is {size} tokens; its cap is {cap}"
            raise PersonaError(msg)


def _check_line(name: str, text: str, *, required: bool = False) -> None:
    if not isinstance(text, str) or text != one_line(text):
        msg = f"{name} must be one line of text without control characters or doubled spaces: {text!r:.60}"
        raise PersonaError(msg)
    if required and not text:
        msg = f"{name} is empty"
        raise PersonaError(msg)


def _check_depth(name: str, depth: int) -> None:
    if not isinstance(depth, int) or isinstance(depth, bool) or depth < 0:
        msg = f"{name} is {depth!r:.60}; it must be a whole number of at least 0"
        raise PersonaError(msg)


def _check_label(name: str, label: str) -> None:
    _check_line(name, label, required=True)
    if ARROW.strip() in label:
        msg = f"{name} must not hold {ARROW.strip()!r}, which parts a condition from its label"
        raise PersonaError(msg)

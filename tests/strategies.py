"""What tests draw: ugly texts, odd counters, pieces of personas, whole valid personas, users."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass

from hypothesis import strategies as st

from personalink.data.types import Item, User
from personalink.lm.counters import EstimateCounter
from personalink.persona import Caps, Exemplar, PersonaState, Rule, render_summary
from personalink.text import one_line


class Words:
    id = "words"
    remote = False

    def count(self, text: str) -> int:
        return len(text.split())


class Characters:
    id = "characters"
    remote = False

    def count(self, text: str) -> int:
        return len(text)


class Bytes:
    id = "bytes"
    remote = False

    def count(self, text: str) -> int:
        return len(text.encode("utf-8", "surrogatepass"))


@dataclass(frozen=True)
class Constant:
    """The same for every text, the empty one included, as of a tokenizer that adds special tokens."""

    size: int = 3
    id: str = "constant"
    remote: bool = False

    def count(self, text: str) -> int:
        return self.size


class Jagged:
    """Neither monotone nor additive: a longer text may well count less."""

    id = "jagged"
    remote = False

    def count(self, text: str) -> int:
        return zlib.crc32(text.encode("utf-8", "surrogatepass")) % 40 if text else 0


class ToyBpe:
    """Greedy pieces that merge over spaces and line ends, so that the parts never sum to the whole."""

    id = "toy-bpe"
    remote = False
    _piece = re.compile(r"\n- |s\n| -> |if |the |ing |…|\w\w\w|\w\w|.", re.DOTALL)

    def count(self, text: str) -> int:
        return len(self._piece.findall(text))


COUNTERS = (Words(), Characters(), Bytes(), Constant(), Constant(300), Jagged(), ToyBpe(), EstimateCounter())
counters = st.sampled_from(COUNTERS)

NASTY = (
    "<!--", "-->", "<!-- personalink {} -->", "#", "## Exemplars", "# x", "- ", "- if a → b", "→", " -> ", "\\", "\\\\",
    "\\→", '"', "'", "`", "if ", "if if", "{", "}", "[e1]", "\u2028", "\u2029", "\u0085", "\u00a0", "\u200b", "\u200d",
    "\u202e", "\ufeff", "\x00", "\x1b[31m", "\x1f", "\x7f", "\ud800", "\udfff", "\r\n", "\t", "  ", "…", "👩‍👩‍👧", "🇫🇷",
    "שלום", "مرحبا", "日本語。", "e\u0301", "ﬁ", "İ", "ß", "\U0010ffff", "w" * 300, "x " * 80, "Sure. Yes! No? ",
    "e.g. ",
)  # fmt: skip

texts = st.one_of(
    st.text(st.characters(), max_size=40),
    st.lists(st.one_of(st.sampled_from(NASTY), st.text("ab .-→\\<>#", max_size=6)), max_size=8).map("".join),
)
lines = texts.map(one_line)
full_lines = lines.filter(bool)
labels = full_lines.filter(lambda text: "->" not in text)
ids = full_lines
depths = st.integers(0, 9)

exemplars = st.builds(Exemplar, ids, full_lines, labels, depths, st.booleans())
rules = st.builds(Rule, full_lines, labels, depths, st.lists(ids, max_size=3).map(tuple))
raw_exemplars = st.builds(Exemplar, texts, texts, texts, depths)
raw_rules = st.builds(Rule, texts, texts, depths, st.lists(ids, max_size=2).map(tuple))
caps = st.builds(
    Caps,
    summary=st.integers(0, 80),
    rules=st.integers(0, 7),
    rule=st.integers(0, 20),
    exemplars=st.integers(0, 7),
    exemplar=st.integers(0, 20),
    total=st.integers(0, 260),
)


def tight_caps(summary, shown, heuristics, counter) -> Caps:
    """The least caps under which a persona of these fields is valid."""

    def largest(pieces) -> int:
        return max((counter.count(piece.render()) for piece in pieces), default=0)

    wide = Caps(*[10**9] * 6)
    whole = PersonaState(summary, shown, heuristics, wide, counter=counter)
    return Caps(
        summary=counter.count(render_summary(summary)),
        rules=len(heuristics),
        rule=largest(heuristics),
        exemplars=len(shown),
        exemplar=largest(shown),
        total=whole.tokens,
    )


@st.composite
def states(draw, by=counters) -> tuple[PersonaState, object]:
    """A valid persona, often just at its caps, and the counter it was measured by."""
    counter = draw(by)
    shown = tuple(draw(st.lists(exemplars, max_size=4, unique_by=lambda e: e.item_id)))
    heuristics = tuple(draw(st.lists(rules, max_size=4)))
    summary = draw(lines)
    bounds = tight_caps(summary, shown, heuristics, counter) if draw(st.booleans()) else Caps(*[10**6] * 6)
    return PersonaState(summary, shown, heuristics, bounds, counter=counter), counter


def is_bounded(state: PersonaState, counter) -> bool:
    """The bounds, reckoned anew and by hand."""

    def size(text: str) -> int:
        return counter.count(text) if text else 0

    bounds = state.caps
    return (
        len(state.exemplars) <= bounds.exemplars
        and len(state.decision_rules) <= bounds.rules
        and size(render_summary(state.preference_summary)) <= bounds.summary
        and all(size(e.render()) <= bounds.exemplar for e in state.exemplars)
        and all(size(r.render()) <= bounds.rule for r in state.decision_rules)
        and size(state.render()) == state.tokens <= bounds.total
        and "\n" not in state.preference_summary
        and len(state.render().splitlines()) == rendered_lines(state)
    )


def rendered_lines(state: PersonaState) -> int:
    """Lines of the render: headers and entries."""
    return (
        bool(state.preference_summary)
        + bool(state.exemplars) + len(state.exemplars)
        + bool(state.decision_rules) + len(state.decision_rules)
    )  # fmt: skip


@st.composite
def users(draw, most: int = 40) -> User:
    """A user whose texts may repeat under other case and spacing."""
    n = draw(st.integers(0, most))
    stems = draw(st.lists(st.integers(0, 60), min_size=n, max_size=n))
    twists = draw(st.lists(st.sampled_from(("{}", " {} ", "{}".upper())), min_size=n, max_size=n))
    tags = draw(st.lists(st.sampled_from("abc"), min_size=n, max_size=n))
    items = [
        Item(f"i{i}", twist.format(f"Text  number {stem}" if i % 2 else f"text number {stem}"), tag)
        for i, (stem, twist, tag) in enumerate(zip(stems, twists, tags, strict=True))
    ]
    return User(draw(st.sampled_from(("u", "v", "ü"))), "test", tuple(items))

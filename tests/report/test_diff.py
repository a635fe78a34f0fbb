"""What changed from one persona to another: which entries belong together, and that nothing is lost on the way."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from personalink.lm import EstimateCounter
from personalink.persona import Caps, Exemplar, PersonaState, Rule
from personalink.report.diff import MOST_WORDS, Change, persona_changes, word_segments
from tests.strategies import states

WIDE = Caps(900, 9, 900, 9, 900, 9000)


def persona(summary: str = "", exemplars: tuple[Exemplar, ...] = (), rules: tuple[Rule, ...] = ()) -> PersonaState:
    return PersonaState(summary, exemplars, rules, WIDE, counter=EstimateCounter())


def test_words_that_are_gone_and_new_stand_where_they_belong() -> None:
    assert word_segments("likes the north wind", "likes the south wind") == (
        ("same", "likes the"), ("gone", "north"), ("new", "south"), ("same", "wind"),
    )  # fmt: skip
    assert word_segments("a b", "a b") == (("same", "a b"),)


def test_long_texts_are_told_whole() -> None:
    old, new = " ".join(["a"] * (MOST_WORDS + 1)), "b"
    assert word_segments(old, new) == (("gone", old), ("new", "b"))
    assert word_segments(old, old) == (("same", old),)


def test_a_rule_that_was_rewritten_is_one_change() -> None:
    old = persona(rules=(Rule("it mentions a red amber bead", "north"), Rule("it rains", "west")))
    new = persona(rules=(Rule("it mentions a blue amber bead", "south"), Rule("it rains", "west")))
    (field,) = persona_changes(old, new)
    assert field.name == "decision_rules"
    assert field.changes == (
        Change(
            "changed",
            (
                ("same", "if it mentions a"), ("gone", "red"), ("new", "blue"), ("same", "amber bead"), ("same", "->"),
                ("gone", "north"), ("new", "south"),
            ),
        ),
    )  # fmt: skip


def test_another_item_is_another_exemplar_and_order_is_told() -> None:
    one, two = Exemplar("1", "a long walk", "north"), Exemplar("2", "a long walk", "north")
    (field,) = persona_changes(persona(exemplars=(one,)), persona(exemplars=(Exemplar("3", "a walk", "north"),)))
    assert [change.kind for change in field.changes] == ["new", "gone"]
    clipped = Exemplar("1", "a long…", "north", clipped=True)
    (field,) = persona_changes(persona(exemplars=(one,)), persona(exemplars=(clipped,)))
    assert [change.kind for change in field.changes] == ["changed"]
    other = Exemplar("2", "a swim", "west")
    (field,) = persona_changes(persona(exemplars=(one, other)), persona(exemplars=(other, one)))
    assert (field.changes, field.reordered) == ((), True)
    assert persona_changes(persona(exemplars=(one,)), persona(exemplars=(two,))) == ()


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(states(), states())
def test_what_is_told_stands_in_the_two(a: tuple[PersonaState, object], b: tuple[PersonaState, object]) -> None:
    old, new = a[0], b[0]
    assert persona_changes(old, old) == ()
    for field in persona_changes(old, new):
        for kept, side in (("gone", old), ("new", new)):
            told = " ".join(text for c in field.changes for kind, text in c.segments if kind in ("same", kept))
            value = getattr(side, field.name)
            texts = [value] if isinstance(value, str) else [p.render().removeprefix("- ") for p in value]
            shown = {word for text in texts for word in text.split()}
            assert set(told.split()) <= shown

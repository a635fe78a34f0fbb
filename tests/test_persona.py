"""PersonaState: bounded by every door, immutable, rendered in one order."""

import contextlib
import copy
import dataclasses
import math
import pickle
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from personalink.errors import PersonaError
from personalink.persona import Caps, Exemplar, PersonaState, Rule
from personalink.persona_io import from_dict, from_json, from_markdown, to_dict, to_json, to_markdown
from tests.strategies import (
    Constant,
    Words,
    caps,
    counters,
    exemplars,
    is_bounded,
    lines,
    raw_exemplars,
    raw_rules,
    rules,
    states,
    texts,
)

WORDS = Words()
FULL = PersonaState(
    "Prefer plain facts.",
    (Exemplar("i1", "A match report", "sports", 1), Exemplar("i2", "A budget vote", "politics", 2, True)),
    (Rule("about money", "business", 2, ("i1", "i3")),),
    counter=WORDS,
)


def refused(*args, **kwargs) -> str:
    with pytest.raises(PersonaError) as caught:
        PersonaState(*args, **{"counter": WORDS, **kwargs})
    line = str(caught.value)
    assert len(line.splitlines()) == 1
    return line


def test_the_render_stands_in_this_order():
    assert (
        FULL.render()
        == str(FULL)
        == (
            "This user's choices:\n"
            "- A match report -> sports\n"
            "- A budget vote -> politics\n"
            "This user's preferences: Prefer plain facts.\n"
            "This user's rules:\n"
            "- if about money -> business"
        )
    )
    assert FULL.tokens == len(FULL.render().split())
    assert FULL.counter_id == "words"


def test_the_empty_persona_renders_to_nothing_by_every_counter():
    for counter in (WORDS, Constant(300)):
        empty = PersonaState.empty(counter)
        assert (empty.render(), empty.tokens, empty.is_empty) == ("", 0, True)
    assert PersonaState.empty(WORDS, Caps(0, 0, 0, 0, 0, 0)).is_empty
    assert not FULL.is_empty


@pytest.mark.parametrize(("name", "blank"), [("preference_summary", ""), ("exemplars", ()), ("decision_rules", ())])
def test_without_one_field(name, blank):
    assert FULL.without(name) == FULL.edit(WORDS, **{name: blank}).render() != FULL.render()


def test_without_and_edit_name_an_unknown_field():
    for act in (lambda: FULL.without("rules"), lambda: FULL.edit(WORDS, rules=())):
        with pytest.raises(PersonaError, match="no field 'rules'; its fields are preference_summary, exemplars, dec"):
            act()


def test_the_hash_is_pinned_and_free_of_provenance():
    assert FULL.hash == "82e216cb0076b5337f802004e5202ec4543dfd9b84bd8b0230105e588123adb0"
    other = PersonaState(
        FULL.preference_summary,
        tuple(replace(e, depth=9, clipped=not e.clipped) for e in FULL.exemplars),
        tuple(replace(r, depth=9, item_ids=()) for r in FULL.decision_rules),
        Caps(total=1000),
        counter=WORDS,
    )
    assert other.hash == FULL.hash
    assert other != FULL
    for change in (
        {"preference_summary": "Prefer plain fact."},
        {"exemplars": FULL.exemplars[::-1]},
        {"exemplars": (replace(FULL.exemplars[0], item_id="other"),)},
        {"decision_rules": (Rule("about money", "politics"),)},
    ):
        assert FULL.edit(WORDS, **change).hash != FULL.hash


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (("w " * 67 + "w",), "preference_summary is 71 tokens; its cap is 70"),
        (("", tuple(Exemplar(str(i), "a", "b") for i in range(7))), "exemplars has 7 entries; its cap is 6"),
        (("", (Exemplar("1", "w " * 11 + "w", "b"),)), "exemplars[0] is 15 tokens; its cap is 14"),
        (("", (), (Rule("a", "b"),) * 7), "decision_rules has 7 entries; its cap is 6"),
        (("", (), (Rule("a", "b"), Rule("w " * 8 + "w", "b"))), "decision_rules[1] is 13 tokens; its cap is 12"),
        (("two\nlines",), "preference_summary must be one line of text"),
        (("two  spaces",), "preference_summary must be one line of text"),
        (("trailing ",), "preference_summary must be one line of text"),
        (("a\u2028b",), "preference_summary must be one line of text"),
        (("\ud800",), "preference_summary must be one line of text"),
        ((None,), "preference_summary must be one line of text"),
        (("", [Exemplar("1", "a", "b")]), "exemplars must be a tuple of Exemplar"),
        (("", (Rule("a", "b"),)), "exemplars must be a tuple of Exemplar"),
        (("", (Exemplar("1", "", "b"),)), "exemplars[0].input is empty"),
        (("", (Exemplar("1", "a", ""),)), "exemplars[0].label is empty"),
        (("", (Exemplar("", "a", "b"),)), "exemplars[0].item_id is empty"),
        (("", (Exemplar("1", "a", "b -> c"),)), "exemplars[0].label must not hold '->'"),
        (("", (Exemplar("1", "a", "b"), Exemplar("1", "c", "b"))), "exemplars must be distinct items"),
        (("", (Exemplar("1", "a", "b", -1),)), "exemplars[0].depth is -1"),
        (("", (Exemplar("1", "a", "b", 0, "yes"),)), "exemplars[0].clipped is 'yes'"),
        (("", (), (Rule("", "b"),)), "decision_rules[0].condition is empty"),
        (("", (), (Rule("a", "b", 1.5),)), "decision_rules[0].depth is 1.5"),
        (("", (), (Rule("a", "b", 0, ["i"]),)), "decision_rules[0].item_ids must be a tuple"),
        (("", (), (Rule("a", "b", 0, (7,)),)), "decision_rules[0].item_ids must be one line"),
        (("", (), (), None), "caps must be Caps, got None"),
    ],
)
def test_what_breaks_a_bound_is_told_in_one_line(fields, told):
    assert told in refused(*fields)


def test_the_whole_is_counted_with_its_headers():
    six = tuple(Exemplar(str(i), "a b c d e f g h i j", "x") for i in range(6))
    assert refused("", six, (), Caps(total=80)) == "persona is 81 tokens by words; its cap is 80"
    assert PersonaState("", six, (), Caps(total=81), counter=WORDS).tokens == 81


@pytest.mark.parametrize("size", [math.nan, math.inf, -1, None, "3", 2.0])
def test_a_counter_that_gives_no_whole_number_opens_no_door(size):
    assert "it must give a whole number" in refused("x", counter=Constant(size))


@pytest.mark.parametrize("value", [-1, 1.5, True, "70", None, math.nan])
def test_caps_are_whole_numbers(value):
    with pytest.raises(PersonaError, match=r"caps\.rule is .*; it must be a whole number of at least 0"):
        Caps(rule=value)


def test_it_is_immutable():
    for name in ("preference_summary", "caps", "tokens", "counter_id"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(FULL, name, "x")
    assert not hasattr(FULL, "__dict__")
    assert not hasattr(FULL, "__setstate__")


@settings(max_examples=60, deadline=None)
@given(states())
def test_copies_and_pickles_are_equal(made):
    state, _ = made
    for again in (copy.copy(state), copy.deepcopy(state), pickle.loads(pickle.dumps(state))):
        assert again == state
        assert (again.tokens, again.counter_id, again.hash) == (state.tokens, state.counter_id, state.hash)


def test_an_altered_pickle_is_refused():
    with pytest.raises(PersonaError, match="altered since it was sealed"):
        pickle.loads(pickle.dumps(FULL).replace(b"plain facts", b"plain tales"))


def test_replace_validates_again():
    with pytest.raises(ValueError, match="counter"):
        replace(FULL, preference_summary="w " * 500)
    with pytest.raises(PersonaError):
        replace(FULL, preference_summary=("w " * 500).strip(), counter=WORDS)
    with pytest.raises(ValueError, match="tokens"):
        replace(FULL, tokens=1, counter=WORDS)


def test_an_edit_that_is_refused_leaves_the_state_as_it_was():
    before = (FULL.render(), FULL.hash, to_json(FULL))
    with pytest.raises(PersonaError):
        FULL.edit(WORDS, preference_summary="w " * 500)
    assert (FULL.render(), FULL.hash, to_json(FULL)) == before


anything = st.one_of(texts, lines, st.none(), st.integers(), st.lists(texts, max_size=2))


def attempt(act, counter) -> None:
    """Through one door: a bounded state comes out, or PersonaError and nothing else."""
    with contextlib.suppress(PersonaError):
        assert is_bounded(act(), counter)


@settings(max_examples=80, deadline=None)
@given(
    st.one_of(texts, lines, lines.map(lambda t: t * 40)),
    st.lists(st.one_of(raw_exemplars, exemplars), max_size=9),
    st.lists(st.one_of(raw_rules, rules), max_size=9),
    caps,
    counters,
)
def test_no_door_constructs_an_over_cap_state(summary, shown, heuristics, bounds, counter):
    attempt(lambda: PersonaState(summary, tuple(shown), tuple(heuristics), bounds, counter=counter), counter)
    empty = PersonaState.empty(counter, bounds)
    attempt(lambda: empty.edit(counter, preference_summary=summary, decision_rules=tuple(heuristics)), counter)
    attempt(lambda: empty.edit(counter, exemplars=tuple(shown)), counter)
    data = {
        **to_dict(empty),
        "preference_summary": summary,
        "exemplars": [dataclasses.asdict(e) for e in shown],
        "decision_rules": [dataclasses.asdict(r) for r in heuristics],
    }
    attempt(lambda: from_dict(data, counter), counter)


@settings(max_examples=80, deadline=None)
@given(states(), caps, counters)
def test_a_file_with_other_caps_is_measured_by_them(made, bounds, counter):
    data = {**to_dict(made[0]), "caps": dataclasses.asdict(bounds)}
    attempt(lambda: from_dict(data, counter), counter)
    attempt(lambda: from_json(to_json(made[0]), counter), counter)
    attempt(lambda: from_markdown(to_markdown(made[0]), counter), counter)


@settings(max_examples=80, deadline=None)
@given(st.tuples(anything, anything, anything, anything))
def test_fields_of_any_type_give_a_state_or_a_persona_error(fields):
    attempt(lambda: PersonaState(*fields, counter=WORDS), WORDS)

"""Cutting to the caps: whole pieces go, labels stay, every cut is told, and nothing over a cap comes out."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from personalink.errors import PersonaError
from personalink.persona import ELLIPSIS, Caps, Exemplar, PersonaState, Rule
from personalink.persona_fit import clip_exemplar, fit_persona
from personalink.text import one_line
from tests.strategies import (
    COUNTERS,
    Bytes,
    Characters,
    Constant,
    Words,
    caps,
    counters,
    exemplars,
    is_bounded,
    raw_exemplars,
    raw_rules,
    rules,
    texts,
)

WORDS = Words()
SENTENCES = st.lists(st.sampled_from(("Prefer this.", "Never that!", "文です。", "e.g. so.", "no end")), max_size=60)


def fit(said="", shown=(), heuristics=(), counter=WORDS, **bounds):
    return fit_persona(said, shown, heuristics, caps=Caps(**bounds), counter=counter)


@settings(max_examples=100, deadline=None)
@given(
    st.one_of(texts, SENTENCES.map(" ".join), texts.map(lambda t: t * 50)),
    st.lists(st.one_of(raw_exemplars, exemplars), max_size=12),
    st.lists(st.one_of(raw_rules, rules), max_size=12),
    caps,
    counters,
)
def test_a_bounded_state_or_a_persona_error(summary, shown, heuristics, bounds, counter):
    try:
        state, notes = fit_persona(summary, shown, heuristics, caps=bounds, counter=counter)
    except PersonaError:
        return
    assert is_bounded(state, counter)
    assert all(len(note.splitlines()) == 1 for note in notes)
    assert state.caps == bounds
    known = {(one_line(e.item_id), one_line(e.label)) for e in shown}
    assert {(e.item_id, e.label) for e in state.exemplars} <= known
    assert {(r.condition, r.label) for r in state.decision_rules} <= {
        (one_line(r.condition), one_line(r.label)) for r in heuristics
    }
    assert one_line(summary).startswith(state.preference_summary)
    for e in state.exemplars:
        whole = {one_line(raw.input) for raw in shown if one_line(raw.item_id) == e.item_id}
        assert e.input in whole or any(w.startswith(e.input.removesuffix(ELLIPSIS)) for w in whole)


@settings(max_examples=60, deadline=None)
@given(st.lists(exemplars, max_size=5), st.lists(rules, max_size=5), counters)
def test_what_fits_is_left_as_it_is(shown, heuristics, counter):
    shown = list({e.item_id: e for e in shown}.values())
    heuristics = list({(r.condition.casefold(), r.label.casefold()): r for r in heuristics}.values())
    state, notes = fit_persona("So. It is", shown, heuristics, caps=Caps(*[10**6] * 6), counter=counter)
    assert notes == ()
    assert (state.preference_summary, list(state.exemplars), list(state.decision_rules)) == (
        "So. It is",
        shown,
        heuristics,
    )


@pytest.mark.parametrize("counter", COUNTERS, ids=lambda c: f"{c.id}-{getattr(c, 'size', '')}")
def test_huge_lists_and_very_long_words(counter):
    shown = [Exemplar(f"i{i}", "w" * 5000 if i % 2 else "word " * 1000, "label") for i in range(300)]
    heuristics = [Rule(f"case {i} " + "x" * (i % 50), "label") for i in range(2000)]
    said = "Short one. " * 400 if counter.count("") < 70 else ""
    state, notes = fit_persona(said, shown, heuristics, caps=Caps(), counter=counter)
    assert is_bounded(state, counter)
    assert len(notes) >= 2000 - 6


def test_a_summary_loses_whole_sentences_from_its_end():
    state, notes = fit("One two three. Four five! Six seven?", summary=8)
    assert state.preference_summary == "One two three. Four five!"
    assert notes == ("a sentence of the summary dropped: it is over 8 tokens",)
    assert fit("字が三つ。二つ目。", counter=Characters(), summary=32)[0].preference_summary == "字が三つ。"


@pytest.mark.parametrize(
    ("summary", "kept"),
    [
        ("File sport first. Prefer films, e.g. thrillers and dramas.", "File sport first."),
        ("File sport first. Prefer films, i.e. thrillers and dramas.", "File sport first."),
        ("1. File sport first. 2. Prefer all films.", "1. File sport first."),
    ],
)
def test_no_half_sentence_is_left(summary, kept):
    assert fit(summary, summary=9)[0].preference_summary == kept


@pytest.mark.parametrize("summary", ["w " * 80, "w" * 5000, "Prefer films, e.g. thrillers " + "and more " * 40])
def test_a_first_sentence_over_the_cap_is_an_error(summary):
    with pytest.raises(PersonaError, match="does not fit 70 tokens, and a single sentence is not cut"):
        fit(summary, counter=Words() if " " in summary else Bytes())


def test_rules_over_a_cap_twice_or_without_a_label_are_dropped_and_told():
    heuristics = [
        Rule("about money", "business"),
        Rule("About  MONEY", "Business"),
        Rule("w " * 20, "business"),
        Rule(" \n", "business"),
        Rule("about sport", "\x00"),
        Rule("about sport", "a -> b"),
        Rule("about sport", "sports"),
        Rule("about films", "films"),
    ]
    state, notes = fit(heuristics=heuristics, rules=2)
    assert [r.condition for r in state.decision_rules] == ["about money", "about sport"]
    assert notes == (
        "rule 2 dropped: it stands twice",
        "rule 3 dropped: it is over 12 tokens",
        "rule 4 dropped: it has no condition or no label",
        "rule 5 dropped: it has no condition or no label",
        "rule 6 dropped: it has no condition or no label",
        "rule 8 dropped: 2 are kept",
    )


def test_an_exemplar_is_clipped_in_its_input_only():
    state, _ = fit(shown=[Exemplar("i", "a b c d e f g h i j k l", "science & technology")], exemplar=10)
    assert state.exemplars == (Exemplar("i", "a b c d e…", "science & technology", clipped=True),)
    long_label = [Exemplar("i", "a b", "l " * 14 + "l"), Exemplar("j", "", "x"), Exemplar("k", "a", "b")]
    state, notes = fit(shown=long_label)
    assert [e.item_id for e in state.exemplars] == ["k"]
    assert notes == (
        "exemplar i dropped: its label leaves no room in 14 tokens",
        "exemplar 'j' dropped: it has no id, no text or no label to show",
    )


def test_a_single_long_word_is_clipped_by_characters():
    one = Exemplar("i", "w" * 500 + " tail", "x")
    clipped = clip_exemplar(one, 20, Characters().count)
    assert clipped == replace(one, input="w" * 12 + ELLIPSIS, clipped=True)
    assert clip_exemplar(one, 7, Characters().count) is None


@settings(max_examples=120, deadline=None)
@given(exemplars, st.integers(0, 40), counters)
def test_clipping_ends_and_never_lies(exemplar, cap, counter):
    clipped = clip_exemplar(exemplar, cap, counter.count)
    if clipped is not None:
        assert counter.count(clipped.render()) <= cap
        assert (clipped.label, clipped.item_id) == (exemplar.label, exemplar.item_id)
        assert clipped == exemplar or (
            clipped.clipped
            and exemplar.input.startswith(clipped.input.removesuffix(ELLIPSIS))
            and clipped.input.removesuffix(ELLIPSIS) != exemplar.input
        )


def test_over_the_whole_cap_exemplars_and_rules_take_turns_and_the_summary_goes_last():
    shown = [Exemplar(f"i{i}", "a b c d e f g h", "x") for i in range(3)]
    heuristics = [Rule(f"case {i} of many", "x") for i in range(3)]
    state, notes = fit("Keep this.", shown, heuristics, total=50)
    assert (len(state.exemplars), len(state.decision_rules)) == (2, 2)
    assert notes == (
        "exemplar i2 dropped: the whole is over 50 tokens",
        "rule 'case 2 of many' dropped: the whole is over 50 tokens",
    )
    assert fit("Keep this. Not this.", shown, heuristics, total=5)[0].render() == "This user's preferences: Keep this."
    with pytest.raises(PersonaError):
        fit("Keep this.", shown, heuristics, total=4)


def test_the_same_item_twice_stands_once():
    state, _ = fit(shown=[Exemplar("i", "a", "x"), Exemplar(" i ", "b", "x")])
    assert [e.input for e in state.exemplars] == ["a"]


def test_nothing_gives_the_empty_persona():
    assert fit(" \n") == (PersonaState.empty(WORDS), ())
    assert fit(counter=Constant(300))[0].is_empty

"""Personas on paper: exact both ways, sealed, edited by hand, compared."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from personalink.canonical import digest
from personalink.errors import PersonaError
from personalink.persona import Caps, Exemplar, PersonaState, Rule
from personalink.persona_io import diff, from_dict, from_json, from_markdown, to_dict, to_json, to_markdown, word_diff
from tests.strategies import Characters, Constant, Words, full_lines, is_bounded, labels, lines, states, texts

WORDS = Words()
FULL = PersonaState(
    "Prefer plain facts.",
    (Exemplar("i1", "A match report", "sports", 1), Exemplar("i2", "A budget vote", "politics", 2, True)),
    (Rule("about money", "business", 2, ("i1", "i3")), Rule("about a match", "sports")),
    counter=WORDS,
)
PAGE = to_markdown(FULL)
UGLY = PersonaState(
    "# not a heading <!-- nor a note --> \\ \\→ “quotes” - and → arrows -> here <!-- personalink {} -->",
    (
        Exemplar('"id" → <!-- -->', '- if "a" → b <!-- {"item": "x"} -->', "x → y", 3, True),
        Exemplar("\\", "## Exemplars \\", "\\→ <b>", 0),
    ),
    (
        Rule("if if → a", "-- >", 1, ("→", '"')),
        Rule("- dash -> arrow", "<!-- l --", 2),
        Rule("\\", "\\\\"),
        Rule("…", "# label"),
    ),
    Caps(*[999] * 6),
    counter=Constant(7, "odd\nid → <!-- \u2028"),
)


def refused(act, *args) -> str:
    with pytest.raises(PersonaError) as caught:
        act(*args)
    line = str(caught.value)
    assert len(line.splitlines()) == 1
    return line


@settings(max_examples=70, deadline=None)
@given(states())
def test_json_and_markdown_are_exact_both_ways(made):
    state, counter = made
    data = json.loads(to_json(state).encode())
    for again in (from_dict(data), from_json(to_json(state)), from_markdown(to_markdown(state))):
        assert again == state
        assert (again.tokens, again.counter_id, again.caps) == (state.tokens, state.counter_id, state.caps)
        assert to_json(again) == to_json(state)
        assert to_markdown(again) == to_markdown(state)
    for again in (from_json(to_json(state), counter), from_markdown(to_markdown(state), counter)):
        assert again == state
    to_markdown(state).encode()


@pytest.mark.parametrize("state", [FULL, UGLY, PersonaState.empty(WORDS)], ids=["full", "ugly", "empty"])
def test_both_ways_for_the_worst_we_could_think_of(state):
    assert from_json(to_json(state)) == state
    assert from_markdown(to_markdown(state)) == state
    assert from_markdown(to_markdown(state).replace("\n", "\r\n")) == state


def test_the_page_is_pinned():
    seal = to_dict(FULL)["seal"]
    page = (
        "# Persona\n"
        "\n"
        '<!-- personalink {"caps": {"exemplar": 14, "exemplars": 6, "rule": 12, "rules": 6, "summary": 70, '
        f'"total": 250}}, "counter": "words", "seal": "{seal}", "tokens": 37, "version": 1}} -->\n'
        "37 of 250 tokens by words\n"
        "\n"
        "## Preference summary\n"
        "\n"
        "Prefer plain facts.\n"
        "\n"
        "## Exemplars\n"
        "\n"
        '- A match report → sports <!-- {"clipped": false, "item": "i1", "pass": 1} -->\n'
        '- A budget vote → politics <!-- {"clipped": true, "item": "i2", "pass": 2} -->\n'
        "\n"
        "## Decision rules\n"
        "\n"
        '- if about money → business <!-- {"items": ["i1", "i3"], "pass": 2} -->\n'
        '- if about a match → sports <!-- {"items": [], "pass": 0} -->\n'
    )
    assert page == PAGE


def changed(path, value) -> dict:
    data = json.loads(to_json(FULL))
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return data


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("tokens",), 3),
        (("tokens",), True),
        (("tokens",), None),
        (("counter",), "characters"),
        (("seal",), "0" * 64),
        (("seal",), None),
        (("caps", "total"), 10**6),
        (("caps", "summary"), 10**6),
        (("preference_summary",), "Prefer plain fact."),
        (("preference_summary",), "w " * 500),
        (("exemplars", 0, "input"), "w " * 50 + "w"),
        (("exemplars", 0, "label"), "politics"),
        (("exemplars", 0, "depth"), 7),
        (("exemplars", 0, "depth"), float("nan")),
        (("decision_rules", 0, "item_ids"), []),
        (("decision_rules", 0, "condition"), "about honey"),
        (("decision_rules",), []),
        (("extra",), 1),
    ],
)
def test_what_was_altered_is_refused_without_a_counter(path, value):
    data = changed(path, value)
    refused(from_dict, data)
    refused(from_json, json.dumps(data))


@settings(max_examples=70, deadline=None)
@given(st.data())
def test_no_single_change_gets_past_the_seal(drawn):
    data = json.loads(to_json(FULL))
    name = drawn.draw(st.sampled_from(sorted(data)))
    value = drawn.draw(st.one_of(texts, st.integers(), st.none(), st.lists(texts, max_size=2)))
    if value != data[name]:
        refused(from_dict, {**data, name: value})


def test_an_altered_file_is_measured_again_with_a_counter():
    data = changed(("preference_summary",), "Prefer plain facts and short words.")
    state = from_dict(data, WORDS)
    assert state.tokens == FULL.tokens + 3
    over = "preference_summary is 503 tokens; its cap is 70"
    assert over in refused(from_dict, changed(("preference_summary",), "w " * 499 + "w"), WORDS)
    assert from_dict({**data, "tokens": 1}, WORDS).tokens == state.tokens


def test_a_forged_seal_does_not_get_past_the_whole_cap():
    body = {key: value for key, value in to_dict(FULL).items() if key != "seal"}
    for forged in ({"tokens": 251}, {"tokens": -1}, {"tokens": 37.0}, {"counter": 5}):
        refused(from_dict, {**body, **forged, "seal": digest({**body, **forged})})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not JSON: Expecting value (line 1, column 1)"),
        ("{", "not JSON: Expecting property name"),
        ('{\n "version": 1,\n}', "line 3, column 1"),
        ("[]", "not a persona: TypeError"),
        ("null", "not a persona: TypeError"),
        ("3", "not a persona: TypeError"),
        ('"caps"', "not a persona: TypeError"),
        ("{}", "not a persona: KeyError 'caps'"),
        ('{"caps": {"colour": 3}}', "unexpected keyword argument 'colour'"),
        ('{"caps": {"total": -1}}', "caps.total is -1"),
        ('{"caps": {}, "exemplars": 3}', "not a persona: TypeError"),
        ('{"caps": {}, "exemplars": [[]]}', "not a persona: TypeError"),
        ('{"caps": {}, "exemplars": [{"input": "a"}]}', "item_id"),
        ('{"caps": {}, "exemplars": [], "decision_rules": [{"item_ids": "abc"}]}', "not a list"),
        ('{"caps": {}, "exemplars": [], "decision_rules": [], "preference_summary": ""}', "KeyError 'version'"),
        ("[" * 100_000, "not JSON that can be read"),
        ("1" * 5000, "not JSON that can be read"),
        (json.dumps({**to_dict(FULL), "version": 2}), "has version 2; this personalink reads version 1"),
    ],
)
def test_what_is_no_persona_is_told_in_one_line(text, told):
    assert told in refused(from_json, text)


KEYS = (
    *("caps", "exemplars", "decision_rules", "preference_summary", "version", "seal"),
    *("input", "label", "item_id", "condition", "item_ids", "depth"),
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=15,
)


@settings(max_examples=70, deadline=None)
@given(anything, st.sampled_from((None, WORDS)))
def test_any_json_gives_a_state_or_a_persona_error(value, counter):
    base = json.loads(to_json(FULL))
    for data in (value, {**base, **value} if isinstance(value, dict) else value):
        try:
            state = from_dict(data, counter)
        except PersonaError:
            continue
        assert state == FULL or is_bounded(state, WORDS)


def test_a_rule_added_by_hand():
    page = PAGE.replace("## Decision rules\n", "## Decision rules\n\n- if about the economy  → business\n")
    assert "give a counter" in refused(from_markdown, page)
    state = from_markdown(page, WORDS)
    assert state.decision_rules == (Rule("about the economy", "business"), *FULL.decision_rules)
    assert state.tokens == FULL.tokens + 7


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("- if about films -> films", Rule("about films", "films")),
        ("- about films → films", Rule("about films", "films")),
        ("   - if about films → films   ", Rule("about films", "films")),
        ("- if a \\→ b → films", Rule("a → b", "films")),
        ("- if a -> b -> films", Rule("a -> b", "films")),
        ("- if a -> b → films", Rule("a -> b", "films")),
        ('- if about films → films <!-- {"pass": 3} -->', Rule("about films", "films", 3)),
    ],
)
def test_forms_of_a_line_by_hand(line, rule):
    assert from_markdown(PAGE + line + "\n", WORDS).decision_rules[-1] == rule


def test_a_rule_removed_and_a_summary_over_two_lines():
    page = "\n".join(line for line in PAGE.split("\n") if "about money" not in line)
    assert from_markdown(page, WORDS).decision_rules == FULL.decision_rules[1:]
    page = PAGE.replace("Prefer plain facts.", "Prefer plain facts.\n\nAnd short   words. ")
    assert from_markdown(page, WORDS).preference_summary == "Prefer plain facts. And short words."
    page = PAGE.replace("Prefer plain facts.\n", "")
    assert from_markdown(page, WORDS).preference_summary == ""


def test_a_page_edited_over_a_cap_is_refused():
    assert "preference_summary is 78 tokens; its cap is 70" in refused(
        from_markdown, PAGE.replace("plain facts.", "plain facts. " + "w " * 72), WORDS
    )
    rule = "- if this → that\n"
    assert "decision_rules has 8 entries; its cap is 6" in refused(from_markdown, PAGE + rule * 6, WORDS)
    assert "its cap is 12" in refused(from_markdown, PAGE + "- if " + "w " * 12 + "→ that\n", WORDS)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("## Exemplars", "## Examples", "line 10: no section 'Examples'; sections are Preference summary, Exempl"),
        ("- A match report", "* A match report", "line 12: expected `- … → label`"),
        ("→ sports <!--", "sports <!--", "line 12: expected `- … → label`"),
        ("about money →", "about money → more →", "line 17: expected `- … → label` (another arrow in it is wri"),
        ('{"items": [], "pass": 0}', '{"items": [}', "line 18: the note is not JSON (Expecting value)"),
        ('<!-- {"clipped": false, "item": "i1", "pass": 1} -->', "", "line 12: an exemplar is a real item"),
        ('"item": "i1", ', "", "line 12: an exemplar is a real item; keep its `<!-- {…} -->` note"),
        ('"version": 1', '"version": ', "line 3: the note is not JSON"),
        ("<!-- personalink {", "<!-- person {", "no `<!-- personalink {…} -->` line"),
        ('"item": "i2"', '"item": "i1"', "exemplars must be distinct items"),
        ('"pass": 2}', '"pass": "two"}', "depth is 'two'"),
        ('"items": ["i1", "i3"]', '"items": 5', "item_ids is 5, not a list"),
        ('"caps": {', '"caps": {"colour": 1, ', "unexpected keyword argument 'colour'"),
    ],
)  # fmt: skip
def test_a_broken_page_tells_its_line(old, new, told):
    assert old in PAGE
    assert told in refused(from_markdown, PAGE.replace(old, new, 1), WORDS)


@settings(max_examples=70, deadline=None)
@given(st.lists(st.one_of(texts, st.sampled_from(PAGE.split("\n"))), max_size=12), st.sampled_from((None, WORDS)))
def test_any_page_gives_a_state_or_a_persona_error(rows, counter):
    for page in ("\n".join(rows), PAGE + "\n".join(rows)):
        try:
            state = from_markdown(page, counter)
        except PersonaError:
            continue
        assert is_bounded(state, WORDS)


@settings(max_examples=70, deadline=None)
@given(st.lists(st.tuples(full_lines, labels), max_size=3), lines)
def test_what_is_typed_by_hand_with_escapes_is_read_as_meant(pairs, summary):
    """A page whose notes were all taken off still reads the same texts."""
    state = PersonaState(summary, (), tuple(Rule(*pair) for pair in pairs), Caps(*[10**6] * 6), counter=WORDS)
    page = "\n".join(
        row.rsplit(" <!-- ", 1)[0] if row.startswith("- if ") else row for row in to_markdown(state).split("\n")
    )
    assert from_markdown(page, WORDS) == state


def test_diff_tells_each_field():
    new = FULL.edit(
        WORDS,
        preference_summary="Prefer plain short facts.",
        exemplars=FULL.exemplars[:1],
        decision_rules=(*FULL.decision_rules[:1], Rule("about art", "culture")),
    )
    change = diff(FULL, new)
    assert change
    assert change.as_text() == (
        "preference_summary\n"
        "  Prefer plain {+short+} facts.\n"
        "exemplars\n"
        "  − A budget vote -> politics\n"
        "decision_rules\n"
        "  − if about a match -> sports\n"
        "  + if about art -> culture"
    )
    back = diff(new, FULL)
    assert (back.rules_added, back.rules_removed) == (change.rules_removed, change.rules_added)
    assert (back.exemplars_added, back.exemplars_removed) == (change.exemplars_removed, change.exemplars_added)


def test_diff_tells_order_and_number_but_not_provenance():
    moved = FULL.edit(WORDS, decision_rules=FULL.decision_rules[::-1])
    assert diff(FULL, moved).as_text() == "decision_rules\n  (the same, in another order)"
    twice = FULL.edit(WORDS, decision_rules=FULL.decision_rules + FULL.decision_rules[:1])
    assert diff(FULL, twice).as_text() == "decision_rules\n  + if about money -> business"
    same = FULL.edit(WORDS, decision_rules=tuple(replace(r, depth=8, item_ids=()) for r in FULL.decision_rules))
    assert not diff(FULL, same)
    assert diff(FULL, same).as_text() == "no change"
    assert diff(FULL, FULL.edit(Characters(), caps=Caps(*[999] * 6))).as_text() == "no change"


@settings(max_examples=50, deadline=None)
@given(states(st.just(WORDS)), states(st.just(WORDS)))
def test_diff_is_empty_exactly_when_both_render_alike(one, other):
    assert bool(diff(one[0], other[0])) == (one[0].render() != other[0].render())
    assert not diff(one[0], one[0])


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        ("", "", ""),
        ("a b", "a b", "a b"),
        ("", "a b", "{+a b+}"),
        ("a b", "", "[-a b-]"),
        ("a b c d", "a x d e", "a [-b c-] {+x+} d {+e+}"),
        ("b", "a b", "{+a+} b"),
    ],
)
def test_word_diff(old, new, shown):
    assert word_diff(old, new) == shown

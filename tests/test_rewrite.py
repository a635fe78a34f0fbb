"""Rewrites read strictly: whatever a model writes gives a proposal, never a crash and never half a persona."""

import json

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from personalink.brief import Brief, Mistake
from personalink.data.types import Item
from personalink.errors import PersonaError
from personalink.lm.base import Completion
from personalink.persona import Caps, Exemplar, PersonaState, Rule
from personalink.rewrite import JsonRewriter, Proposal, Rewriter, quotes_slice, read_object
from personalink.tasks import task
from tests.strategies import Words, caps, counters, is_bounded, texts

WORDS = Words()
NEWS, RATINGS = task("lamp2"), task("lamp3")
ITEMS = tuple(Item(f"i{n}", f"past text number {n}", NEWS.labels[n]) for n in range(3))
BRIEF = Brief(PersonaState.empty(WORDS), ITEMS, (), 0, None, 1)
GOOD = {
    "preference_summary": "Prefer plain facts.",
    "decision_rules": [{"if": "about money", "then": "business"}],
    "exemplars": ["e1", "e3"],
}
TEXT = json.dumps(GOOD)
MADE = PersonaState(
    "Prefer plain facts.",
    (Exemplar("i0", ITEMS[0].input, ITEMS[0].label, 1), Exemplar("i2", ITEMS[2].input, ITEMS[2].label, 1)),
    (Rule("about money", "business", 1),),
    counter=WORDS,
)


def rewriter(which=NEWS, bounds=None, counter=WORDS) -> JsonRewriter:
    return JsonRewriter(which, bounds or Caps(), counter)


def read(text: str, brief: Brief = BRIEF, outcome: str = "ok", constrained: str = "", **kwargs) -> Proposal:
    return rewriter(**kwargs).read(Completion(text, outcome, constrained=constrained), brief)


def reply(**changes) -> str:
    return json.dumps({**GOOD, **changes})


GOOD_REPLIES = {
    "bare": TEXT,
    "indented": json.dumps(GOOD, indent=4),
    "fenced": f"```json\n{TEXT}\n```",
    "fenced with words": f"Here is the profile:\n\n```\n{TEXT}\n```\nI hope this helps! {{really}}",
    "trailing prose": TEXT + "\n\nI kept the old rules {as asked}.",
    "after thinking": f"<think>first {{half\n</think>\n{TEXT}",
    "thinking opened in the prompt": f"the user wants {{x}}\n</think>{TEXT}",
    "two thousand spaces": "{" + " " * 2000 + TEXT[1:],
    "white space around": f"\n\n \t{TEXT} \n",
    "another key": reply(reasoning="none"),
    "handles in brackets": reply(exemplars=["[e1]", " e3 "]),
    "an if in the condition": reply(decision_rules=[{"if": "If: about money", "then": "Business."}]),
    "a handle twice": reply(exemplars=["e1", "e3", "e1"]),
    "unclean lines": reply(preference_summary=" Prefer\n plain\u2028facts.\x00 "),
    "a second object": TEXT + TEXT,
}


@pytest.mark.parametrize("name", GOOD_REPLIES)
def test_replies_that_hold_a_persona(name):
    assert read(GOOD_REPLIES[name]) == Proposal(MADE)


USELESS = {
    "empty": ("", "holds no JSON object"),
    "nothing to change": ("Nothing to change.", "holds no JSON object"),
    "null": ("null", "holds no JSON object"),
    "a number": ("3", "holds no JSON object"),
    "a string": ('"Prefer plain facts."', "holds no JSON object"),
    "an empty object": ("{}", "lacks preference_summary"),
    "an empty list": ("[]", "holds no JSON object"),
    "a list at the top": (f"[{TEXT}]", "is a list"),
    "a fenced list": (f"```json\n[\n{TEXT},{TEXT}]\n```", "is a list"),
    "half": (TEXT[: len(TEXT) // 2], "not whole JSON"),
    "all but the last brace": (TEXT[:-1], "not whole JSON"),
    "a trailing comma": (TEXT[:-1] + ",}", "not whole JSON"),
    "a fenced trailing comma": (f"```json\n{TEXT[:-1]},\n}}\n```", "not whole JSON"),
    "a comma in the list": (TEXT.replace('"e3"]', '"e3",]'), "not whole JSON"),
    "single quotes": (TEXT.replace('"', "'"), "not whole JSON"),
    "comments": (TEXT.replace("{", "{ // profile\n", 1), "not whole JSON"),
    "a bad escape": (TEXT.replace("plain", "pl\\u00zin"), "not whole JSON"),
    "another bad escape": (TEXT.replace("plain", "pl\\xain"), "not whole JSON"),
    "a raw line end": (TEXT.replace("plain ", "plain\n"), "not whole JSON"),
    "unfinished thinking": (f"<think>I will write {TEXT}", "holds no JSON object"),
    "thinking only": ("<think>hm</think>", "holds no JSON object"),
    "a schema instead": ('{"type": "object", "properties": {}}', "lacks preference_summary"),
    "nested in another": (json.dumps({"profile": GOOD}), "lacks preference_summary"),
    "no rules": (json.dumps({k: v for k, v in GOOD.items() if k != "decision_rules"}), "lacks decision_rules"),
    "no exemplars": (json.dumps({k: v for k, v in GOOD.items() if k != "exemplars"}), "lacks exemplars"),
    "a null summary": (reply(preference_summary=None), "preference_summary is not text"),
    "a list for a summary": (reply(preference_summary=["a"]), "preference_summary is not text"),
    "rules as text": (reply(decision_rules="if a then b"), "decision_rules is not a list"),
    "rules as texts": (reply(decision_rules=["if a -> b"]), "decision_rules is not a list"),
    "rules as an object": (reply(decision_rules={"if": "a", "then": "b"}), "decision_rules is not a list"),
    "null rules": (reply(decision_rules=None), "decision_rules is not a list"),
    "a rule without then": (reply(decision_rules=[{"if": "a"}]), "decision_rules is not a list"),
    "a rule with a null label": (reply(decision_rules=[{"if": "a", "then": None}]), "decision_rules is not a list"),
    "a rule with a list": (reply(decision_rules=[{"if": "a", "then": ["business"]}]), "decision_rules is not a list"),
    "exemplars as numbers": (reply(exemplars=[1, 2]), "exemplars is not a list of handles"),
    "exemplars as objects": (reply(exemplars=[{"id": "e1"}]), "exemplars is not a list of handles"),
    "exemplars as text": (reply(exemplars="e1"), "exemplars is not a list of handles"),
    "forty kilobytes": (reply(preference_summary="Prefer it. " * 3700), "characters"),
    "nested ten thousand deep": ('{"a":' * 10_000 + "1" + "}" * 10_000, "characters"),
    "nested three thousand deep": ('{"a":' * 3_000, "not whole JSON"),
    "lists ten thousand deep": ('{"a":' + "[" * 10_000, "not whole JSON"),
    "a number of five thousand digits": ('{"a":' + "1" * 5000 + "}", "not whole JSON"),
    "a key twice": (TEXT[:-1] + ', "exemplars": []}', "names a key twice"),
    "a key twice in a rule": (TEXT.replace('"then"', '"if": "x", "then"'), "names a key twice"),
    "all empty": (reply(preference_summary=" ", decision_rules=[], exemplars=[]), "nothing usable"),
    "all unknown": (
        reply(preference_summary="", decision_rules=[{"if": "a", "then": "banana"}], exemplars=["e9"]),
        "nothing usable",
    ),
    "a summary over its cap": (reply(preference_summary="w " * 90), "does not fit 70 tokens"),
    "a brace in prose first": ("{as asked} " + TEXT, "not whole JSON"),
    "html": ("<html><body>502 Bad Gateway</body></html>", "holds no JSON object"),
    "NaN": (reply(preference_summary=float("nan")), "preference_summary is not text"),
}


@pytest.mark.parametrize("name", USELESS)
@pytest.mark.parametrize("constrained", ["", "grammar"])
def test_replies_that_hold_none(name, constrained):
    text, told = USELESS[name]
    proposal = read(text, constrained=constrained)
    assert proposal.persona is None
    assert told in proposal.reason
    assert len(proposal.reason.splitlines()) == 1
    assert len(proposal.reason) < 200


@pytest.mark.parametrize("outcome", ["empty", "truncated", "refused"])
def test_an_outcome_other_than_ok_is_never_read(outcome):
    assert read(TEXT, outcome=outcome) == Proposal(None, f"the reply was {outcome}")


def test_what_is_dropped_is_told():
    proposal = read(
        reply(
            decision_rules=[
                {"if": "about money", "then": "business"},
                {"if": "about fruit", "then": "banana"},
                {"if": "about war", "then": "not politics"},
                {"if": "about war", "then": "politics or crime"},
                {"if": "about a number", "then": 3},
                {"if": "about truth", "then": True},
                {"if": "About money", "then": "Business"},
                {"if": "", "then": "business"},
            ],
            exemplars=["e1", "e7", "the first", "e3"],
        )
    )
    assert proposal.persona == MADE
    assert proposal.notes == (
        "exemplar 'e7' dropped: it is none of the choices shown",
        "exemplar 'the first' dropped: it is none of the choices shown",
        "rule 'about fruit' dropped: 'banana' is no label",
        "rule 'about war' dropped: 'not politics' is no label",
        "rule 'about war' dropped: 'politics or crime' is no label",
        "rule 'about a number' dropped: '3' is no label",
        "rule 'about truth' dropped: 'True' is no label",
        "rule 2 dropped: it stands twice",
        "rule 3 dropped: it has no condition or no label",
    )


@pytest.mark.parametrize(
    ("then", "label"),
    [
        (4, "4"),
        (4.0, "4"),
        ("4", "4"),
        ("4 stars", "4"),
        (4.5, "4.5"),
        ("4.5", "4.5"),
        ("banana", None),
        ("9", None),
        ("0", None),
        ("3 or 4", None),
        (float("nan"), None),
        (True, None),
        (10**300, None),
    ],
)
def test_rules_of_ratings_name_a_rating(then, label):
    proposal = read(reply(decision_rules=[{"if": "gripping", "then": then}]), which=RATINGS)
    assert [rule.label for rule in proposal.persona.decision_rules] == ([label] if label else [])
    assert bool(proposal.notes) == (label is None)


def test_a_long_summary_loses_whole_sentences():
    proposal = read(reply(preference_summary="Prefer plain short facts. " * 30))
    assert proposal.persona.preference_summary == ("Prefer plain short facts. " * 16).strip()
    assert set(proposal.notes) == {"a sentence of the summary dropped: it is over 70 tokens"}


def test_what_fills_the_schemas_limit_may_be_cut_off_and_is_dropped():
    cut = ("Prefer it. " + "W" * 500)[: 70 * 6]
    proposal = read(reply(preference_summary=cut), constrained="grammar")
    assert proposal.persona.preference_summary == "Prefer it."
    assert read(reply(preference_summary=cut)).persona.preference_summary == cut
    assert read(reply(preference_summary="W" * 420), constrained="grammar").persona is None
    long_rule = [{"if": "w" * 72, "then": "business"}, GOOD["decision_rules"][0]]
    proposal = read(reply(decision_rules=long_rule), constrained="grammar")
    assert proposal.persona == MADE
    assert "may be cut off" in proposal.notes[0]
    assert len(read(reply(decision_rules=long_rule)).persona.decision_rules) == 2
    empty = read(reply(preference_summary=""), constrained="grammar", bounds=Caps(summary=0))
    assert empty.persona.preference_summary == ""


def test_provenance_is_kept_from_the_incumbent_and_drawn_from_what_was_shown():
    incumbent = MADE.edit(
        WORDS, decision_rules=(Rule("about money", "business", 1, ("i8",)),), exemplars=(MADE.exemplars[0],)
    )
    shown = (*ITEMS, Item("i5", "a", "business"), Item("i6", "b", "sports"))
    brief = Brief(incumbent, shown, (Mistake(Item("m", "c", "business"), "sports"),), 0, None, 4)
    rules = [*GOOD["decision_rules"], {"if": "about trade", "then": "business"}]
    persona = read(reply(decision_rules=rules), brief).persona
    assert persona.decision_rules == (
        Rule("about money", "business", 1, ("i8",)),
        Rule("about trade", "business", 4, ("m", "i5")),
    )
    assert [(e.item_id, e.depth) for e in persona.exemplars] == [("i0", 1), ("i2", 4)]


@settings(max_examples=100, deadline=None)
@given(
    st.one_of(
        texts,
        st.tuples(texts, st.just(TEXT), texts).map("".join),
        st.integers(0, len(TEXT)).map(lambda n: TEXT[:n]),
    ),
    caps,
    counters,
)
def test_any_text_gives_a_proposal(text, bounds, counter):
    proposal = read(text, bounds=bounds, counter=counter)
    assert proposal.persona is None or is_bounded(proposal.persona, counter)
    assert bool(proposal.reason) == (proposal.persona is None)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(("if", "then", "x")), inner),
    max_leaves=8,
)
rule_lists = st.lists(
    st.fixed_dictionaries({"if": texts, "then": st.one_of(texts, st.sampled_from(NEWS.labels), st.integers())}),
    max_size=9,
)


@settings(max_examples=100, deadline=None)
@given(
    st.fixed_dictionaries(
        {
            "preference_summary": st.one_of(texts, values),
            "decision_rules": st.one_of(rule_lists, values),
            "exemplars": st.one_of(st.lists(st.sampled_from(("e1", "e2", "e3", "e4", "[e1]"))), values),
        }
    ),
    caps,
    counters,
    st.sampled_from((NEWS, RATINGS)),
    st.sampled_from(("", "grammar")),
)
def test_any_fields_give_a_proposal_within_its_caps(fields, bounds, counter, which, constrained):
    proposal = read(json.dumps(fields), which=which, bounds=bounds, counter=counter, constrained=constrained)
    assert proposal.persona is None or is_bounded(proposal.persona, counter)
    assert bool(proposal.reason) == (proposal.persona is None)
    for exemplar in proposal.persona.exemplars if proposal.persona else ():
        item = next(item for item in ITEMS if item.id == exemplar.item_id)
        assert exemplar.label == item.label
        assert exemplar.input == item.input or exemplar.clipped


def test_the_schema_takes_what_read_takes():
    schema = rewriter().schema(BRIEF)
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    validator.validate(GOOD)
    validator.validate({**GOOD, "decision_rules": [], "exemplars": [], "preference_summary": ""})
    for bad in (
        {},
        {**GOOD, "more": 1},
        {**GOOD, "exemplars": ["e4"]},
        {**GOOD, "decision_rules": [{"if": "a", "then": "banana"}]},
        {**GOOD, "decision_rules": [{"if": "a"}]},
        {**GOOD, "decision_rules": GOOD["decision_rules"] * 7},
        {**GOOD, "preference_summary": "w" * 421},
        {**GOOD, "preference_summary": None},
    ):
        with pytest.raises(jsonschema.ValidationError):
            validator.validate(bad)


@settings(max_examples=100, deadline=None)
@given(
    st.fixed_dictionaries(
        {
            "preference_summary": st.text("ab .", max_size=400),
            "decision_rules": st.lists(
                st.fixed_dictionaries({"if": st.text("ab ", max_size=70), "then": st.sampled_from(NEWS.labels)}),
                max_size=6,
            ),
            "exemplars": st.lists(st.sampled_from(("e1", "e2", "e3")), max_size=6),
        }
    )
)
def test_what_the_schema_takes_is_read_or_refused_for_its_size(fields):
    jsonschema.validate(fields, rewriter().schema(BRIEF))
    proposal = read(json.dumps(fields), constrained="grammar")
    assert proposal.persona is not None or "fit" in proposal.reason or "nothing usable" in proposal.reason


def test_the_schema_without_choices_or_with_no_room():
    schema = rewriter(bounds=Caps(0, 0, 0, 0, 0, 0)).schema(Brief(BRIEF.incumbent, (), (), 0, None, 1))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate({"preference_summary": "", "decision_rules": [], "exemplars": []}, schema)
    proposal = read(reply(exemplars=["none"]), Brief(BRIEF.incumbent, (), (), 0, None, 1))
    assert proposal.persona.exemplars == ()


def test_the_request_is_greedy_and_drawn_anew_only_when_it_is_hot():
    one = rewriter().request(BRIEF)
    assert (one.sample, one.decoding.temperature, one.decoding.max_tokens) == (0, 0.0, 512)
    assert [m.role for m in one.messages] == ["system", "user"]
    assert one == rewriter().request(BRIEF)
    assert one.constraint.schema == rewriter().schema(BRIEF)
    hot = JsonRewriter(NEWS, Caps(), WORDS, temperature=0.7, constrain=False)
    assert hot.request(BRIEF).sample == 1
    assert hot.request(BRIEF).constraint is None
    kept: Rewriter = hot
    assert kept is hot


def test_read_object_alone():
    assert read_object('x {"a": {"b": 1}} y') == {"a": {"b": 1}}
    with pytest.raises(PersonaError, match="the reply has 20001 characters"):
        read_object("{" + " " * 20_000)


HELD = (Item("s", "One two three four five six seven eight nine ten", "sports"),)


def persona(summary: str = "", condition: str = "x") -> PersonaState:
    return PersonaState(
        summary,
        (Exemplar("i", HELD[0].input, "sports"),),
        (Rule(condition, "sports"),),
        Caps(*[999] * 6),
        counter=WORDS,
    )


@pytest.mark.parametrize(
    ("summary", "condition", "quoted"),
    [
        ("one two three four five six seven", "x", None),
        ("two three four five six seven eight", "x", None),
        ("one two three four five six seven eight", "x", "one two three four five six seven eight"),
        ("Say: ONE, two; three — four. Five six seven (eight)", "x", "one two three four five six seven eight"),
        ("", "about three four five six seven eight nine ten", "three four five six seven eight nine ten"),
        ("one two three four", "five six seven eight nine ten", None),
        ("one two three four five six seven and eight nine ten", "x", None),
        ("", "", None),
    ],
)
def test_eight_words_of_a_slice_item_are_a_quote_and_seven_are_not(summary, condition, quoted):
    assert quotes_slice(persona(summary, condition or "x"), HELD, (), 8) == quoted


def test_words_that_also_stand_elsewhere_are_no_quote():
    said = persona("one two three four five six seven eight nine")
    other = Item("o", "so: one two three four five six seven eight!", "sports")
    assert quotes_slice(said, HELD, (), 8) == "one two three four five six seven eight"
    assert quotes_slice(said, HELD, (other,), 8) == "two three four five six seven eight nine"
    assert quotes_slice(persona("one two three four five six seven eight"), HELD, (other,), 8) is None
    assert quotes_slice(said, (), (), 8) is None


def test_exemplars_are_not_looked_at():
    assert quotes_slice(persona(), HELD, (), 8) is None


def test_a_reply_counts_as_constrained_only_where_it_keeps_to_the_schema():
    assert read(reply(), constrained="response_format").constrained == "response_format"
    assert read("Here: " + reply(), constrained="response_format").constrained == ""
    assert read(reply()).constrained == ""


@pytest.mark.parametrize("name", ["lamp1", "lamp4"])
def test_advice_may_be_any_words_within_the_cap(name):
    one = rewriter(task(name), Caps(rule=12))
    then = one.schema(BRIEF)["properties"]["decision_rules"]["items"]["properties"]["then"]
    assert then == {"type": "string", "maxLength": 12 * 6}
    rules = [
        {"if": "a list", "then": "begin with a number"},
        {"if": "x", "then": "too long " * 9},
        {"if": "y", "then": " "},
    ]
    made = one.read(Completion(reply(decision_rules=rules), "ok"), BRIEF)
    assert [rule.render() for rule in made.persona.decision_rules] == ["- if a list -> begin with a number"]


def test_a_label_of_the_slice_in_a_rules_advice_is_a_quote():
    held = [Item("h", "x", "one two three four five")]
    copied = persona("", "y")
    advice = PersonaState(
        "", (), (Rule("y", "say one two three four five now"),), caps=Caps(rule=40, total=99), counter=WORDS
    )
    assert quotes_slice(copied, held, [], 5) is None
    assert quotes_slice(advice, held, [], 5) == "one two three four five"
    assert quotes_slice(advice, held, [Item("o", "z", "One two three four five")], 5) is None

"""Constraints in the servers' words, GBNF escaping read back by an independent reader, and the check of answers."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from personalink.lm import Constraint, Decoding, Message, Request, hashed_answers
from personalink.lm.constraints import choice_grammar, satisfies, translate

SCHEMA = {
    "type": "object",
    "properties": {
        "label": {"type": "string", "enum": ["yes", "no"]},
        "rules": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        "score": {"type": "integer"},
    },
    "required": ["label", "rules"],
    "additionalProperties": False,
}


def literals(grammar: str) -> list[str]:
    """The texts that a grammar of alternative literals allows, read as llama.cpp's grammar notation says."""
    assert grammar.startswith("root ::= ")
    rest, found = grammar.removeprefix("root ::= "), []
    while rest:
        match = re.match(r'"((?:[^"\\]|\\.)*)"(?: \| )?', rest)
        assert match, rest
        found.append(re.sub(r"\\(x..|u....|U........|.)", _unescape, match.group(1), flags=re.DOTALL))
        rest = rest[match.end() :]
    return found


def _unescape(match: re.Match[str]) -> str:
    code = match.group(1)
    if code[0] in "xuU" and len(code) > 1:
        return chr(int(code[1:], 16))
    return {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "[": "[", "]": "]"}[code]


@given(st.lists(st.text(), min_size=1, max_size=5))
def test_a_grammar_holds_exactly_the_choices(choices: list[str]) -> None:
    grammar = choice_grammar(tuple(choices))
    assert literals(grammar) == choices
    assert grammar.isascii()
    assert grammar.isprintable()


def test_each_dialect_has_its_own_words() -> None:
    choice, schema = Constraint(choices=("a", "b")), Constraint(schema=SCHEMA)
    assert translate(choice, "vllm") == ({"structured_outputs": {"choice": ["a", "b"]}}, "structured_outputs")
    assert translate(choice, "llama_cpp") == ({"grammar": 'root ::= "a" | "b"'}, "grammar")
    assert translate(choice, "openai") == ({}, "")
    for dialect in ("vllm", "llama_cpp", "openai"):
        fields, name = translate(schema, dialect)
        assert name == "response_format"
        assert fields["response_format"]["type"] == "json_schema"
        assert fields["response_format"]["json_schema"]["schema"] == SCHEMA
        assert fields["response_format"]["json_schema"]["strict"] is False
        assert "guided" not in json.dumps(fields)


def test_choices_are_compared_without_white_space_around() -> None:
    constraint = Constraint(choices=("yes", "no "))
    assert satisfies(constraint, " yes\n")
    assert satisfies(constraint, "no")
    assert not satisfies(constraint, "Yes")
    assert not satisfies(constraint, "yes no")
    assert not satisfies(constraint, "")


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        ({"label": "yes", "rules": []}, True),
        ({"label": "yes", "rules": ["a", "b"], "score": 3}, True),
        ({"label": "maybe", "rules": []}, False),
        ({"label": "yes"}, False),
        ({"label": "yes", "rules": ["a", "b", "c"]}, False),
        ({"label": "yes", "rules": [1]}, False),
        ({"label": "yes", "rules": "a"}, False),
        ({"label": "yes", "rules": [], "score": "3"}, False),
        ({"label": "yes", "rules": [], "score": True}, False),
        ({"label": "yes", "rules": [], "more": 1}, False),
        (["yes"], False),
        (None, False),
    ],
)
def test_schemas_are_checked(value: object, fits: bool) -> None:
    assert satisfies(Constraint(schema=SCHEMA), json.dumps(value)) is fits


@pytest.mark.parametrize("text", ["", "{", "prose", "[" * 100_000, '{"label": "yes", "rules": []} and more'])
def test_what_is_no_json_does_not_fit(text: str) -> None:
    assert not satisfies(Constraint(schema=SCHEMA), text)


@given(st.text())
def test_checking_never_raises(text: str) -> None:
    assert satisfies(Constraint(choices=("a",)), text) == (text.strip() == "a")
    satisfies(Constraint(schema=SCHEMA), text)


@given(st.text(alphabet=st.characters(codec="utf-8")), st.integers(0, 3))
def test_hashed_answers_fit_their_constraint(text: str, sample: int) -> None:
    script = hashed_answers(["x"])
    for constraint in (Constraint(schema=SCHEMA), Constraint(choices=("yes", "no"))):
        request = Request((Message("user", text),), Decoding(max_tokens=9), constraint, sample)
        answer = script(request)
        assert isinstance(answer, str)
        assert satisfies(constraint, answer)
        assert script(request) == answer


def test_the_length_of_a_text_is_checked() -> None:
    short = Constraint(schema={"type": "string", "maxLength": 3})
    assert [satisfies(short, text) for text in ('"abc"', '"abcd"')] == [True, False]

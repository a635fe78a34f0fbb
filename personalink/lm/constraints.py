"""A constraint in a server's own words, and the check of the answer that no server can be trusted to have made.

Knows the three dialects and the small part of JSON Schema that personalink uses (`object`, `array`, `string`,
`integer`, `number`, `boolean`, `enum`, `maxItems`, `maxLength`, `required`, `additionalProperties: false`). Knows no
transport.

Servers answer 200 and ignore constraint fields that they do not know, so `satisfies` has the last word.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from personalink.lm.base import Constraint


def translate(constraint: Constraint, dialect: str) -> tuple[dict[str, Any], str]:
    """(body fields, what constrains the answer) for `dialect`: "vllm", "llama_cpp" or "openai".

    The second is "structured_outputs", "grammar", "response_format", or "" with no fields where the dialect has
    nothing for this constraint (choices on a plain OpenAI endpoint: the answer is then free, and checked).
    """
    if constraint.schema is not None:
        schema = {"name": "answer", "schema": dict(constraint.schema), "strict": False}
        return {"response_format": {"type": "json_schema", "json_schema": schema}}, "response_format"
    if dialect == "vllm":
        return {"structured_outputs": {"choice": list(constraint.choices)}}, "structured_outputs"
    if dialect == "llama_cpp":
        return {"grammar": choice_grammar(constraint.choices)}, "grammar"
    return {}, ""


def choice_grammar(choices: tuple[str, ...]) -> str:
    """A GBNF grammar (llama.cpp) whose only sentences are `choices`; plain ASCII whatever they hold."""
    return "root ::= " + " | ".join(f'"{"".join(map(_escaped, choice))}"' for choice in choices)


def _escaped(ch: str) -> str:
    code = ord(ch)
    if ch in '"\\':
        return "\\" + ch
    if 0x20 <= code < 0x7F:
        return ch
    if code < 0x80:
        return f"\\x{code:02X}"
    return f"\\u{code:04X}" if code <= 0xFFFF else f"\\U{code:08X}"


def satisfies(constraint: Constraint, text: str) -> bool:
    """Whether `text` is what the constraint asks for; white space around it does not count."""
    if constraint.schema is None:
        return text.strip() in {choice.strip() for choice in constraint.choices}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return _fits(value, constraint.schema)


def _fits(value: Any, schema: Mapping[str, Any]) -> bool:
    if "enum" in schema and value not in schema["enum"]:
        return False
    match schema.get("type"):
        case "object":
            return isinstance(value, dict) and _fits_object(value, schema)
        case "array":
            items: Mapping[str, Any] = schema.get("items", {})
            most = schema.get("maxItems", float("inf"))
            return isinstance(value, list) and len(value) <= most and all(_fits(v, items) for v in value)
        case "string":
            return isinstance(value, str) and len(value) <= schema.get("maxLength", len(value))
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
    return True


def _fits_object(value: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
    known: Mapping[str, Any] = schema.get("properties", {})
    if any(name not in value for name in schema.get("required", ())):
        return False
    if schema.get("additionalProperties") is False and any(name not in known for name in value):
        return False
    return all(_fits(value[name], sub) for name, sub in known.items() if name in value)

"""A persona's place in a DSPy prompt, and a parser that reads labels as personalink does.

The user's own adapter with two things changed: the persona stands after the instructions, as one block whose tokens
are what the caps count, and answers are read with `spaces`. DSPy's hidden second call after an unreadable answer is
off. An empty persona changes no byte. It is set for one call (`dspy.context`), so threads never see each other's.
"""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Hashable, Mapping
from typing import Any

import dspy
from dspy.adapters.utils import parse_value
from dspy.utils.exceptions import AdapterParseError

from personalink.dspy.engine import allowing
from personalink.dspy.spaces import Space, space_of
from personalink.errors import PersonaError
from personalink.rewrite import read_object

_HEADER = re.compile(r"\[\[ ## (\w+) ## \]\]")


class _Placing:
    """Mixed into the class of the user's adapter, so that it stays what it was to DSPy (streaming knows it by name).

    Attributes:
        context: the text that stands after the instructions; "" for none.
        given: spaces of output fields by name, beside those that types tell.
        constrain: ask our engines to allow readable answers only.
    """

    context = ""
    given: Mapping[str, Space] = {}
    constrain = False

    def format(self, signature: Any, demos: Any, inputs: Any) -> Any:
        """The base's messages for the signature with the persona after its instructions."""
        return super().format(placed(signature, self.context), demos, inputs)  # type: ignore[misc]

    def parse(self, signature: Any, completion: Any) -> dict[str, Any]:
        """The base's fields, labels read; where the base cannot read it, ours, and else the base's error."""
        try:
            fields = super().parse(signature, completion)  # type: ignore[misc]
        except AdapterParseError:
            found = self._read(signature, completion)
            if found is None:
                raise
            return found
        return {name: self._label(signature, name, value) for name, value in fields.items()}

    def __call__(self, lm: Any, lm_kwargs: Any, signature: Any, demos: Any, inputs: Any) -> Any:
        with allowing(self.choices(signature)):
            return super().__call__(lm, lm_kwargs, signature, demos, inputs)  # type: ignore[misc]

    async def acall(self, lm: Any, lm_kwargs: Any, signature: Any, demos: Any, inputs: Any) -> Any:
        """`__call__`, async."""
        with allowing(self.choices(signature)):
            return await super().acall(lm, lm_kwargs, signature, demos, inputs)  # type: ignore[misc]

    def choices(self, signature: Any) -> tuple[str, ...]:
        """Every whole answer that a signature allows, where one closed field is all it has; none for no constraint."""
        names = list(signature.output_fields)
        space = self.space(signature, names[0]) if self.constrain and len(names) == 1 else None
        if space is None or not isinstance(self, dspy.ChatAdapter):
            return ()
        if is_default(self):
            return _default_answers(signature, names[0], space.values)
        return _answers(self, signature, names[0], space.values)

    def format_system_message(self, signature: Any) -> str:
        """The base's; DSPy's default words the same signature the same way each time."""
        return _default_system(signature) if is_default(self) else super().format_system_message(signature)  # type: ignore[misc]

    def space(self, signature: Any, name: str) -> Space | None:
        """The space of an output field: as given, else by its type; None for an open one."""
        return self.given.get(name) or space_of(signature.output_fields[name].annotation)

    def _label(self, signature: Any, name: str, value: Any) -> Any:
        """A parsed value, or the label that it names ("Politics." in a text field with given labels)."""
        space = self.space(signature, name) if name in signature.output_fields else None
        read = None if space is None else space.read(value)
        return value if read is None else read

    def _read(self, signature: Any, completion: str) -> dict[str, Any] | None:
        """Every output field, read leniently; None where one is missing or names no value."""
        found = sections(completion, list(signature.output_fields))
        fields: dict[str, Any] = {}
        for name, field in signature.output_fields.items():
            if name not in found:
                return None
            space = self.space(signature, name)
            try:
                value = space.read(found[name]) if space else parse_value(found[name], field.annotation)
            except ValueError:  # pydantic's too
                return None
            if value is None:
                return None
            fields[name] = value
        return fields


@functools.cache
def _kind(base: type) -> type:
    return type(base.__name__, (_Placing, base), {"__doc__": _Placing.__doc__})


def placing(base: Any, context: str, given: Mapping[str, Space], *, constrain: bool) -> Any:
    """The user's adapter (or DSPy's default) with a persona's text in its place; one persona at a time."""
    made = copy.copy(base or dspy.ChatAdapter())
    if not isinstance(made, _Placing):
        kind: Any = type(made)
        made.__class__ = _kind(kind)
    made.context, made.given, made.constrain = context, given, constrain
    if hasattr(made, "use_json_adapter_fallback"):
        made.use_json_adapter_fallback = False
    return made


def is_default(adapter: Any) -> bool:
    """Whether an adapter that `placing` made is DSPy's default but for the persona."""
    return type(adapter).__bases__[-1] is dspy.ChatAdapter


def _answers(adapter: Any, signature: Any, name: str, values: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(adapter.format_assistant_message_content(signature, {name: value}).strip() for value in values)


@functools.lru_cache(maxsize=256)
def _default_answers(signature: Hashable, name: str, values: tuple[Any, ...]) -> tuple[str, ...]:
    return _answers(dspy.ChatAdapter(), signature, name, values)


@functools.lru_cache(maxsize=4096)
def _default_system(signature: Hashable) -> str:
    return str(dspy.ChatAdapter().format_system_message(signature))


@functools.lru_cache(maxsize=4096)
def placed(signature: Hashable, context: str) -> Any:
    """The signature with a text after its instructions; the very same one for an empty text."""
    made: Any = signature
    return made.append_instructions(context) if context else made


def sections(completion: str, names: list[str]) -> dict[str, str]:
    """Field → text of an answer: under DSPy's headers, in a JSON object, or, of an only field, all of it."""
    _, *parts = _HEADER.split(completion)
    found: dict[str, str] = {}
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        found.setdefault(name, body.strip())
    known = {name: text for name, text in found.items() if name in names}
    if known:
        return known
    try:
        return {name: str(value) for name, value in read_object(completion).items() if name in names}
    except PersonaError:
        return {names[0]: _HEADER.sub("", completion).strip()} if len(names) == 1 else {}

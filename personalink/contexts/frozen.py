"""Plain JSON that cannot be changed: products are shared by rows and sealed, so nobody may write into one.

Knows nothing of contexts. Dictionaries and lists stay dictionaries and lists, so they compare, print and go into JSON
as before; `copy.deepcopy` gives back one that can be changed.
"""

from __future__ import annotations

from typing import Any, NoReturn

from personalink.errors import ConfigError


def _refused(self: Any, *_: Any, **__: Any) -> NoReturn:
    msg = "a context changed a product, which other rows share; take a copy first (copy.deepcopy)"
    raise ConfigError(msg)


class FrozenDict(dict[str, Any]):
    """A dictionary that refuses changes with a ConfigError."""

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refused

    def __deepcopy__(self, memo: Any) -> dict[str, Any]:
        return {key: _thawed(value) for key, value in self.items()}


class FrozenList(list[Any]):
    """A list that refuses changes with a ConfigError."""

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refused
    append = extend = insert = pop = remove = clear = sort = reverse = _refused

    def __deepcopy__(self, memo: Any) -> list[Any]:
        return [_thawed(value) for value in self]


def frozen(value: Any) -> Any:
    """`value` with every dictionary and list in it frozen; at once where it is frozen already."""
    if isinstance(value, FrozenDict | FrozenList):
        return value
    if isinstance(value, dict):
        return FrozenDict((key, frozen(inner)) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return FrozenList(frozen(inner) for inner in value)
    return value


def _thawed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _thawed(inner) for key, inner in value.items()}
    return [_thawed(inner) for inner in value] if isinstance(value, list) else value

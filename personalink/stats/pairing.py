"""Two methods' outcomes set side by side, query by query. Knows (user, query) keys and manifests; knows no metric."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from personalink.errors import DataError, IntegrityError

Key = tuple[str, str]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pairs(Generic[T]):
    """What two methods came to on the queries that both answered.

    Attributes:
        keys: (user, query) of each pair: in the manifest's order, or sorted where there is none.
        a, b: the two outcomes of each pair, in that order.
        incomplete: users who lack an answer by one method at least, in the same order; their other queries are paired.
    """

    keys: tuple[Key, ...]
    a: tuple[T, ...]
    b: tuple[T, ...]
    incomplete: tuple[str, ...]

    def by_user(self) -> dict[str, list[tuple[T, T]]]:
        """User → that user's pairs, for a bootstrap over whole users."""
        users: dict[str, list[tuple[T, T]]] = {}
        for (user, _), x, y in zip(self.keys, self.a, self.b, strict=True):
            users.setdefault(user, []).append((x, y))
        return users


def pair(
    a: Mapping[Key, T],
    b: Mapping[Key, T],
    *,
    manifests: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None,
) -> Pairs[T]:
    """Pair two methods on the intersection of what they answered.

    Args:
        a, b: (user, query) → outcome of each method.
        manifests: the sealed manifests of the runs that a and b stand in, when these are two runs or when users whom
            neither method finished are to be listed; the same one twice for one run.

    Raises:
        IntegrityError: the manifests differ (other users, queries, donors or data), or an answer is to none of theirs.
        DataError: no query was answered by both.
    """
    expected = sorted({*a, *b}) if manifests is None else _keys(*manifests)
    if strange := sorted({*a, *b} - set(expected)):
        user, query = strange[0]
        msg = f"user {user!r}, query {query!r} is answered but does not stand in the manifest; it is of another run"
        raise IntegrityError(msg)
    keys = tuple(key for key in expected if key in a and key in b)
    if not keys:
        msg = "the two methods have no query that both answered; there is nothing to pair"
        raise DataError(msg)
    incomplete = dict.fromkeys(user for user, query in expected if (user, query) not in a or (user, query) not in b)
    return Pairs(keys, tuple(a[key] for key in keys), tuple(b[key] for key in keys), tuple(incomplete))


def _keys(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[Key]:
    if differs := sorted(field for field in {*first, *second} if first.get(field) != second.get(field)):
        what = f"the two runs have different manifests (they differ in {', '.join(differs)})"
        msg = f"{what}; only runs with the same users, queries and data can be paired"
        raise IntegrityError(msg)
    try:
        return [(entry["user"], query) for entry in first["entries"] for query in entry["queries"]]
    except (KeyError, TypeError) as error:
        msg = f"the manifest is damaged: {type(error).__name__} {error}"
        raise IntegrityError(msg) from None

"""Which users of a news file are one author: official news files have no user ids, and an author yields many questions.

Two users are siblings when either holds:

1. Their profiles share at least `LEAST_SHARED` articles and those are at least `LEAST_SHARE` of the smaller profile.
   A profile is the author's *other* labelled articles, so two questions of one author share all but one or two;
   half leaves room for profiles that were sampled, and is far above what a co-written piece brings about.
   An article is compared by title and text together, since short texts ("Watch the video.") repeat under many titles.
2. One's profile holds the other's query text. This finds authors of two or three articles, too small for rule 1.
   Questions have no title, so a text that stands under more than `MOST_TITLES` titles is boilerplate and links nobody.
   (A count of *holders* would not tell boilerplate: each article of an author with a hundred questions has a hundred.)

Siblings of siblings are siblings (union-find). Cost is linear in the number of articles held: of an article's holders
only neighbours in id order become candidate pairs, and each candidate is then checked exactly.
Knows texts and ids only; nothing of labels or files.
"""

from __future__ import annotations

from collections.abc import Iterable

LEAST_SHARE = 0.5
LEAST_SHARED = 3
MOST_TITLES = 2


class SiblingIndex:
    """Collects users with their articles and query text, then tells the groups. Texts come normalised."""

    def __init__(self) -> None:
        self._queries: dict[str, str] = {}
        self._profiles: dict[str, frozenset[int]] = {}
        self._numbers: dict[tuple[str, str], int] = {}

    def add(self, user: str, articles: Iterable[tuple[str, str]], query: str) -> None:
        """Add one user: `articles` as (title, text) pairs and the text of the user's query, all normalised."""
        numbers = self._numbers
        self._profiles[user] = frozenset(numbers.setdefault(article, len(numbers)) for article in articles)
        self._queries[user] = query

    def groups(self) -> dict[str, str]:
        """User id → the smallest id of the user's group (numbers as numbers), for users who have a sibling."""
        parent = {user: user for user in sorted(self._profiles, key=_by_size)}

        def root(user: str) -> str:
            while parent[user] != user:
                parent[user] = parent[parent[user]]
                user = parent[user]
            return user

        def join(one: str, other: str) -> None:
            a, b = sorted((root(one), root(other)), key=_by_size)
            parent[b] = a

        for one, other in self._candidates(list(parent)):
            if root(one) != root(other) and self._overlap(one, other):
                join(one, other)
        for one, other in self._held_queries():
            join(one, other)
        members: dict[str, list[str]] = {}
        for user in parent:
            members.setdefault(root(user), []).append(user)
        return {user: name for name, group in members.items() if len(group) > 1 for user in group}

    def _candidates(self, users: list[str]) -> list[tuple[str, str]]:
        """Pairs of users who stand next to each other, in the order of `users`, among some article's holders."""
        last: dict[int, str] = {}
        pairs: dict[tuple[str, str], None] = {}
        for user in users:
            for article in self._profiles[user]:
                if article in last:
                    pairs[(last[article], user)] = None
                last[article] = user
        return list(pairs)

    def _overlap(self, one: str, other: str) -> bool:
        """Rule 1."""
        a, b = self._profiles[one], self._profiles[other]
        shared = len(a & b)
        return shared >= LEAST_SHARED and shared >= LEAST_SHARE * min(len(a), len(b))

    def _held_queries(self) -> list[tuple[str, str]]:
        """Rule 2: pairs (holder, asker)."""
        askers: dict[str, list[str]] = {}
        for user, query in self._queries.items():
            askers.setdefault(query, []).append(user)
        titles: dict[str, int] = {}
        sought: dict[int, str] = {}
        for (_, text), number in self._numbers.items():
            if text in askers:
                titles[text] = titles.get(text, 0) + 1
                sought[number] = text
        links = {number: text for number, text in sought.items() if titles[text] <= MOST_TITLES}
        return [
            (holder, asker)
            for holder, profile in self._profiles.items()
            for number in profile & links.keys()
            for asker in askers[links[number]]
            if asker != holder
        ]


def _by_size(user: str) -> tuple[int, str]:
    """Sort key under which "99" comes before "100"."""
    return len(user), user

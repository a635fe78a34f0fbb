"""Labelled pairs for the two LaMP tasks whose profiles hold none: citations (LaMP-1) and tweets (LaMP-7).

A persona is selected on past items with a known label, and these two profiles list papers and tweets alone. So an item
is made of each by code, the same for the same file; what it can and cannot stand for is told in docs/data.md. The
questions themselves are LaMP's own. Knows texts and items; nothing of files.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from personalink.data.lamp_forms import CITATION_LABELS, citation_question
from personalink.data.types import Item, User
from personalink.seeding import stream
from personalink.text import normalised

_LINK = re.compile(r"\b(?:https?://|www\.)\S+", re.IGNORECASE)
_WORD = re.compile(r"\w+(?:['’]\w+)*")
_FUNCTION_WORDS = (
    "a about am an and are as at be been being but by can could did do does for from had has have having he her "
    "hers him his how i i'd i'll i'm i've if in into is it it's its just me my of off oh on or our out she so "
    "some than that that's the their them then there these they this those to too up us was we were what when "
    "where which who will with would you your"
)
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
"""Words of a tweet that carry its wording rather than its content; negations are content."""


def content_words(tweet: str) -> str:
    """A tweet's content in its order: lower-case words less `FUNCTION_WORDS`; links, marks and emoticons are gone."""
    found = (word.casefold().replace("’", "'") for word in _WORD.findall(_LINK.sub(" ", tweet)))
    return " ".join(word for word in found if word not in FUNCTION_WORDS)


def tweet_items(items: Iterable[Item], dropped: Counter[str]) -> list[Item]:
    """Items whose label is a tweet and whose input is its content words; one without any is left out and counted."""
    made = [replace(item, input=content_words(item.label)) for item in items]
    if without := sum(not item.input for item in made):
        dropped["tweet without content words"] += without
    return [item for item in made if item.input]


def citation_users(users: Sequence[User], dropped: Counter[str]) -> tuple[User, ...]:
    """The users with questions made of their papers (items whose label is a title), in the history's order.

    Of two papers that follow each other, the later one is asked about, and the earlier one stands as a reference beside
    the title of a stranger's paper: the user's own is the gold. Each paper stands in one item alone, so that no item's
    answer can be read out of another. Strangers' titles come from the profiles of the same file, none twice a user, and
    none that the user's own papers or queries hold. Titles and sides are drawn by the user's id.
    """
    titles = {normalised(item.label): item.label for user in users for item in user.history}
    names = list(titles)
    return tuple(replace(user, history=_questions(user, names, titles, dropped)) for user in users)


def _questions(user: User, names: list[str], titles: dict[str, str], dropped: Counter[str]) -> tuple[Item, ...]:
    papers = list({normalised(item.label): item for item in user.history}.values())
    own = {normalised(item.label) for item in papers}
    asked = normalised(" ".join(query.input for query in user.queries))
    draw = stream(0, user.id, "citations")
    at_most = min(len(names), 2 * len(papers) + 8)  # enough of them are neither the user's own nor in the query
    drawn = (names[i] for i in draw.choice(len(names), at_most, replace=False)) if at_most else ()
    strangers = [titles[name] for name in drawn if name not in own and name not in asked]
    pairs = list(zip(papers[len(papers) % 2 :: 2], papers[len(papers) % 2 + 1 :: 2], strict=True))
    items = []
    for (earlier, later), stranger in zip(pairs, strangers, strict=False):
        side = int(draw.integers(2))
        options = (stranger, earlier.label) if side else (earlier.label, stranger)
        question = citation_question(later.label, *options)
        items.append(replace(later, input=question, label=CITATION_LABELS[side], title=""))
    left = len(user.history) - 2 * len(items)
    if left:
        dropped["paper without a partner or a stranger's title"] += left
    return tuple(items)

"""Small facts about text: cleaned to one line, normalised for identity, cut into words, compared by edits.

Pure functions; knows nothing of users, personas or models.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

_WORD = re.compile(r"[a-z0-9']+")
_UNSEEN = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")
"""Soft hyphen, zero-width marks and marks of direction: what may stand in a text without being seen."""


def one_line(text: str) -> str:
    """`text` with every run of white space made one space, control characters and lone surrogates taken out."""
    if (
        text.isprintable() and "  " not in text
    ):  # then its only white space is single blanks, and nothing is to be taken out
        return text.strip(" ")
    kept = "".join(
        " " if ch.isspace() else ch for ch in text if ch.isspace() or unicodedata.category(ch) not in ("Cc", "Cs")
    )
    return " ".join(kept.split())


def normalised(text: str) -> str:
    """The form in which two texts are the same text: NFKC, case folded, unseen marks out, white space collapsed."""
    folded = unicodedata.normalize("NFKC", _UNSEEN.sub("", text)).casefold()
    return " ".join(unicodedata.normalize("NFKC", folded).split())


def words(text: str) -> list[str]:
    """Lower-cased words `[a-z0-9']+` (the papers' tokens), in order."""
    return _WORD.findall(text.lower())


def word_runs(text: str, length: int) -> set[tuple[str, ...]]:
    """Every run of `length` words in a row; empty for a shorter text."""
    tokens = words(text)
    return {tuple(tokens[i : i + length]) for i in range(len(tokens) - length + 1)}


def edit_distance(a: str, b: str) -> int:
    """Levenshtein distance in characters (Levenshtein 1966): insertions, deletions and substitutions cost one."""
    if len(a) < len(b):
        a, b = b, a
    row = list(range(len(b) + 1))
    for i, ca in enumerate(a, 1):
        previous, row[0] = row[0], i
        for j, cb in enumerate(b, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (ca != cb))
    return row[-1]


def nearest(wanted: str, known: Iterable[str]) -> str | None:
    """The entry of `known` that `wanted` was most likely meant to be, for error messages; None when nothing is near."""
    best = min(((edit_distance(wanted.lower(), k.lower()), k) for k in known), default=None)
    return best[1] if best and best[0] <= max(2, len(wanted) // 3) else None

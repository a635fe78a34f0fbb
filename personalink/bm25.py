"""BM25 over one user's texts: small, exact, with a defined order for every tie and every degenerate collection.

Two presets: "lucene" (non-negative idf, ties to the earlier item) and "official" (the semantics of the rank_bm25
package, which LaMP's own code uses, its order of ties included). Knows nothing of users or tasks.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np

Preset = Literal["lucene", "official"]
_TOKEN = re.compile(r"\w+")


def tokens_of(text: str, preset: Preset) -> list[str]:
    """Tokens of a text: case-folded `\\w+` runs, or `str.split` with the case kept in the official preset."""
    return text.split() if preset == "official" else _TOKEN.findall(text.casefold())


class Bm25Index:
    """An index over `texts` (Robertson and Zaragoza 2009), built once a user.

    Score of text d for query q: Σ_t idf(t) · f(t,d)(k1+1) / (f(t,d) + k1(1 − b + b·|d|/mean length)), with a repeated
    query term counted as often as it stands. idf is ln(1 + (N−n+½)/(n+½)) in "lucene", and ln((N−n+½)/(n+½)) with
    negative values replaced by ¼ of the mean idf in "official".

    Args:
        texts: the collection; may be empty, or hold texts without a token.
        preset: see above.
        k1, b: saturation and length normalisation.
    """

    def __init__(self, texts: Sequence[str], preset: Preset = "lucene", *, k1: float = 1.5, b: float = 0.75) -> None:
        self.preset: Preset = preset
        counts = [Counter(tokens_of(text, preset)) for text in texts]
        lengths = np.array([sum(c.values()) for c in counts], dtype=float)
        mean = float(lengths.mean()) if len(lengths) else 0.0
        self._size = len(counts)
        self._norm = k1 * (1 - b + b * lengths / (mean or 1.0))
        self._k1 = k1
        self._postings: dict[str, tuple[list[int], list[int]]] = {}
        for i, bag in enumerate(counts):
            for token, frequency in bag.items():
                where, how_often = self._postings.setdefault(token, ([], []))
                where.append(i)
                how_often.append(frequency)
        self._idf = self._inverse_frequencies()

    def _inverse_frequencies(self) -> dict[str, float]:
        n = self._size
        if self.preset == "lucene":
            return {t: math.log(1 + (n - len(w) + 0.5) / (len(w) + 0.5)) for t, (w, _) in self._postings.items()}
        raw = {t: math.log(n - len(w) + 0.5) - math.log(len(w) + 0.5) for t, (w, _) in self._postings.items()}
        floor = 0.25 * (sum(raw.values()) / len(raw)) if raw else 0.0
        return {token: value if value >= 0 else floor for token, value in raw.items()}

    def scores(self, query: str) -> np.ndarray:
        """(n_texts,) float scores, higher is better; zeros where no query term stands."""
        scores = np.zeros(self._size)
        for token in tokens_of(query, self.preset):
            if token in self._postings:
                where, how_often = self._postings[token]
                f = np.asarray(how_often, dtype=float)
                scores[where] += self._idf[token] * (f * (self._k1 + 1) / (f + self._norm[where]))
        return scores

    def rank(self, query: str, k: int | None = None) -> list[int]:
        """Indices of the best `k` texts (all by default), best first; ties to the earlier text.

        In the official preset ties fall as rank_bm25's `get_top_n` lets them (a reversed argsort).
        """
        scores = self.scores(query)
        order = np.argsort(scores)[::-1] if self.preset == "official" else np.argsort(-scores, kind="stable")
        return [int(i) for i in order[:k]]

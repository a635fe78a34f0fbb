"""How near a written text is to the user's own: ROUGE-1 and ROUGE-L (Lin 2004), by the library that LaMP scores with.

Settings are those of LaMP's official evaluation (eval/evaluation.py of its repository, through `evaluate`'s "rouge"):
the rouge-score package with its own tokenizer (lower case, runs of a–z and 0–9), no stemmer, F-measure, one reference,
texts stripped. It reports the median of 1,000 unseeded bootstrap means of the items' F1; we report their mean, which
that median estimates. A text without a Latin letter or digit has no token there and scores 0, the gold text included.

Knows two texts at a time and rows of them; knows nothing of tasks, models or runs.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from personalink.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from personalink.metrics import Scored

TEXT_METRICS = ("rouge_l", "rouge_1", "official_rouge_l", "official_rouge_1")
"""In [0, 1], higher is better. `official_*` reads the raw answer, stripped; the others what the task's parser made."""

AT_HAND = 1 << 15
"""Pairs of texts whose scores are kept: a report reads the same answers several times."""


class Rouge(NamedTuple):
    """F1 of single words and of the longest common subsequence, each in [0, 1], higher is better."""

    rouge_1: float
    rouge_l: float


@lru_cache(maxsize=AT_HAND)
def rouge(gold: str, answer: str) -> Rouge:
    """ROUGE-1 and ROUGE-L F1 of `answer` against `gold`; both 0 where either has no token.

    Raises:
        ConfigError: rouge-score is not installed.
    """
    scores = _scorer().score(gold.strip(), answer.strip())
    return Rouge(float(scores["rouge1"].fmeasure), float(scores["rougeL"].fmeasure))


def check_installed() -> None:
    """Nothing where rouge-score can be imported; it is not imported yet, since that takes seconds.

    Raises:
        ConfigError: it is not there; names the extra.
    """
    if importlib.util.find_spec("rouge_score") is None:
        msg = 'texts are scored by rouge-score, which is not installed; pip install "personalink[generation]"'
        raise ConfigError(msg)


def text_scores(scored: Sequence[Scored], metric: str) -> NDArray[np.float64]:
    """One of `TEXT_METRICS` for each of n answers, shape (n,); 0 for an answer that was not read or never asked for."""
    import numpy as np

    name = metric.removeprefix("official_")
    answers = [_official(s) if metric.startswith("official_") else s.label or "" for s in scored]
    found = [getattr(rouge(s.gold, answer), name) for s, answer in zip(scored, answers, strict=True)]
    return np.array(found, dtype=np.float64)


def text_metrics(scored: Sequence[Scored]) -> dict[str, float | int | None]:
    """The mean of each of `TEXT_METRICS`; None without answers."""
    if not scored:
        return dict.fromkeys(TEXT_METRICS)
    return {metric: float(text_scores(scored, metric).mean()) for metric in TEXT_METRICS}


def _official(scored: Scored) -> str:
    """The raw answer; "" where nothing was sent, since the text is then our own error line."""
    return "" if scored.outcome == "too_long" else scored.text


@lru_cache(maxsize=1)
def _scorer() -> Any:
    """The library's scorer, imported at the first score."""
    check_installed()
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(["rouge1", "rougeL"], use_stemmer=False)

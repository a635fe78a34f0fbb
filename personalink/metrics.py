"""What a row's answers are worth: accuracy and macro-F1, MAE and RMSE, or ROUGE, with a bootstrap interval over items.

Knows tasks and labels; knows nothing of models, users or runs. Two readings of the same answers stand side by side:
ours (the task's parser, labels canonical) and the official LaMP one (raw text, stripped, compared exactly). A label
of None is INVALID: never right, a class outside the labels for macro-F1, the farther end of the scale for MAE.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from personalink.errors import ConfigError, DataError
from personalink.generation_metrics import TEXT_METRICS, text_metrics, text_scores
from personalink.stats import checks
from personalink.stats.bootstrap import Bootstrap, mean_of
from personalink.stats.macro_f1 import macro_f1_of
from personalink.text import nearest

if TYPE_CHECKING:
    from personalink.stats.records import Floats, Ints, Statistic
    from personalink.tasks.base import Kind, Task

OUTCOMES = ("ok", "unreadable", "empty", "truncated", "refused", "too_long")
"""How an answer can end (see `agent.Answer`); each is counted as `n_<outcome>`, and the six counts sum to n."""

HUGE = 1e100
"""The official reading takes any number as a rating; beyond this one its square has no finite sum."""

_LABEL_METRICS = ("accuracy", "macro_f1", "official_accuracy", "official_macro_f1")
_RATING_METRICS = ("mae", "rmse", "accuracy", "official_mae", "official_rmse")
_VALID_ONLY = ("valid_mae", "valid_rmse")
_METRICS: Mapping[Kind, tuple[str, ...]] = {"label": _LABEL_METRICS, "rating": _RATING_METRICS, "text": TEXT_METRICS}
_HEADLINES: Mapping[Kind, tuple[str, str]] = {
    "label": ("accuracy", "macro_f1"), "rating": ("mae", "rmse"), "text": ("rouge_l", "rouge_1"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scored:
    """One answer beside its gold label.

    Attributes:
        gold: the gold label, canonical.
        label: what was read from the answer; None for INVALID.
        text: the raw completion, which the official scoring reads; a floor gives its label.
        outcome: one of `OUTCOMES`.
    """

    gold: str
    label: str | None
    text: str
    outcome: str


def primary(task: Task) -> tuple[str, Literal["higher", "lower"]]:
    """The metric that intervals and tests are about, and which direction is better."""
    return (headline(task)[0], "lower" if task.kind == "rating" else "higher")


def headline(task: Task) -> tuple[str, ...]:
    """The metrics of a results table, the primary one first."""
    return _HEADLINES[task.kind]


def score(task: Task, scored: Sequence[Scored]) -> dict[str, float | int | None]:
    """Every metric of a row's answers, as plain JSON numbers; a metric without answers is None, never NaN.

    Label tasks: `accuracy`, `macro_f1` in [0, 1], higher is better. Macro-F1 is the mean of F1 over *all* labels of
    the task, 0 for a label that occurs in neither gold nor answers (scikit-learn, average="macro", zero_division=0).
    Ratings: `mae`, `rmse` ≥ 0 in points of the scale, lower is better, RMSE = √MSE; `accuracy` exact; `valid_mae`,
    `valid_rmse` over the `valid_n` answers that could be read. Texts: `rouge_l`, `rouge_1` in [0, 1], higher is better,
    the mean F1 (see `generation_metrics`).

    `official_*`: the evaluation of LaMP (Salemi et al. 2024): the stripped raw text must equal a label; for ratings it
    is taken as a float, neither rounded nor clamped, and as the farther end of the scale (ties: the high end) when it
    is no finite number; for texts it is the answer. All: `n`, `n_<outcome>`, `n_invalid` (no label, for any reason),
    `n_truncated_invalid`.

    Raises:
        DataError: a gold or label outside the label space, or an unknown outcome.
    """
    _check(task, scored)
    by_outcome = Counter(s.outcome for s in scored)
    counts: dict[str, float | int | None] = {
        "n": len(scored),
        **{f"n_{outcome}": by_outcome[outcome] for outcome in OUTCOMES},
        "n_invalid": sum(s.label is None for s in scored),
        "n_truncated_invalid": sum(s.label is None and s.outcome == "truncated" for s in scored),
    }
    if task.kind == "text":
        return {**text_metrics(scored), **counts}
    metrics = _label_metrics(task, scored) if task.kind == "label" else _rating_metrics(task, scored)
    return {**metrics, **counts}


def bootstrap_interval(
    task: Task,
    scored: Sequence[Scored],
    metric: str,
    *,
    draws: int = 10_000,
    seed: int = 12345,
    level: float = 0.95,
) -> tuple[float, float] | None:
    """The percentile interval (Efron 1979) of a metric over items; None without items.

    Args:
        task: gives the label space.
        scored: n answers; the order of the items must be the same for rows that are compared.
        metric: any of `score`'s metrics but the valid-only ones, whose draws may hold no valid answer.
        draws: how many resamples, ≥ 1. The draws depend on `seed` and n alone, so rows are resampled alike (paired).
        seed: the run's seed.
        level: coverage, in (0, 1); two-sided, linear percentiles.

    Raises:
        ConfigError: an unknown metric, or `draws` or `level` out of range.
        DataError: see `score`.
    """
    known = _METRICS[task.kind]
    if metric not in known:
        near = nearest(metric, known)
        msg = f"no interval for metric {metric!r}; " + (
            f"did you mean {near!r}?" if near else f"it must be one of {', '.join(known)}"
        )
        raise ConfigError(msg)
    checks.share(level, "level")
    _check(task, scored)
    if not scored:
        return None
    bootstrap, statistic, n = Bootstrap(draws, seed, level), _statistic(task, scored, metric), len(scored)
    interval = bootstrap.interval(statistic, n, bootstrap.values(statistic, n))
    return interval.low, interval.high


def _check(task: Task, scored: Sequence[Scored]) -> None:
    for number, s in enumerate(scored):
        outside = s.gold not in task.labels or (s.label is not None and s.label not in task.labels)
        if outside and task.kind != "text":
            wrong = s.gold if s.gold not in task.labels else s.label
            msg = f"answer {number}: {wrong!r} is not a label of task {task.name}"
            raise DataError(msg)
        if s.outcome not in OUTCOMES:
            msg = f"answer {number}: outcome {s.outcome!r} is unknown; it must be one of {', '.join(OUTCOMES)}"
            raise DataError(msg)


def _official_text(s: Scored) -> str:
    """The raw answer, stripped; "" where nothing was sent, since the text is then our own error line."""
    return "" if s.outcome == "too_long" else s.text.strip()


def _codes(task: Task, scored: Sequence[Scored], *, official: bool) -> tuple[Ints, Ints]:
    """Gold and answer as positions in `task.labels`, −1 for an answer outside them; shape (n,) each."""
    import numpy as np

    place = {label: i for i, label in enumerate(task.labels)}
    answers = [_official_text(s) if official else (s.label or "") for s in scored]
    gold = np.array([place[s.gold] for s in scored], dtype=np.int64)
    return gold, np.array([place.get(answer, -1) for answer in answers], dtype=np.int64)


def _values(task: Task, scored: Sequence[Scored], *, official: bool) -> tuple[Floats, Floats]:
    """Gold and answer as numbers, the farther end of the scale where there is no answer; shape (n,) each."""
    import numpy as np

    low, high = float(task.labels[0]), float(task.labels[-1])
    pairs = []
    for s in scored:
        gold = float(s.gold)
        farther = low if abs(low - gold) > abs(high - gold) else high
        value = _number(_official_text(s)) if official else None if s.label is None else float(s.label)
        pairs.append((gold, farther if value is None else value))
    table = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) <= HUGE else None


def _label_metrics(task: Task, scored: Sequence[Scored]) -> dict[str, float | int | None]:
    if not scored:
        return dict.fromkeys(_LABEL_METRICS)
    from sklearn.metrics import accuracy_score, f1_score

    metrics: dict[str, float | int | None] = {}
    for prefix in ("", "official_"):
        gold, answer = _codes(task, scored, official=bool(prefix))
        every = list(range(len(task.labels)))
        metrics[f"{prefix}accuracy"] = float(accuracy_score(gold, answer))
        macro = f1_score(gold, answer, labels=every, average="macro", zero_division=0)
        metrics[f"{prefix}macro_f1"] = float(macro)
    return metrics


def _rating_metrics(task: Task, scored: Sequence[Scored]) -> dict[str, float | int | None]:
    valid = [s for s in scored if s.label is not None]
    metrics: dict[str, float | int | None] = dict.fromkeys((*_RATING_METRICS, *_VALID_ONLY))
    metrics["valid_n"] = len(valid)
    if not scored:
        return metrics
    from sklearn.metrics import mean_absolute_error, root_mean_squared_error

    for prefix, chosen in (("", scored), ("valid_", valid), ("official_", scored)):
        if chosen:
            gold, answer = _values(task, chosen, official=prefix == "official_")
            metrics[f"{prefix}mae"] = float(mean_absolute_error(gold, answer))
            metrics[f"{prefix}rmse"] = float(root_mean_squared_error(gold, answer))
    metrics["accuracy"] = sum(s.label == s.gold for s in scored) / len(scored)
    return metrics


def _statistic(task: Task, scored: Sequence[Scored], metric: str) -> Statistic:
    import numpy as np

    if task.kind == "text":
        return mean_of(text_scores(scored, metric))
    official = metric.startswith("official_")
    name = metric.removeprefix("official_")
    if name == "macro_f1":
        return macro_f1_of(*_codes(task, scored, official=official), len(task.labels))
    if name == "accuracy":
        gold, answer = _codes(task, scored, official=official)
        return mean_of((gold == answer).astype(np.float64))
    truth, guess = _values(task, scored, official=official)
    error = np.abs(truth - guess)
    if name == "mae":
        return mean_of(error)
    mean_square = mean_of(error**2)
    return lambda weights: np.sqrt(mean_square(weights))

"""The bootstrap over whole users: all that belongs to a drawn user travels together. Knows users by id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from personalink.errors import DataError
from personalink.stats import checks
from personalink.stats.bootstrap import Bootstrap, mean_of
from personalink.stats.records import IntervalMethod, Paired


def cluster_bootstrap(
    differences: Mapping[str, ArrayLike],
    *,
    seed: int,
    weigh: Literal["task", "user"] = "task",
    draws: int = 10_000,
    confidence: float = 0.95,
    method: IntervalMethod = "percentile",
) -> Paired:
    """The mean difference, resampling users instead of single tasks (Cameron, Gelbach & Miller 2008; Miller 2024).

    "task": the drawn users' sum of differences over their number of tasks, so each task weighs alike. "user": the mean
    of the users' means, so each user weighs alike. Users are drawn in blocks (`bootstrap.BLOCK` cells), in the order of
    their ids, whatever the mapping's. With one task a user both are `paired_bootstrap` on the users in that order.

    Args:
        differences: user → a − b of each task of that user, at least one; any unit.
        seed, draws, confidence, method: see `bootstrap.Bootstrap`.

    Returns:
        n counts users; p as in `paired_bootstrap`.

    Raises:
        DataError: no users, a user without a task, or a difference that is NaN or infinite.
        ConfigError: a setting is out of range.
    """
    bootstrap = Bootstrap(draws, seed, confidence, method)
    checks.choice(weigh, "weigh", ("task", "user"))
    if not differences:
        msg = "differences is empty; at least one user is needed"
        raise DataError(msg)
    rows = [checks.numbers(differences[user], f"user {user!r}") for user in sorted(differences)]
    sums, sizes = np.array([row.sum() for row in rows]), np.array([float(row.size) for row in rows])
    scale = max(float(np.abs(row).max()) for row in rows)
    if weigh == "user":
        return bootstrap.compare(mean_of(sums / sizes), len(rows), scale=scale)
    return bootstrap.compare(lambda w: w @ sums / (w @ sizes), len(rows), scale=scale)

"""How displacement decays from pass to pass: means, ratios, the log-linear fit, intervals over users. Numbers alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from personalink.stats.bootstrap import NO_SPREAD, Bootstrap, multiplicities, resample_blocks
from personalink.stats.records import Floats, Interval

_SAME = 1e-9
"""Values are the same where they lie no further apart, as a share of each other: what rounding may leave."""


@dataclass(frozen=True, slots=True)
class Fit:
    """The geometric model of the paper, d_t ≈ scale · L^(t−1) for the mean displacement d_t of pass t = 1, 2, ….

    Attributes:
        L: exp(slope) of ln d_t on t by ordinary least squares, > 0; under 1 the passes move less and less.
        scale: what the fit gives for pass 1, > 0.
        r2: R² of that line, in [0, 1]; None where it says nothing: two passes, or means that are all the same.
    """

    L: float
    scale: float
    r2: float | None


@dataclass(frozen=True, slots=True)
class Decay:
    """What the displacements of n users over R passes come to.

    Attributes:
        means: mean over users, a pass; ≥ 0, at most 2 between unit-length vectors.
        fit: through `means`; None where there is none. no_fit: why, in words; "" where there is one.
        interval: of L, over users; None without a fit.
        ratios: R − 1 intervals of d_{t+1} / d_t, over users; None where d_t is 0. An end can be infinite.
    """

    means: tuple[float, ...]
    fit: Fit | None
    no_fit: str
    interval: Interval | None
    ratios: tuple[Interval | None, ...]


def fit(means: Sequence[float]) -> Fit | str:
    """The log-linear fit through mean displacements, or why there is none.

    The paper's .90, .21, .02 give L = .1491 and R² = .9819; its printed .144 and .979 need the unrounded means, such as
    .90, .2125, .01866.

    Args:
        means: one a pass, in order, each finite and ≥ 0. A zero has no logarithm and so gives no fit.
    """
    if len(means) < 2:
        return f"a fit needs two passes, and there is {len(means) or 'none'}"
    if zeros := [str(t) for t, mean in enumerate(means, 1) if mean == 0]:
        return f"mean displacement 0 in pass {' and '.join(zeros)}, which has no logarithm"
    logs, x = np.log(np.asarray(means, dtype=np.float64)), _centred(len(means))
    slope = float(logs @ x / (x @ x))
    spread = logs - logs.mean()
    left = spread - slope * x
    says = len(means) > 2 and np.ptp(logs) > _SAME
    return Fit(
        L=math.exp(slope),
        scale=math.exp(float(logs.mean()) + slope * float(x[0])),
        r2=min(1.0, max(0.0, 1 - float(left @ left) / float(spread @ spread))) if says else None,
    )


def decay(displacement: Floats, *, seed: int, draws: int = 10_000, confidence: float = 0.95) -> Decay:
    """Means, ratios, fit, and percentile intervals by a bootstrap over users: first the mean, then the logarithm.

    In a draw of users whom a pass did not move at all, L and the ratios are what they tend to as that mean tends to 0:
    a draw that the last pass does not move has L = 0. The note of an interval says how many draws that were.

    Args:
        displacement: shape (n users, R passes), n ≥ 1, finite and ≥ 0.
        seed, draws, confidence: see `stats.bootstrap.Bootstrap`.

    Raises:
        ConfigError: a setting is out of range.
    """
    bootstrap = Bootstrap(draws, seed, confidence)
    n, passes = displacement.shape
    means = tuple(math.fsum(column) / n for column in displacement.T)
    found = fit(means)
    if passes < 2 or not any(means):
        return Decay(means, None, str(found), None, (None,) * max(0, passes - 1))
    blocks = resample_blocks(n, draws=bootstrap.draws, seed=bootstrap.seed)
    drawn = np.concatenate([multiplicities(block) @ displacement for block in blocks]) / n
    ratios = tuple(
        _interval(means[t + 1] / means[t], _over(drawn[:, t + 1], drawn[:, t]), drawn[:, t : t + 2], confidence)
        if means[t]
        else None
        for t in range(passes - 1)
    )
    if isinstance(found, str):
        return Decay(means, None, found, None, ratios)
    return Decay(means, found, "", _interval(found.L, _limits(drawn), drawn, confidence), ratios)


def _centred(passes: int) -> Floats:
    return np.arange(passes, dtype=np.float64) - (passes - 1) / 2


def _over(above: Floats, below: Floats) -> Floats:
    """The quotient; infinite over 0, and NaN for 0 / 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return above / below


def _limits(drawn: Floats) -> Floats:
    """L of each draw's means, shape (draws,); where some are 0, its limit as those tend to 0; NaN where all are.

    The slope is Σ x·ln d / Σ x². As the zeros among d tend to 0 together, it tends to minus infinity where their x sum
    to more than 0, to plus infinity where to less, and does not hang on them where they balance.
    """
    x, zero = _centred(drawn.shape[1]), drawn == 0
    slopes = np.log(np.where(zero, 1.0, drawn)) @ x / (x @ x)
    pull = zero @ x
    found = np.where(pull > 0, 0.0, np.where(pull < 0, np.inf, np.exp(slopes)))
    return np.where(zero.all(axis=1), np.nan, found)


def _interval(estimate: float, values: Floats, drawn: Floats, confidence: float) -> Interval:
    """The percentile interval of `values`; each end is one of them, since an infinite one has no neighbour to mix with.

    Draws without a value are left out; `drawn` are the means that the values hang on.
    """
    known = np.sort(values[~np.isnan(values)])
    if not known.size:
        return Interval(estimate, 0.0, math.inf, confidence, "percentile", "no draw has a value")
    tail = (1 - confidence) / 2
    low, high = (float(known[max(0, math.ceil(share * len(known)) - 1)]) for share in (tail, 1 - tail))
    gone = len(values) - len(known)
    notes = []
    if math.isclose(float(known[0]), float(known[-1]), rel_tol=_SAME):
        low = high = estimate
        notes.append(NO_SPREAD)
    if limits := int((drawn == 0).any(axis=1).sum()) - gone:
        notes.append(f"in {limits:,} of {len(values):,} draws a pass moved nobody: taken as the limit")
    if gone:
        notes.append(f"{gone:,} of {len(values):,} draws, where no pass moved anybody, are left out")
    return Interval(estimate, low, high, confidence, "percentile", "; ".join(notes))

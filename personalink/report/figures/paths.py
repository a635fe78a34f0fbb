"""Figures of how personas move from pass to pass, as `personalink contraction` measured it: where, how far, what.

Reads the record of that analysis; encodes nothing and fits nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from personalink.contraction.record import Contraction
from personalink.errors import DataError
from personalink.report.evidence import Evidence
from personalink.report.figures import style
from personalink.report.figures.placing import spread
from personalink.report.figures.sketch import Data, LeftOut, Sketch
from personalink.report.figures.style import BLACK, BLUE, GREEN, GREY, PALE, RED, SMALL, drawable, plain
from personalink.report.figures.subject import bands

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Records = list[dict[str, Any]]

NOT_ANALYSED = "`personalink contraction RUN` was not run, which measures how far personas move"
NOBODY_MOVED = "no pass changed any user's persona, so there is no movement to show"

MOST_PATHS = 60
"""Users whose own paths are drawn; of more, the trajectories show the first and the decay shows quantiles."""


def trajectories(evidence: Evidence) -> Sketch | LeftOut:
    """The paper's figure 5: each user's personas after 0, 1, 2, … passes, in the plane of their main directions."""
    found = _contraction(evidence)
    if isinstance(found, LeftOut):
        return found
    still = sum(not one.moved for one in found.users)
    records = [
        {"user": one.user, "depth": depth, "x": x, "y": y}
        for one in found.users
        for depth, (x, y) in enumerate(one.points)
    ]
    shown = min(len(found.users), MOST_PATHS)
    return Sketch(
        data=Data.of(records),
        caption=(
            f"Figure 5. Where personas move: their embeddings ({plain(found.encoder, 60)}) in the plane of the two "
            f"main directions (PCA), n = {len(found.users):,} users"
            + (f", of whom the first {shown} are drawn" if shown < len(found.users) else "")
            + ". Every path begins at the empty persona (cross). Grey: pass 1; red: the later passes. "
            + (f"{still:,} users keep the empty persona throughout. " if still else "")
            + "Distances in the plane are at most the true ones."
        ),
        height=2.9,
        paint=partial(_paint_trajectories, explained=found.explained),
    )


def _contraction(evidence: Evidence) -> Contraction | LeftOut:
    if evidence.contraction is None:
        return LeftOut(NOT_ANALYSED)
    try:
        found = Contraction.from_dict(evidence.contraction)
    except DataError as error:
        return LeftOut(str(error))
    return found if any(one.moved for one in found.users) else LeftOut(NOBODY_MOVED)


def _paint_trajectories(figure: Figure, records: Records, *, explained: tuple[float, float]) -> None:
    ax = figure.subplots()
    by: dict[str, list[tuple[float, float]]] = {}
    for r in records:
        by.setdefault(r["user"], []).append((r["x"], r["y"]))
    ways = list(by.values())[:MOST_PATHS]
    for way in ways:
        x, y = [p[0] for p in way], [p[1] for p in way]
        ax.plot(x[:2], y[:2], color=GREY, linewidth=0.5, alpha=0.5, zorder=1)
        ax.plot(x[1:], y[1:], color=RED, linewidth=0.9, zorder=2)
        if len(set(way)) > 1:
            ax.plot(x[1], y[1], "o", color=GREY, markerfacecolor="white", markersize=3, markeredgewidth=0.6, zorder=3)
            ax.plot(x[-1], y[-1], "o", color=RED, markersize=2.6, zorder=4)
    ax.plot(*ways[0][0], "X", color=BLACK, markersize=5, zorder=5)
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(0.08)
    for axis in ("x", "y"):
        style.few_ticks(ax, axis)
    ax.set_xlabel(f"First direction ({style.percent(explained[0])} of variance)")
    ax.set_ylabel(f"Second direction ({style.percent(explained[1])})")
    last = len(ways[0]) - 1
    marks = [style.mark("empty persona (r=0)", BLACK, "X"), style.mark("after pass 1", GREY, "o", hollow=True)]
    style.key(figure, marks + ([style.mark(f"after pass {last}", RED, "o")] if last > 1 else []))


def decay(evidence: Evidence) -> Sketch | LeftOut:
    """The paper's figure 6: how far each pass moves a persona, with the log-linear fit through the means."""
    found = _contraction(evidence)
    if isinstance(found, LeftOut):
        return found
    passes = list(zip(*(one.displacement for one in found.users), strict=True))
    fit, interval = found.decay.fit, found.decay.interval
    none = dict.fromkeys(("low", "high", "fit"))
    records: Records = [
        {"kind": "user", "user": one.user, "pass": t, "displacement": value, **none}
        for one in found.users
        for t, value in enumerate(one.displacement, 1)
    ]
    for t, (low, high) in enumerate(bands(passes, found.seed), 1):
        line = fit.scale * fit.L ** (t - 1) if fit else None
        ends = {"low": low, "high": high, "fit": line}
        records.append({"kind": "mean", "user": None, "pass": t, "displacement": found.decay.means[t - 1], **ends})
    told = f"There is no fit: {found.decay.no_fit}."
    if fit:
        told = f"Dashed: the log-linear fit of the means, L = {fit.L:.3f}{_ends(interval)}"
        told += f", R² = {fit.r2:.3f}." if fit.r2 is not None else "; R² says nothing with so few passes."
        told += " L under 1 means that passes move less and less."
    return Sketch(
        data=Data.of(records),
        caption=(
            "Figure 6. How far each pass moves a persona: the distance of unit-length embeddings before and after it, "
            f"from 0 to 2; lower is nearer to a fixed point; n = {len(found.users):,} users. Red: mean over users, "
            f"with its 95 % bootstrap interval; grey: {_grey(len(found.users))}. {told}"
        ),
        height=2.5,
        paint=partial(_paint_decay, words=f"L = {fit.L:.3f}{_ends(interval)}" if fit else ""),
    )


def _ends(interval: Any) -> str:
    return f" [{interval.low:.2g}, {interval.high:.2g}]".replace("inf", "∞") if interval else ""


def _grey(users: int) -> str:
    return "each user" if users <= MOST_PATHS else "the middle 90 % and the middle half of the users"


def _paint_decay(figure: Figure, records: Records, *, words: str) -> None:
    ax = figure.subplots()
    users = [r for r in records if r["kind"] == "user"]
    means = [r for r in records if r["kind"] == "mean"]
    positive = [v for r in records for v in (r["displacement"], r["fit"]) if v]
    zero = min(min(positive) / 3, 0.01)
    ax.axhspan(zero / 3, zero * 1.8, color="#F3F3F3", linewidth=0, zorder=0)
    ax.set_yscale("log")
    _paint_users(ax, users, zero)
    for r in means:
        ax.vlines(r["pass"], max(r["low"], zero), max(r["high"], zero), color=RED, linewidth=1.0, zorder=4)
    ax.plot([r["pass"] for r in means], [max(r["displacement"], zero) for r in means], "D", color=RED, zorder=5)
    if words:
        ax.plot([r["pass"] for r in means], [r["fit"] for r in means], "--", color=BLACK, linewidth=0.9, zorder=3)
    for r in means:
        stayed = sum(u["pass"] == r["pass"] and not u["displacement"] for u in users)
        if stayed:
            ax.annotate(
                f"{stayed:,} stay", (r["pass"], zero), xytext=(0, -4), textcoords="offset points",
                ha="center", va="top", fontsize=SMALL, color=GREY,
            )  # fmt: skip
        if r["displacement"]:
            ax.annotate(
                f"{r['displacement']:.3g}", (r["pass"], max(r["displacement"], zero)), xytext=(5, 3),
                textcoords="offset points", color=RED, fontsize=SMALL, zorder=6,
            )  # fmt: skip
    steps = [10.0**e for e in range(-6, 1) if zero * 2 < 10.0**e]
    style.ticks(ax, "y", [zero, *steps], lambda v: "0" if v == zero else style.number(v))
    ax.set_ylim(zero / 3, max(2.2, max(positive)))
    style.ticks(ax, "x", [float(r["pass"]) for r in means], lambda t: f"{t:.0f}\n(r = {t - 1:.0f} → {t:.0f})")
    ax.set_xlim(0.6, len(means) + 0.6)
    style.grid(ax, "y")
    ax.set_xlabel("Pass")
    ax.set_ylabel("Displacement, 0 to 2 (logarithmic;\nlower: nearer to a fixed point)")
    if words:
        ax.text(0.98, 0.97, words, transform=ax.transAxes, ha="right", va="top", fontsize=SMALL)


def _paint_users(ax: Axes, users: Records, zero: float) -> None:
    """Each user's way, or where the quantiles of many lie; 0 stands at `zero`."""
    import numpy as np

    by: dict[str, list[float]] = {}
    for r in users:
        by.setdefault(r["user"], []).append(max(r["displacement"], zero))
    table = np.array(list(by.values()))
    passes = np.arange(1, table.shape[1] + 1)
    if len(by) <= MOST_PATHS:
        for way in table:
            ax.plot(passes, way, ".-", color=GREY, linewidth=0.4, markersize=2.5, alpha=0.45, zorder=1)
        return
    for t in passes:
        edges = np.percentile(table[:, t - 1], (5, 25, 75, 95))
        ax.vlines(t - 0.06, edges[0], edges[3], color=GREY, linewidth=0.7, zorder=1)
        ax.vlines(t - 0.06, edges[1], edges[2], color=GREY, linewidth=3, alpha=0.6, zorder=1)


def field_motion(evidence: Evidence) -> Sketch | LeftOut:
    """Which field of the personas still moves: mean displacement of each, a pass."""
    found = _contraction(evidence)
    if isinstance(found, LeftOut):
        return found
    if not found.fields:
        return LeftOut("the texts that were analysed have no fields")
    records = []
    for name, motion in found.fields.items():
        ends = bands(list(zip(*(one.fields[name] for one in found.users), strict=True)), found.seed)
        for t, (low, high) in enumerate(ends):
            mean = {"mean": motion.means[t], "mean_low": low, "mean_high": high}
            records.append({"field": name, "pass": t + 1, **mean, "changed": motion.changed[t]})
    return Sketch(
        data=Data.of(records),
        caption=(
            "How far each pass moves each field of a persona: mean distance of unit-length embeddings, from 0 to 2; "
            f"lower is nearer to a fixed point; n = {len(found.users):,} users. Bars: 95 % bootstrap intervals over "
            "users."
        ),
        height=2.1,
        paint=_paint_fields,
    )


_FIELDS = {"preference_summary": "summary", "exemplars": "exemplars", "decision_rules": "rules"}


def _paint_fields(figure: Figure, records: Records) -> None:
    ax = figure.subplots()
    names = list(dict.fromkeys(r["field"] for r in records))
    looks: Sequence[tuple[str, str]] = ((RED, "D"), (BLUE, "o"), (GREEN, "s"), (GREY, "v"))
    passes = sorted({r["pass"] for r in records})
    for place, name in enumerate(names):
        color, marker = looks[place % len(looks)]
        mine = [r for r in records if r["field"] == name]
        x = [r["pass"] + 0.07 * (place - (len(names) - 1) / 2) for r in mine]
        ax.vlines(x, [r["mean_low"] for r in mine], [r["mean_high"] for r in mine], color=color, linewidth=0.8)
        ax.plot(x, [r["mean"] for r in mine], f"{marker}-", color=color, linewidth=0.9)
    low, high = 0.0, ax.get_ylim()[1]
    ax.set_ylim(-0.03 * high, high)
    ends = spread([[r["mean"] for r in records if r["field"] == n][-1] for n in names], 0.1 * (high - low), low, high)
    for place, (name, end) in enumerate(zip(names, ends, strict=True)):
        ax.annotate(
            _FIELDS.get(name, drawable(name, 14)), (1.0, end), xycoords=("axes fraction", "data"), va="center",
            fontsize=SMALL, color=looks[place % len(looks)][0],
        )  # fmt: skip
    ax.axhline(0, color=PALE, linewidth=0.6, zorder=0)
    style.ticks(ax, "x", [float(t) for t in passes])
    ax.set_xlim(passes[0] - 0.3, passes[-1] + 0.3)
    style.few_ticks(ax, "y")
    style.grid(ax, "y")
    ax.set_xlabel("Pass")
    ax.set_ylabel("Mean displacement, 0 to 2\n(lower: nearer to a fixed point)")

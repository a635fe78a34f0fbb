"""Figures of who gains: the persona against no personalization, by gold label and by size of the history."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from personalink.report.answers import Judged
from personalink.report.evidence import Evidence
from personalink.report.figures import style
from personalink.report.figures.placing import spread
from personalink.report.figures.sketch import Data, LeftOut, Sketch
from personalink.report.figures.style import GREY, RED, SMALL, drawable
from personalink.report.figures.subject import (
    baseline,
    chosen,
    gain_axis,
    gain_interval,
    gain_words,
    gains,
    pairs,
    row_name,
    sample,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Records = list[dict[str, Any]]
Pair = tuple[Judged, Judged]

MOST_LABELS = 30
LEAST_A_GROUP = 10
"""Users that a group of history sizes has at least."""
MOST_GROUPS = 5

NEEDS_BOTH = "it needs a PersonaLink row and NoPers, with gold labels for the same queries"


def label_gain(evidence: Evidence) -> Sketch | LeftOut:
    """What the persona gains for queries of each gold label, the largest gain first."""
    found = _compared(evidence)
    if isinstance(found, LeftOut):
        return found
    row, base, paired = found
    by: dict[str, list[Pair]] = {}
    for a, b in paired:
        by.setdefault(str(a.gold), []).append((a, b))
    if not set(by) <= set(evidence.task.labels):
        return LeftOut(f"task {evidence.task.name} has no fixed set of labels")
    ordered = [label for label in evidence.task.labels if label in by]
    records = [{"gold": label, **_gain(evidence, by[label])} for label in ordered]
    if evidence.task.kind == "label":
        records.sort(key=lambda r: (-r["gain"], -r["n"]))
    cut = len(records) > MOST_LABELS
    shown = {r["gold"] for r in sorted(records, key=lambda r: -r["n"])[:MOST_LABELS]}
    return Sketch(
        data=Data.of(records),
        caption=(
            f"Gain of {row_name(row)} over {row_name(base)} by gold label, in {gain_axis(evidence.task)} (right of 0: "
            f"the persona is better); {sample([a for a, _ in paired])}. {gain_words(evidence.task)} Not corrected "
            "for how many labels are looked at."
            + (f" The {MOST_LABELS} most frequent of {len(records)} labels; the CSV has all." if cut else "")
        ),
        height=0.6 + 0.145 * len(shown),
        paint=partial(_paint_by_label, shown=shown, unit=_axis(evidence)),
    )


def _compared(evidence: Evidence) -> tuple[str, str, list[Pair]] | LeftOut:
    row, base = chosen(evidence), baseline(evidence)
    paired = pairs(evidence, row, base) if row and base else []
    if not (row and base and paired):
        return LeftOut(NEEDS_BOTH)
    if evidence.task.kind not in ("label", "rating"):
        return LeftOut(f"task {evidence.task.name} is scored on texts, which this figure does not compare")
    return row, base, paired


def _axis(evidence: Evidence) -> str:
    return f"Gain, {gain_axis(evidence.task)} (higher is better)"


def _gain(evidence: Evidence, paired: Sequence[Pair]) -> dict[str, Any]:
    values = gains(evidence.task, paired)
    interval = gain_interval(evidence.task, values, evidence.config["seed"])
    return {
        "n": len(values),
        "gain": sum(values) / len(values),
        "gain_low": interval.low if interval else None,
        "gain_high": interval.high if interval else None,
        "better": sum(value > 0 for value in values),
        "worse": sum(value < 0 for value in values),
    }


def _paint_by_label(figure: Figure, records: Records, *, shown: set[str], unit: str) -> None:
    ax = figure.subplots()
    lines = [r for r in records if r["gold"] in shown]
    ax.axvline(0, color=GREY, linewidth=0.7, zorder=0)
    for place, r in enumerate(lines):
        if r["gain_low"] is not None:
            ax.hlines(-place, r["gain_low"], r["gain_high"], color=RED, linewidth=0.9)
        _dot(ax, r["gain"], -place, hollow=r["gain_low"] is None)
        ax.annotate(
            f"{r['n']:,}", (1.09, -place), xycoords=("axes fraction", "data"), va="center", ha="right", fontsize=SMALL,
            color=GREY,
        )  # fmt: skip
    ax.annotate("n", (1.09, 0.62), xycoords=("axes fraction", "data"), ha="right", fontsize=SMALL, color=GREY)
    ax.set_yticks([-float(i) for i in range(len(lines))], labels=[drawable(r["gold"], 22) for r in lines])
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.set_ylim(0.4 - len(lines), 1.0)
    style.few_ticks(ax, "x")
    style.grid(ax, "x")
    ax.set_xlabel(unit)


def history_gain(evidence: Evidence) -> Sketch | LeftOut:
    """What the persona gains for users with a short, middling or long history."""
    found = _compared(evidence)
    if isinstance(found, LeftOut):
        return found
    row, base, paired = found
    groups = _groups(evidence, paired)
    if len(groups) < 2:
        users = len({a.prediction.user for a, _ in paired})
        who = f"{users} user{'s' * (users != 1)}"
        return LeftOut(f"{who}: too few for two groups of different history sizes with {LEAST_A_GROUP} users each")
    records = []
    for group in groups:
        sizes = sorted(evidence.history_size[a.prediction.user] for a, _ in group)
        extent = {"history_from": sizes[0], "history_median": sizes[len(sizes) // 2], "history_to": sizes[-1]}
        records.append({**extent, "users": len({a.prediction.user for a, _ in group}), **_gain(evidence, group)})
    return Sketch(
        data=Data.of(records),
        caption=(
            f"Gain of {row_name(row)} over {row_name(base)} by size of the history, in {gain_axis(evidence.task)} "
            f"(above 0: the persona is better); {sample([a for a, _ in paired])}, in groups of about as many users, "
            f"whose sizes the flat lines span. {gain_words(evidence.task)}"
        ),
        height=2.1,
        paint=partial(_paint_by_history, unit=_axis(evidence)),
    )


def _groups(evidence: Evidence, paired: Sequence[Pair]) -> list[list[Pair]]:
    """Pairs by history size: at most `MOST_GROUPS` groups, none of them (users of equal size stay together) small."""
    by_user: dict[str, list[Pair]] = {}
    for a, b in paired:
        by_user.setdefault(a.prediction.user, []).append((a, b))
    by_size: dict[int, list[str]] = {}
    for user in by_user:
        by_size.setdefault(evidence.history_size[user], []).append(user)
    wanted = max(LEAST_A_GROUP, -(-len(by_user) // MOST_GROUPS))
    groups: list[list[str]] = [[]]
    for _, users in sorted(by_size.items()):
        if len(groups[-1]) >= wanted:
            groups.append([])
        groups[-1] += users
    if len(groups) > 1 and len(groups[-1]) < LEAST_A_GROUP:
        last = groups.pop()
        groups[-1] += last
    return [[pair for user in group for pair in by_user[user]] for group in groups]


def _paint_by_history(figure: Figure, records: Records, *, unit: str) -> None:
    ax = figure.subplots()
    ax.axhline(0, color=GREY, linewidth=0.7, zorder=0)
    for r in records:
        x = max(1, r["history_median"])
        ax.hlines(r["gain"], max(1, r["history_from"]), max(1, r["history_to"]), color=RED, linewidth=2.2, alpha=0.3)
        if r["gain_low"] is not None:
            ax.vlines(x, r["gain_low"], r["gain_high"], color=RED, linewidth=0.9)
        _dot(ax, x, r["gain"], hollow=r["gain_low"] is None)
    low, high = max(1, records[0]["history_from"]), max(2, records[-1]["history_to"])
    ax.set_xscale("log")
    ax.set_xlim(low / 1.15, high * 1.15)
    steps = [d * 10**e for e in range(7) for d in (1, 2, 5) if low <= d * 10**e <= high]
    style.ticks(ax, "x", [float(t) for t in (steps if len(steps) <= 7 else steps[::2])])
    bottom, top = ax.get_ylim()
    ax.set_ylim(bottom, top + 0.12 * (top - bottom))
    extent = math.log(high / low * 1.15**2)
    wanted = [math.log(max(1, r["history_median"]) / low * 1.15) / extent for r in records]
    for r, place in zip(records, spread(wanted, 0.11, 0.1, 1.0), strict=True):
        ax.text(place, 0.98, f"{r['n']:,}", transform=ax.transAxes, ha="center", va="top", fontsize=SMALL, color=GREY)
    ax.annotate("n", (0.015, 0.98), xycoords="axes fraction", va="top", fontsize=SMALL, color=GREY)
    style.few_ticks(ax, "y")
    style.grid(ax, "y")
    ax.set_xlabel("History, items (logarithmic)")
    ax.set_ylabel(unit.replace(" (", "\n("))


def _dot(ax: Axes, x: float, y: float, *, hollow: bool) -> None:
    ax.plot(x, y, "D", color=RED, markersize=3.6, markerfacecolor="white" if hollow else RED)

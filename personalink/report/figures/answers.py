"""Figures of single answers: what is confused with what, what a stated rating is worth, and how near a flip was."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from personalink.logprobs import NEAR_TIE
from personalink.report.answers import Judged
from personalink.report.evidence import Evidence
from personalink.report.figures import style
from personalink.report.figures.rows import MOST_ROWS, NO_GOLD
from personalink.report.figures.sketch import Data, LeftOut, Sketch
from personalink.report.figures.style import GREY, PALE, RED, SMALL, drawable
from personalink.report.figures.subject import DRAWS, FEW, LOOKS, chosen, close_rows, kind_of, row_name, sample
from personalink.stats import bootstrap_mean, wilson

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Records = list[dict[str, Any]]

MOST_LABELS = 24
"""Labels that a confusion matrix shows; the rarer ones are one class."""

INVALID, OTHER = "no label", "other labels"


def confusion(evidence: Evidence) -> Sketch | LeftOut:
    """Gold labels against what one row answered: the persona row, or the last row where there is none."""
    if evidence.task.kind not in ("label", "rating"):
        return LeftOut(f"task {evidence.task.name} has no fixed set of labels")
    row = chosen(evidence) or next((r for r in reversed(evidence.methods) if evidence.judged(r)), None)
    if row is None:
        return LeftOut(NO_GOLD)
    judged = evidence.judged(row)
    shown = _shown_labels(evidence, judged)
    counts = Counter((_named(one.gold, shown), _named(one.prediction.label, shown)) for one in judged)
    labels = [*shown, *([OTHER] if len(shown) < len(evidence.task.labels) else [])]
    answers = [*labels, *([INVALID] if any(answer == INVALID for _, answer in counts) else [])]
    used = {gold for gold, _ in counts} | {answer for _, answer in counts}
    labels, answers = [v for v in labels if v in used], [v for v in answers if v in used]
    shares = len(answers) > 8 and max(counts.values()) > 99
    records = [
        {"row": row, "gold": gold, "answer": answer, "count": counts[gold, answer]}
        for gold in labels for answer in answers
    ]  # fmt: skip
    absent = len(evidence.task.labels) - len([v for v in labels if v not in (OTHER,)])
    return Sketch(
        data=Data.of(records),
        caption=(
            f"What {row_name(row)} answered (across) to queries of each gold label (down); {sample(judged)}. Shade: "
            f"share of the gold label's queries{', in percent' if shares else ''}; the diagonal, framed, is right. "
            + (f"{absent} labels that neither occur nor were answered are left out. " if absent > 0 else "")
        ).strip(),
        height=min(4.4, 1.35 + 0.15 * len(labels)),
        paint=partial(_paint_confusion, labels=labels, answers=answers, shares=shares),
    )


def _shown_labels(evidence: Evidence, judged: Sequence[Judged]) -> list[str]:
    """The task's labels in their own order; of more than `MOST_LABELS`, those that occur most."""
    every = evidence.task.labels
    if len(every) <= MOST_LABELS:
        return list(every)
    seen = Counter(one.gold for one in judged) + Counter(one.prediction.label for one in judged)
    most = sorted(every, key=lambda label: -seen[label])[: MOST_LABELS - 1]
    return [label for label in every if label in set(most)]


def _named(label: str | None, shown: Sequence[str]) -> str:
    return INVALID if label is None else label if label in shown else OTHER


def _paint_confusion(figure: Figure, records: Records, *, labels: list[str], answers: list[str], shares: bool) -> None:
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.patches import Rectangle

    ax = figure.subplots()
    count = {(r["gold"], r["answer"]): r["count"] for r in records}
    total = {gold: sum(count[gold, answer] for answer in answers) for gold in labels}
    shades = [[count[g, a] / total[g] if total[g] else 0.0 for a in answers] for g in labels]
    blues = LinearSegmentedColormap.from_list("blues", ["#FFFFFF", "#7FB5DA", "#004B7A"])
    ax.pcolormesh(shades, cmap=blues, vmin=0, vmax=1, edgecolors="#EEEEEE", linewidth=0.4)
    size = SMALL if len(answers) <= 12 else 5.0
    for down, gold in enumerate(labels):
        for across, answer in enumerate(answers):
            value = count[gold, answer]
            text = f"{100 * shades[down][across]:.0f}" if shares else style.number(value)
            if text != "0":
                ink = "white" if shades[down][across] > 0.55 else style.INK
                ax.text(across + 0.5, down + 0.5, text, ha="center", va="center", fontsize=size, color=ink)
            if gold == answer:
                ax.add_patch(Rectangle((across, down), 1, 1, fill=False, edgecolor=style.INK, linewidth=0.6))
    ax.invert_yaxis()
    tick = SMALL if len(labels) <= 16 else 5.0
    turned = max(len(label) for label in labels) > 2
    ax.set_xticks(
        [i + 0.5 for i in range(len(answers))],
        labels=[drawable(a, 20) if turned or a in labels else drawable(a).replace(" ", "\n") for a in answers],
        rotation=90 if turned else 0,
        fontsize=tick,
    )
    ax.set_yticks(
        [i + 0.5 for i in range(len(labels))],
        labels=[f"{drawable(g, 20)} ({total[g]:,})" for g in labels],
        fontsize=tick,
    )
    ax.tick_params(length=0)
    for side in ax.spines.values():
        side.set_visible(False)
    ax.set_xlabel("Answer")
    ax.set_ylabel("Gold label (queries)")


def rating_reliability(evidence: Evidence) -> Sketch | LeftOut:
    """What a stated rating is worth: the mean gold rating of the queries that were answered with it."""
    if evidence.task.kind != "rating":
        return LeftOut(f"the answers of task {evidence.task.name} are no ratings")
    rows = [row for row in close_rows(evidence) if evidence.judged(row)]
    records = [record for row in rows for record in _reliability(evidence, row)]
    if not records:
        return LeftOut(NO_GOLD if not rows else "no answer of these rows could be read as a rating")
    return Sketch(
        data=Data.of(records),
        caption=(
            "Reliability of ratings: the mean gold rating where a rating was answered, so a reliable rater lies on the "
            f"grey line; {sample(evidence.judged(rows[0]))}, less answers without a rating. Area: share of the row's "
            f"answers. Bars: 95 % bootstrap intervals over queries; hollow: fewer than {FEW} answers, no interval."
        ),
        height=2.7,
        paint=partial(_paint_reliability, scale=[int(label) for label in evidence.task.labels]),
    )


def _reliability(evidence: Evidence, row: str) -> Records:
    by: dict[int, list[int]] = {}
    for one in evidence.judged(row):
        if one.prediction.label is not None and one.gold is not None:
            by.setdefault(int(one.prediction.label), []).append(int(one.gold))
    records = []
    for rating, golds in sorted(by.items()):
        found = bootstrap_mean(golds, seed=evidence.config["seed"], draws=DRAWS) if len(golds) >= FEW else None
        records.append(
            {
                "row": row,
                "kind": kind_of(evidence, row),
                "rating": rating,
                "mean_gold": math.fsum(golds) / len(golds),
                "mean_gold_low": found.low if found else None,
                "mean_gold_high": found.high if found else None,
                "n": len(golds),
                "share": len(golds) / sum(map(len, by.values())),
            }
        )
    return records


def _paint_reliability(figure: Figure, records: Records, *, scale: list[int]) -> None:
    ax = figure.subplots()
    low, high = scale[0], scale[-1]
    ax.plot([low, high], [low, high], color=PALE, linewidth=1.5, zorder=0)
    rows, marks = list(dict.fromkeys(r["row"] for r in records)), []
    for place, row in enumerate(rows):
        shift = 0.17 * (place - (len(rows) - 1) / 2) * max(1.0, (high - low) / 4)
        mine = [r for r in records if r["row"] == row]
        color = LOOKS[mine[0]["kind"]].color
        ax.plot([r["rating"] + shift for r in mine], [r["mean_gold"] for r in mine], color=color, lw=0.6, alpha=0.5)
        for r in mine:
            known = r["mean_gold_low"] is not None
            if known:
                ax.vlines(r["rating"] + shift, r["mean_gold_low"], r["mean_gold_high"], color=color, linewidth=0.8)
            ax.scatter(
                r["rating"] + shift, r["mean_gold"], s=8 + 90 * r["share"], zorder=3, linewidth=0.8,
                facecolor=color if known else "white", edgecolor=color,
            )  # fmt: skip
        marks.append(style.mark(drawable(row_name(row)), color, "o"))
    style.key(figure, marks)
    style.few_ticks(ax, "x", 10, whole=True)
    style.few_ticks(ax, "y", 6, whole=True)
    ax.set_xlim(*style.padded(low, high, 0.12))
    ax.set_ylim(*style.padded(low, high, 0.12))
    style.grid(ax, "y")
    ax.set_xlabel("Rating answered, points")
    ax.set_ylabel("Mean gold rating, points\n(the grey line is perfect)")


def near_ties(evidence: Evidence) -> Sketch | LeftOut:
    """How far each row's answers were from another one, in nats, and how many were near ties."""
    records = [record for row in evidence.methods if (record := _margins(evidence, row))]
    if not records:
        return LeftOut("no answer has a margin (lm.logprobs was off, or the server gives no log-probabilities)")
    shown = records[:MOST_ROWS]
    return Sketch(
        data=Data.of(records),
        caption=(
            "How near the answers were to a flip: the smallest lead of a token over its best rival. Dot: median; "
            "thick: middle half; thin: middle 90 % of the answers with a known margin; "
            f"n = {min(r['n'] for r in records):,} to {max(r['n'] for r in records):,} answers a row. "
            f"Shaded, under {NEAR_TIE} nats: near ties, which another batch, cache or GPU may flip; to the right their "
            "share, with its 95 % interval (Wilson 1927)."
        ),
        height=0.75 + 0.135 * len(shown),
        paint=_paint_near_ties,
    )


def _margins(evidence: Evidence, row: str) -> dict[str, Any] | None:
    import numpy as np

    found = [one.prediction.margin for one in evidence.rows[row] if one.prediction.margin is not None]
    if not found:
        return None
    near = sum(margin < NEAR_TIE for margin in found)
    share = wilson(near, len(found))
    levels = (5, 25, 50, 75, 95)
    return {
        "row": row,
        "kind": kind_of(evidence, row),
        "n": len(found),
        **{f"q{level}": float(q) for level, q in zip(levels, np.percentile(found, levels), strict=True)},
        "near_ties": near,
        "share": share.estimate,
        "share_low": share.low,
        "share_high": share.high,
    }


def _paint_near_ties(figure: Figure, records: Records) -> None:
    ax = figure.subplots()
    shown = records[:MOST_ROWS]
    ax.axvspan(-1e9, NEAR_TIE, color="#F6E3D8", linewidth=0, zorder=0)
    for place, r in enumerate(shown):
        color = LOOKS[r["kind"]].color
        ax.hlines(-place, r["q5"], r["q95"], color=color, linewidth=0.7)
        ax.hlines(-place, r["q25"], r["q75"], color=color, linewidth=2.4)
        ax.plot(r["q50"], -place, "o", color="white", markeredgecolor=color, markersize=3.4, markeredgewidth=0.9)
        ax.annotate(
            f"{style.percent(r['share'])} [{100 * r['share_low']:.0f}, {100 * r['share_high']:.0f}]",
            (1.02, -place),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=SMALL,
            color=RED if r["near_ties"] else GREY,
        )
    ax.annotate("near ties", (1.02, 0.7), xycoords=("axes fraction", "data"), fontsize=SMALL, color=GREY)
    ax.set_xscale("symlog", linthresh=NEAR_TIE, linscale=0.4)
    low, high = min(0.0, *(r["q5"] for r in shown)), max(NEAR_TIE * 2, *(r["q95"] for r in shown))
    style.ticks(ax, "x", [t for t in (-10, -1, -0.1, 0, NEAR_TIE, 0.5, 5, 50, 500) if low <= t <= high * 1.5])
    ax.set_xlim(low - NEAR_TIE / 4, high * 1.3)
    ax.set_yticks([-float(i) for i in range(len(shown))], labels=[drawable(row_name(r["row"])) for r in shown])
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.set_ylim(0.4 - len(shown), 1.2)
    style.grid(ax, "x")
    ax.set_xlabel("Margin, nats (larger is safer)")

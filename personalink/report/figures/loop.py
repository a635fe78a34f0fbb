"""Figures of the loop: what came of each pass, and the score that was selected on beside the audit score."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from personalink.refinement import Pass, Refinement
from personalink.report.evidence import Evidence
from personalink.report.figures import style
from personalink.report.figures.placing import spread
from personalink.report.figures.sketch import Data, LeftOut, Sketch
from personalink.report.figures.style import BLUE, GREY, ORANGE, PALE, RED, SKY, SMALL
from personalink.report.figures.subject import bands
from personalink.stats import wilson

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Records = list[dict[str, Any]]

NO_LOOP = "no row of this run has a refinement"
TOO_SHORT = "every user's history was too short for a slice, so no pass was made"

_ENDS = (
    ("accepted", "accepted", RED),
    ("not_better", "not better", SKY),
    ("same", "same persona again", PALE),
    ("unusable", "no usable proposal", ORANGE),
    ("idle", "nothing left to do", "#F0F0F0"),
)


def accepted(evidence: Evidence) -> Sketch | LeftOut:
    """Of each pass: how many users' candidates were accepted, refused or unusable, and who had nothing left to do."""
    users = _with_slice(evidence)
    if isinstance(users, LeftOut):
        return users
    deepest = max(len(r.passes) for r in users)
    if not deepest:
        return LeftOut("the loop made no pass (optimizer.depth is 0)")
    records = [_of_pass([r.passes[d] for r in users if d < len(r.passes)], d + 1) for d in range(deepest)]
    return Sketch(
        data=Data.of(records),
        caption=(
            f"What came of each pass, n = {len(users):,} users with a slice. To the right: the share of proposed "
            "candidates that the gate accepted, with its 95 % interval (Wilson 1927). “Nothing left to do”: no error "
            "on the slice, a fixed point, or an earlier refusal ended the loop."
        ),
        height=0.85 + 0.28 * len(records),
        paint=_paint_accepted,
    )


def _with_slice(evidence: Evidence) -> list[Refinement] | LeftOut:
    if not evidence.refinements:
        return LeftOut(NO_LOOP)
    users = [r for r in evidence.refinements.values() if r.slice_ids]
    return users or LeftOut(TOO_SHORT)


def _of_pass(passes: Sequence[Pass], depth: int) -> dict[str, Any]:
    ends = [_end(p) for p in passes]
    proposed = sum(p.candidate is not None for p in passes)
    share = wilson(ends.count("accepted"), proposed) if proposed else None
    return {
        "pass": depth,
        **{name: ends.count(name) for name, _, _ in _ENDS},
        "users": len(passes),
        "proposed": proposed,
        "accepted_share": share.estimate if share else None,
        "accepted_share_low": share.low if share else None,
        "accepted_share_high": share.high if share else None,
    }


def _end(one: Pass) -> str:
    """What a pass came to; one of `_ENDS`."""
    if one.accepted:
        return "accepted"
    if one.candidate is None:
        return "unusable" if one.calls else "idle"
    return "same" if one.candidate.render() == one.persona.render() else "not_better"


def _paint_accepted(figure: Figure, records: Records) -> None:
    from matplotlib.patches import Patch

    ax = figure.subplots()
    for place, record in enumerate(records):
        left = 0.0
        for name, _, color in _ENDS:
            width = record[name] / record["users"]
            ax.barh(-place, width, left=left, height=0.72, color=color, edgecolor="white", linewidth=0.6)
            if width >= 0.02 + 0.018 * len(f"{record[name]:,}"):
                ink = "white" if name == "accepted" else style.INK
                ax.text(
                    left + width / 2, -place, f"{record[name]:,}", ha="center", va="center", fontsize=SMALL, color=ink
                )
            left += width
        ax.annotate(
            _share(record), (1.02, -place), xycoords=("axes fraction", "data"), va="center", fontsize=SMALL, color=RED
        )
    ax.annotate("accepted of proposed", (1.02, 0.62), xycoords=("axes fraction", "data"), fontsize=SMALL, color=GREY)
    ax.set_yticks([-float(i) for i in range(len(records))], labels=[f"pass {r['pass']}" for r in records])
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.set_xlim(0, 1)
    style.ticks(ax, "x", [0.0, 0.5, 1.0], style.percent)
    ax.set_xlabel("Share of users")
    known = [(words, color) for name, words, color in _ENDS if any(r[name] for r in records)]
    style.key(figure, [Patch(facecolor=color, edgecolor=GREY, linewidth=0.3, label=words) for words, color in known])


def _share(record: dict[str, Any]) -> str:
    if record["accepted_share"] is None:
        return "–"
    low, high = record["accepted_share_low"], record["accepted_share_high"]
    return f"{style.percent(record['accepted_share'])} [{100 * low:.0f}, {100 * high:.0f}]"


def slice_audit(evidence: Evidence) -> Sketch | LeftOut:
    """By depth: the slice score, which the gate selected on, beside the audit score, which nobody selected on."""
    users = _with_slice(evidence)
    if isinstance(users, LeftOut):
        return users
    audited = [r for r in users if r.audit]
    if not audited:
        return LeftOut("no user has an audit slice (histories too short for one, or optimizer.audit is 0)")
    unit = _unit(evidence)
    depths = range(1 + max(len(r.passes) for r in audited))
    selection = [[r.score_at(depth).value for r in audited] for depth in depths]
    audit = [[r.audit[min(depth, len(r.audit) - 1)].value for r in audited] for depth in depths]
    ends = bands([*selection, *audit], evidence.config["seed"])
    records = [
        {
            "depth": depth,
            **_mean("selection", selection[depth], ends[depth]),
            **_mean("audit", audit[depth], ends[len(depths) + depth]),
            "users": len(audited),
        }
        for depth in depths
    ]
    return Sketch(
        data=Data.of(records),
        caption=(
            f"Selection beside audit by depth, n = {len(audited):,} users with an audit slice: {unit}. The slice score "
            "is what the gate maximised, so it is optimistic; nobody selected on the audit items. Bands: 95 % "
            "bootstrap intervals over users."
        ),
        height=2.1,
        paint=partial(_paint_slice_audit, unit=unit),
    )


def _mean(name: str, values: Sequence[float], ends: tuple[float, float]) -> dict[str, float]:
    return {name: math.fsum(values) / len(values), f"{name}_low": ends[0], f"{name}_high": ends[1]}


def _unit(evidence: Evidence) -> str:
    if evidence.task.kind == "label":
        return "share right (higher is better)"
    metric = evidence.config["optimizer"].get("gate_metric") or evidence.task.metric
    names = {
        **{"mae": "−MAE, points", "rmse": "−RMSE, points", "exact": "share exact"},
        **{"rouge_1": "mean ROUGE-1", "rouge_l": "mean ROUGE-L"},
    }
    return f"{names[metric]} (higher is better)"


def _paint_slice_audit(figure: Figure, records: Records, *, unit: str) -> None:
    ax = figure.subplots()
    x = [r["depth"] for r in records]
    looks = (("selection", "slice\n(selected on)", RED, "D"), ("audit", "audit\n(held out)", BLUE, "o"))
    for name, _, color, marker in looks:
        ax.fill_between(
            x, [r[f"{name}_low"] for r in records], [r[f"{name}_high"] for r in records],
            color=color, alpha=0.14, linewidth=0,
        )  # fmt: skip
        ax.plot(x, [r[name] for r in records], f"{marker}-", color=color)
    style.ticks(ax, "x", [float(value) for value in x])
    style.few_ticks(ax, "y")
    style.grid(ax, "y")
    ax.set_xlabel("Refinement depth r (passes)")
    ax.set_ylabel(f"{unit[0].upper()}{unit[1:]}".replace(" (", "\n("))
    low, high = ax.get_ylim()
    ends = spread([records[-1][name] for name, *_ in looks], 0.2 * (high - low), low, high)
    for (_, words, color, _), end in zip(looks, ends, strict=True):
        ax.annotate(words, (1.02, end), xycoords=("axes fraction", "data"), va="center", color=color, fontsize=SMALL)

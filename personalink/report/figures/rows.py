"""Figures of whole rows: every row's metric, quality against context cost, and quality by depth.

Their numbers are those of the results table; only the secondary metric's bands are computed here.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from personalink.metrics import bootstrap_interval, headline, primary
from personalink.report.evidence import Evidence
from personalink.report.figures import style
from personalink.report.figures.placing import Label, label_points
from personalink.report.figures.sketch import Data, LeftOut, Sketch
from personalink.report.figures.style import BLACK, BLUE, GREEN, GREY, RED, SMALL
from personalink.report.figures.subject import (
    DRAWS,
    LOOKS,
    axis,
    baseline,
    chosen,
    counted,
    kind_of,
    of_kind,
    persona_rows,
    row_name,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Records = list[dict[str, Any]]

NO_GOLD = "no answer has a known gold label (an official test split)"

MOST_ROWS = 40
"""Rows that one figure shows."""

_BOOTSTRAP = "Bars: 95 % bootstrap intervals over queries, as in the results table"
_NO_WIDTH = "; one without width means that all answers were alike in score, not that the figure is certain"


def every(evidence: Evidence) -> Sketch | LeftOut:
    """Every row's primary metric with its interval, floors first."""
    first, _ = primary(evidence.task)
    records = [_scores(evidence, row) for row in evidence.rows if evidence.judged(row)]
    if not records:
        return LeftOut(NO_GOLD)
    shown = records[:MOST_ROWS]
    base = baseline(evidence)
    return Sketch(
        data=Data.of(records),
        caption=_told(
            f"{axis(evidence, first)} of every row; {_sample(evidence)}. Dashed: no personalization",
            [_bars(shown), _beside_paper(shown), _cut(len(records))],
        ),
        height=0.55 + 0.135 * len(shown),
        paint=partial(_paint_methods, metric=first, name=axis(evidence, first), base=base or ""),
    )


def _scores(evidence: Evidence, row: str) -> dict[str, Any]:
    first, _ = primary(evidence.task)
    found = evidence.results.metrics[row]
    low, high = found["interval"] or (None, None)
    return {
        "row": row,
        "kind": kind_of(evidence, row),
        "context_tokens": found["context_tokens"],
        first: found[first],
        f"{first}_low": low,
        f"{first}_high": high,
        "n": found["n"],
        f"paper_{first}": _paper(evidence, row, first),
    }


def _paper(evidence: Evidence, row: str, metric: str) -> float | None:
    """What the paper printed, where the run has the paper's data."""
    theirs = evidence.results.metrics[row]["paper"] if evidence.config["data"]["kind"] == "lamp" else None
    return theirs[metric] if theirs else None


def _paint_methods(figure: Figure, records: Records, *, metric: str, name: str, base: str) -> None:
    ax = figure.subplots()
    shown = records[:MOST_ROWS]
    places = [-float(i) for i in range(len(shown))]
    reference = next((r[metric] for r in shown if r["row"] == base), None)
    if reference is not None:
        ax.axvline(reference, color=GREY, linewidth=0.6, linestyle=(0, (4, 3)), zorder=0)
    for place, record in zip(places, shown, strict=True):
        color, marker = _look(record)
        if record[f"{metric}_low"] is not None:
            ax.hlines(place, record[f"{metric}_low"], record[f"{metric}_high"], color=color, linewidth=1.0)
        ax.plot(record[metric], place, marker, color=color, markersize=3.6)
        theirs = record[f"paper_{metric}"]
        if theirs is not None:
            ax.plot(theirs, place, "|", color=BLACK, markersize=6, markeredgewidth=0.9)
        ax.annotate(
            f"{record[metric]:.3f}",
            (1.02, place),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=SMALL,
            color=color,
        )
    ax.set_yticks(places, labels=[style.drawable(row_name(r["row"])) for r in shown])
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.set_ylim(places[-1] - 0.6, 0.6)
    ax.set_xlabel(name)
    style.grid(ax, "x")
    style.at_least(ax, "x", 0.2)
    style.few_ticks(ax, "x")


def cost(evidence: Evidence) -> Sketch | LeftOut:
    """The paper's figure 3: the primary metric against the size of the context that a query carries."""
    first, _ = primary(evidence.task)
    kinds = ("none", "retrieval", "draft", "both", "oracle", "other")
    kept = {chosen(evidence), *(row for kind in kinds for row in of_kind(evidence, kind))}
    records = [_scores(evidence, row) for row in evidence.methods if row in kept]
    if not records:
        return LeftOut(NO_GOLD)
    if len({r["context_tokens"] for r in records}) < 2:
        return LeftOut("all rows place a context of the same size, so there is no cost to set against")
    caption = (
        f"Figure 3. Quality against context cost: {axis(evidence, first)} over the mean tokens placed before a "
        f"question (as the agent's counter counts them); {_sample(evidence)}. Blue: BM25 retrieval of k items. "
        "Red: the persona kept after r passes, built once; other depths are in figure 4, controls among all rows."
    )
    return Sketch(
        data=Data.of(records),
        caption=_told(caption.removesuffix("."), [_bars(records), _cut(len(records))]),
        height=2.6,
        paint=partial(_paint_cost, metric=first, name=axis(evidence, first)),
    )


def _paint_cost(figure: Figure, records: Records, *, metric: str, name: str) -> None:
    ax = figure.subplots()
    shown = records[:MOST_ROWS]
    base = next((r for r in shown if r["kind"] == "none"), None)
    if base:
        ax.axhline(base[metric], color=GREY, linewidth=0.6, linestyle=(0, (4, 3)), zorder=0)
    retrieval = sorted((r for r in shown if r["kind"] == "retrieval"), key=lambda r: float(r["context_tokens"]))
    path = [(float(r["context_tokens"]), float(r[metric])) for r in retrieval]
    ax.plot([x for x, _ in path], [y for _, y in path], color=BLUE, linewidth=1.0, alpha=0.6, zorder=1)
    bars = []
    for record in shown:
        color, marker = _look(record)
        x, low, high = record["context_tokens"], record[f"{metric}_low"], record[f"{metric}_high"]
        if low is not None:
            ax.vlines(x, low, high, color=color, linewidth=0.7, alpha=0.45, zorder=1)
            bars.append([(x, low), (x, high)])
        ax.plot(x, record[metric], marker, color=color, markersize=6 if marker == "*" else 4, zorder=3)
    most = max(r["context_tokens"] for r in shown)
    ax.set_xscale("symlog", linthresh=10, linscale=0.5)
    style.ticks(ax, "x", [t for t in (0, 10, 100, 1_000, 10_000, 100_000) if t <= most * 3])
    ax.set_xlim(-4, most * 2.2)
    style.at_least(ax, "y", 0.2)
    style.few_ticks(ax, "y")
    style.grid(ax, "y")
    ax.set_xlabel("Context tokens a query (0, then logarithmic)")
    ax.set_ylabel(name)
    style.settle(figure)
    order = {kind: i for i, kind in enumerate(("persona", "none", "oracle", "retrieval", "draft", "both"))}
    labels = [
        Label(r["context_tokens"], r[metric], style.drawable(row_name(r["row"], 20)), _look(r)[0])
        for r in sorted(shown, key=lambda r: order.get(r["kind"], 9))
    ]
    level = [[(0.0, base[metric]), (most * 2, base[metric])]] if base else []
    label_points(ax, labels, [*bars, *level, path])


def depth(evidence: Evidence) -> Sketch | LeftOut:
    """The paper's figure 4: the headline metrics after r passes, r = 0 being no personalization."""
    base, rows = baseline(evidence), persona_rows(evidence)
    by_depth = {**({0: base} if base else {}), **{r: row for r, row in rows.items() if evidence.judged(row)}}
    if len(by_depth) < 2:
        return LeftOut("it needs the rows of at least two depths (NoPers and a PersonaLink row), each with gold labels")
    beside = of_kind(evidence, "draft")[:1]
    records = [_at_depth(evidence, r, row) for r, row in by_depth.items()]
    records += [_at_depth(evidence, 1, row) for row in beside]
    names = headline(evidence.task)
    caption = (
        f"Figure 4. {' and '.join(axis(evidence, name).split(' (')[0] for name in names)} by refinement depth r; r = 0 "
        f"is no personalization; {_sample(evidence)}. Bands: 95 % bootstrap intervals over queries"
        f"{_NO_WIDTH if _flat(records, names) else ''}. "
        + ("A resample has fewer labels, so macro-F1 can lie above its band. " if _above(records) else "")
        + ("Hollow square: PAG, the first draft without the gate. " if beside else "")
        + ("Grey, dashed: the paper. " if any(r[f"paper_{names[0]}"] is not None for r in records) else "")
    )
    return Sketch(
        data=Data.of(records),
        caption=caption.strip(),
        height=3.1,
        paint=partial(_paint_depth, names=[(name, axis(evidence, name)) for name in names]),
    )


def _at_depth(evidence: Evidence, r: int, row: str) -> dict[str, Any]:
    first, second = headline(evidence.task)
    found = evidence.results.metrics[row]
    other = bootstrap_interval(
        evidence.task, evidence.scored(row), second, draws=DRAWS, seed=evidence.config["seed"]
    ) or (None, None)
    low, high = found["interval"] or (None, None)
    return {
        "depth": r,
        "row": row,
        "gated": kind_of(evidence, row) != "draft",
        first: found[first],
        f"{first}_low": low,
        f"{first}_high": high,
        second: found[second],
        f"{second}_low": other[0],
        f"{second}_high": other[1],
        "n": found["n"],
        f"paper_{first}": _paper(evidence, row, first),
        f"paper_{second}": _paper(evidence, row, second),
    }


def _paint_depth(figure: Figure, records: Records, *, names: list[tuple[str, str]]) -> None:
    axes = figure.subplots(len(names), 1, sharex=True)
    ours = [r for r in records if r["gated"]]
    drafts = [r for r in records if not r["gated"]]
    for ax, (metric, name) in zip(axes, names, strict=True):
        _paint_one_metric(ax, ours, drafts, metric, name)
    style.ticks(axes[-1], "x", sorted({float(r["depth"]) for r in records}))
    depths = [r["depth"] for r in records]
    axes[-1].set_xlim(min(depths) - 0.25, max(depths) + 0.35)
    axes[-1].set_xlabel("Refinement depth r (passes)")
    style.settle(figure)
    for ax, (metric, _) in zip(axes, names, strict=True):
        labels = [Label(r["depth"], r[metric], f"{r[metric]:.3f}", RED, 90) for r in ours]
        labels += [Label(r["depth"] + 0.12, r[metric], "PAG", GREEN) for r in drafts]
        theirs = [(r["depth"], r[f"paper_{metric}"]) for r in ours if r[f"paper_{metric}"] is not None]
        labels += [Label(x, y, "paper", GREY, 270) for x, y in theirs[-1:]]
        bars = [[(r["depth"] + 0.12, r[f"{metric}_{end}"] or 0.0) for end in ("low", "high")] for r in drafts]
        label_points(ax, labels, [[(r["depth"], r[metric]) for r in ours], theirs, *bars])


def _paint_one_metric(ax: Axes, ours: Records, drafts: Records, metric: str, name: str) -> None:
    x = [r["depth"] for r in ours]
    lows = [r[metric] if r[f"{metric}_low"] is None else r[f"{metric}_low"] for r in ours]
    highs = [r[metric] if r[f"{metric}_high"] is None else r[f"{metric}_high"] for r in ours]
    theirs = [(r["depth"], r[f"paper_{metric}"]) for r in ours if r[f"paper_{metric}"] is not None]
    if theirs:
        ax.plot([p[0] for p in theirs], [p[1] for p in theirs], "o", ls="--", color=GREY, mfc="white", lw=0.8, ms=3)
    ax.fill_between(x, lows, highs, color=RED, alpha=0.15, linewidth=0)
    ax.plot(x, [r[metric] for r in ours], "D-", color=RED)
    for r in drafts:
        if r[f"{metric}_low"] is not None:
            ax.vlines(r["depth"] + 0.12, r[f"{metric}_low"], r[f"{metric}_high"], color=GREEN, linewidth=0.7)
        ax.plot(r["depth"] + 0.12, r[metric], "s", color=GREEN, markerfacecolor="white")
    ax.margins(y=0.1)
    style.at_least(ax, "y", 0.2)
    style.few_ticks(ax, "y", 4)
    style.grid(ax, "y")
    ax.set_ylabel(name.replace(" (", "\n("))


def _look(record: dict[str, Any]) -> tuple[str, str]:
    """Colour and marker of a record's kind."""
    found = LOOKS[record["kind"]]
    return found.color, found.marker


def _sample(evidence: Evidence) -> str:
    """Users and queries that the rows are scored on, and who is missing."""
    keys = {one.key for row in evidence.rows for one in evidence.judged(row)}
    missing = len(evidence.incomplete)
    left = f" ({missing:,} unfinished users left out)" if missing else ""
    return counted(len({user for user, _ in keys}), len(keys)) + left


def _told(first: str, rest: list[str]) -> str:
    return ". ".join([first, *(text for text in rest if text)]) + "."


def _bars(records: Records) -> str:
    metric = next(name for name in records[0] if name.endswith("_low")).removesuffix("_low")
    return _BOOTSTRAP + (_NO_WIDTH if _flat(records, (metric,)) else "")


def _flat(records: Records, names: tuple[str, ...]) -> bool:
    """Whether an interval has no width."""
    return any(r[f"{n}_low"] is not None and r[f"{n}_low"] == r[f"{n}_high"] for r in records for n in names)


def _above(records: Records) -> bool:
    """Whether a macro-F1 lies above its own interval."""
    return any(r.get("macro_f1", 0) > (r.get("macro_f1_high") or 1) for r in records)


def _beside_paper(records: Records) -> str:
    theirs = any(value is not None for r in records for name, value in r.items() if name.startswith("paper_"))
    return "Upright strokes: the paper's figures" if theirs else ""


def _cut(count: int) -> str:
    return f"The first {MOST_ROWS} of {count} rows; the CSV has all" if count > MOST_ROWS else ""

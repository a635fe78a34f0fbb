"""What was measured, as one table with its notes. Knows the record and tables; measures nothing."""

from __future__ import annotations

from collections import Counter

from personalink.contraction.record import Contraction, Drift
from personalink.report.layout import Cell, Column, Table, written
from personalink.stats.records import Interval

_TITLES = {"preference_summary": "Summary", "exemplars": "Exemplars", "decision_rules": "Rules"}


def table(measured: Contraction, *, title: str = "") -> Table:
    """A line a pass: its mean displacement, the ratio to the pass before, who moved, and which fields did.

    Columns: displacement in [0, 2]; ratio with its interval over users; shares in [0, 1] of users whose persona the
    pass changed and whose candidate was kept; step, the mean displacement of the changed ones alone; a mean
    displacement a field. The notes tell L, fixed points, what was left out, and drift.
    """
    percent = f"{_confidence(measured):.4g} %"
    columns = [
        Column("pass", "Pass", "text"),
        Column("displacement", "Mean displacement", "metric"),
        Column("ratio", "Ratio", "metric"),
        Column("ratio_interval", f"{percent} interval", "interval"),
        Column("changed", "Changed", "metric"),
        *([Column("accepted", "Accepted", "metric")] if measured.accepted is not None else []),
        Column("step", "Step of changed", "metric"),
        *(Column(name, _TITLES.get(name, name), "metric") for name in measured.fields),
    ]
    rows = tuple(_row(measured, t) for t in range(measured.passes))
    return Table(title, tuple(columns), rows, tuple(_notes(measured)))


def _row(measured: Contraction, t: int) -> tuple[Cell, ...]:
    ratio = measured.decay.ratios[t - 1] if t else None
    return (
        str(t + 1),
        measured.decay.means[t],
        ratio.estimate if ratio else None,
        (ratio.low, ratio.high) if ratio and ratio.low < ratio.high else None,
        measured.changed[t],
        *([measured.accepted[t]] if measured.accepted is not None else []),
        measured.steps[t],
        *(motion.means[t] for motion in measured.fields.values()),
    )


def _notes(measured: Contraction) -> list[str]:
    n, fit, interval = len(measured.users), measured.decay.fit, measured.decay.interval
    if fit is None or interval is None:
        notes = [f"No fit, so no L: {measured.decay.no_fit}."]
    else:
        r2 = "which two passes always fit" if fit.r2 is None and measured.passes == 2 else f"R² {_three(fit.r2)}"
        notes = [f"L {_three(fit.L)} {_ends(interval)}, {r2}: a line through {measured.passes} means over {_users(n)}."]
        notes += [f"Interval of L: {interval.note}."] if interval.note else []
    still = sum(not one.moved for one in measured.users)
    same = sum(one.text_fixed is not None for one in measured.users) - still
    near = sum(one.fixed is not None for one in measured.users)
    notes.append(
        f"Of {_users(n)} {still} never moved, {same} moved and kept their text in the last pass; "
        f"{near} end at a fixed point (displacement at most {measured.tolerance:g})."
    )
    if measured.overlong:
        notes.append(
            f"{measured.overlong} of {measured.texts} texts are longer than the encoder reads; what stands beyond "
            "(rules stand last) counts in the columns by field alone."
        )
    for why, users in Counter(measured.left_out.values()).items():
        notes.append(f"Left out: {_users(users)} ({why}).")
    return [*notes, *([_told(measured.drift)] if measured.drift else []), f"Encoder: {measured.encoder}."]


def _told(drift: Drift) -> str:
    fields = ", ".join(f"{_TITLES.get(name, name).lower()} {_three(mean)}" for name, mean in drift.fields.items())
    apart = f"{drift.only_here} only here, {drift.only_there} only there"
    return (
        f"Drift against {drift.against}, {_users(len(drift.users))} in both ({apart}): mean displacement "
        f"{_three(drift.whole)} ({fields}); {drift.same:.1%} have the same text."
    )


def _confidence(measured: Contraction) -> float:
    known = [interval for interval in (measured.decay.interval, *measured.decay.ratios) if interval]
    return 100 * known[0].confidence if known else 95.0


def _ends(interval: Interval) -> str:
    return written((interval.low, interval.high), "interval")


def _users(n: int) -> str:
    return f"{n} user" if n == 1 else f"{n} users"


def _three(value: float | None) -> str:
    return written(value, "metric")

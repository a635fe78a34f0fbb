"""Figures of a run: the paper's 3 to 6 and more, each as SVG, PDF and PNG with its data as CSV beside it.

    from personalink.report import evidence, figures

    for drawn in figures.draw(evidence.load("runs/quickstart/0123456789ab"), Path("figures")):
        print(drawn.name, drawn.left_out or drawn.caption)

Knows which figures there are and where they are written; each is made in a module of its own, from evidence alone: no
model, no network. The same evidence gives the same bytes. Drawing needs matplotlib (the extra `report`), which is
imported when something is drawn and not before.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from personalink.canonical import write_atomic
from personalink.errors import StorageError
from personalink.report.evidence import Evidence
from personalink.report.figures import answers, gains, loop, paths, rows, saving, style
from personalink.report.figures.sketch import LeftOut, Sketch

NO_MATPLOTLIB = 'matplotlib is not installed, so only the data are written: pip install "personalink[report]"'


@dataclass(frozen=True, slots=True)
class Drawn:
    """What became of one figure.

    Attributes:
        name: of its files, such as "figure3_quality_by_cost".
        title: a few words. caption: what is seen, its sample sizes and intervals; "" where it was left out.
        paths: its SVG, PDF, PNG and CSV, in that order; the CSV alone where nothing can draw; () where left out.
        left_out: why it was not drawn, in one line; "" where it was.
    """

    name: str
    title: str
    caption: str = ""
    paths: tuple[Path, ...] = ()
    left_out: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """One of the figures: its files' name, its title, and how to sketch it from evidence."""

    name: str
    title: str
    sketch: Callable[[Evidence], Sketch | LeftOut]


FIGURES: tuple[Figure, ...] = (
    Figure("figure3_quality_by_cost", "Quality against context cost", rows.cost),
    Figure("figure4_depth", "Quality by refinement depth", rows.depth),
    Figure("figure5_trajectories", "Where the personas of a user move", paths.trajectories),
    Figure("figure6_decay", "How far each pass moves a persona", paths.decay),
    Figure("field_motion", "Which field still moves", paths.field_motion),
    Figure("rows", "Every row", rows.every),
    Figure("confusion", "What is confused with what", answers.confusion),
    Figure("label_gain", "Gain by gold label", gains.label_gain),
    Figure("history_gain", "Gain by size of the history", gains.history_gain),
    Figure("rating_reliability", "Reliability of ratings", answers.rating_reliability),
    Figure("accepted", "What came of each pass", loop.accepted),
    Figure("slice_audit", "Selection beside audit", loop.slice_audit),
    Figure("near_ties", "Margins and near ties", answers.near_ties),
)
"""All figures, the paper's first."""


def draw(evidence: Evidence, folder: Path) -> list[Drawn]:
    """Draw every figure that the evidence allows.

    Args:
        evidence: of one run.
        folder: where the files go; made when absent. Files of a figure that is left out now are taken away.

    Returns:
        One entry a figure, in the order of `FIGURES`, also for those left out.

    Raises:
        StorageError: the folder cannot be written; every file is then whole or as it was.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [_drawn(figure, evidence, folder) for figure in FIGURES]
    except OSError as error:
        msg = f"cannot write the figures to {folder}: {error.strerror}; give another folder"
        raise StorageError(msg) from None


def _drawn(figure: Figure, evidence: Evidence, folder: Path) -> Drawn:
    sketch = figure.sketch(evidence)
    files: dict[str, bytes] = {}
    reason = sketch.reason if isinstance(sketch, LeftOut) else ""
    if isinstance(sketch, Sketch):
        if importlib.util.find_spec("matplotlib") is None:
            reason = NO_MATPLOTLIB
        else:
            files = _files(f"{figure.title} – {style.plain(evidence.name, 60)}", sketch)
        files["csv"] = sketch.data.as_csv().encode()
    for kind in {*saving.FORMATS, "csv"} - files.keys():
        (folder / f"{figure.name}.{kind}").unlink(missing_ok=True)
    for kind, content in files.items():
        write_atomic(folder / f"{figure.name}.{kind}", content)
    caption = sketch.caption if isinstance(sketch, Sketch) else ""
    return Drawn(figure.name, figure.title, caption, tuple(folder / f"{figure.name}.{kind}" for kind in files), reason)


def _files(title: str, sketch: Sketch) -> dict[str, bytes]:
    with style.settings():
        page = style.blank(sketch.height)
        sketch.paint(page, sketch.data.records())
        style.settle(page)
        return saving.rendered(page, title, sketch.caption)

"""Words beside points, where they cover neither each other nor what is drawn.

Knows axes and boxes on the canvas; knows nothing of what is shown. The same input gives the same places.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from personalink.report.figures.style import SMALL

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.backend_bases import RendererBase

Box = tuple[float, float, float, float]
"""Left, bottom, right, top; pixels."""

Point = tuple[float, float]

_ANGLES = (0, 180, 45, 135, 315, 225, 90, 270)
_REACH = (4.5, 7.0, 10.0, 14.0, 19.0, 25.0, 32.0, 40.0)
_FAR = 0.03
"""What a point of distance costs (see `_Room.cost`)."""
_LED = 8.0
"""Points: a label that is farther from its point than this is led to it by a thin line."""


@dataclass(frozen=True, slots=True)
class Label:
    """A word at a point, in data coordinates; `first` is where it stands best: degrees, 0 to the right, 90 above."""

    x: float
    y: float
    text: str
    color: str
    first: int = 0


def label_points(ax: Axes, labels: Sequence[Label], lines: Sequence[Sequence[tuple[float, float]]] = ()) -> None:
    """Write each label at the best free place near its point; the first ones choose first.

    Args:
        ax: axes that are laid out (`style.settle`).
        labels: what to write where; each point is itself an obstacle.
        lines: polylines to keep clear of (data coordinates), such as intervals.
    """
    figure = ax.figure
    renderer: RendererBase = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    point = figure.dpi / 72.0
    inside = ax.get_window_extent(renderer)
    room = _Room(
        frame=(inside.x0, inside.y0, inside.x1, inside.y1),
        points=[_on_canvas(ax, label.x, label.y) for label in labels],
        crossed=[box for line in lines for box in _along([_on_canvas(ax, x, y) for x, y in line], point)],
        taken=[],
    )
    room.taken.extend((x - 2.5 * point, y - 2.5 * point, x + 2.5 * point, y + 2.5 * point) for x, y in room.points)
    for label, own in zip(labels, room.points, strict=True):
        look: dict[str, Any] = {"color": label.color, "fontsize": SMALL, "annotation_clip": False, "zorder": 5}
        text = ax.annotate(label.text, (label.x, label.y), **look)
        extent = text.get_window_extent(renderer)
        text.remove()
        box = min(
            (room.cost(place, own) + _FAR * reach, i, place)
            for reach in _REACH
            for i, place in enumerate(
                _place(own, angle, reach * point, (extent.width + 2 * point, extent.height))
                for angle in (label.first, *_ANGLES)
            )
        )[2]
        room.taken.append(box)
        led = _gap(box, own) > _LED * point
        ax.annotate(
            label.text,
            (label.x, label.y),
            xytext=(((box[0] + box[2]) / 2 - own[0]) / point, ((box[1] + box[3]) / 2 - own[1]) / point),
            textcoords="offset points",
            ha="center",
            va="center",
            arrowprops={"arrowstyle": "-", "color": label.color, "linewidth": 0.4, "shrinkA": 0, "shrinkB": 2.5}
            if led
            else None,
            **look,
        ).set_in_layout(False)


@dataclass(frozen=True, slots=True)
class _Room:
    """What stands where on the canvas: the axes, the labelled points, lines, and boxes that are taken; pixels."""

    frame: Box
    points: list[Point]
    crossed: list[Box]
    taken: list[Box]

    def cost(self, box: Box, own: Point) -> float:
        """How bad a place is: the share of it that covers words and points (× 8), lines, or what is outside (× 10);
        and 2 more where another point is nearer than the label's own, so that it would be read as that one's."""
        area = (box[2] - box[0]) * (box[3] - box[1])
        on_words = sum(_shared(box, other) for other in self.taken)
        on_lines = sum(_shared(box, other) for other in self.crossed)
        nearest = min(_gap(box, other) for other in self.points)
        outside = area - _shared(box, self.frame)
        return (8 * on_words + on_lines + 10 * outside) / area + 2 * (nearest < 0.9 * _gap(box, own))


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places as near to those wanted as can be, in the same order, at least `gap` apart and within [low, high].

    Where they do not all fit, they overlap evenly.
    """
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    gap = min(gap, (high - low) / max(1, len(order) - 1))
    places = [min(max(wanted[i], low), high) for i in order]
    for i in range(1, len(places)):
        places[i] = max(places[i], places[i - 1] + gap)
    if places and places[-1] > high:
        places[-1] = high
        for i in range(len(places) - 2, -1, -1):
            places[i] = min(places[i], places[i + 1] - gap)
    found = [0.0] * len(order)
    for place, i in zip(places, order, strict=True):
        found[i] = place
    return found


def _on_canvas(ax: Axes, x: float, y: float) -> Point:
    across, up = ax.transData.transform((x, y))
    return float(across), float(up)


def _place(own: Point, angle: int, reach: float, size: tuple[float, float]) -> Box:
    """A box whose nearest side or corner lies `reach` away in a direction."""
    across, up = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    cx = own[0] + across * reach + (0 if abs(across) < 0.1 else math.copysign(size[0] / 2, across))
    cy = own[1] + up * reach + (0 if abs(up) < 0.1 else math.copysign(size[1] / 2, up))
    return (cx - size[0] / 2, cy - size[1] / 2, cx + size[0] / 2, cy + size[1] / 2)


def _gap(box: Box, point: Point) -> float:
    """From a point to the nearest spot of a box; 0 inside."""
    return math.hypot(max(box[0] - point[0], 0, point[0] - box[2]), max(box[1] - point[1], 0, point[1] - box[3]))


def _shared(a: Box, b: Box) -> float:
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    return width * height if width > 0 and height > 0 else 0.0


def _along(line: Sequence[tuple[float, float]], point: float) -> list[Box]:
    """A line as small boxes, a few points apart."""
    boxes = []
    for (x0, y0), (x1, y1) in pairwise(line):
        steps = min(200, max(1, int(math.hypot(x1 - x0, y1 - y0) / (2 * point))))
        for step in range(steps + 1):
            x, y = x0 + (x1 - x0) * step / steps, y0 + (y1 - y0) * step / steps
            boxes.append((x - point, y - point, x + point, y + point))
    return boxes

"""How figures look: one column wide, colours that colour-blind people tell apart, words at the lines and no legend.

Knows the drawing library and its settings, which it never changes for anybody else; knows no run. All texts from
outside pass through `plain` or `drawable`, so that none breaks a line, turns its neighbours around or goes on for ever;
none is ever read as mathematics.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from personalink.text import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 3.3
"""Inches: a column of a two-column page."""

BLACK, BLUE, GREEN, RED, PURPLE, SKY, ORANGE = (
    *("#000000", "#0072B2", "#009E73", "#D55E00", "#B3589A", "#56B4E9", "#E69F00"),
)
"""Okabe & Ito's palette (2008), the purple darkened so that words in it can be read on white."""

GREY, PALE, INK = "#6B6B6B", "#D9D9D9", "#222222"

SMALL = 6.0
"""Points: the smallest type; the rest is 7."""

_MISSING = "\u25a1"
_MARKS = 2

_SETTINGS: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with the library, so it is the same everywhere
    "font.size": 7.0,
    "axes.labelsize": 7.0,
    "axes.titlesize": 7.0,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.minor.size": 0.0,
    "ytick.minor.size": 0.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.axisbelow": True,
    "lines.linewidth": 1.2,
    "lines.markersize": 4.0,
    "figure.dpi": 300.0,
    "savefig.dpi": 300.0,
    "text.parse_math": False,
    "svg.fonttype": "path",  # looks the same without the font
    "svg.hashsalt": "personalink",  # the ids of an SVG are otherwise random
    "pdf.fonttype": 42,  # TrueType: publishers refuse Type 3
    "pdf.compression": 6,
}


@contextmanager
def settings() -> Iterator[None]:
    """The library's settings for as long as a figure is made: its own defaults and ours, nothing of the user's.

    Everything is as before afterwards. Not for several threads at once: the library has one set of settings.
    """
    import matplotlib

    own: dict[Any, Any] = {name: value for name, value in matplotlib.rcParamsDefault.items() if name != "backend"}
    with matplotlib.rc_context(own | _SETTINGS):
        yield


def blank(height: float) -> Figure:
    """An empty figure, a column wide; it belongs to no window and to no global list of figures."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)
    figure.get_layout_engine().set(w_pad=0.03, h_pad=0.03)  # type: ignore[union-attr, call-arg]
    return figure


def settle(figure: Figure) -> None:
    """Lay the figure out once and for all, so that every format has the same geometry and places can be measured."""
    figure.draw_without_rendering()
    figure.set_layout_engine(None)


def plain(text: str, limit: int = 28) -> str:
    """`text` from outside on one line of at most `limit` characters, without control or direction marks."""
    kept, marks = [], 0
    for character in unicodedata.normalize("NFC", one_line(text)):
        category = unicodedata.category(character)
        marks = marks + 1 if category.startswith("M") else 0
        if category != "Cf" and marks <= _MARKS:
            kept.append(character)
        if len(kept) > limit:
            return "".join(kept[: limit - 1]).rstrip() + "…"
    return "".join(kept)


def drawable(text: str, limit: int = 28) -> str:
    """`plain` text as it can be drawn: □ for what the font has no glyph for, and no wider than `limit` letters n."""
    widths = _widths()
    kept: list[str] = []
    room = float(limit)
    for character in plain(text, limit):
        shown = character if character in widths else _MISSING
        room -= widths[shown]
        if room < 0:
            return "".join(kept).rstrip("…") + "…"
        kept.append(shown)
    return "".join(kept)


@lru_cache(maxsize=1)
def _widths() -> dict[str, float]:
    """How wide each character of the font is, the letter n being 1."""
    from matplotlib.font_manager import findfont
    from matplotlib.ft2font import FT2Font, LoadFlags

    font = FT2Font(findfont("DejaVu Sans"))

    def advance(code: int) -> float:
        return float(font.load_char(code, flags=LoadFlags.NO_SCALE).horiAdvance)

    unit = advance(ord("n"))
    return {chr(code): advance(code) / unit for code in font.get_charmap()}


def number(value: float) -> str:
    """A number on an axis: 1.5k for 1500, no trailing zeros, a true minus."""
    sign, size = ("−" if value < 0 else ""), abs(value)
    return f"{sign}{size / 1000:g}k" if size >= 1000 else f"{sign}{size:.3g}"


def ticks(ax: Axes, axis: str, values: list[float], write: Callable[[float], str] = number) -> None:
    """Ticks at `values` and nowhere else."""
    which = ax.xaxis if axis == "x" else ax.yaxis
    which.set_ticks(values, labels=[write(value) for value in values])
    which.set_minor_locator(_nowhere())


def _nowhere() -> Any:
    from matplotlib.ticker import NullLocator

    return NullLocator()


def few_ticks(ax: Axes, axis: str, most: int = 5, *, whole: bool = False) -> None:
    """At most some `most` round ticks."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    which = ax.xaxis if axis == "x" else ax.yaxis
    which.set_major_locator(MaxNLocator(most, integer=whole, steps=[1, 2, 2.5, 5, 10]))
    which.set_major_formatter(FuncFormatter(lambda value, _: number(round(value, 10))))


def grid(ax: Axes, axis: str) -> None:
    """Pale lines to read values by, in one direction."""
    ax.grid(axis=axis, color=PALE, linewidth=0.4)  # type: ignore[arg-type]


def at_least(ax: Axes, axis: str, extent: float) -> None:
    """No axis of a metric so narrow that noise looks like a finding: widened upwards, since none is below 0."""
    low, high = ax.get_xlim() if axis == "x" else ax.get_ylim()
    if high - low < extent:
        low = max(low, -0.05 * extent)
        (ax.set_xlim if axis == "x" else ax.set_ylim)(low, low + 1.05 * extent)


def padded(low: float, high: float, share: float = 0.06) -> tuple[float, float]:
    """A range with some room; never empty."""
    room = (high - low) * share or 0.05
    return low - room, high + room


def percent(share: float) -> str:
    """A share as text, such as "41 %"."""
    return f"{100 * share:.0f}\u00a0%"


def key(figure: Figure, handles: Sequence[Any], columns: int = 3) -> None:
    """What marks or colours stand for, above the axes, line by line: where there is no room at the things themselves.

    Args:
        handles: artists with a label.
        columns: most in a line.
    """
    by_column = [handle for first in range(columns) for handle in handles[first::columns]]  # it fills columns first
    figure.legend(
        handles=by_column,
        loc="outside upper left",
        ncols=columns,
        frameon=False,
        fontsize=SMALL,
        handlelength=1.0,
        handleheight=0.8,
        handletextpad=0.4,
        columnspacing=1.0,
        borderpad=0.0,
    )


def mark(words: str, color: str, marker: str, *, hollow: bool = False) -> Any:
    """An entry of a `key`: a mark that points are drawn with."""
    from matplotlib.lines import Line2D

    fill = "white" if hollow else color
    return Line2D(
        [], [], color=color, linestyle="none", marker=marker, markersize=3.6, markerfacecolor=fill, label=words
    )

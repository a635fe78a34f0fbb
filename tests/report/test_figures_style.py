"""How figures look: texts from outside are harmless, words do not cover each other, any number of users fits."""

from __future__ import annotations

import warnings

import pytest

from personalink.report import figures
from personalink.report.figures import Sketch, style
from personalink.report.figures.placing import Label, label_points, spread
from personalink.report.figures.subject import row_name
from personalink.tasks import LabelTask
from tests.report.figures_evidence import evidence
from tests.report.runs import ROWS

pytest.importorskip("matplotlib", reason="needs the extra `report`")

HOSTILE = (
    "$x^2$ \\frac", "a" * 300, "</script><b>", "שלום עולם", "مرحبا", "\u202eevil", "日本語", "🙂", "_hidden",
    "Z" + "\u0301" * 40, "%d {x} & # ~ ^", "\ue000private", "1\u00ad2",
)  # fmt: skip


def painted(sketch: Sketch) -> None:
    """Draw a figure, and write nothing."""
    with style.settings():
        figure = style.blank(sketch.height)
        sketch.paint(figure, sketch.data.records())
        figure.draw_without_rendering()


def test_hostile_texts_are_drawn_as_they_are_and_make_no_noise() -> None:
    task = LabelTask("hostile", "Say which.", HOSTILE)
    rows = {
        **ROWS,
        "$\\alpha</svg><script>alert(1)</script>": {"_target_": "mine.Context"},
        "行" * 99: {"_target_": "x.Y"},
    }
    users = [f"$u_{i}$\x00\u202e</text>\ud800{'x' * 500}" for i in range(40)]
    found = evidence(40, task, rows=rows, users=users, path="runs/$a$<b>\u202e")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*[Gg]lyph")
        for figure in figures.FIGURES:
            sketch = figure.sketch(found)
            if isinstance(sketch, Sketch):
                painted(sketch)
                assert sketch.data.as_csv().encode()
        sketch = figures.rows.every(found)
        assert isinstance(sketch, Sketch)
        files = figures._files("$t$ <b>\x00", sketch)
    assert b"<script" not in files["svg"]
    assert files["svg"].count(b"</svg>") == 1


def test_a_text_is_one_line_of_bounded_length_and_width() -> None:
    assert style.plain("a\nb\tc\x00") == "a b c"
    assert style.plain("\u202eabc\u2066\u200f") == "abc"
    assert style.plain("x" * 100, 10) == "x" * 9 + "…"
    assert style.plain("e" + "\u0301" * 30) == "é\u0301\u0301"
    assert style.drawable("日本") == "□□"
    assert style.drawable("W" * 28, 28).endswith("…")
    assert style.drawable("i" * 28, 28) == "i" * 28
    assert len(row_name("row " * 90)) <= 26


def test_a_number_on_an_axis_is_short() -> None:
    assert [style.number(v) for v in (0, 0.05, -0.25, 100, 1500, 10_000)] == [
        "0",
        "0.05",
        "−0.25",
        "100",
        "1.5k",
        "10k",
    ]


def test_words_at_points_cover_neither_each_other_nor_the_points() -> None:
    from matplotlib.text import Text

    with style.settings():
        figure = style.blank(2.6)
        ax = figure.subplots()
        points = [(0.5 + 0.02 * i, 0.5 + 0.01 * (i % 3)) for i in range(8)]
        ax.plot([x for x, _ in points], [y for _, y in points], "o")
        ax.set_xlim(0, 1)
        ax.set_ylim(0, 1)
        style.settle(figure)
        label_points(ax, [Label(x, y, f"label {i}", "black") for i, (x, y) in enumerate(points)])
        for text in ax.texts:
            text.update_positions(figure.canvas.get_renderer())
        boxes = [Text.get_window_extent(text).padded(-1) for text in ax.texts]  # without the line that leads to it
        inside = ax.get_window_extent()
    assert len(boxes) == 8
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    assert all(inside.x0 <= box.x0 and box.x1 <= inside.x1 for box in boxes)


def test_spread_keeps_order_and_distance() -> None:
    assert spread([0.5, 0.5, 0.1], 0.2, 0.0, 1.0) == pytest.approx([0.5, 0.7, 0.1])
    places = spread([1.0, 1.0, 1.0], 0.2, 0.0, 1.0)
    assert places == pytest.approx([0.6, 0.8, 1.0])
    assert spread([0.0] * 5, 9.0, 0.0, 1.0) == pytest.approx([0.0, 0.25, 0.5, 0.75, 1.0])
    assert spread([], 1.0, 0.0, 1.0) == []


@pytest.mark.parametrize(("n", "task"), [(1, "lamp2"), (2, "lamp3")])
def test_one_or_two_users_are_enough(n: int, task: str) -> None:
    found = evidence(n, task)
    left = set()
    for figure in figures.FIGURES:
        sketch = figure.sketch(found)
        if isinstance(sketch, Sketch):
            painted(sketch)
        else:
            left.add(figure.name)
    assert left <= {"history_gain", "rating_reliability", "figure5_trajectories", "figure6_decay", "field_motion"}


def test_many_users_and_many_labels_fit_a_column() -> None:
    task = LabelTask("many", "Say which.", tuple(f"label number {i}" for i in range(60)))
    found = evidence(1_000, task, margins=False)
    for figure in figures.FIGURES:
        sketch = figure.sketch(found)
        if isinstance(sketch, Sketch):
            assert sketch.height <= 6
            painted(sketch)
    confusion = figures.answers.confusion(found)
    assert isinstance(confusion, Sketch)
    assert len({r["gold"] for r in confusion.data.records()}) == 24
    assert sum(r["count"] for r in confusion.data.records()) == 1_000
    assert "in percent" in confusion.caption

"""The analyser on texts, with an encoder that can be reckoned by hand; on refinements, and on drift."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from personalink.canonical import pretty_json
from personalink.contraction import (
    EMPTY,
    Contraction,
    Remembered,
    analyse,
    as_csv,
    drift,
    of_refinements,
    plane,
    table,
)
from personalink.contraction.personas import field_text
from personalink.errors import ConfigError, DataError
from personalink.gate import SliceScore
from personalink.persona import FIELDS, Exemplar, PersonaState, Rule
from personalink.refinement import Pass, Refinement


class Angles:
    """Puts a text that names a number at that angle (in radians) on the unit circle, any other at 0; counts its work."""

    id = "angles"

    def __init__(self) -> None:
        self.encoded: list[str] = []

    def encode(self, texts: Sequence[str]) -> Any:
        self.encoded += texts
        angles = np.array([number(text) for text in texts])
        return np.stack([np.cos(angles), np.sin(angles), np.zeros(len(texts))], axis=1)


def number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def chord(angle: float) -> float:
    """How far apart two points of the unit circle are."""
    return round(2 * math.sin(abs(angle) / 2), 6)


class Words:
    id = "words"

    def count(self, text: str) -> int:
        return len(text.split())


WORDS = Words()


# texts


def test_displacement_is_the_chord_and_means_come_before_the_logarithm() -> None:
    found = analyse({"a": ["0", "1", "1.2"], "b": ["0", "0.5", "0.5"]}, Angles(), seed=1, draws=100)
    assert found.users[0].displacement == (chord(1), chord(0.2))
    assert found.users[1].displacement == (chord(0.5), 0)
    assert found.decay.means == pytest.approx(((chord(1) + chord(0.5)) / 2, chord(0.2) / 2))
    assert found.changed == (1, 0.5)
    assert found.steps == (pytest.approx((chord(1) + chord(0.5)) / 2), pytest.approx(chord(0.2)))
    assert found.accepted is None


@given(st.lists(st.lists(st.floats(-3, 3), min_size=4, max_size=4), min_size=1, max_size=5))
@settings(max_examples=50)
def test_changed_times_step_is_the_mean(angles: list[list[float]]) -> None:
    found = analyse([[repr(a) for a in row] for row in angles], Angles(), seed=1, draws=20)
    for mean, changed, step in zip(found.decay.means, found.changed, found.steps, strict=True):
        assert mean == pytest.approx(changed * (step or 0), abs=1e-12)


def test_fixed_points() -> None:
    rows = {
        "never": ["0", "0", "0", "0"],
        "from 1": ["0", "1", "1", "1"],
        "text": ["0", "1", "1.01", "1.02"],  # goes on changing, by less than the tolerance
        "last": ["0", "1", "1", "2"],
        "again": ["0", "1", "2", "2"],
    }
    found = {one.user: one for one in analyse(rows, Angles(), seed=1, draws=20).users}
    assert {name: one.text_fixed for name, one in found.items()} == {
        "never": 0, "from 1": 1, "text": None, "last": None, "again": 2,
    }  # fmt: skip
    assert {name: one.fixed for name, one in found.items()} == {
        "never": 0, "from 1": 1, "text": 1, "last": None, "again": 2,
    }  # fmt: skip
    assert [one.moved for one in found.values()] == [False, True, True, True, True]
    strict = analyse(rows, Angles(), seed=1, draws=20, tolerance=0)
    assert [one.fixed for one in strict.users] == [0, 1, None, None, 2]


def test_each_text_is_encoded_once_in_an_order_of_its_own() -> None:
    first, second = Angles(), Angles()
    rows = {"b": ["", "2", "2"], "a": ["", "1", "2"]}
    found = analyse(rows, first, seed=1, draws=20)
    turned = analyse(dict(reversed(rows.items())), second, seed=1, draws=20)
    assert sorted(first.encoded) == sorted({EMPTY, "1", "2"}) == first.encoded == second.encoded
    assert found.texts == 3
    assert found.users[0].displacement == turned.users[1].displacement
    memory = Remembered(first)
    assert Remembered.of(memory) is memory


def test_the_empty_text_is_encoded_as_its_fixed_text() -> None:
    encoder = Angles()
    analyse([["", "1"]], encoder, seed=1, draws=20)
    assert encoder.encoded == sorted([EMPTY, "1"])
    assert analyse([["", "1"]], Angles(), seed=1, draws=20, empty="1").decay.means == (0,)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "there is no user"),
        ({"a": ["x"]}, "at least two"),
        ({"a": ["x", "y"], "b": ["x", "y", "z"]}, "user 'b' has 3 texts, user 'a' 2"),
        ({"a": "xy"}, "user 'a': expected a sequence of texts"),
        ([["x", None]], "user '0': expected a sequence of texts"),
    ],
)
def test_texts_that_cannot_be_measured(given: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        analyse(given, Angles(), seed=1)


@pytest.mark.parametrize("setting", [{"tolerance": -1}, {"tolerance": math.nan}, {"draws": 0}, {"confidence": 1}])
def test_settings_out_of_range(setting: Any) -> None:
    with pytest.raises(ConfigError, match=next(iter(setting))):
        analyse([["x", "1"]], Angles(), seed=1, **setting)


@pytest.mark.parametrize(
    ("vectors", "said"),
    [
        (lambda n: np.ones((n, 3)), "length is not 1"),
        (lambda n: np.full((n, 3), np.nan), "length is not 1"),
        (lambda n: np.zeros((n, 3)), "length is not 1"),
        (lambda n: np.ones((n + 1, 1)), "expected"),
        (lambda n: np.ones(n), "expected"),
    ],
)
def test_an_encoder_that_does_not_keep_its_word(vectors: Any, said: str) -> None:
    class Broken:
        id = "broken"

        def encode(self, texts: Sequence[str]) -> Any:
            return vectors(len(texts))

    with pytest.raises(DataError, match=f"encoder broken .*{said}"):
        analyse([["x", "y"]], Broken(), seed=1)


# the plane


def test_the_plane_keeps_distances_of_points_in_it_and_fixes_its_signs() -> None:
    points = np.random.default_rng(3).normal(size=(12, 2)) * (5, 1)
    turned = points @ np.linalg.qr(np.random.default_rng(4).normal(size=(6, 6)))[0][:2]
    found = plane(turned)
    apart = np.linalg.norm(found.points[:, None] - found.points[None], axis=2)
    assert apart == pytest.approx(np.linalg.norm(points[:, None] - points[None], axis=2), abs=1e-5)
    assert sum(found.explained) == pytest.approx(1)
    assert found.explained[0] > found.explained[1]
    directions = np.linalg.lstsq(turned - turned.mean(axis=0), found.points, rcond=None)[0]
    assert all(column[np.abs(column).argmax()] > 0 for column in directions.T)
    again = plane(turned)
    assert (again.points == found.points).all()


def test_a_plane_of_nothing() -> None:
    same = plane(np.ones((4, 3)))
    assert same.explained == (0, 0)
    assert (same.points == 0).all()
    assert plane(np.array([[1.0], [2.0]])).points.shape == (2, 2)
    assert plane(np.array([[1.0, 0.0]])).explained == (0, 0)


# refinements


def persona(summary: str = "", rules: Sequence[str] = (), exemplars: Sequence[str] = ()) -> PersonaState:
    return PersonaState(
        summary,
        tuple(Exemplar(text, text, "north") for text in exemplars),
        tuple(Rule(text, "south") for text in rules),
        counter=WORDS,
    )


def refinement(user: str, kept: Sequence[PersonaState], *, slice_ids: tuple[str, ...] = ("i",)) -> Refinement:
    """A loop that kept these personas, one a pass; one equal to the one before was refused."""
    score = SliceScore((1,), 1.0)
    before = [persona(), *kept]
    passes = tuple(
        Pass(t, score, score, None, old.hash != new.hash, "", new, new)
        for t, (old, new) in enumerate(zip(before, kept, strict=False), 1)
    )
    return Refinement(user, 7, slice_ids, (), score, persona(), passes)


A, B, C = persona("likes it", ["a"]), persona("likes it", ["a", "b"]), persona("likes it", ["b"], ["e"])


def test_refinements_are_measured_whole_and_by_field() -> None:
    found = of_refinements([refinement("u", [A, B, B]), refinement("v", [A, A, C])], ByWord())
    assert found.seed == 7
    assert found.accepted == (1, 0.5, 0.5)
    assert found.changed == (1, 0.5, 0.5)
    assert [one.text_fixed for one in found.users] == [2, None]
    summary, exemplars, rules = (found.fields[name] for name in FIELDS)
    assert summary.changed == (1, 0, 0)
    assert exemplars.changed == (0, 0, 0.5)
    assert rules.changed == (1, 0.5, 0.5)
    assert summary.means[1:] == (0, 0)
    assert exemplars.means[:2] == (0, 0)
    assert exemplars.means[2] > 0
    assert found.users[0].fields["decision_rules"][1] > 0
    assert len(found.users[0].points) == 4


class ByWord:
    """A bag of words over 64 places, at unit length."""

    id = "words"

    def encode(self, texts: Sequence[str]) -> Any:
        made = np.zeros((len(texts), 64))
        for row, text in zip(made, texts, strict=True):
            row[0] = 1
            for word in text.split():
                row[1 + sum(word.encode("utf-8", "surrogatepass")) % 63] += 1
        return made / np.linalg.norm(made, axis=1, keepdims=True)

    def overlong(self, texts: Sequence[str]) -> int:
        return sum(len(text) > 1000 for text in texts)


def test_the_text_of_the_empty_persona_is_the_headings_of_a_full_one() -> None:
    headings = [line for line in C.render().split("\n") if not line.startswith("- ")]
    assert [line.split(":")[0] + ":" for line in headings] == EMPTY.split("\n")
    assert "\n".join(field_text(persona(), name) for name in ("exemplars", FIELDS[0], "decision_rules")) == EMPTY
    assert sorted(C.render().split("\n")) == sorted(line for name in FIELDS for line in field_text(C, name).split("\n"))


def test_who_has_no_loop_is_left_out_and_named() -> None:
    short = refinement("short", [persona()], slice_ids=())
    found = of_refinements([short, refinement("u", [A])], ByWord())
    assert [one.user for one in found.users] == ["u"]
    assert found.left_out == {"short": "history too short for the loop"}
    with pytest.raises(DataError, match="none of 1 refinements has a pass"):
        of_refinements([short], ByWord())


def test_a_loop_that_ended_earlier_stays_where_it_is() -> None:
    found = of_refinements([refinement("u", [A]), refinement("v", [A, B, C])], ByWord(), seed=1)
    assert found.users[0].displacement[1:] == (0, 0)
    assert found.users[0].accepted == (True, False, False)


def test_drift_is_same_user_and_same_field() -> None:
    found = drift({"u": A, "v": B, "w": A}, {"u": A, "v": C, "x": A}, ByWord(), against="older")
    assert [one.user for one in found.users] == ["u", "v"]
    assert (found.only_here, found.only_there, found.same) == (1, 1, 0.5)
    assert found.users[0].whole == 0
    assert found.users[1].whole > 0
    assert found.users[1].fields["preference_summary"] == 0
    assert found.fields["exemplars"] > 0
    back = drift({"v": C}, {"v": B}, ByWord())
    assert back.users[0].whole == found.users[1].whole
    with pytest.raises(DataError, match="no user of older"):
        drift({"u": A}, {"x": A}, ByWord(), against="older")


# the record


def test_the_record_is_json_both_ways() -> None:
    moved = of_refinements([refinement("u\ud800", [A, B, C]), refinement("v", [A, A, A])], ByWord(), draws=50)
    full = dataclasses.replace(moved, drift=drift({"u": A}, {"u": C}, ByWord(), against="old"))
    unbounded = analyse([["0", "0", "1"], ["0", "1", "1.1"]], Angles(), seed=1, draws=50)
    assert unbounded.decay.interval is not None
    assert unbounded.decay.interval.high == math.inf
    for measured in (moved, full, unbounded, analyse([["0", "0", "0"]], Angles(), seed=1, draws=50)):
        data = json.loads(pretty_json(measured.as_dict()))
        assert Contraction.from_dict(data) == measured


def test_what_is_no_record_is_refused() -> None:
    good = analyse([["0", "1"]], Angles(), seed=1, draws=50).as_dict()
    for bad in ({}, {**good, "version": 2}, {**good, "decay": None}, {**good, "users": [{}]}, [], None):
        with pytest.raises(DataError, match="run `personalink contraction` again"):
            Contraction.from_dict(bad)  # type: ignore[arg-type]


def test_csv_has_a_line_a_user_and_depth() -> None:
    lines = as_csv(of_refinements([refinement("u,\ud800", [A, B])], ByWord(), draws=50)).splitlines()
    assert lines[0].startswith("user,depth,x,y,displacement,changed,accepted,preference_summary")
    assert [line.split('"')[1] for line in lines[1:]] == ["u,\\ud800"] * 3
    assert lines[3].split(",")[2] == "2"


def test_the_table_tells_fit_fixed_points_and_fields() -> None:
    rows = [refinement("u", [A, B, C]), refinement("v", [A, A, B]), refinement("w", [persona()] * 3)]
    text = table(of_refinements(rows, ByWord(), draws=200), title="one run").as_text()
    assert max(map(len, text.splitlines())) <= 120
    for said in ("one run", "Summary", "R² 0.", "3 users", "Of 3 users 1 never moved", "Encoder: words"):
        assert said in text
    short = refinement("x", [persona()], slice_ids=())
    moved = of_refinements([*rows, short], ByWord(), draws=200)
    text = table(dataclasses.replace(moved, drift=drift({"u": A}, {"u": C, "v": A}, ByWord(), against="old"))).as_text()
    assert "Left out: 1 user (history too short for the loop)." in text
    assert "Drift against old, 1 user in both (0 only here, 1 only there): mean displacement 0." in text
    still = table(analyse([["0", "0", "0"]], Angles(), seed=1, draws=50)).as_text()
    assert "No fit, so no L: mean displacement 0 in pass 1 and 2" in still


def test_long_texts_are_counted_where_the_encoder_can_tell() -> None:
    long = analyse([["x" * 1001, "y"]], ByWord(), seed=1, draws=50)
    assert long.overlong == 1
    assert "1 of 2 texts are longer" in table(long).as_text()
    assert analyse([["x", "y"]], Angles(), seed=1, draws=50).overlong is None


@given(
    st.lists(st.lists(st.text(alphabet=st.characters(), max_size=40), min_size=3, max_size=3), min_size=1, max_size=4)
)
@settings(max_examples=40)
def test_any_texts_go_through(rows: list[list[str]]) -> None:
    found = analyse(rows, ByWord(), seed=1, draws=20)
    assert Contraction.from_dict(json.loads(pretty_json(found.as_dict()))) == found
    assert all(0 <= step <= 2 for one in found.users for step in one.displacement)


def test_hostile_texts_go_through() -> None:
    rows = [["", "\x00", "x " * 25_000], ["\ud800", "</script>", "\u202e"]]
    assert analyse(rows, ByWord(), seed=1, draws=20).texts == 6

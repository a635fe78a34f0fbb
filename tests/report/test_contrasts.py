"""Two rows compared: the printed p-values, a row against itself, ratings, and what a tie amounts to."""

from __future__ import annotations

import pytest

from personalink.errors import ConfigError, DataError
from personalink.predictions import Prediction
from personalink.report.answers import Judged
from personalink.report.contrasts import Choices, Contrast, contrast, matched
from personalink.tasks import task

NEWS, STARS = task("lamp2"), task("lamp3")


def judged(labels: list[str | None], golds: list[str | None], users: list[str] | None = None) -> list[Judged]:
    users = users or [f"u{i}" for i in range(len(labels))]
    return [
        Judged(Prediction(user, "q", "row", label, "exact", "ok" if label else "unreadable", label or "eh", 0), gold)
        for user, label, gold in zip(users, labels, golds, strict=True)
    ]


def news(right_a: list[bool], right_b: list[bool], **choices: object) -> Contrast:
    golds: list[str | None] = ["politics"] * len(right_a)
    sides = (judged(["politics" if x else "women" for x in right], golds) for right in (right_a, right_b))
    return contrast(NEWS, matched(*sides), seed=1, choices=Choices(**choices))  # type: ignore[arg-type]


@pytest.mark.parametrize(("test", "p"), [("exact", 1.0), ("mid_p", 0.8872), ("chi2cc", 0.7728)])
def test_six_against_six(test: str, p: float) -> None:
    a, b = [True] * 6 + [False] * 6 + [True] * 188, [False] * 6 + [True] * 6 + [True] * 188
    made = news(a, b, mcnemar=test)
    assert made.p == pytest.approx(p, abs=5e-5)
    assert (made.n, made.a_better, made.b_better) == (200, 6, 6)
    assert (made.mcnemar.a_only, made.mcnemar.b_only) == (6, 6)
    assert made.difference.estimate == 0
    assert made.difference.low < 0 < made.difference.high


def test_a_row_against_itself_is_no_difference_anywhere() -> None:
    labels: list[str | None] = ["1", "3", None, "5", "2", "4"]
    golds: list[str | None] = ["1", "5", "2", "4", "2", "1"]
    ratings = judged(labels, golds)
    for made in (
        contrast(STARS, matched(ratings, ratings), seed=1, choices=Choices()),
        news([True, False] * 50, [True, False] * 50),
    ):
        assert made.p == made.second.p == 1
        assert made.difference.estimate == made.second.difference == 0
        assert made.a == made.b
        assert (made.a_better, made.b_better) == (0, 0)
        assert made.verdict(1.0, "higher") == "equivalent"


def test_ratings_are_compared_by_their_errors_and_an_unread_one_is_the_farther_end() -> None:
    golds: list[str | None] = ["1", "5", "3", "4"]
    made = contrast(
        STARS,
        matched(judged(["2", None, "3", "4"], golds), judged(["1", "5", "3", "2"], golds)),
        seed=1,
        choices=Choices(),
    )
    assert (made.a, made.b) == (5 / 4, 2 / 4)
    assert made.difference.estimate == 3 / 4
    assert made.second.difference == pytest.approx((17 / 4) ** 0.5 - 1)
    assert (made.a_better, made.b_better) == (1, 2)
    assert "bootstrap" in made.test


def test_pairs_are_the_queries_that_both_answered_and_that_have_a_gold() -> None:
    a = judged(["1", "2", "3"], ["1", None, "3"], ["x", "y", "z"])
    b = judged(["3", "2", "1"], ["3", None, "1"], ["z", "y", "w"])
    assert [(one.key, other.key) for one, other in matched(a, b)] == [(("z", "q"), ("z", "q"))]
    with pytest.raises(DataError, match="empty"):
        contrast(STARS, [], seed=1, choices=Choices())


def test_what_a_tie_amounts_to() -> None:
    few = news([True, False, True, False], [True, True, False, False])
    assert few.verdict(few.p, "higher") == "undecided"
    many = news([True] * 3 + [False] * 2 + [True] * 495, [False] * 3 + [True] * 2 + [True] * 495)
    assert many.verdict(many.p, "higher") == "equivalent"
    ahead = news([True] * 40 + [False] * 25 + [True] * 135, [False] * 40 + [True] * 25 + [True] * 135)
    assert ahead.p > 0.05
    assert ahead.verdict(ahead.p, "higher") == "not inferior"
    behind = news([False] * 40 + [True] * 25 + [True] * 135, [True] * 40 + [False] * 25 + [True] * 135)
    assert behind.verdict(behind.p, "higher") == "not superior"


def test_a_significant_difference_is_named_by_its_direction() -> None:
    made = news([True] * 30, [False] * 20 + [True] * 10)
    assert made.verdict(made.p, "higher") == "better"
    assert made.verdict(made.p, "lower") == "worse"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"mcnemar": "chi2"}, "mcnemar is 'chi2'"), ({"margin": 0.0}, "margin is 0.0"), ({"margin": float("nan")}, "nan")],
)
def test_wrong_choices_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Choices(**wrong)  # type: ignore[arg-type]


def test_a_margin_too_large_for_shares_is_refused() -> None:
    with pytest.raises(ConfigError, match="margin is 1"):
        news([True], [True], margin=1.0)

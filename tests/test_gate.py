"""The gates: exact integers, any order of items, never a fall of the score."""

import math
import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from personalink.errors import ConfigError
from personalink.gate import GATES, Margin, McNemar, NoRegress, SliceScore, Strict, discordant, exact_p, make_gate

ALL = (Strict(), NoRegress(), Margin(0.1), Margin(0.0), Margin(0.25), McNemar(0.05), McNemar(0.5), McNemar(1.0))


def score(points) -> SliceScore:
    return SliceScore(tuple(points), sum(points) / len(points) if points else 0.0)


def sign_p(fixed: int, broken: int) -> Fraction:
    """2 · P(X ≤ min) for X ~ Binomial(n, ½), at most 1; from factorials, apart from the code under test."""
    n = fixed + broken
    ways = [math.factorial(n) // (math.factorial(i) * math.factorial(n - i)) for i in range(min(fixed, broken) + 1)]
    return min(Fraction(1), Fraction(2 * sum(ways), 2**n))


def rules(fixed: int, broken: int, size: int) -> dict[str, bool]:
    """The integer rule of each gate for items that are right or wrong."""
    p = sign_p(fixed, broken)
    return {
        "strict": fixed > broken,
        "no_regress": fixed >= broken,
        "margin": fixed > broken and 10 * (fixed - broken) >= size,
        "mcnemar": fixed > broken and 20 * p.numerator <= p.denominator,
    }


def test_every_size_and_every_pair_in_any_order_equals_the_integer_rule():
    shuffle = random.Random(0).shuffle
    gates = {name: make_gate(name) for name in GATES}
    for size in range(1, 65):
        for fixed in range(size + 1):
            for broken in range(size + 1 - fixed):
                rest = size - fixed - broken
                items = [(0, 1)] * fixed + [(1, 0)] * broken + [(i % 2,) * 2 for i in range(rest)]
                shuffle(items)
                before, after = score([a for a, _ in items]), score([b for _, b in items])
                wanted = rules(fixed, broken, size)
                got = {name: gate.accepts(before, after) for name, gate in gates.items()}
                assert got == wanted, (size, fixed, broken)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(-16, 1), st.integers(-16, 1)), max_size=30), st.randoms())
def test_no_gate_lets_the_score_fall_and_order_changes_nothing(items, rng):
    before, after = score([a for a, _ in items]), score([b for _, b in items])
    mixed = items[:]
    rng.shuffle(mixed)
    for gate in ALL:
        verdict = gate.accepts(before, after)
        assert not verdict or after.total >= before.total
        assert verdict == gate.accepts(score([a for a, _ in mixed]), score([b for _, b in mixed]))
        assert not gate.accepts(before, before) or isinstance(gate, NoRegress)


def test_ties_are_decided_by_arithmetic():
    before = score([0] * 10)
    one = score([1] + [0] * 9)
    assert Margin(0.1).accepts(before, one)
    assert Margin(0.3).accepts(before, score([1] * 3 + [0] * 7))
    assert not Margin(0.1).accepts(score([0] * 11), score([1] + [0] * 10))
    for n in range(1, 200):
        for hundredths in (7, 10, 14, 28, 55, 70):  # 0.07 * 100 is 7.000000000000001
            needed = -(-hundredths * n // 100)
            gate = Margin(hundredths / 100)
            assert gate.accepts(score([0] * n), score([1] * needed + [0] * (n - needed)))
            assert not gate.accepts(score([0] * n), score([1] * (needed - 1) + [0] * (n - needed + 1)))


def test_a_margin_of_nothing_still_asks_for_a_better_score():
    assert not Margin(0.0).accepts(score([1, 0]), score([0, 1]))
    assert not Margin(0.0).accepts(score([]), score([]))


def test_ratings_are_compared_by_their_sum_and_mcnemar_by_items():
    before, after = score([-4, 0, 0, 0]), score([0, -1, -1, -1])
    assert Strict().accepts(before, after)
    assert not McNemar(1.0).accepts(before, after)
    assert discordant(before, after) == (1, 3)
    assert McNemar(1.0).accepts(score([-1, -1, 0]), score([0, 0, -1]))


def test_a_win_of_one_item_in_three_is_told_with_its_p():
    assert Strict().accepts(score([0, 1, 0]), score([1, 1, 0]))
    assert exact_p(1, 0) == 1
    assert not McNemar().accepts(score([0] * 5), score([1] * 5))
    assert exact_p(5, 0) == Fraction(1, 16)
    assert McNemar().accepts(score([0] * 6), score([1] * 6))


def test_exact_p_is_scipys():
    assert exact_p(0, 0) == 1
    for better in range(20):
        for worse in range(20):
            if better + worse:
                wanted = binomtest(better, better + worse, 0.5).pvalue
                assert math.isclose(exact_p(better, worse), wanted, rel_tol=1e-12)
                assert exact_p(better, worse) == exact_p(worse, better) == sign_p(better, worse)


def test_other_slices_cannot_be_compared_item_by_item():
    with pytest.raises(ValueError, match="zip"):
        discordant(score([1]), score([1, 0]))


def test_make_gate():
    assert [make_gate(name).name for name in GATES] == list(GATES)
    assert make_gate("margin", margin=0.2) == Margin(0.2)
    assert make_gate("mcnemar", alpha=0.1) == McNemar(0.1)
    with pytest.raises(ConfigError, match=r"gate is 'stric'; it must be one of strict, no_regress, margin, mcnemar"):
        make_gate("stric")


@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf, "0.1", None])
def test_a_margin_out_of_range(value):
    with pytest.raises(ConfigError, match=r"gate margin is .*; it must be a number of points an item of at least 0"):
        make_gate("margin", margin=value)


@pytest.mark.parametrize("value", [0, -0.1, 1.1, math.nan, "0.05", None])
def test_an_alpha_out_of_range(value):
    with pytest.raises(ConfigError, match=r"gate alpha is .*; it must be a probability above 0 and at most 1"):
        make_gate("mcnemar", alpha=value)

"""McNemar's three tests: the issue's figures, scipy and statsmodels as oracles, and a table that adds up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest
from statsmodels.stats.contingency_tables import mcnemar as statsmodels_mcnemar

from personalink.errors import DataError
from personalink.gate import exact_p
from personalink.stats import mcnemar, mcnemar_counts
from personalink.stats.discordant import TESTS, p_values

counts = st.integers(0, 400)


def test_the_papers_tie_at_six_against_six():
    found = mcnemar_counts(6, 6)
    assert found.exact == 1
    assert f"{found.mid_p:.4f}" == "0.8872"
    assert f"{found.chi2cc:.4f}" == "0.7728"
    assert (found.a_only, found.b_only, found.discordant) == (6, 6, 12)


@pytest.mark.parametrize("table", [mcnemar_counts(0, 0), mcnemar([True, False], [True, False]), mcnemar([1], [1])])
def test_no_discordant_pair_gives_one_by_every_test(table):
    assert (table.exact, table.mid_p, table.chi2cc) == (1, 1, 1)


@settings(deadline=None)
@given(counts, counts)
def test_exact_and_chi2cc_are_statsmodels(b, c):
    found = mcnemar_counts(b, c)
    table = [[0, b], [c, 0]]
    assert found.exact == pytest.approx(statsmodels_mcnemar(table, exact=True).pvalue, abs=1e-12)
    if b + c:
        cc = statsmodels_mcnemar(table, exact=False, correction=True).pvalue
        assert found.chi2cc == pytest.approx(cc, abs=1e-12)
        assert found.exact == pytest.approx(binomtest(min(b, c), b + c).pvalue, abs=1e-12)


@settings(deadline=None)
@given(counts, counts)
def test_mid_p_by_its_definition(b, c):
    f = float(binom.pmf(b, b + c, 0.5))
    expected = 1 if b + c == 0 else 1 - f / 2 if b == c else binomtest(b, b + c).pvalue - f
    assert mcnemar_counts(b, c).mid_p == pytest.approx(expected, abs=1e-12)


@settings(deadline=None)
@given(counts, counts)
def test_sides_are_alike_and_mid_p_is_never_above_exact(b, c):
    one, other = mcnemar_counts(b, c), mcnemar_counts(c, b)
    assert (one.exact, one.chi2cc) == (other.exact, other.chi2cc)
    assert one.mid_p == pytest.approx(other.mid_p, abs=1e-15)
    assert 0 <= one.mid_p <= one.exact <= 1


@settings(deadline=None)
@given(st.integers(0, 60), st.integers(0, 60))
def test_the_gates_exact_p_is_the_same(b, c):
    assert mcnemar_counts(b, c).exact == pytest.approx(float(exact_p(b, c)), abs=1e-14)


def test_large_counts_keep_their_digits():
    assert mcnemar_counts(49_500, 50_500).exact == pytest.approx(binomtest(49_500, 100_000).pvalue, rel=1e-10)
    assert mcnemar_counts(0, 900).exact == pytest.approx(2.0**-899, rel=1e-10)


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=50))
def test_the_table_adds_up(pairs):
    a, b = zip(*pairs, strict=True)
    found = mcnemar(a, b)
    assert found.n == len(pairs)
    assert found.both == sum(x and y for x, y in pairs)
    assert found.a_only == sum(x and not y for x, y in pairs)
    counted = mcnemar_counts(found.a_only, found.b_only)
    assert (counted.exact, counted.mid_p, counted.chi2cc) == (found.exact, found.mid_p, found.chi2cc)
    assert counted.n is None


@pytest.mark.parametrize("test", TESTS)
def test_the_row_of_p_values_is_the_counts(test):
    row = p_values(13, test)
    assert row.tolist() == [getattr(mcnemar_counts(b, 13 - b), test) for b in range(14)]


def test_wrong_input_is_named():
    with pytest.raises(DataError, match=r"^a_only is -1; it must be a whole number of at least 0$"):
        mcnemar_counts(-1, 2)
    with pytest.raises(DataError, match=r"b_only is 2\.5"):
        mcnemar_counts(1, 2.5)
    with pytest.raises(DataError, match="a has 2 values and b has 1; pairs need as many of each"):
        mcnemar([1, 0], [1])
    with pytest.raises(DataError, match="a is empty"):
        mcnemar([], [])
    with pytest.raises(DataError, match="b: value 1 is 2; it must be true or false"):
        mcnemar([1, 0], [1, 2])
    with pytest.raises(DataError, match="a: value 1 is nan"):
        mcnemar([1, np.nan], [1, 0])
    with pytest.raises(DataError, match="a: expected numbers in one row"):
        mcnemar(["yes"], [1])
    with pytest.raises(DataError, match=r"a: expected numbers in one row, not shape \(1, 1\)"):
        mcnemar([[1]], [1])

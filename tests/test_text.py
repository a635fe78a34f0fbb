"""Text: one clean line, the identity of texts, words, edits."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from personalink.text import edit_distance, nearest, normalised, one_line, word_runs, words
from tests.strategies import texts


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("  a\n\t b\r\n", "a b"),
        ("a\u2028b\u2029c\u0085d\u00a0e\u3000f", "a b c d e f"),
        ("a\x00b \x1b[31m\x7f c", "ab [31m c"),
        ("a \x00 b", "a b"),
        ("\ud83d cut", "cut"),
        ("\u200bzero\u200dwidth", "\u200bzero\u200dwidth"),
        ("👩‍👩‍👧 ‮rtl", "👩‍👩‍👧 ‮rtl"),
    ],
)
def test_one_line(text, line):
    assert one_line(text) == line


@settings(max_examples=200, deadline=None)
@given(texts)
def test_one_line_is_one_clean_line_and_settles_at_once(text):
    line = one_line(text)
    assert len(line.splitlines()) <= 1
    assert line == one_line(line) == line.strip()
    assert not any(unicodedata.category(ch) in ("Cc", "Cs") for ch in line)
    line.encode()


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("A  Film\nby Night", "a film by night"),
        ("STRASSE", "straße"),
        ("ﬁne", "FINE"),
        ("e\u0301t\u00e9", "ÉTÉ"),
        ("Ｆｕｌｌ　width", "full width"),
        ("soft\u00adhyphen", "softhyphen"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
    ],
)
def test_the_same_text(a, b):
    assert normalised(a) == normalised(b)


def test_other_texts_stay_apart():
    assert len({normalised(t) for t in ("a b", "ab", "a-b", "á b", "a b.")}) == 5


@settings(max_examples=200, deadline=None)
@given(texts)
def test_normalised_settles_at_once(text):
    assert normalised(normalised(text)) == normalised(text)
    assert normalised(f"\n {text}\t") == normalised(text)


def test_words_are_the_papers_tokens():
    assert words("Don't STOP — 3.5 stars; naïve") == ["don't", "stop", "3", "5", "stars", "na", "ve"]
    assert word_runs("a b c", 2) == {("a", "b"), ("b", "c")}
    assert word_runs("a b", 3) == set()
    assert word_runs("", 8) == set()


def slow_distance(a: str, b: str) -> int:
    if not a or not b:
        return len(a) + len(b)
    return min(slow_distance(a[1:], b) + 1, slow_distance(a, b[1:]) + 1, slow_distance(a[1:], b[1:]) + (a[0] != b[0]))


@settings(max_examples=60, deadline=None)
@given(st.text("abc", max_size=5), st.text("abc", max_size=5))
def test_edit_distance(a, b):
    assert edit_distance(a, b) == edit_distance(b, a) == slow_distance(a, b)


def test_nearest():
    assert nearest("polics", ["sports", "politics"]) == "politics"
    assert nearest("SPORTS", ["sports"]) == "sports"
    assert nearest("quite another thing", ["sports", "politics"]) is None
    assert nearest("x", []) is None

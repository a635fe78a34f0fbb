"""The brief: within its budgets whatever the history holds, and the same every time."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from personalink.brief import (
    Brief,
    Mistake,
    Rejected,
    clip,
    draw_sample,
    fit_mistakes,
    system_prompt,
    user_prompt,
)
from personalink.data.types import Item
from personalink.lm.counters import EstimateCounter
from personalink.persona import ELLIPSIS, Caps, Exemplar, PersonaState, Rule
from personalink.tasks import task
from personalink.text import one_line
from tests.strategies import Bytes, Characters, Constant, Words, counters, texts

COUNTER = EstimateCounter()
TASK = task("lamp2")
CAPS = Caps()
EMPTY = PersonaState.empty(COUNTER)
LABELS = TASK.labels
POOL = tuple(Item(f"i{i}", f"article {i} on a theme of its own " * (1 + i % 5), LABELS[i % 3]) for i in range(300))
GIANT = Item("giant", "a very long article " * 6000, "politics")


def prompt(brief: Brief, item_cap: int = 60, counter=COUNTER) -> str:
    return user_prompt(brief, TASK, CAPS, item_cap, counter.count)


@settings(max_examples=120, deadline=None)
@given(st.one_of(texts, texts.map(lambda t: t * 30)), st.integers(0, 70), counters)
def test_clip_ends_within_its_cap_or_at_one_character(text, cap, counter):
    line = one_line(text)
    clipped = clip(text, cap, counter.count)
    assert clipped == one_line(clipped)
    if clipped == line:
        assert counter.count(line) <= cap or len(line) <= 1
    else:
        assert clipped.endswith(ELLIPSIS)
        assert line.startswith(clipped[:-1])
        assert counter.count(clipped) <= cap or len(clipped) <= 2


@pytest.mark.parametrize(
    ("text", "cap", "counter", "shown"),
    [
        ("one two three", 3, Words(), "one two three"),
        ("one two three four", 3, Words(), "one two…"),
        ("one\ntwo  three\x00", 9, Words(), "one two three"),
        ("w" * 100, 10, Characters(), "w" * 9 + ELLIPSIS),
        ("", 0, Words(), ""),
        ("字" * 50, 15, Bytes(), "字" * 4 + ELLIPSIS),
        ("ab cd", 1, Constant(9), "a…"),
    ],
)
def test_clip(text, cap, counter, shown):
    assert clip(text, cap, counter.count) == shown


def test_an_item_of_thirty_thousand_tokens_is_clipped_at_once():
    asked = []

    def count(text: str) -> int:
        asked.append(text)
        return COUNTER.count(text)

    assert COUNTER.count(GIANT.input) > 30_000
    assert 40 <= COUNTER.count(clip(GIANT.input, 60, count)) <= 60
    assert len(asked) < 20


@pytest.mark.parametrize("counter", [COUNTER, Words(), Characters(), Bytes()], ids=lambda c: c.id)
@pytest.mark.parametrize("budget", [0, 10, 100, 1200, 5000])
def test_the_sample_as_it_is_shown_keeps_its_budget(counter, budget):
    pool = (GIANT, *POOL)
    sample = draw_sample(pool, "u", 0, budget, 60, counter.count)
    brief = Brief(EMPTY, sample, (), 0, None, 1)
    shown = [line for line in prompt(brief, counter=counter).split("\n") if line.startswith("[e")]
    assert len(shown) == len(sample)
    assert sum(counter.count(line + "\n") for line in shown) <= budget
    assert sample == draw_sample(pool, "u", 0, budget, 60, counter.count)
    assert list(sample) == [item for item in pool if item in sample]


def test_the_sample_belongs_to_user_and_seed_and_0_is_a_seed():
    def drawn(user: str, seed: int) -> tuple[Item, ...]:
        return draw_sample(POOL, user, seed, 600, 60, COUNTER.count)

    assert drawn("u", 0) == drawn("u", 0)
    assert len({drawn("u", 0), drawn("u", 1), drawn("v", 0)}) == 3
    assert draw_sample((), "u", 0, 600, 60, COUNTER.count) == ()
    assert draw_sample(POOL[:4], "u", 0, 10**6, 60, COUNTER.count) == POOL[:4]


def test_the_sample_is_stratified():
    pool = tuple(Item(f"i{i}", f"text {i}", "sports" if i % 10 else "travel") for i in range(200))
    sample = draw_sample(pool, "u", 0, 12 * 20, 60, COUNTER.count)
    by_label = Counter(item.label for item in sample)
    assert abs(by_label["travel"] - len(sample) / 10) <= 1
    assert by_label["travel"] >= 1


@pytest.mark.parametrize("counter", [COUNTER, Words(), Characters(), Bytes()], ids=lambda c: c.id)
def test_four_hundred_mistakes_keep_their_budget(counter):
    mistakes = [Mistake(item, "science & technology") for item in (GIANT, *POOL, *POOL[:100])]
    for budget in (0, 60, 600):
        kept, left_out = fit_mistakes(mistakes, budget, 60, counter.count)
        assert len(kept) + left_out == 401
        assert (kept, left_out) == fit_mistakes(mistakes, budget, 60, counter.count)
        whole = prompt(Brief(EMPTY, (), kept, left_out, None, 1), counter=counter)
        shown = whole.split("was wrong on:\n")[-1].split("\n\n")[0] if kept else ""
        assert counter.count(shown) <= budget
        order = [mistakes.index(mistake) for mistake in kept]
        assert order == sorted(order)
    kept, _ = fit_mistakes(mistakes, 10**9, 60, counter.count)
    assert kept == tuple(mistakes)


def full_persona() -> PersonaState:
    return PersonaState(
        "Prefer what this person would file under plain headings. " * 3 + "Keep to that.",
        tuple(Exemplar(f"i{i}", "short text of it", LABELS[0]) for i in range(6)),
        tuple(Rule("of a theme", LABELS[0]) for _ in range(5)),
        counter=COUNTER,
    )


def test_the_worst_prompt_fits_a_window_of_eight_thousand():
    """The default budgets, four hundred mistakes, a giant item, a full persona and a refused one."""
    persona = full_persona()
    mistakes = [Mistake(item, "science & technology") for item in (GIANT, *POOL, *POOL[:100])]
    sample = draw_sample((GIANT, *POOL), "u", 0, 1200, 60, COUNTER.count)
    kept, left_out = fit_mistakes(mistakes, 600, 60, COUNTER.count)
    brief = Brief(persona, sample, kept, left_out, Rejected("not better on the slice", persona, kept), 3)
    size = COUNTER.count(system_prompt()) + COUNTER.count(prompt(brief))
    assert size <= 1200 + 600 + 600 + 2 * 2 * CAPS.total + 1000
    assert size + 512 <= 8192
    assert prompt(brief) == prompt(brief)


def test_the_prompt_is_pinned():
    mistakes = (Mistake(Item("m", "Budget\nvote", "business"), "politics"), Mistake(POOL[0], None))
    persona = PersonaState(
        "Prefer facts.", (Exemplar("i1", "x", "sports"), Exemplar("gone", "y", "sports")), (Rule("a", "b"),),
        counter=COUNTER,
    )  # fmt: skip
    shown = prompt(
        Brief(persona, POOL[1:2], mistakes, 0, Rejected("not better on the slice", persona, mistakes[:1]), 2)
    )
    assert shown.split("\n\n")[1:5] == [
        "Past choices of this person:\n[e1] article 1 on a theme of its own article 1 on a theme of its own -> sports",
        "The profile so far:\n"
        '{"preference_summary": "Prefer facts.", "decision_rules": [{"if": "a", "then": "b"}], "exemplars": ["e1"]}',
        "With this profile the assistant was wrong on:\n"
        "- Budget vote\n  it said: politics; this person: business\n"
        "- article 0 on a theme of its own\n  it said: nothing usable; this person: food & drink",
        "This rewrite was tried and refused (not better on the slice):\n"
        '{"preference_summary": "Prefer facts.", "decision_rules": [{"if": "a", "then": "b"}], "exemplars": ["e1"]}\n'
        "Behind it these were wrong:\n"
        "- Budget vote\n  it said: politics; this person: business\n"
        "Write a different one.",
    ]
    draft = prompt(Brief(EMPTY, (), (), 0, Rejected("the reply was truncated"), 1))
    assert "profile so far" not in draft
    assert "Past choices" not in draft
    assert "Your last reply could not be used (the reply was truncated). Keep to the limits below." in draft


def test_handles_name_the_sample_in_order():
    assert Brief(EMPTY, POOL[:3], (), 0, None, 1).handles() == {"e1": POOL[0], "e2": POOL[1], "e3": POOL[2]}

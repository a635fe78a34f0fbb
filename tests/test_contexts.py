"""Contexts: what each places, that placing is pure, and that one of one's own takes twenty lines."""

from __future__ import annotations

import asyncio
import copy
import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from personalink.agent import Agent
from personalink.contexts import (
    Context,
    Draft,
    FullProfile,
    NoPersonalization,
    PersonaLink,
    Placed,
    Products,
    RandomUserDemonstrations,
    RandomUserPersona,
    Refine,
    Retrieval,
    RetrievalWithDraft,
    Tools,
)
from personalink.contexts.base import check_needs, checked_placed, checked_product, fit_to_room
from personalink.contexts.frozen import frozen
from personalink.data.types import Item, Query, User
from personalink.errors import ConfigError
from personalink.lm import ScriptedLM
from personalink.lm.gateway import Gateway
from personalink.optimizer import Optimizer, OptimizerConfig
from personalink.refinement import Refinement
from tests.people import TASK, person, random_script

ITEMS = (
    Item("a", "the senate votes on taxes", "north"),
    Item("b", "a recipe for lentil soup", "south"),
    Item("c", "the senate and the budget", "east"),
    Item("d", "football results from sunday", "west"),
)
USER = User("u", "people", ITEMS, (Query("q", "the senate debates taxes today"),))
DONOR = User("d", "people", (Item("x", "the senate sleeps", "west"), Item("y", "cats and dogs", "west")))


def tools(window: int | None = None, donor: User | None = DONOR, script=None) -> Tools:
    lm = ScriptedLM(script or random_script(7), window=window)
    agent = Agent(TASK, Gateway(lm))
    return Tools(agent, Optimizer(agent, OptimizerConfig(audit=0)), lambda user: donor, 1)


def products(user: User, bench: Tools, *contexts: Context, of_donor: bool = False) -> Products:
    async def made() -> Products:
        own = {c.key: await c.prepare(user, Products({}, {}), bench) for c in contexts}
        lent = (
            {c.key: await c.prepare(bench.donor(user), Products({}, {}), bench) for c in contexts} if of_donor else {}
        )
        return Products(own, lent)

    return asyncio.run(made())


NOTHING = Products({}, {})


def place(context: Context, bench: Tools | None = None, user: User = USER, made: Products = NOTHING) -> Placed:
    bench = bench or tools()
    placed = context.place(user, user.queries[0], made, bench)
    assert placed == context.place(user, user.queries[0], made, bench)
    assert not bench.agent.gateway.sent or made is not NOTHING
    return placed


def test_nothing_is_placed_without_personalization() -> None:
    assert place(NoPersonalization()).text == ""
    messages = tools().agent.messages("", "hello")
    assert messages[1].content == "Text: hello\nLabel:"


def test_retrieval_is_nested_and_its_best_stands_where_it_is_asked_to() -> None:
    assert place(Retrieval(2)).item_ids == ("c", "a")
    assert place(Retrieval(2, order="best_first")).item_ids == ("a", "c")
    for k in range(1, 5):
        assert set(place(Retrieval(k)).item_ids) <= set(place(Retrieval(k + 1)).item_ids)
    assert len(place(Retrieval(20)).item_ids) == 4
    assert place(Retrieval(1)).text == "Text: the senate votes on taxes\nLabel: north"


def test_retrieval_over_an_empty_history_places_nothing() -> None:
    assert place(Retrieval(5), user=replace(USER, history=())).text == ""
    assert place(FullProfile(), user=replace(USER, history=())) == Placed("", (), {"kept": 1.0})


def test_the_full_profile_keeps_the_most_recent_within_the_window() -> None:
    assert place(FullProfile()).item_ids == ("a", "b", "c", "d")
    bench = tools(window=24 + 48 + 85)
    kept = place(FullProfile(), bench)
    assert kept.item_ids in {("d",), ("c", "d"), ("b", "c", "d")}
    assert kept.notes["kept"] == len(kept.item_ids) / 4
    early = place(FullProfile(keep="earliest"), bench)
    assert early.item_ids[0] == "a"
    assert place(FullProfile(keep="fail"), bench).item_ids == ("a", "b", "c", "d")
    assert len(place(FullProfile(max_tokens=40)).item_ids) < 4


def test_a_random_users_items_stay_within_ones_own_budget() -> None:
    placed = place(RandomUserDemonstrations(2))
    assert set(placed.item_ids) <= {"x", "y"}
    bench = tools()
    assert bench.counter.count(placed.text) <= bench.counter.count(place(Retrieval(2)).text)
    assert place(RandomUserDemonstrations(2), tools(donor=None)).text == ""


def test_a_donors_copy_of_the_query_is_not_lent() -> None:
    donor = replace(DONOR, history=(Item("x", USER.queries[0].input.upper(), "west"), *DONOR.history[1:]))
    assert "x" not in place(RandomUserDemonstrations(2), tools(donor=donor)).item_ids


def test_personas_at_each_depth_come_from_one_refinement() -> None:
    user, bench = person("p", 30), tools()
    made = products(user, bench, Refine())
    sent = bench.agent.gateway.sent
    one = Refinement.from_dict(made[Refine()])
    assert not one.persona.is_empty
    for depth in range(4):
        assert place(PersonaLink(depth), bench, user, made).text == one.at(depth).render()
    for name in ("preference_summary", "exemplars", "decision_rules"):
        assert place(PersonaLink(3, without=name), bench, user, made).text == one.persona.without(name)
    assert place(Refine(), bench, user, made).text == one.persona.render()
    assert bench.agent.gateway.sent == sent


def test_the_draft_serves_pag_retrieval_with_it_and_the_random_user() -> None:
    user = person("p", 30)
    bench = tools(donor=person("other", 30))
    made = products(user, bench, Draft(), of_donor=True)
    draft = place(Draft(), bench, user, made).text
    both = place(RetrievalWithDraft(5), bench, user, made)
    assert both.text == f"{draft}\n\n{place(Retrieval(5), bench, user, made).text}"
    lent = place(RandomUserPersona(), bench, user, made)
    assert lent.text not in ("", draft)
    assert lent.notes["donor"] == "other"


def test_equal_contexts_share_a_product_and_others_do_not() -> None:
    assert Retrieval(5).key == Retrieval(5).key != Retrieval(3).key
    assert len({c.key for c in (Draft(), Refine(), PersonaLink(1), PersonaLink(2), Retrieval(1))}) == 5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Retrieval(0), "k is 0"),
        (lambda: Retrieval(order="worst_last"), "order is 'worst_last'"),  # type: ignore[arg-type]
        (lambda: FullProfile(keep="all"), "keep is 'all'"),  # type: ignore[arg-type]
        (lambda: PersonaLink(without="rules"), "without is 'rules'"),
        (lambda: PersonaLink(-1), "depth is -1"),
    ],
)
def test_bad_settings_are_refused(make, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


@dataclass(frozen=True)
class LastItems(Context):
    """The README's example: the user's last k items, whatever the question."""

    k: int = 3

    def place(self, user: User, query: Query, products: Products, tools: Tools) -> Placed:
        """The last k, oldest first."""
        items = user.history[-self.k :]
        return Placed("\n\n".join(tools.demonstrations(items)), tuple(item.id for item in items))


def test_a_context_of_ones_own() -> None:
    assert place(LastItems(2)).item_ids == ("c", "d")


def test_filling_a_room_counts_what_is_placed_and_no_more() -> None:
    texts = ["four"] * 5
    joined = len("\n\n".join(texts))
    assert fit_to_room(texts, joined, len) == [0, 1, 2, 3, 4]
    assert fit_to_room(texts, joined - 1, len) == [0, 1, 2, 3]
    assert fit_to_room(texts, 3, len) == fit_to_room(texts, -5, len) == fit_to_room([], 3, len) == []
    assert fit_to_room(["a long one", "b"], 5, len) == []

    def odd(text: str) -> int:
        """A counter whose joined texts take more than their parts, and more in one order than in the other."""
        return len(text) + 7 * text.count("\n\n") + 5 * text.startswith("b")

    for room in range(60):
        for backwards in (False, True):
            kept = [["b1", "c2", "b3"][i] for i in fit_to_room(["b1", "c2", "b3"], room, odd, backwards=backwards)]
            assert odd("\n\n".join(kept[::-1] if backwards else kept)) <= room or not kept


def test_a_random_user_with_equal_items_is_not_handicapped() -> None:
    own = tuple(Item(f"o{i}", f"own amber text {i}", "north") for i in range(9))
    lent = tuple(Item(f"d{i}", f"his amber text {i}", "south") for i in range(9))
    user = User("u", "people", own, (Query("q", "amber"),))
    bench = tools(donor=User("d", "people", lent))
    for k in (1, 3, 5):
        assert len(place(RandomUserDemonstrations(k), bench, user).item_ids) == k
        assert len(place(Retrieval(k), bench, user).item_ids) == k


def test_a_product_cannot_be_changed_by_who_reads_it() -> None:
    product = {"a": [1, {"b": 2}], "c": {"d": "e"}}
    made = Products({Draft().key: product}, {Draft().key: product})
    for seen in (made[Draft()], made.of_donor(Draft())):
        assert seen == product
        assert json.loads(json.dumps(seen)) == product
        for change in (
            lambda seen=seen: seen.update(a=1),
            lambda seen=seen: seen["a"].append(3),
            lambda seen=seen: seen["a"][1].pop("b"),
            lambda seen=seen: seen["c"].__setitem__("d", "x"),
            lambda seen=seen: seen.__delitem__("c"),
        ):
            with pytest.raises(ConfigError, match="take a copy"):
                change()
        mine = copy.deepcopy(seen)
        mine["a"][1]["b"] = 3
        assert (seen["a"][1]["b"], mine["a"][1]["b"], type(mine)) == (2, 3, dict)
    assert frozen(made[Draft()]) is made[Draft()]
    with pytest.raises(ConfigError, match="product of Refine is not at hand"):
        made[Refine()]


def test_a_product_is_plain_json_or_refused_at_once() -> None:
    given = {"a": (1, "é"), "b": {"c": None}}
    product = checked_product(LastItems(), given)
    assert product == {"a": [1, "é"], "b": {"c": None}}
    given["a"] = ()
    assert product["a"] == [1, "é"]
    loop: dict[str, Any] = {}
    loop["self"] = loop
    for bad in (None, [1], "text", {"a": {1}}, {"a": float("nan")}, loop, {("a",): 1}, {"a": object()}):
        with pytest.raises(ConfigError, match=r"^context LastItems: prepare\(\) returned [^\n]*$"):
            checked_product(LastItems(), bad)


def test_a_placed_is_as_promised_or_refused_at_once() -> None:
    good = Placed("text", ("a",), {"kept": 0.5})
    assert checked_placed(LastItems(), good) is good
    for bad in (
        None,
        "text",
        Placed(None),  # type: ignore[arg-type]
        Placed("x", ["a"]),  # type: ignore[arg-type]
        Placed("x", (1,)),  # type: ignore[arg-type]
        Placed("x", (), None),  # type: ignore[arg-type]
        Placed("x", (), {"a": {1}}),
    ):
        with pytest.raises(ConfigError, match=r"^context LastItems: place\(\) returned [^\n]*$"):
            checked_placed(LastItems(), bad)


@dataclass(frozen=True)
class Circle(Context):
    """Needs itself by way of another."""

    step: int = 0

    def needs(self) -> tuple[Context, ...]:
        """The next one."""
        return (Circle((self.step + 1) % 3),)


@dataclass(frozen=True)
class Endless(Context):
    """Needs one of its kind for ever."""

    step: int = 0

    def needs(self) -> tuple[Context, ...]:
        """The next one."""
        return (Endless(self.step + 1),)


@dataclass(frozen=True)
class Lends(Context):
    """Reads a donor's product, which has no end."""

    def donor_needs(self) -> tuple[Context, ...]:
        """A circle."""
        return (Circle(),)


@dataclass(frozen=True)
class NeedsText(Context):
    """Names what is no context."""

    def needs(self) -> tuple[Context, ...]:
        """A text."""
        return ("draft",)  # type: ignore[return-value]


@dataclass(frozen=True)
class Odd(Context):
    """Holds what no JSON can."""

    things: Any = field(default_factory=lambda: {1, 2})


def test_needs_have_an_end() -> None:
    for fine in (Draft(), PersonaLink(2), RandomUserPersona(), RetrievalWithDraft(5), NoPersonalization()):
        check_needs(fine)
    for bad, words in (
        (Circle(), "context Circle needs itself"),
        (Endless(), "context Endless needs itself"),
        (Lends(), "context Circle needs itself"),
        (NeedsText(), r"context NeedsText: needs\(\) returned"),
        (Odd(), "context Odd: its settings are no plain JSON"),
    ):
        with pytest.raises(ConfigError, match=words) as refused:
            check_needs(bad)
        assert "\n" not in str(refused.value)

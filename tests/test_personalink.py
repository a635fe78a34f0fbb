"""PersonaLink, the face: sync and async, in scripts and in a running loop, resumable, honest at the end."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import personalink as pl
from personalink import background
from personalink.errors import BadRequest, ConfigError, DataError, IncompleteRun, Unreachable
from tests.people import LABELS, TASK, is_rewrite, people, person, random_script


def link(answer=random_script(7), **options) -> tuple[pl.PersonaLink, pl.ScriptedLM]:  # noqa: B008
    lm = pl.ScriptedLM(answer)
    return pl.PersonaLink(TASK, lm, **options), lm


def test_the_lines_of_the_readme() -> None:
    mine, _ = link(depth=3, holdout=8, gate="strict", seed=12345)
    user = person("u", 30)
    one = mine.fit_user(user)
    assert isinstance(one.persona.preference_summary, str)
    assert isinstance(one.persona.exemplars, tuple)
    assert isinstance(one.persona.decision_rules, tuple)
    told = [(p.depth, p.score_before, p.score_after, p.accepted, p.calls) for p in one.passes]
    assert [line[0] for line in told] == [1, 2, 3]
    assert all(after >= before for _, before, after, _, _ in told)
    answer = mine.predict(one.persona, "a new article")
    assert answer.label in (*LABELS, None)
    mine.close()


def test_many_users_stream_and_equal_one_by_one() -> None:
    users = people(8, 20).users
    mine, _ = link()
    many = {r.user: r for r in mine.fit(users)}
    alone, _ = link()
    assert many == {u.id: alone.fit_user(u) for u in users}
    assert mine.ledger.total().calls > 0


async def test_it_works_inside_a_running_loop_as_a_notebook_has_one() -> None:
    mine, _ = link()
    one = mine.fit_user(person("u", 20))
    assert one == await link()[0].afit_user(person("u", 20))
    assert [r.user for r in mine.fit([person("u", 20)])] == ["u"]
    async with asyncio.timeout(5):
        assert [r.user async for r in link()[0].afit([person("v", 20)])] == ["v"]


def test_calling_the_sync_face_from_its_own_loop_is_refused() -> None:
    async def inner() -> None:
        link()[0].fit_user(person("u"))

    with pytest.raises(RuntimeError, match="async twin"):
        background.run(inner())


def test_a_store_makes_it_resumable(tmp_path: Path) -> None:
    users = people(4, 20).users
    first, lm = link(store=tmp_path / "store")
    results = {r.user: r for r in first.fit(users)}
    paid = len(lm.requests)
    first.close()
    second, lm = link(store=tmp_path / "store")
    assert {r.user: r for r in second.fit(users)} == results
    assert lm.requests == []
    assert second.ledger.total().calls == paid
    second.close()


def test_unfinished_users_are_told_at_the_end() -> None:
    healthy = random_script(7)

    def answer(request):
        return BadRequest("not this") if "u3" in request.messages[1].content else healthy(request)

    mine, _ = link(answer)
    got = []
    with pytest.raises(IncompleteRun, match="1 users were not finished"):
        for one in mine.fit(people(6, 20).users):
            got.append(one.user)
    assert sorted(got) == ["u0", "u1", "u2", "u4", "u5"]
    assert list(mine.incomplete) == ["u3"]


def test_an_outage_is_raised() -> None:
    mine, _ = link(lambda request: Unreachable("gone"))
    with pytest.raises(Unreachable):
        mine.fit_user(person("u"))
    with pytest.raises(IncompleteRun):
        list(mine.fit(people(3, 20).users))


def test_stopping_early_is_clean() -> None:
    mine, _ = link()
    for one in mine.fit(people(20, 20).users):
        assert one.user
        break
    assert mine.fit_user(person("u")).user == "u"
    mine.close()


def test_settings() -> None:
    with pytest.raises(ConfigError, match="did you mean 'holdout'"):
        link(holdot=4)
    mine, lm = link(config=pl.OptimizerConfig.paper(), depth=1, audit=0)
    assert (mine.config.gate, mine.config.depth, mine.config.after_rejection) == ("no_regress", 1, "stop")
    mine.fit_user(person("u"))
    assert sum(is_rewrite(r) for r in lm.requests) == 1


def test_seed_zero_is_a_seed() -> None:
    user = person("u", 40)
    slices = {seed: link(seed=seed)[0].fit_user(user).slice_ids for seed in (0, 1)}
    assert slices[0] != slices[1]


def slow_link(seconds: float) -> pl.PersonaLink:
    return pl.PersonaLink(TASK, pl.ScriptedLM(random_script(7), latency_s=seconds))


def test_closing_one_object_leaves_the_calls_of_another_alone() -> None:
    slow, got = slow_link(0.05), []
    thread = threading.Thread(target=lambda: got.append(slow.fit_user(person("u", 20))), daemon=True)
    thread.start()
    time.sleep(0.02)
    for _ in range(5):
        other, _ = link()
        other.fit_user(person("v", 12))
        other.close()
    thread.join(20)
    assert [one.user for one in got] == ["u"]
    slow.close()


def test_closing_one_object_leaves_the_stream_of_another_alone() -> None:
    streaming = pl.PersonaLink(TASK, pl.ScriptedLM(random_script(7), users_in_flight=2))
    seen = []
    for one in streaming.fit(people(6, 12).users):
        seen.append(one.user)
        other, _ = link()
        other.fit_user(person("v", 12))
        other.close()
    assert len(seen) == 6
    streaming.close()


def test_the_loop_ends_with_the_last_object_and_starts_again() -> None:
    mine, _ = link()
    mine.fit_user(person("u", 12))
    before = background.loop()
    mine.close()
    mine.close()
    for _ in range(200):
        if before.is_closed():
            break
        time.sleep(0.01)
    assert before.is_closed()
    assert mine.fit_user(person("u", 12)).user == "u"
    mine.close()


async def test_calls_at_once_share_one_gateway() -> None:
    class Starting(pl.ScriptedLM):
        starts = 0

        async def start(self) -> None:
            self.starts += 1
            await asyncio.sleep(0.01)

    lm = Starting(random_script(7), latency_s=0.001)
    mine = pl.PersonaLink(TASK, lm)
    one, two = await asyncio.gather(mine.afit_user(person("u", 20)), mine.afit_user(person("u", 20)))
    assert one == two
    assert lm.starts == 1
    assert len(lm.requests) == len({r.key("") for r in lm.requests})


def test_one_object_in_two_event_loops() -> None:
    lm = pl.ScriptedLM(random_script(7), concurrency=2, latency_s=0.0005)
    mine = pl.PersonaLink(TASK, lm)

    async def fitted(*names: str) -> list[str]:
        return sorted([one.user async for one in mine.afit([person(n, 20) for n in names])])

    assert asyncio.run(fitted("a", "b", "c")) == ["a", "b", "c"]
    assert asyncio.run(fitted("d", "e", "f")) == ["d", "e", "f"]
    assert mine.fit_user(person("g", 20)).user == "g"
    mine.close()


def test_a_store_can_be_used_again_after_a_close(tmp_path: Path) -> None:
    mine, lm = link(store=tmp_path / "store", cache=tmp_path / "cache.sqlite")
    first = mine.fit_user(person("u", 20))
    mine.close()
    asked, counted = len(lm.requests), mine.ledger.total().calls
    assert mine.fit_user(person("u", 20)) == first
    assert mine.fit_user(person("v", 20)).user == "v"
    assert len(lm.requests) - asked == mine.ledger.total().calls - counted > 0
    mine.close()
    again, lm = link(store=tmp_path / "store")  # the lock was given back, and all of it is there
    assert again.fit_user(person("v", 20)).user == "v"
    assert lm.requests == []
    again.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"depth": "3"}, "optimizer.depth is '3'"),
        ({"depth": 1.5}, "optimizer.depth is 1.5"),
        ({"seed": "x"}, "seed is 'x'"),
        ({"seed": None}, "seed is None"),
        ({"seed": True}, "seed is True"),
        ({"config": {"depth": 2}}, "must be an OptimizerConfig"),
        ({"rewriter": "gpt"}, "rewriter is 'gpt'"),
        ({"holdout": "8"}, "holdout is '8'"),
    ],
)
def test_a_wrong_setting_is_told_in_one_line(options: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        link(**options)
    assert "\n" not in str(refused.value)


def test_a_wrong_argument_is_told_in_one_line() -> None:
    lm = pl.ScriptedLM(random_script(7))
    for task, model, words in (
        ("lamp2", lm, "task is 'lamp2'"),
        (None, lm, "task is None"),
        (TASK, None, "lm is None"),
    ):
        with pytest.raises(ConfigError, match=words):
            pl.PersonaLink(task, model)  # type: ignore[arg-type]
    mine, _ = link()
    with pytest.raises(DataError, match="must be a personalink User, not 'x'"):
        mine.fit_user("x")  # type: ignore[arg-type]
    for nobody in ("x", ["x"], 3):
        with pytest.raises(DataError, match="fit takes users"):
            list(mine.fit(nobody))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="max_tokens is True"):
        pl.LabelTask("t", "Say.", ("a", "b"), max_tokens=True)
    mine.close()


@pytest.mark.parametrize("seed", [10**30, -(2**63) - 1])
def test_a_seed_that_no_server_takes_is_told(seed: int) -> None:
    with pytest.raises(ConfigError, match="it must fit 64 bits"):
        link(seed=seed)


@pytest.mark.parametrize(("persona", "text", "words"), [(None, "z", "persona is None"), ("", 5, "text is 5")])
def test_predict_takes_text(persona: Any, text: Any, words: str) -> None:
    mine, _ = link()
    with pytest.raises(DataError, match=words):
        mine.predict(persona, text)


def test_connect_takes_a_models_name_as_text() -> None:
    with pytest.raises(ConfigError, match=r"lm\.model is 5; it must be text"):
        pl.connect("http://localhost:1", model=5)  # type: ignore[arg-type]

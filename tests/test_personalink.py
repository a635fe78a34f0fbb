"""PersonaLink, the face: sync and async, in scripts and in a running loop, resumable, honest at the end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import personalink as pl
from personalink import background
from personalink.errors import BadRequest, ConfigError, IncompleteRun, Unreachable
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

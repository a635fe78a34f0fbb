"""The in-process engine's logic that needs no torch: queue, kept prefixes, choices, who it is, what it refuses."""

from __future__ import annotations

import asyncio
import sys
import threading
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from personalink.config import RunConfig
from personalink.errors import ConfigError, LMError
from personalink.lm import TransformersLM, connect
from personalink.lm.batching import Batcher, Job
from personalink.lm.choices import ChoiceWalk
from personalink.lm.hub_model import folder_digest
from personalink.lm.prefixes import Prefixes, shared, shared_by_all
from personalink.sources import make_lm

Jobs = list[Job[int, int]]


class Doubler:
    """Answers twice the number; remembers each batch. A negative number raises; a batch waits until it is let go."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.go = threading.Event()
        self.go.set()

    def __call__(self, jobs: Jobs) -> None:
        self.batches.append([job.asked for job in jobs])
        assert self.go.wait(10)
        for job in jobs:
            if job.asked < 0:
                raise ValueError(f"{job.asked} is negative")
            job.answer(2 * job.asked)


async def test_what_is_asked_in_one_turn_goes_together_first_come_first_served() -> None:
    run = Doubler()
    batcher = Batcher(run, 4)
    assert await asyncio.gather(*map(batcher.ask, range(10))) == [2 * n for n in range(10)]
    assert run.batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    batcher.close()


async def test_what_comes_while_a_batch_runs_waits_for_the_next() -> None:
    run = Doubler()
    run.go.clear()
    batcher = Batcher(run, 4)
    first = asyncio.create_task(batcher.ask(1))
    while not run.batches:
        await asyncio.sleep(0)
    later = [asyncio.create_task(batcher.ask(n)) for n in (2, 3, 4)]
    await asyncio.sleep(0)
    later[1].cancel()  # whoever asked has gone: not asked for
    await asyncio.sleep(0)
    run.go.set()
    assert [await first, await later[0], await later[2]] == [2, 4, 8]
    assert run.batches == [[1], [2, 4]]
    batcher.close()


async def test_an_error_is_told_to_those_without_an_answer_and_the_next_batch_goes_on() -> None:
    batcher = Batcher(Doubler(), 2)
    done = await asyncio.gather(*map(batcher.ask, (1, -1, 3)), return_exceptions=True)
    assert (done[0], str(done[1]), done[2]) == (2, "-1 is negative", 6)
    batcher.close()


def test_several_event_loops_may_ask() -> None:
    batcher = Batcher(Doubler(), 3)
    answers: dict[int, list[int]] = {}

    def ask(start: int) -> None:
        async def all_of_them() -> list[int]:
            return list(await asyncio.gather(*(batcher.ask(start + n) for n in range(20))))

        answers[start] = asyncio.run(all_of_them())

    threads = [threading.Thread(target=ask, args=(start,)) for start in (0, 100, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert answers == {start: [2 * (start + n) for n in range(20)] for start in (0, 100, 200)}
    batcher.close()


async def test_closing_fails_what_waits_and_what_runs() -> None:
    run = Doubler()
    run.go.clear()
    batcher = Batcher(run, 1)
    asked = [asyncio.create_task(batcher.ask(n)) for n in (1, 2)]
    while not run.batches:
        await asyncio.sleep(0)
    closing = asyncio.create_task(asyncio.to_thread(batcher.close))
    for task in asked:
        with pytest.raises(LMError, match="closed"):
            await task
    run.go.set()
    await closing
    assert run.batches == [[1]]
    with pytest.raises(LMError, match="closed"):
        await batcher.ask(3)
    batcher.close()


PROMPT = st.lists(st.integers(0, 3), max_size=8).map(tuple)


@given(st.lists(PROMPT, min_size=1, max_size=6))
def test_the_prefix_of_all_is_the_longest_that_each_begins_with(prompts: list[tuple[int, ...]]) -> None:
    prefix = shared_by_all(prompts)
    assert all(prompt[: len(prefix)] == prefix for prompt in prompts)
    longer = {prompt[: len(prefix) + 1] for prompt in prompts}
    assert len(longer) > 1 or longer == {prefix}
    assert all(shared(a, b) >= len(prefix) for a, b in pairwise(prompts))


def test_prefixes_come_back_and_the_longest_unused_make_room() -> None:
    kept: Prefixes[str] = Prefixes(30)
    assert kept.find((1, 2)) == (0, None)
    kept.keep((1, 2, 3), "a", 10)
    kept.keep((7, 8), "b", 10)
    assert kept.find((1, 2, 9)) == (2, "a")
    assert kept.find((5,)) == (0, None)
    assert kept.find(()) == (0, None)
    kept.keep((1, 2, 3, 4), "longer", 15)  # takes the place of "a", whose tokens are its first ones
    assert (len(kept), kept.used_bytes) == (2, 25)
    kept.keep((9,), "c", 10)  # "b" is the longest unused
    assert kept.find((7, 8)) == (0, None)
    assert kept.find((1, 2, 3, 4, 5)) == (4, "longer")
    kept.keep((4, 4), "too large for all", 31)
    assert kept.find((4, 4)) == (0, None)
    assert len(kept) == 2
    kept.clear()
    assert kept.used_bytes == 0


def test_without_memory_no_prefix_is_kept() -> None:
    kept: Prefixes[str] = Prefixes(0)
    kept.keep((1, 2), "a", 1)
    assert kept.find((1, 2)) == (0, None)


def test_a_choice_is_walked_to_its_end() -> None:
    walk = ChoiceWalk({"women": [5, 6], "women's rights": [5, 6, 7, 8], "sports": [9, 4, 4]})
    assert (sorted(walk.allowed), walk.choice, walk.rest()) == ([5, 9], None, None)
    walk.step(5)
    assert walk.rest() is None  # two are left
    walk.step(6)
    assert (walk.allowed, walk.choice, walk.rest()) == ([7], "women", None)
    walk.step(7)
    assert (walk.choice, walk.rest()) == (None, [8])
    other = ChoiceWalk({"sports": [9, 4, 4], "women": [5]})
    other.step(9)
    assert other.rest() == [4, 4]
    assert ChoiceWalk({"only": [1, 2]}).rest() == [1, 2]
    assert ChoiceWalk({"": []}).rest() == []
    assert ChoiceWalk({"a": [1], "A": [1]}).rest() == [1]


@given(st.dictionaries(st.text(min_size=1), st.lists(st.integers(0, 3), min_size=1, max_size=5), min_size=1))
def test_every_choice_can_be_reached_and_nothing_else(choices: dict[str, list[int]]) -> None:
    for choice, tokens in choices.items():
        walk = ChoiceWalk(choices)
        for at, token in enumerate(tokens):
            rest = walk.rest()
            assert rest is None or rest == tokens[at:]
            assert token in walk.allowed
            walk.step(token)
        assert walk.choice is not None
        assert choices[walk.choice] == choices[choice]


def a_model(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"small")
    return folder


def test_a_folder_is_known_by_what_decides_its_answers(tmp_path: Path) -> None:
    model = a_model(tmp_path / "m")
    before = folder_digest(model)
    (model / "README.md").write_text("words for people")
    assert folder_digest(model) == before
    assert folder_digest(a_model(tmp_path / "elsewhere")) == before
    (model / "chat_template.jinja").write_text("{{ messages }}")
    assert folder_digest(model) != before


def test_large_weights_are_told_apart_without_reading_them_whole(tmp_path: Path) -> None:
    digests = []
    for name, at in (("plain", None), ("trained further", 0), ("longer", -1)):
        model = a_model(tmp_path / name)
        with (model / "model.safetensors").open("wb") as file:
            file.truncate((33 << 20) + (at == -1))
            if at == 0:
                for position in range(0, 33 << 20, 16 << 10):  # training moves weights everywhere
                    file.seek(position)
                    file.write(b"x")
        digests.append(folder_digest(model))
    assert len(set(digests)) == 3


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("none", r"lm\.path: .*none is no folder"),
        ("empty", r"has no config\.json"),
        ("model.gguf", "is a GGUF file; lm=embedded runs it"),
        ("config.json", "is no folder"),
    ],
)
async def test_a_path_that_is_no_model_is_told_before_torch_is_loaded(name: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(LMError, match=told) as caught:
        await TransformersLM(tmp_path / name).start()
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("missing", ["torch", "transformers"])
async def test_what_is_missing_is_named(missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    lm = TransformersLM(a_model(tmp_path / "m"))
    with pytest.raises(LMError, match=r'pip install "personalink\[transformers\]"'):
        await lm.start()
    await lm.aclose()
    assert lm.describe()["kind"] == "transformers"


def test_settings_reach_it(tmp_path: Path) -> None:
    lm = connect(f"transformers:{tmp_path / 'SomeModel'}", batch_size=4, users_in_flight=3)
    assert (lm.model, lm.concurrency, lm.users_in_flight, lm.window) == ("SomeModel", 8, 3, None)
    assert connect("transformers:owner/Some-7B").model == "owner/Some-7B"
    config = RunConfig.from_mapping(
        {
            "name": "t",
            "task": {"name": "t", "instruction": "x", "labels": ["a", "b"]},
            "lm": {"kind": "transformers", "path": "~/m", "batch_size": 5, "window": 100},
            "context": {"nopers": {"_target_": "personalink.contexts.NoPersonalization"}},
        }
    )
    made = make_lm(config.lm, config.make_task())
    assert isinstance(made, TransformersLM)
    assert (made.path.endswith("/m"), made.path[0], made.concurrency, made.window) == (True, "/", 10, 100)
    assert made.users_in_flight == 1


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"dtype": "int8"}, "lm.dtype is 'int8'; it must be one of auto, float32"),
        ({"batch_size": 0}, "lm.batch_size is 0"),
        ({"cache_mib": -1}, "lm.cache_mib is -1"),
        ({"batchsize": 3}, "did you mean 'batch_size'?"),
    ],
)
def test_what_is_refused(options: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        connect("transformers:m", **options)  # type: ignore[arg-type]
    assert told in str(caught.value)


def test_a_path_is_needed() -> None:
    with pytest.raises(ConfigError, match=r"lm\.path is missing"):
        connect("transformers:")
    with pytest.raises(ConfigError, match="transformers:MODEL"):
        connect("transformers")


def test_identity_is_not_known_before_start() -> None:
    with pytest.raises(AttributeError, match="start"):
        _ = TransformersLM("owner/name").identity

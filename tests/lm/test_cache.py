"""The cache across runs: the right answer or none, shared by many processes, and never in a run's way."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from personalink import PersonaLink
from personalink.canonical import digest
from personalink.config import RunConfig
from personalink.errors import Interrupted, PersonalinkError, Unreachable
from personalink.lm import Constraint, Decoding, EndpointLM, Message, Request, ScriptedLM, Usage
from personalink.lm.base import Completion
from personalink.lm.cache import BATCH, Cache, Who, cache_path, open_cache, open_file, who_answers
from personalink.lm.gateway import Gateway
from personalink.lm.journal import Journal
from personalink.lm.ledger import Bill
from tests.people import TASK, people, random_script
from tests.test_experiment import ROWS, go, sealed, write_records

from .asking import ask
from .double import Double

ME = Who(digest("me"), "m", "http://here/v1")
FEW = {"context": {name: ROWS[name] for name in ("nopers", "rag_1", "pag", "personalink_r2")}}


def said(request: Request) -> Completion:
    return Completion(request.messages[-1].content.upper(), usage=Usage(7, 2, 3), model="m")


def filled(path: Path, n: int = 10) -> list[str]:
    keys = [digest(i) for i in range(n)]
    with Cache(path) as cache:
        for i, key in enumerate(keys):
            cache.put(key, ME, Completion(f"answer {i} é\n", usage=Usage(i, None, 1), model="m"))
    return keys


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def test_what_was_put_is_there_at_once_and_after_reopening(tmp_path: Path) -> None:
    with Cache(tmp_path / "new" / "cache.sqlite") as cache:
        whole = Completion("a ü\n", "truncated", Usage(1, None, 3), "grammar", "m")
        cache.put(digest("a"), ME, whole)
        assert cache.get(digest("a"), ME) == whole
        cache.put(digest("a"), ME, Completion("another"))
        cache.flush()
        cache.put(digest("a"), ME, Completion("another"))
    with Cache(tmp_path / "new" / "cache.sqlite") as cache:
        assert cache.get(digest("a"), ME) == Completion("another")  # the last before a write, and none after it
        assert cache.get(digest("b"), ME) is None
        assert (cache.hits, cache.misses, cache.damaged) == (1, 1, 0)
    assert cache.get(digest("a"), ME) is None  # closed
    cache.close()


def test_a_batch_is_written_when_it_is_full_or_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("personalink.lm.cache.time.monotonic", lambda: clock[0])
    path = tmp_path / "cache.sqlite"
    with Cache(path) as cache, Cache(path) as other:
        for i in range(BATCH - 1):
            cache.put(digest(i), ME, Completion("x"))
        assert other.get(digest(0), ME) is None
        cache.put(digest(BATCH), ME, Completion("x"))
        assert other.get(digest(0), ME) == Completion("x")
        cache.put(digest("slow"), ME, Completion("x"))
        clock[0] += 3
        cache.put(digest("later"), ME, Completion("x"))
        assert other.get(digest("slow"), ME) is not None


BASE = ask("a", constraint=Constraint(schema={"type": "object"}))


@pytest.mark.parametrize("other", [
    replace(BASE, sample=1),
    replace(BASE, constraint=None),
    replace(BASE, constraint=Constraint(schema={"type": "array"})),
    replace(BASE, constraint=Constraint(choices=("a",))),
    replace(BASE, messages=BASE.messages[1:]),
    replace(BASE, messages=BASE.messages[::-1]),
    replace(BASE, messages=(BASE.messages[0], Message("user", "b"))),
    replace(BASE, messages=(BASE.messages[0], Message("assistant", "a"))),
    *(replace(BASE, decoding=replace(BASE.decoding, **{name: getattr(BASE.decoding, name) + 1}))
      for name in Decoding.__slots__),
])  # fmt: skip
async def test_another_request_is_a_miss(tmp_path: Path, other: Request) -> None:
    lm = ScriptedLM(said)
    with Cache(tmp_path / "cache.sqlite") as cache:
        for request, sent in ((BASE, 1), (other, 2), (BASE, 2), (other, 2)):
            await Gateway(lm, cache=cache).complete(request, Bill())
            assert len(lm.requests) == sent


class Told(ScriptedLM):
    """A model that says of itself what it is told to."""

    def __init__(self, facts: dict[str, Any], **options: Any) -> None:
        super().__init__(said, **options)
        self.facts = facts

    def describe(self) -> dict[str, Any]:
        return self.facts


ENTRY = {"id": "m", "root": "/models/a", "max_model_len": 4096, "owned_by": "vllm"}
FACTS = {"kind": "openai-chat", "dialect": "vllm", "model": "m", "revision": None, "window": 4096, "version": "1",
         "fingerprint": "f", "weights_sha256": "00", "model_entry": ENTRY}  # fmt: skip


async def test_another_answerer_is_a_miss_and_a_new_start_of_the_same_is_not(tmp_path: Path) -> None:
    others: list[Told] = [Told(FACTS, identity="another")]
    elsewhere = Told(FACTS)
    elsewhere.api_url = "http://elsewhere/v1"  # type: ignore[attr-defined]
    others.append(elsewhere)
    others += [Told({**FACTS, name: "other"}) for name in FACTS if name != "model_entry"]
    others += [Told({**FACTS, "model_entry": {**ENTRY, name: "other"}}) for name in ENTRY]
    same = Told({**FACTS, "counter": "another", "model_entry": {**ENTRY, "created": 9, "status": "busy"}})
    with Cache(tmp_path / "cache.sqlite") as cache:
        await Gateway(Told(FACTS), cache=cache).complete(BASE, Bill())
        for lm in others:
            gateway = Gateway(lm, cache=cache)
            await gateway.complete(BASE, Bill())
            assert (gateway.sent, gateway.cached) == (1, 0)
        gateway = Gateway(same, cache=cache)
        await gateway.complete(BASE, Bill())
        assert (gateway.sent, gateway.cached) == (0, 1)


async def test_models_settings_and_schemas_in_turn_and_back_again(tmp_path: Path) -> None:
    def schema(name: str) -> Request:
        return ask("a", constraint=Constraint(schema={"type": "object", "properties": {name: {"type": "string"}}}))

    warm = replace(ask("a"), decoding=Decoding(16, temperature=0.7))
    sent = []
    for identity, request in (("A", ask("a")), ("B", ask("a")), ("A", warm), ("A", schema("x")), ("A", schema("y"))):
        with Cache(tmp_path / "cache.sqlite") as cache:
            lm = ScriptedLM(said, identity=identity, model=identity)
            await Gateway(lm, cache=cache).complete(request, Bill())
            sent.append(len(lm.requests))
    assert sent == [1, 1, 1, 1, 1]
    with Cache(tmp_path / "cache.sqlite") as cache:
        lm = ScriptedLM(said, identity="A", model="A")
        for request in (ask("a"), warm, schema("x"), schema("y")):
            assert (await Gateway(lm, cache=cache).complete(request, Bill())) == said(request)
        assert lm.requests == []


async def test_two_servers_with_one_model_name_share_nothing(tmp_path: Path) -> None:
    async def answered(double: Double) -> tuple[str, int]:
        lm = EndpointLM(double.url, backoff_s=0.001)
        await lm.start()
        with Cache(tmp_path / "cache.sqlite") as cache:
            gateway = Gateway(lm, cache=cache)
            answer = await gateway.complete(ask("hi"), Bill())
        await lm.aclose()
        return answer.text, gateway.sent

    with Double(answer=lambda body: "one") as one, Double(answer=lambda body: "two") as two:
        assert [await answered(d) for d in (one, two, one, two)] == [("one", 1), ("two", 1), ("one", 0), ("two", 0)]
        assert len(one.bodies) == len(two.bodies) == 1
    with open_cache(tmp_path / "cache.sqlite") as cache:
        assert cache is not None
    rows = sqlite3.connect(tmp_path / "cache.sqlite").execute("SELECT model, endpoint, completion_tokens FROM entries")
    assert sorted(rows) == sorted([("m", f"{one.url}/v1", 1), ("m", f"{two.url}/v1", 1)])


async def test_failures_and_answers_that_are_none_are_not_kept(tmp_path: Path) -> None:
    kinds: list[Any] = [Unreachable("gone"), Completion("", "empty"), Completion("no", "refused")]
    with Cache(tmp_path / "cache.sqlite") as cache:
        for kind in (*kinds, Completion("The pla", "truncated"), Completion("fine"), "never asked"):
            gateway = Gateway(ScriptedLM(lambda request, kind=kind: kind), cache=cache)
            for request in (ask("a"), ask("b")):
                try:
                    last = await gateway.complete(request, Bill())
                except Unreachable:
                    continue
            assert gateway.sent == (2 if kind in kinds or "The" in str(kind) else 0)
        assert last == Completion("The pla", "truncated")


@pytest.mark.parametrize("column", ["value", "crc32", "key", "who"])
async def test_a_damaged_entry_is_a_miss_and_is_mended_by_the_next_answer(tmp_path: Path, column: str) -> None:
    path = tmp_path / "cache.sqlite"
    lm = ScriptedLM(said)
    with Cache(path) as cache:
        await Gateway(lm, cache=cache).complete(ask("a"), Bill())
        await Gateway(lm, cache=cache).complete(ask("b"), Bill())
    with sqlite3.connect(path) as file:
        if column == "crc32":
            file.execute("UPDATE entries SET crc32 = crc32 + 1")
        elif column == "value":
            file.execute("UPDATE entries SET value = CAST(replace(CAST(value AS TEXT), '\"A\"', '\"Z\"') AS BLOB)")
        else:  # the values change places, each whole in itself
            (first, _), (second, _) = file.execute("SELECT value, rowid FROM entries ORDER BY rowid").fetchall()
            file.execute("UPDATE entries SET value = CASE WHEN value = ? THEN ? ELSE ? END", (first, second, first))
    for sent in (3 if column == "value" else 4, 0):
        with Cache(path) as cache:
            lm = ScriptedLM(said)
            for text in "ab":
                assert (await Gateway(lm, cache=cache).complete(ask(text), Bill())).text == text.upper()
            assert len(lm.requests) == (sent - 2 if sent else 0)
            assert cache.damaged == len(lm.requests)


def test_any_damaged_byte_of_the_file_is_a_miss_and_never_another_answer(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    keys = filled(path, 40)
    whole = path.read_bytes()
    found_all = []
    for place in range(0, len(whole), max(1, len(whole) // 300)):
        raw = bytearray(whole)
        raw[place] ^= 0xFF
        path.write_bytes(bytes(raw))
        with Cache(path, busy_s=0.1) as cache:
            answers = [cache.get(key, ME) for key in keys]
        assert all(a is None or a.text == f"answer {i} é\n" for i, a in enumerate(answers))
        found_all.append(all(answers))
    assert True in found_all
    assert False in found_all


HAMMER = """
import sys
from pathlib import Path
from personalink.canonical import digest
from personalink.lm.base import Completion
from personalink.lm.cache import Cache, Who
me, path = int(sys.argv[1]), Path(sys.argv[2])
who = Who(digest("me"), "m", "e")
with Cache(path) as cache:
    for i in range(600):
        name = f"{me}-{i}" if i % 3 else f"all-{i}"
        cache.put(digest(name), who, Completion(f"answer {name}"))
        cache.get(digest(f"{(me + 1) % 4}-{i}"), who)
        if i % 10 == 0:
            cache.flush()
    sys.exit(0 if cache.on else 1)
"""


def test_many_processes_on_one_new_file_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    started = [
        subprocess.Popen([sys.executable, "-c", HAMMER, str(me), str(path)], stderr=subprocess.PIPE, text=True)
        for me in range(4)
    ]
    assert [(process.communicate()[1], process.returncode) for process in started] == [("", 0)] * 4
    names = {f"all-{i}" for i in range(0, 600, 3)} | {f"{me}-{i}" for me in range(4) for i in range(600) if i % 3}
    who = Who(digest("me"), "m", "e")
    with Cache(path) as cache:
        assert all(cache.get(digest(name), who) == Completion(f"answer {name}") for name in names)
    assert sqlite3.connect(path).execute("SELECT count(*) FROM entries").fetchone() == (len(names),)


def test_what_was_put_is_written_at_the_programs_end(tmp_path: Path) -> None:
    code = textwrap.dedent(f"""
        from pathlib import Path
        from personalink.canonical import digest
        from personalink.lm.base import Completion
        from personalink.lm.cache import Cache, Who
        Cache(Path({str(tmp_path)!r}) / "c").put(digest(1), Who(digest("me"), "m", "e"), Completion("x"))
    """)
    subprocess.run([sys.executable, "-c", code], check=True)
    with Cache(tmp_path / "c") as cache:
        assert cache.get(digest(1), Who(digest("me"), "m", "e")) == Completion("x")


def test_a_file_that_stays_locked_switches_it_off_with_one_warning(tmp_path: Path, caplog: Any) -> None:
    path = tmp_path / "cache.sqlite"
    (key, *_) = filled(path)
    holder = open_file(path)
    holder.execute("BEGIN IMMEDIATE")
    with Cache(path, busy_s=0.1) as cache:
        assert cache.get(key, ME) is not None  # a writer does not stop readers
        for i in range(3 * BATCH):
            cache.put(digest(f"new {i}"), ME, Completion("x"))
        assert not cache.on
        assert cache.get(key, ME) is None
    assert len(warnings(caplog)) == 1
    assert "kept locked by another process; the run goes on without the cache" in warnings(caplog)[0]
    holder.execute("ROLLBACK")
    holder.close()


def unusable(kind: str, folder: Path) -> Path:
    path = folder / "cache.sqlite"
    if kind == "a folder that cannot be written":
        if os.geteuid() == 0:  # root may write everywhere but here
            return Path("/proc/personalink/cache.sqlite")
        (folder / "locked").mkdir(mode=0o500)
        return folder / "locked" / "cache.sqlite"
    if kind == "a folder":
        path.mkdir()
    elif kind == "no database":
        path.write_text("something else" * 1000)
    elif kind == "another program's database":
        with closing(sqlite3.connect(path)) as file:
            file.execute("CREATE TABLE bookmarks (url)")
    else:
        filled(path, 300)
        if kind == "truncated":
            os.truncate(path, path.stat().st_size // 2)
        elif kind == "another version":
            with closing(sqlite3.connect(path)) as file:
                file.execute("PRAGMA user_version=99")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_records(tmp_path / "people.jsonl", n=3)
    return tmp_path


@pytest.mark.parametrize("kind", ["a folder that cannot be written", "a folder", "no database", "truncated",
                                  "another program's database", "another version"])  # fmt: skip
def test_a_run_goes_on_without_a_cache_that_cannot_be_used(folder: Path, caplog: Any, kind: str) -> None:
    path = unusable(kind, folder)
    before = path.read_bytes() if path.is_file() else b""
    finished = go(folder, cache=str(path), **FEW)
    assert finished.result.state == "complete"
    assert finished.result.cached == 0 < finished.result.sent
    (told,) = warnings(caplog)
    assert str(path) in told
    assert "\n" not in told
    assert (path.read_bytes() if path.is_file() else b"") == before


def test_a_cached_run_seals_the_same_bytes_pays_nothing_and_says_so(folder: Path) -> None:
    def ledger(finished: Any) -> dict[str, Any]:
        return json.loads((finished.result.run.log / "ledger.json").read_text())["total"]

    plain = go(folder, **FEW)
    expected = sealed(folder)
    cache = str(folder / "cache.sqlite")
    lms = [ScriptedLM(random_script(5)) for _ in range(3)]
    filling = go(folder, lms[0], cache=cache, fresh=True, **FEW)
    kept = ledger(filling)
    assert (filling.result.sent, filling.result.cached, kept["cached_calls"]) == (plain.result.sent, 0, 0)
    os.rename(plain.result.run.path.parent, folder / "first")
    served = go(folder, lms[1], cache=cache, **FEW)
    assert sealed(folder) == expected
    assert (
        served.result.sent
        == len(lms[1].requests)
        == sum(  # only what a cache does not keep
            random_script(5)(r).outcome == "empty"
            for r in lms[1].requests
            if isinstance(random_script(5)(r), Completion)
        )
    )
    paid = ledger(served)
    assert paid["calls"] == served.result.sent
    assert paid["cached_calls"] == served.result.cached == kept["calls"] - paid["calls"] > 50
    assert paid["replayed"] == kept["replayed"]
    os.remove(served.result.run.log / "status.json")  # as if it had been killed at the end
    os.remove(cache)
    again = go(folder, lms[2], **FEW)  # the journal alone is enough
    assert again.result.sent == 0
    rebuilt = ledger(again)
    assert {n: rebuilt[n] for n in ("calls", "cached_calls", "prompt_tokens")} == {
        n: paid[n] for n in ("calls", "cached_calls", "prompt_tokens")
    }
    assert sealed(folder) == expected


def test_the_setting_is_no_part_of_what_a_run_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.test_experiment import settings

    monkeypatch.setenv("PERSONALINK_HOME", str(folder / "home"))
    base = RunConfig.from_mapping(settings(folder))
    for value in (None, "on", "off", True, False, "/some/where"):
        config = RunConfig.from_mapping(settings(folder, cache=value))
        assert config.hash == base.hash
        assert "cache" not in config.as_dict()
        expected = {None: None, "off": None, "/some/where": Path("/some/where")}
        assert cache_path(config.cache) == expected.get(config.cache, folder / "home" / "cache.sqlite")
    with pytest.raises(PersonalinkError, match="cache is 3; it must be text"):
        RunConfig.from_mapping(settings(folder, cache=3))


async def test_the_ledger_counts_hits_apart_and_the_journal_gives_them_back(tmp_path: Path) -> None:
    with Cache(tmp_path / "cache.sqlite") as cache, Journal(tmp_path / "first") as journal:
        gateway = Gateway(ScriptedLM(said), journal, cache=cache)
        for i in range(3):
            await gateway.complete(ask(f"{i}"), Bill("u", "answer"))
    for attempt in range(2):
        with Cache(tmp_path / "cache.sqlite") as cache, Journal(tmp_path / "second") as journal:
            gateway = Gateway(ScriptedLM(said), journal, cache=cache)
            for i in range(5):
                await gateway.complete(ask(f"{i}"), Bill("u", "answer"))
            total = gateway.ledger.total()
            assert (total.calls, total.cached_calls, total.replayed) == (2, 3, 5 * attempt)
            assert (total.prompt_tokens, total.cached_tokens, total.completion_tokens) == (14, 4, 6)
            assert (gateway.sent, gateway.cached) == ((2, 3), (0, 0))[attempt]
    with Journal(tmp_path / "first") as journal:  # and records without the mark are calls
        assert Gateway(ScriptedLM(said), journal).ledger.total().cached_calls == 0


async def test_a_drain_starts_nothing_new_from_the_cache_either(tmp_path: Path) -> None:
    with Cache(tmp_path / "cache.sqlite") as cache:
        await Gateway(ScriptedLM(said), cache=cache).complete(ask("a"), Bill())
        gateway = Gateway(ScriptedLM(said), cache=cache)
        await gateway.drain()
        with pytest.raises(Interrupted):
            await gateway.complete(ask("a"), Bill())


def test_personalink_takes_a_cache(tmp_path: Path) -> None:
    users = people(3, 20).users
    results, sent = [], []
    for cache in (None, tmp_path / "cache.sqlite", tmp_path / "cache.sqlite"):
        lm = ScriptedLM(lambda request: "north")
        with PersonaLink(TASK, lm, cache=cache) as mine:
            results.append({r.user: r for r in mine.fit(users)})
            sent.append(len(lm.requests))
            assert mine.ledger.total().cached_calls == (sent[0] if len(sent) == 3 else 0)
    assert results[0] == results[1] == results[2]
    assert sent == [sent[0], sent[0], 0]


def test_where_an_answerer_is(tmp_path: Path) -> None:
    assert who_answers(ScriptedLM(said, model="a")).endpoint == "scripted"
    assert who_answers(ScriptedLM(said, model="a")).model == "a"
    assert cache_path("~/x") == Path.home() / "x"

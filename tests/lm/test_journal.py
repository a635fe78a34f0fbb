"""The journal: whole records or none, whatever was killed, torn, damaged or full."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import textwrap
import threading
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from personalink.canonical import canonical_json, digest
from personalink.errors import PersonalinkError, UsageError
from personalink.lm.base import Completion, Usage
from personalink.lm.journal import Journal


def filled(path: Path, n: int = 3) -> list[str]:
    keys = [digest(i) for i in range(n)]
    with Journal(path) as journal:
        for i, key in enumerate(keys):
            journal.put(key, Completion(f"answer {i} é\n", usage=Usage(i, None, 1)), ["u", "answer", i, "row"])
    return keys


def test_what_was_put_is_there_after_reopening(tmp_path: Path) -> None:
    keys = filled(tmp_path / "log" / "journal")
    with Journal(tmp_path / "log" / "journal") as journal:
        assert len(journal) == 3
        assert journal.get(keys[1]) == Completion("answer 1 é\n", usage=Usage(1, None, 1))
        assert journal.get(digest("another")) is None
        assert list(journal.bills()) == [(["u", "answer", i, "row"], [[i, None, 1]], 0) for i in range(3)]


def test_a_tail_torn_at_any_byte_loses_only_that_record(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    keys = filled(path)
    whole = path.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    for cut in range(last, len(whole)):
        path.write_bytes(whole[:cut])
        with Journal(path) as journal:
            assert [key in journal for key in keys] == [True, True, False]
            assert journal.torn == cut - last
            journal.put(keys[2], Completion("again"), [])
        with Journal(path) as journal:
            assert journal.get(keys[2]) == Completion("again")


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_a_damaged_byte_makes_a_miss_and_never_another_answer(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        keys = filled(path)
        raw = bytearray(path.read_bytes())
        place = data.draw(st.integers(0, len(raw) - 1))
        raw[place] ^= data.draw(st.integers(1, 255))
        path.write_bytes(bytes(raw))
        with Journal(path) as journal:
            for i, key in enumerate(keys):
                found = journal.get(key)
                assert found is None or found.text == f"answer {i} é\n"


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run" / "log" / "journal"
    with Journal(path):
        code = f"from personalink.lm.journal import Journal; from pathlib import Path; Journal(Path({str(path)!r}))"
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert other.returncode != 0
    assert "another process is working in" in other.stderr
    with Journal(path) as journal:
        assert len(journal) == 0
    with Journal(path), pytest.raises(UsageError):
        Journal(path)


def test_a_full_disk_is_one_line_and_keeps_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    code = textwrap.dedent(f"""
        import resource, signal
        from pathlib import Path
        from personalink.canonical import digest
        from personalink.lm.base import Completion
        from personalink.lm.journal import Journal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
        journal = Journal(Path({str(path)!r}))
        for i in range(100):
            journal.put(digest(i), Completion("x" * 100), [])
    """)
    full = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "cannot write the journal" in full.stderr.splitlines()[-1]
    with Journal(path) as journal:
        assert journal.torn == 0
        assert 1 < len(journal) < 20
        assert all(digest(i) in journal for i in range(len(journal)))


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(PersonalinkError, match="cannot write the journal"):
        Journal(tmp_path / "file" / "journal")


def test_lone_surrogates_do_not_stop_it(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal") as journal:
        journal.put(digest(1), Completion("half \ud83d emoji"), [])
        assert journal.get(digest(1)) == Completion("half ? emoji")


TEXTS = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ['"text":', '],"completion":{', '"usage":[1,2,3]},"key":"', "],", '\\"', "\n", "\x85", "[", "é"]
)
COUNTS = st.none() | st.integers(0, 10**6)
COMPLETIONS = st.builds(
    Completion,
    TEXTS,
    st.sampled_from(["ok", "empty", "truncated", "refused"]),
    st.builds(Usage, COUNTS, COUNTS, COUNTS),
    st.sampled_from(["", "grammar"]),
    TEXTS,
    st.integers(0, 3),
)
BILLS = st.tuples(TEXTS, TEXTS, st.integers(0, 3), TEXTS).map(list)


@settings(deadline=None, max_examples=150)
@given(st.lists(st.tuples(COMPLETIONS, BILLS), max_size=8))
def test_bills_are_what_was_put_whatever_stands_in_texts_and_names(put: list[tuple[Completion, list[object]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        with Journal(path) as journal:
            for i, (completion, bill) in enumerate(put):
                journal.put(digest(i), completion, bill)
        with Journal(path) as journal:
            told = [(bill, usages, retries) for bill, usages, retries in journal.bills()]
            assert [journal.get(digest(i)) for i in range(len(put))] == [completion for completion, _ in put]
            assert (journal.torn, journal.damaged, len(journal)) == (0, 0, len(put))
    apart = [(bill, usage) for bill, usages, _ in told for usage in usages]
    wanted = [(bill, [c.usage.prompt, c.usage.cached, c.usage.completion]) for c, bill in put]
    assert sorted(map(repr, apart)) == sorted(map(repr, wanted))
    assert sum(retries for _, _, retries in told) == sum(c.retries for c, _ in put)


def test_an_answer_of_any_length_is_read_whole(tmp_path: Path) -> None:
    texts = ["x" * n for n in (0, 600, 900, 1000, 1024, 5000, 200_000)]
    with Journal(tmp_path / "journal") as journal:
        for i, text in enumerate(texts):
            journal.put(digest(i), Completion(text), [])
        assert [journal.get(digest(i)) for i in range(len(texts))] == [Completion(text) for text in texts]


def test_keys_with_the_same_start_are_told_apart(tmp_path: Path) -> None:
    keys = ["ab" * 8 + digest(i)[16:] for i in range(5)]
    for _ in range(2):
        with Journal(tmp_path / "journal") as journal:
            for i, key in enumerate(keys):
                if key not in journal:
                    journal.put(key, Completion(f"{i}"), [])
            assert [journal.get(key) for key in keys] == [Completion(f"{i}") for i in range(5)]
            assert "ab" * 32 not in journal


def test_forgotten_answers_are_asked_for_again_and_stay_paid(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Journal(path) as journal:
        journal.put(digest(1), Completion("", "empty"), ["u"])
        journal.put(digest(2), Completion("kept"), ["u"])
    with Journal(path) as journal:
        assert journal.forget(("empty", "refused")) == 1
        assert digest(1) not in journal
        assert digest(2) in journal
        journal.put(digest(1), Completion("now"), ["u"])
    with Journal(path) as journal:
        assert sum(len(usages) for _, usages, _ in journal.bills()) == 3
        assert journal.forget(("empty", "refused")) == 0  # the newest answer counts
        assert journal.get(digest(1)) == Completion("now")
        assert len(journal) == 2


def test_threads_may_put_at_once(tmp_path: Path) -> None:
    def put(n: int) -> None:
        for i in range(200):
            journal.put(digest([n, i]), Completion(f"{n} {i} " * n), [f"u{n}"])

    with Journal(tmp_path / "journal") as journal:
        threads = [threading.Thread(target=put, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with Journal(tmp_path / "journal") as journal:
        assert (len(journal), journal.damaged, journal.torn) == (800, 0, 0)
        assert all(journal.get(digest([n, i])) == Completion(f"{n} {i} " * n) for n in range(4) for i in range(200))


def test_it_takes_few_bytes_of_memory_a_record(tmp_path: Path) -> None:
    n = 20_000
    with Journal(tmp_path / "journal") as journal:
        for i in range(n):
            journal.put(digest(i), Completion("some answer " * 20), [f"u{i // 8}", "evaluate", 0, ""])
    tracemalloc.start()
    try:
        with Journal(tmp_path / "journal") as journal:
            assert sum(len(usages) for _, usages, _ in journal.bills()) == n
            assert tracemalloc.get_traced_memory()[0] < 30 * n
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "odd", [{"usage": [-1, 0, 1]}, {"usage": 5}, {"text": 5}, {"outcome": "fine"}, {"retries": "1"}]
)
def test_a_record_that_is_whole_and_answers_nothing_is_a_miss(tmp_path: Path, odd: dict[str, Any]) -> None:
    key, path = digest("k"), tmp_path / "journal"
    completion = {"text": "x", "outcome": "ok", "usage": [1, 0, 1], "constrained": "", "model": "m", **odd}
    body = canonical_json({"key": key, "completion": completion, "bill": ["u", "answer", 0, ""]}).encode()
    path.write_bytes(b"%d %08x %s\n" % (len(body), zlib.crc32(body), body))
    with Journal(path) as journal:
        assert journal.get(key) is None
        assert key not in journal
        journal.put(key, Completion("again"), ["u", "answer", 0, ""])
        assert journal.get(key) == Completion("again")

"""The journal: whole records or none, whatever was killed, torn, damaged or full."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from personalink.canonical import digest
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
        assert [bill for bill, _ in journal.bills()] == [["u", "answer", i, "row"] for i in range(3)]


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
    import tempfile

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

"""The spool: what was put comes back, nothing is left on disk, and a full disk is one line."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from personalink.errors import StorageError
from personalink.spool import Spool


def test_what_was_put_comes_back_in_any_order(tmp_path: Path) -> None:
    with Spool(tmp_path) as spool:
        for i in range(5):
            spool.put("a", f"u{i}", f"é {i}\n" * i)
        spool.put("a", "u3", "again")
        spool.put("b", "u1", "another")
        assert list(spool.texts("a", ["u4", "u9", "u3", "u0"])) == [("u4", "é 4\n" * 4), ("u3", "again"), ("u0", "")]
        assert spool.get("b", "u1") == "another"
        assert spool.get("b", "u2") is spool.get("c", "u1") is None
        assert spool.has("a", "u0")
        assert not spool.has("b", "u0")


def test_nothing_is_seen_of_it_in_the_folder(tmp_path: Path) -> None:
    with Spool(tmp_path) as spool:
        spool.put("a", "u", "text")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot write in"):
        Spool(tmp_path / "none")


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    code = textwrap.dedent(f"""
        import resource, signal
        from pathlib import Path
        from personalink.spool import Spool
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
        spool = Spool(Path({str(tmp_path)!r}))
        for i in range(100):
            spool.put("a", f"u{{i}}", "x" * 150)
    """)
    full = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert full.stderr.splitlines()[-1].startswith("personalink.errors.StorageError: cannot write in")

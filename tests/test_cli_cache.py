"""`personalink cache`: what is in it, whether it is whole, what goes, and taking it to another machine."""

from __future__ import annotations

import gzip
import hashlib
import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from personalink.canonical import digest
from personalink.cli import main
from personalink.lm.base import Completion, Usage
from personalink.lm.cache import INSERT, Cache, Who, checksum

A, B = Who(digest("a"), "model-a", "http://one/v1"), Who(digest("b"), "model-b", "embedded")


def fill(path: Path, n: int = 20) -> Path:
    """`n` entries, every fourth of model B; the i-th was kept i days ago."""
    with Cache(path) as cache:
        for i in range(n):
            cache.put(digest(i), A if i % 4 else B, Completion(f"answer {i} é\n" * 20, usage=Usage(5, 0, i)))
    now = int(time.time())
    with closing(sqlite3.connect(path)) as file, file:
        for i in range(n):
            file.execute("UPDATE entries SET created = ? WHERE key = ?", (now - i * 86_400, bytes.fromhex(digest(i))))
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return fill(tmp_path / "cache.sqlite")


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Any:
    def called(*arguments: object) -> tuple[int, str, str]:
        code = main(["cache", *map(str, arguments)])
        out, err = capsys.readouterr()
        return code, out, err

    return called


def rows(path: Path) -> list[Any]:
    with closing(sqlite3.connect(path)) as file:
        return file.execute("SELECT * FROM entries ORDER BY key, who").fetchall()


def damage(path: Path, *numbers: int) -> None:
    with closing(sqlite3.connect(path)) as file, file:
        for i in numbers:
            file.execute(
                "UPDATE entries SET value = CAST(replace(CAST(value AS TEXT), 'answer', 'answex') AS BLOB) WHERE key = ?",
                (bytes.fromhex(digest(i)),),
            )


def one_line(err: str, start: str) -> bool:
    return err.startswith(f"personalink: {start}") and err.count("\n") == 1


def test_stats(call: Any, path: Path) -> None:
    code, out, _ = call("stats", "--path", path)
    assert code == 0
    assert "20 entries" in out
    assert "model-a at http://one/v1: 15 entries" in out
    assert "model-b at embedded: 5 entries" in out
    told = json.loads(call("stats", "--path", path, "--format", "json")[1])
    assert (told["entries"], len(told["by_model"])) == (20, 2)
    assert told["bytes"] == sum(group["bytes"] for group in told["by_model"]) == sum(row[3] for row in rows(path))
    assert told["oldest"] < told["newest"] == time.strftime("%Y-%m-%d", time.gmtime())


def test_the_default_place_and_an_empty_cache(call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSONALINK_HOME", str(tmp_path))
    code, _, err = call("stats")
    assert code == 2
    assert one_line(err, f"no cache at {tmp_path / 'cache.sqlite'}; give --path, or run once with cache=on")
    Cache(tmp_path / "cache.sqlite").close()
    assert "0 entries" in call("stats")[1]
    assert call("verify")[0] == 0
    assert call("prune", "--max-size", "0")[0] == 0


def test_verify_finds_the_damaged_and_deletes_them_when_told_to(call: Any, path: Path) -> None:
    assert call("verify", "--path", path)[:2] == (0, f"{path}: all 20 entries are whole\n")
    damage(path, 3, 7)
    code, out, err = call("verify", "--path", path)
    assert (code, out) == (5, "")
    assert one_line(err, f"2 of 20 entries in {path} are damaged; --fix deletes them")
    assert len(rows(path)) == 20
    assert call("verify", "--path", path, "--fix")[:2] == (0, f"{path}: 2 damaged entries deleted, 18 are whole\n")
    assert call("verify", "--path", path)[0] == 0


@pytest.mark.parametrize("action", ["verify", "stats", "prune", "export"])
def test_a_file_that_is_damaged_itself_is_one_line(call: Any, path: Path, tmp_path: Path, action: str) -> None:
    more = {"prune": ["--max-size", "1GB"], "export": [tmp_path / "out.gz"]}.get(action, [])
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) // 2])
    code, _, err = call(action, "--path", path, *more)
    assert code == 5
    assert one_line(err, f"the cache {path} is damaged")
    path.write_text("not a database " * 100)
    code, _, err = call(action, "--path", path, *more)
    assert code == 5
    assert one_line(err, f"the cache {path} is damaged")
    assert not (tmp_path / "out.gz").exists()
    assert call(action, "--path", tmp_path, *more)[0] == 2


@pytest.mark.parametrize(("options", "left"), [
    (["--older-than", "10d"], set(range(10))),
    (["--older-than", "24h"], {0}),
    (["--older-than", "2w"], set(range(14))),
    (["--model", "model-b"], {i for i in range(20) if i % 4}),
    (["--model", "model-b", "--older-than", "10d"], {i for i in range(20) if i % 4 or i < 10}),
    (["--model", "model-c"], set(range(20))),
    (["--max-size", "1GB"], set(range(20))),
    (["--max-size", "0"], set()),
])  # fmt: skip
def test_prune(call: Any, path: Path, options: list[str], left: set[int]) -> None:
    code, out, _ = call("prune", "--path", path, *options)
    assert code == 0
    assert f"{20 - len(left)} of 20 entries deleted" in out
    assert {bytes.fromhex(digest(i)) for i in left} == {row[0] for row in rows(path)}


def test_prune_to_a_size_takes_the_oldest_and_gives_the_space_back(call: Any, tmp_path: Path) -> None:
    path = fill(tmp_path / "cache.sqlite", 500)
    before = path.stat().st_size
    assert before > 100_000
    assert call("prune", "--path", path, "--max-size", "60kB")[0] == 0
    left = {row[0] for row in rows(path)}
    assert 10 < len(left) < 250
    assert left == {bytes.fromhex(digest(i)) for i in range(len(left))}
    assert 30_000 < path.stat().st_size <= 60_000
    assert call("verify", "--path", path)[0] == 0


@pytest.mark.parametrize(("options", "said"), [
    ([], "say what to delete"),
    (["--older-than", "soon"], "--older-than is 'soon'; it must be"),
    (["--older-than", "3"], "--older-than is '3'; it must be"),
    (["--max-size", "big"], "--max-size is 'big'; it must be"),
])  # fmt: skip
def test_prune_says_what_it_cannot_read(call: Any, path: Path, options: list[str], said: str) -> None:
    code, _, err = call("prune", "--path", path, *options)
    assert code == 2
    assert one_line(err, said)
    assert len(rows(path)) == 20


def test_export_and_import_are_a_round_trip(call: Any, path: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "answers.jsonl.gz", tmp_path / "else" / "cache.sqlite"
    assert call("export", file, "--path", path)[:2] == (0, f"{file}: 20 entries of {path}\n")
    assert call("import", file, "--path", other)[:2] == (0, f"{other}: 20 entries added, 0 were there already\n")
    assert rows(other) == rows(path)
    assert call("import", file, "--path", other)[1] == f"{other}: 0 entries added, 20 were there already\n"
    again = tmp_path / "again.gz"
    call("export", again, "--path", other)
    assert again.read_bytes() == file.read_bytes()
    with Cache(other) as cache:
        assert cache.get(digest(5), A) == Completion("answer 5 é\n" * 20, usage=Usage(5, 0, 5))


def test_import_never_overwrites_and_export_leaves_the_damaged_out(call: Any, path: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "answers.jsonl.gz", tmp_path / "other.sqlite"
    with Cache(other) as cache:
        cache.put(digest(5), A, Completion("mine"))
    damage(path, 1, 2)
    assert call("export", file, "--path", path)[1] == f"{file}: 18 entries of {path}; 2 damaged ones were left out\n"
    assert call("import", file, "--path", other)[1] == f"{other}: 17 entries added, 1 were there already\n"
    with Cache(other) as cache:
        assert cache.get(digest(5), A) == Completion("mine")
        assert cache.get(digest(1), A) is None


def test_a_damaged_export_is_refused_whole(call: Any, path: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "answers.jsonl.gz", tmp_path / "other.sqlite"
    call("export", file, "--path", path)
    raw = file.read_bytes()
    text = gzip.decompress(raw)
    header, first, *rest = text.splitlines(keepends=True)
    bad = [
        raw[:-9],
        raw[: len(raw) // 2],
        raw[:200] + bytes([raw[200] ^ 1]) + raw[201:],
        b"",
        b"plain text\n",
        gzip.compress(b""),
        gzip.compress(header),
        gzip.compress(b"".join([header, *rest])),
        gzip.compress(b"".join([header, first.replace(b"answer", b"answex", 1), *rest])),
        gzip.compress(b"".join([header, first, *rest[:-1]])),
        gzip.compress(b'{"a": 1}\n' + text),
        gzip.compress(b"[" * 100_000),
    ]
    for wrong in bad:
        file.write_bytes(wrong)
        code, out, err = call("import", file, "--path", other)
        assert (code, out) == (5, ""), err
        assert one_line(err, f"{file} is damaged, or no export of a cache")
        assert not other.exists()
    file.write_bytes(gzip.compress(text.replace(b'"personalink_cache":1', b'"personalink_cache":2')))
    code, _, err = call("import", file, "--path", other)
    assert code == 2
    assert one_line(err, f"{file} is an export of version 2")
    assert call("import", tmp_path / "absent", "--path", other)[0] == 2
    assert call("export", tmp_path / "no" / "folder.gz", "--path", path)[0] == 2


def test_a_cache_in_use_can_be_looked_after(call: Any, path: Path, tmp_path: Path) -> None:
    with Cache(path) as cache:
        assert cache.get(digest(5), A) is not None
        cache.put(digest("new"), A, Completion("x"))
        assert call("verify", "--path", path)[0] == 0
        assert call("prune", "--path", path, "--older-than", "10d")[0] == 0
        assert call("export", tmp_path / "out.gz", "--path", path)[0] == 0
        assert cache.get(digest(5), A) is not None
        assert cache.get(digest(15), A) is None
    assert len(rows(path)) == 11


@pytest.mark.parametrize("end", ["", "-wal", "-shm", "-journal"])
def test_an_export_never_takes_the_place_of_the_cache(call: Any, path: Path, tmp_path: Path, end: str) -> None:
    before = rows(path)
    (tmp_path / "link").symlink_to(Path(f"{path}{end}"))
    for target in (Path(f"{path}{end}"), tmp_path / "link", tmp_path / "." / "x" / ".." / f"{path.name}{end}"):
        code, out, err = call("export", target, "--path", path)
        assert (code, out) == (2, "")
        assert one_line(err, f"{target} is the cache itself")
    assert rows(path) == before


def test_an_export_takes_the_place_of_an_older_export_alone(call: Any, path: Path, tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl.gz"
    other = fill(tmp_path / "other.sqlite", 3)
    (tmp_path / "hard.sqlite").hardlink_to(path)
    assert call("export", file, "--path", path)[0] == 0
    assert call("export", file, "--path", other)[0] == 0
    file.write_bytes(file.read_bytes()[:-20])  # an older one that was cut off
    assert call("export", file, "--path", path)[0] == 0
    contents = {"notes.txt": b"mine", "data.json.gz": gzip.compress(b'{"a": 1}\n'), "empty": b"", "cut.gz": b"\x1f\x8b"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    for name in (*contents, "hard.sqlite", "other.sqlite", "."):
        target = tmp_path / name
        kept = target.read_bytes() if target.is_file() else None
        code, out, err = call("export", target, "--path", path)
        assert (code, out) == (2, ""), name
        assert one_line(err, f"{target} is there and is no export of a cache")
        assert kept is None or target.read_bytes() == kept


def sealed_again(lines: list[dict[str, Any]]) -> bytes:
    """An export of these entries, with the checksum that belongs to it."""
    text = "".join(json.dumps(line) + "\n" for line in ({"personalink_cache": 1}, *lines)).encode()
    end = {"entries": len(lines), "sha256": hashlib.sha256(text).hexdigest()}
    return gzip.compress(text + json.dumps(end).encode() + b"\n")


ODD: list[dict[str, Any]] = [
    *({"created": odd} for odd in (10**30, -1, 1.5, True, "1", None, 2**62)),
    *({"model": odd} for odd in ("\ud800", 5, None)),
    {"endpoint": "a\udfff"},
    *({"key": odd} for odd in ("", "ab", 5, "zz" * 32)),
    {"who": "ab"},
    {"completion": []},
    *({"constrained": odd} for odd in (5, None)),
    *({"text": odd} for odd in (5, None, [])),
    *({"outcome": odd} for odd in ("fine", "empty", 5, [])),
    {"model name": 5},
    *({"retries": odd} for odd in (-1, 1.0, "1", True, 10**30)),
    *({"usage": odd} for odd in (["a", 0, 1], [-1, 0, 1], [1, 2], [1, 2, 3, 4], [1.5, 0, 1], [True, 0, 1], [0, 0, 10**30])),
    *({"usage": odd} for odd in (None, 5, {}, "abc")),
    *({"tokens": odd} for odd in ([[1, -1, []]], [["a", -1]], 5, ["ab"], [["a", -1, [[1, -2]]]], [["a", -1, [["b"]]]])),
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: str(odd)[:40])
def test_an_entry_of_odd_values_is_damage_on_import_and_a_miss_in_the_file(
    call: Any, tmp_path: Path, odd: dict[str, Any]
) -> None:
    completion: dict[str, Any] = {"text": "x", "outcome": "ok", "usage": [1, 0, 1], "constrained": "", "model": "m"}
    entry = {"key": digest("k"), "who": A.digest, "created": 1, "model": "m", "endpoint": "e", "completion": completion}
    if odd.keys() <= entry.keys():
        wrong = entry | odd
    else:
        completion |= {name.removesuffix(" name"): value for name, value in odd.items()}
        wrong = entry
    file, other = tmp_path / "odd.gz", tmp_path / "other.sqlite"
    file.write_bytes(sealed_again([wrong]))
    code, out, err = call("import", file, "--path", other)
    assert (code, out) == (5, ""), err
    assert one_line(err, f"{file} is damaged, or no export of a cache")
    assert not other.exists()
    if wrong is entry:
        value = json.dumps(completion).encode()
        place = bytes.fromhex(digest("k")), bytes.fromhex(A.digest)
        Cache(other).close()
        with closing(sqlite3.connect(other)) as rowed, rowed:
            row = (*place, 1, len(value), checksum(*place, value), "m", "e", None, value)
            rowed.execute(INSERT, row)
        with Cache(other) as cache:
            assert cache.get(digest("k"), A) is None
        assert call("verify", "--path", other)[0] == 5


NO_LOGPROBS = ([["a", 1, [["b", "c"]]]], [["a", "b", []]], [["a", float("nan"), []]], [["a", 10**400, []]])


@pytest.mark.parametrize("tokens", NO_LOGPROBS, ids=range(4))
def test_an_answer_with_odd_logprobs_is_taken_without_them(call: Any, tmp_path: Path, tokens: list[Any]) -> None:
    completion = {"text": "x", "outcome": "ok", "usage": [1, 0, 1], "constrained": "", "model": "m", "tokens": tokens}
    entry = {"key": digest("k"), "who": A.digest, "created": 1, "model": "m", "endpoint": "e", "completion": completion}
    file, other = tmp_path / "odd.gz", tmp_path / "other.sqlite"
    file.write_bytes(sealed_again([entry]))
    assert call("import", file, "--path", other)[0] == 0
    with Cache(other) as cache:
        found = cache.get(digest("k"), A)
        assert found is not None
        assert (found.text, found.tokens) == ("x", ())


def test_times_that_are_none_in_the_file_are_no_crash(call: Any, path: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(path)) as file, file:
        for i, odd in enumerate((2**62, -5, "soon", 1.5)):
            file.execute("UPDATE entries SET created = ? WHERE key = ?", (odd, bytes.fromhex(digest(i))))
    assert call("stats", "--path", path)[0] == 0
    assert call("stats", "--path", path, "--format", "json")[0] == 0
    code, out, _ = call("export", tmp_path / "out.gz", "--path", path)
    assert (code, "damaged ones were left out" in out) == (0, True)
    assert call("import", tmp_path / "out.gz", "--path", tmp_path / "new.sqlite")[0] == 0

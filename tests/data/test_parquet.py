"""Parquet rows: the same dataset as from JSON lines, bounded memory, and errors that name file, column and row."""

from __future__ import annotations

import datetime as dt
import importlib.util
import json
import string
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from personalink.config import DataConfig
from personalink.data import load_records
from personalink.errors import ConfigError, DataError
from personalink.sources import load_data
from personalink.tasks import task

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: [parquet]")
pq = pytest.importorskip("pyarrow.parquet")

ROWS = {
    "user": ["007", "007", "7", "007"],
    "input": ["A kettle that boils.", "A pan,\nthat sticks.", "A lamp.", "A chair."],
    "label": [5, 2, 4, 3],
    "date": ["2020-01-03", "2020-01-01", "2020-01-02", "2020-01-02"],
    "id": ["k", "p", "l", "c"],
}


def save(folder: Path, columns: dict, name: str = "rows.parquet", **options) -> Path:
    path = folder / name
    pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), path, **options)
    return path


def refused(path, error=DataError, **options) -> str:
    with pytest.raises(error) as caught:
        load_records(path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def same_as_lines(folder: Path, columns: dict) -> bool:
    table = pa.table(columns)
    lines = folder / "rows.jsonl"
    lines.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()), encoding="utf-8")
    one, other = load_records(save(folder, table)), load_records(lines)
    return (one.users, one.golds, one.dropped) == (other.users, other.golds, other.dropped)


def test_the_same_rows_as_in_json_lines(tmp_path):
    assert same_as_lines(tmp_path, ROWS)
    data = load_records(tmp_path / "rows.parquet", task="lamp3")
    assert (data.source, data.task, [u.id for u in data.users]) == ("rows", "lamp3", ["007", "7"])
    assert data.gold("007", "k") == "5"
    assert [i.label for i in data.users[0].history] == ["2", "3"]


TEXT = st.text(string.ascii_letters + " .é東\U0001f600", min_size=1, max_size=12).filter(str.strip)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["a", "b", " c"]), TEXT, st.integers(-5, 5)), min_size=1, max_size=12))
def test_any_rows_are_the_same_as_in_json_lines(tmp_path_factory, rows):
    users, inputs, labels = zip(*rows, strict=True)
    assert same_as_lines(tmp_path_factory.mktemp("rows"), {"user": users, "input": inputs, "label": labels})


def test_columns_of_other_names_and_types(tmp_path):
    columns = {
        "who": pa.array([7, 7, 7, 8]),
        "said": pa.array(["A.", "B.", "C.", "D."]).dictionary_encode(),
        "kind": pa.array(["x", "w", None, "z"], pa.large_string()),
        "when": pa.array([dt.date(2020, 1, 1), dt.date(2020, 1, 2), dt.date(2020, 1, 3), None]),
        "extra": pa.array([[1], [2], [3], [4]]),  # is not read
    }
    names = {"user": "who", "input": "said", "label": "kind", "date": "when"}
    data = load_records(save(tmp_path, columns), columns=names)
    assert [u.id for u in data.users] == ["7", "8"]
    assert [(i.id, i.input, i.label, i.date) for i in data.users[0].history] == [
        ("1", "A.", "x", "2020-01-01"),
        ("2", "B.", "w", "2020-01-02"),
    ]
    assert data.gold("7", "3") is None  # a query's label may be missing


def test_numbers_and_times_are_told_as_python_writes_them(tmp_path):
    columns = {
        "user": ["u"] * 3,
        "input": ["A.", "B.", "C."],
        "label": pa.array([4.5, 5.0, -1.0]),
        "id": pa.array([Decimal("1.50"), Decimal("2.00"), None], pa.decimal128(5, 2)),
        "date": pa.array([1577836800000000001, None, None], pa.timestamp("ns", "UTC")),
    }
    history = load_records(save(tmp_path, columns), holdout="none").users[0].history
    assert [(i.id, i.label) for i in history] == [("1.50", "4.5"), ("2.00", "5.0"), ("3", "-1.0")]
    assert history[0].date == "2020-01-01T00:00:00+00:00"


def test_a_run_reads_it_by_its_name(tmp_path):
    labels = ["Business", "travel", "Sports", "crime"]
    path = save(tmp_path, {**ROWS, "label": labels})
    data = load_data(DataConfig("records", path=str(path)), task("lamp2"))
    assert {item.label for user in data.users for item in user.history} == {"travel", "crime"}


def peak(path: Path) -> int:
    """Most bytes that Arrow held at a time while a file was read."""
    before, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(pool)
    try:
        read = load_records(path)
    finally:
        pa.set_memory_pool(before)
    assert sum(len(user.history) + len(user.queries) for user in read.users) == pq.read_metadata(path).num_rows
    return pool.max_memory()


def test_what_is_held_does_not_grow_with_the_file_or_its_row_groups(tmp_path):
    def wide(n: int) -> dict:
        return {
            "user": [str(i % 50) for i in range(n)],
            "input": [f"{i} {'wide ' * 200}" for i in range(n)],
            "label": ["x"] * n,
        }

    short = peak(save(tmp_path, wide(4_000), "short.parquet", row_group_size=2000, use_dictionary=False))
    long = peak(save(tmp_path, wide(16_000), "long.parquet", row_group_size=2000, use_dictionary=False))
    whole = peak(save(tmp_path, wide(16_000), "whole.parquet", row_group_size=16_000, use_dictionary=False))
    assert 0 < long < 1.1 * short
    assert whole < 1.1 * short
    assert short < 6_000_000  # 1,024 rows of a kilobyte, and what decoding takes beside


# what is refused


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"label": None}, 'no column "label" among user, input, date, id; name it, or map it with columns='),
        ({"label": [[5], [2], [4], [3]]}, 'column "label": its type is list<'),
        ({"label": [True, False, True, True]}, 'column "label": its type is bool; it must be text or numbers'),
        ({"input": [b"a", b"b", b"c", b"d"]}, 'column "input": its type is binary; it must be text or numbers'),
        ({"date": [1, 2, 3, 4]}, 'column "date": its type is int64; it must be text or dates'),
        ({"user": ["007", None, "7", "007"]}, 'row 2, column "user": must not be empty'),
        ({"date": ["2020-01-03", "soon", "", ""]}, 'row 2, column "date": "soon" is no ISO 8601 date'),
        ({"label": [5.0, float("nan"), 4.0, 3.0]}, 'row 2, column "label": a history row must have a label'),
        ({"id": ["k", "p", "l", "p"]}, 'row 4, column "id": "p" was used by the same user on row 2'),
        ({"split": ["query", "history", "test", ""]}, 'row 3, column "split": "test" must be "history" or "query"'),
    ],
)
def test_what_is_wrong_is_named(tmp_path, change, told):
    columns = {name: column for name, column in {**ROWS, **change}.items() if column is not None}
    assert told in refused(save(tmp_path, columns))


def test_files_that_are_none(tmp_path):
    path = tmp_path / "rows.parquet"
    assert "no such file" in refused(path)
    for body in (b"", b"PAR1", b"user,input\n", save(tmp_path, ROWS).read_bytes()[:-20]):
        path.write_bytes(body)
        assert refused(path).startswith(f"{path}: ")
    (tmp_path / "folder.parquet").mkdir()
    assert "this is a folder" in refused(tmp_path / "folder.parquet")
    assert "there is no row in it" in refused(save(tmp_path, {name: pa.array([], pa.string()) for name in ROWS}))


def test_a_damaged_page_is_one_line(tmp_path):
    path = save(tmp_path, {**ROWS, "input": [c * 500 for c in "abcd"]}, compression="zstd", use_dictionary=False)
    body = bytearray(path.read_bytes())
    body[40:120] = b"\xff" * 80
    path.write_bytes(bytes(body))
    assert str(path) in refused(path)


def test_texts_that_are_not_utf_8(tmp_path):
    broken = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")])
    path = save(tmp_path, pa.table({"user": ["u"], "input": broken, "label": ["x"]}))
    assert "not readable as Parquet" in refused(path)


def test_a_column_that_stands_twice(tmp_path):
    arrays = [pa.array(["u"]), pa.array(["A."]), pa.array(["x"]), pa.array(["y"])]
    path = save(tmp_path, pa.Table.from_arrays(arrays, names=["user", "input", "label", "label"]))
    assert 'the column "label" stands there twice' in refused(path)


def test_without_pyarrow_the_extra_is_named(tmp_path, monkeypatch):
    path = save(tmp_path, ROWS)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert 'pip install "personalink[parquet]"' in refused(path, ConfigError)

"""People's own rows: formats, columns, queries, order, and errors that name the line."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from personalink.data import load_records
from personalink.data.leaks import check_user
from personalink.errors import DataError

CSV = """user,input,label,date,id
007,A kettle that boils.,5,2020-01-03,k
007,"A pan,
that sticks.",2,2020-01-01,p
7,A lamp.,4,2020-01-02,l
007,A chair.,3,2020-01-02,c
"""


def load(folder, body, name="rows.csv", **options):
    path = folder / name
    path.write_bytes(body if isinstance(body, bytes) else body.encode())
    return load_records(path, **options)


def lines(*rows) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def refused(folder, body, name="rows.csv", **options) -> str:
    with pytest.raises(DataError) as caught:
        load(folder, body, name, **options)
    line = str(caught.value)
    assert "\n" not in line
    return line


def test_csv_with_the_latest_row_as_the_query(tmp_path):
    data = load(tmp_path, CSV, task="lamp3")
    assert (data.source, data.task, [u.id for u in data.users]) == ("rows", "lamp3", ["007", "7"])
    user = data.users[0]
    assert [(i.id, i.input, i.label) for i in user.history] == [
        ("p", "A pan,\nthat sticks.", "2"),
        ("c", "A chair.", "3"),
    ]
    assert [(q.id, q.date) for q in user.queries] == [("k", "2020-01-03")]
    assert data.gold("007", "k") == "5"
    assert data.users[1].history == ()


def test_the_latest_is_the_last_row_when_not_all_are_dated(tmp_path):
    data = load(tmp_path, CSV.replace(",2020-01-03,k", ",,k"))
    assert [q.id for q in data.users[0].queries] == ["c"]
    assert [i.id for i in data.users[0].history] == ["k", "p"]


def test_of_rows_equally_late_the_last_is_the_query(tmp_path):
    data = load(tmp_path, CSV.replace("2020-01-03", "2020-01-02"))
    assert [q.id for q in data.users[0].queries] == ["c"]


def test_no_holdout_makes_all_history(tmp_path):
    data = load(tmp_path, CSV, holdout="none")
    assert [len(u.history) for u in data.users] == [3, 1]
    assert not data.golds


def test_json_lines_with_a_split(tmp_path):
    rows = lines(
        {"user": "a", "input": "One.", "label": 4.50},
        {"user": "a", "input": "Two.", "split": "query"},
        {"user": "a", "input": "Three.", "label": None, "split": "query", "id": 12},
        {"user": "a", "input": "Four.", "label": "x", "split": "history"},
    )
    data = load(tmp_path, rows, "rows.jsonl")
    (user,) = data.users
    assert [(i.id, i.label) for i in user.history] == [("1", "4.5"), ("4", "x")]
    assert [q.id for q in user.queries] == ["2", "12"]
    assert not data.golds


def test_lines_are_counted_as_an_editor_counts_them(tmp_path):
    rows = (
        lines({"user": "a", "input": "x\u2028y", "label": "1"})
        + "\n  \n"
        + '{"user": "a", "input": "z", "label": 1}\n{'
    )
    assert "line 5:" in refused(tmp_path, rows, "rows.ndjson")


def test_tsv_columns_and_byte_order_mark(tmp_path):
    body = "\ufeffauthor\tbody\tlabel\nann\tOne, two.\tgood\nann\tThree.\tbad\n"
    data = load(tmp_path, body, "rows.TSV", columns={"user": "author", "input": "body"}, source="mine")
    assert (data.source, data.users[0].history[0].input) == ("mine", "One, two.")
    other = load(tmp_path, body, "rows.TSV", columns={"user": "author", "input": "body"}, holdout="none")
    assert data.sha256 != other.sha256


def test_a_querys_own_text_is_left_out_and_counted(tmp_path):
    rows = "user,input,label\na,A chair.,1\na,b,2\na,a  CHAIR.,3\nb,A chair.,1\nb,c,1\n"
    data = load(tmp_path, rows)
    assert [len(u.history) for u in data.users] == [1, 1]
    assert data.dropped == {"query in own history": 1}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("user,input,label\na,x,\na,y,1\n", 'line 2, column "label": a history row must have a label'),
        ("user,input,label\na,,1\n", 'line 2, column "input": must not be empty'),
        ("user,input,label\n ,x,1\n", 'line 2, column "user": must not be empty'),
        ("user,input,label,date\na,x,1,2020-13-01\n", 'line 2, column "date": "2020-13-01" is no ISO 8601 date'),
        ("user,input,label,split\na,x,1,test\n", 'line 2, column "split": "test" must be'),
        ('user,input,label\na,"x\ny",1\na,z,1,7\n', "line 4: 4 cells where the header has 3"),
        ('user,input,label\na,"x,1\n', "line 2: not readable as CSV"),
        ("user,text,label\na,x,1\n", 'line 1: no column "input" among user, text, label'),
        ("user,input,label,label\na,x,1,2\n", '"label" stands there twice'),
        ("user,input,label\n", "there is no row"),
        ("", "empty"),
        (b"user,input,label\na,\xff,1\n", "not UTF-8"),
        (
            "user,input,label,id\na,x,1,7\na,y,1,7\na,z,1,8\n",
            'line 3, column "id": "7" was used by the same user on line 2',
        ),
    ],
)
def test_a_broken_table_names_the_line(tmp_path, body, words):
    assert words in refused(tmp_path, body)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ('{"user": true, "input": "x", "label": "1"}', 'line 1, column "user": must be a string or a number, not true'),
        ('{"user": "a", "input": ["x"], "label": "1"}', 'column "input": must be a string or a number, not a list'),
        ('{"user": "a", "input": "x", "label": NaN}', 'column "label": must be a string or a number'),
        ('{"user": null, "input": "x", "label": "1"}', 'column "user": must not be empty'),
        ('{"user": "a", "label": "1"}', 'column "input": missing; the line has user, label'),
        ("[1]", "line 1: must be an object, not a list"),
        ('{"user": "a"', "line 1: not readable as JSON"),
    ],
)
def test_a_broken_line_names_the_line(tmp_path, row, words):
    assert words in refused(tmp_path, row + "\n", "rows.jsonl")


def test_options_that_are_not_known(tmp_path):
    assert "meant user?" in refused(tmp_path, CSV, columns={"usr": "author"})
    assert "latest" in refused(tmp_path, CSV, holdout="first")
    assert ".jsonl, .ndjson or .parquet" in refused(tmp_path, CSV, "rows.xlsx")
    with pytest.raises(DataError, match="no such file"):
        load_records(tmp_path / "none.csv")


CELL = st.sampled_from(["One.", "ONE.", "Two.", "Three", "a", "b"])


@given(st.lists(st.tuples(CELL, CELL, st.sampled_from(["query", "history"])), min_size=1, max_size=12))
def test_no_query_is_in_any_history(tmp_path_factory, drawn):
    rows = lines(*({"user": user, "input": text, "label": "1", "split": split} for user, text, split in drawn))
    data = load(tmp_path_factory.mktemp("rows"), rows, "rows.jsonl")
    for user in data.users:
        check_user(user)
    kept = sum(len(user.history) + len(user.queries) for user in data.users)
    assert kept + sum(data.dropped.values()) == len(drawn)


def test_history_later_than_the_query_is_left_out_and_counted(tmp_path):
    rows = [
        {"user": "a", "input": "old", "label": "1", "date": "2020-01-01"},
        {"user": "a", "input": "same day", "label": "1", "date": "2020-02-02T09:00"},
        {"user": "a", "input": "asked", "label": "1", "date": "2020-02-02", "split": "query"},
        {"user": "a", "input": "new", "label": "1", "date": "2020-02-03"},
        {"user": "a", "input": "undated", "label": "1"},
        {"user": "b", "input": "elsewhere new", "label": "1", "date": "2021-01-01"},
        {"user": "b", "input": "asked undated", "label": "1", "split": "query"},
    ]
    data = load(tmp_path, lines(*rows), "rows.jsonl")
    assert [i.input for i in data.users[0].history] == ["old", "same day", "undated"]
    assert [i.input for i in data.users[1].history] == ["elsewhere new"]
    assert data.dropped == {"item later than its query": 1}


@pytest.mark.parametrize("path", [None, 3, "", ["rows.csv"]])
def test_a_path_that_is_none(path):
    with pytest.raises(DataError, match="must be the path of a file"):
        load_records(path)

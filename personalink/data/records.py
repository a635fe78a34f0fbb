"""People's own labelled past as plain rows: CSV, TSV, JSON lines or Parquet.

A row has `user`, `input`, `label` and, where known, `date`, `id` and `split` ("history" or "query"). Knows rows and
columns; does not know what the labels mean, which is the task's business.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from personalink.canonical import digest, file_digest
from personalink.data.lamp import in_order
from personalink.data.leaks import holds_query
from personalink.data.parquet import parquet_rows
from personalink.data.reading import as_path, cleaned, described, is_later, moment, quoted, read_text, readable
from personalink.data.types import Dataset, Item, Query, User
from personalink.errors import DataError
from personalink.text import nearest

FIELDS = ("user", "input", "label", "date", "id", "split")
_REQUIRED = ("user", "input", "label")
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_LINES = (".jsonl", ".ndjson")
_PARQUET = ".parquet"


@dataclass(frozen=True, slots=True)
class _Row:
    """One row as read: its line (in Parquet its number) and its cells by our field names; absent and null are ""."""

    line: int
    cells: Mapping[str, str]

    def __getitem__(self, field: str) -> str:
        return self.cells.get(field, "")


def load_records(
    path: str | Path,
    *,
    task: str = "",
    source: str | None = None,
    columns: Mapping[str, str] | None = None,
    holdout: str = "latest",
) -> Dataset:
    """Users, histories and queries from one file of rows: `.csv`, `.tsv`, `.jsonl`, `.ndjson` (UTF-8) or `.parquet`.

    - User ids are strings, kept exactly (007 stays 007; only white space at the ends goes). Numbers in JSON lines are
      taken as they are written; of Parquet, only the columns named are read, and dates may be dates.
    - Where any row has a `split`, rows with "query" are queries (their label is the gold and may be empty) and the
      others history. Where none has, `holdout` decides.
    - History is oldest first when all of a user's items are dated (ISO 8601), in file order otherwise.
    - A history row that is one of its own user's queries (see `leaks.holds_query`: the text, or the same id) is left
      out and counted in `Dataset.dropped`; so is one that is later than one of its own user's dated queries.

    Args:
        path: the file.
        task: the task that the labels belong to, such as "lamp3"; "" when unknown.
        source: the dataset's name, part of every identity; None takes the file's name without its suffix.
        columns: our field name → the file's column, for those that differ, such as {"user": "author"}.
        holdout: "latest" makes each user's latest row (by date if all are dated, else the last in the file) the
            query; "none" makes all rows history. Unused where there is a split.

    Raises:
        DataError: the file or a row cannot be used; names the line, the field and what would be right.
        ConfigError: a Parquet file, and pyarrow is not installed.
    """
    file = as_path(path, "path")
    names = _columns(columns or {})
    if holdout not in ("latest", "none"):
        raise DataError(f'holdout {quoted(str(holdout))} is not known; take "latest" or "none"')
    rows, sha = _read(file, names)
    if not rows:
        raise DataError(f"{file}: there is no row in it")
    by_user: dict[str, list[_Row]] = {}
    for row in rows:
        _check(file, row, names)
        by_user.setdefault(row["user"], []).append(row)
    if any(row["split"] for row in rows):
        holdout = "split"
    name = source or file.stem
    sorter = _Sorter(file, names, holdout)
    users = tuple(sorter.user(name, rows) for rows in by_user.values())
    options = {"columns": names, "holdout": holdout}
    return Dataset(name, task, users, sorter.golds, digest([sha, options]), dict(sorted(sorter.dropped.items())))


def _read(file: Path, names: Mapping[str, str]) -> tuple[list[_Row], str]:
    """Every row of a file, by the format that its name tells, and the SHA-256 of its bytes."""
    suffix = file.suffix.lower()
    if suffix == _PARQUET:
        with readable(file):
            sha = file_digest(file)
        return [_Row(number, cells) for number, cells in parquet_rows(file, names, _REQUIRED)], sha
    text, sha = read_text(file)
    if suffix in _DELIMITERS:
        return list(_table(file, text, _DELIMITERS[suffix], names)), sha
    if suffix in _LINES:
        return list(_lines(file, text, names)), sha
    raise DataError(f"{file}: the name must end in .csv, .tsv, .jsonl, .ndjson or .parquet, which tells the format")


class _Sorter:
    """Makes users of rows, collecting golds and what is left out."""

    def __init__(self, file: Path, names: Mapping[str, str], holdout: str) -> None:
        self.file, self.names, self.holdout = file, names, holdout
        self.golds: dict[tuple[str, str], str] = {}
        self.dropped: Counter[str] = Counter()

    def user(self, source: str, rows: list[_Row]) -> User:
        """One user of their rows, in file order."""
        user = rows[0]["user"]
        asked = _asked(rows, self.holdout)
        ids = self._ids(rows, asked)
        queries = [Query(ids[row.line], row["input"], row["date"] or None) for row in rows if row.line in asked]
        items = []
        for row in rows:
            id_ = ids[row.line]
            if row.line in asked:
                if row["label"]:
                    self.golds[(user, id_)] = row["label"]
                continue
            if not row["label"]:
                _fail(self.file, row.line, self.names["label"], "a history row must have a label")
            item = Item(id_, row["input"], row["label"], row["date"] or None)
            if holds_query(item, queries):
                self.dropped["query in own history"] += 1
            elif item.date and any(query.date and is_later(item.date, query.date) for query in queries):
                self.dropped["item later than its query"] += 1
            else:
                items.append(item)
        return User(user, source, in_order(items), tuple(queries))

    def _ids(self, rows: list[_Row], asked: set[int]) -> dict[int, str]:
        """Line → id; unique among one user's queries and among one user's history."""
        lines: dict[tuple[bool, str], int] = {}
        for row in rows:
            id_ = row["id"] or str(row.line)
            first = lines.setdefault((row.line in asked, id_), row.line)
            if first != row.line:
                problem = f"{quoted(id_)} was used by the same user on {_word(self.file)} {first}; ids must differ"
                _fail(self.file, row.line, self.names["id"], problem)
        return {line: id_ for (_, id_), line in lines.items()}


def _asked(rows: list[_Row], holdout: str) -> set[int]:
    """The lines of the queries among all rows of one user."""
    if holdout == "split":
        return {row.line for row in rows if row["split"] == "query"}
    if holdout == "none":
        return set()
    times = [moment(row["date"]) for row in rows]
    known = [time for time in times if time is not None]
    if len(known) < len(rows):
        return {rows[-1].line}
    return {max(zip(known, (row.line for row in rows), strict=True))[1]}


def _columns(given: Mapping[str, str]) -> dict[str, str]:
    """Field → column for every field."""
    for field in given:
        if field not in FIELDS:
            hint = nearest(str(field), FIELDS)
            meant = f"meant {hint}?" if hint else f"take {', '.join(FIELDS)}"
            raise DataError(f"columns: {quoted(str(field))} is no field; {meant}")
    return {field: given.get(field, field) for field in FIELDS}


def _table(file: Path, text: str, delimiter: str, names: Mapping[str, str]) -> Iterator[_Row]:
    """The rows of a CSV or TSV file; a row's line is the one on which it begins."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    line = 1
    try:
        header = [name.strip() for name in next(reader, [])]
        missing = [names[field] for field in _REQUIRED if names[field] not in header]
        if missing:
            raise DataError(
                f"{file}, line 1: no column {quoted(missing[0])} among {', '.join(header)[:200]}; "
                "name it, or map it with columns={…}"
            )
        if len(set(header)) < len(header):
            twice = next(name for name in header if header.count(name) > 1)
            raise DataError(f"{file}, line 1: the column {quoted(twice)} stands there twice")
        line = reader.line_num + 1
        for cells in reader:
            if any(cell.strip() for cell in cells):
                if len(cells) != len(header):
                    _fail(
                        file,
                        line,
                        "",
                        f"{len(cells)} cells where the header has {len(header)}; quote cells that hold a delimiter",
                    )
                row = dict(zip(header, cells, strict=True))
                yield _Row(line, {field: cleaned(row.get(name, "")) for field, name in names.items()})
            line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{file}, line {line}: not readable as CSV ({error}); JSON lines have no such limits") from None


def _lines(file: Path, text: str, names: Mapping[str, str]) -> Iterator[_Row]:
    """The rows of a JSON lines file; numbers are kept as they are written, blank lines passed over."""
    for line, part in enumerate(text.split("\n"), 1):
        if not part.strip():
            continue
        try:
            value = json.loads(part, parse_int=str, parse_float=str)
        except (ValueError, RecursionError):
            _fail(file, line, "", "not readable as JSON; each line must be one whole object")
        if not isinstance(value, dict):
            _fail(file, line, "", f"must be an object, not {described(value)}")
        cells: dict[str, str] = {}
        for field, name in names.items():
            cell: Any = value.get(name)
            if cell is not None and not isinstance(cell, str):
                _fail(file, line, name, f"must be a string or a number, not {described(cell)}")
            if field in _REQUIRED[:2] and name not in value:
                _fail(file, line, name, f"missing; the line has {', '.join(value)[:200] or 'nothing'}")
            cells[field] = cleaned(cell or "")
        yield _Row(line, cells)


def _check(file: Path, row: _Row, names: Mapping[str, str]) -> None:
    """What must hold of every row, whatever it is used for."""
    for field in ("user", "input"):
        if not row[field]:
            _fail(file, row.line, names[field], "must not be empty")
    if row["date"] and moment(row["date"]) is None:
        _fail(file, row.line, names["date"], f"{quoted(row['date'])} is no ISO 8601 date such as 2018-03-02")
    if row["split"] not in ("", "history", "query"):
        _fail(file, row.line, names["split"], f'{quoted(row["split"])} must be "history" or "query"')


def _fail(file: Path, line: int, column: str, problem: str) -> NoReturn:
    """Raise the one-line DataError for a line or row and, where it is one, a column."""
    raise DataError(f"{file}, {_word(file)} {line}{f', column {quoted(column)}' if column else ''}: {problem}")


def _word(file: Path) -> str:
    """How a place in a file is called: Parquet has no lines."""
    return "row" if file.suffix.lower() == _PARQUET else "line"

"""Rows of a Parquet file, a batch at a time, so that beside the rows themselves little stands in memory.

Knows columns and their types; does not know what the cells mean. pyarrow is imported when a file is read.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from personalink.data.reading import cleaned, quoted, readable
from personalink.errors import ConfigError, DataError
from personalink.text import one_line

if TYPE_CHECKING:
    import pyarrow as pa

BATCH = 1024
"""Rows that are decoded at a time, however large the file's row groups are."""


def parquet_rows(file: Path, names: Mapping[str, str], required: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Row number (from 1) and cells by our field names; null and NaN are "", numbers as Python writes them.

    Args:
        file: the file.
        names: our field name → the file's column. Other columns are not read.
        required: fields whose column must be there.

    Raises:
        DataError: the file is no Parquet, lacks a column, or has one that is neither text nor numbers (a date: dates).
        ConfigError: pyarrow is not installed.
    """
    if importlib.util.find_spec("pyarrow") is None:
        raise ConfigError(f'{file}: Parquet needs pyarrow, which is not installed; pip install "personalink[parquet]"')
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with readable(file), parquet.ParquetFile(file, memory_map=True) as opened:
            columns = _columns(file, opened.schema_arrow, names, required)
            number = 0
            for batch in opened.iter_batches(BATCH, columns=list(dict.fromkeys(columns.values()))):
                cells = {field: _texts(batch.column(name)) for field, name in columns.items()}
                for row in zip(*cells.values(), strict=True):
                    number += 1
                    yield number, dict(zip(cells, row, strict=True))
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise DataError(f"{file}: not readable as Parquet ({one_line(str(error)):.120}); write it anew") from None


def _columns(file: Path, schema: pa.Schema, names: Mapping[str, str], required: Sequence[str]) -> dict[str, str]:
    """Field → column for the columns that are there, each of a type that can be read."""
    known = ", ".join(schema.names)[:200]
    for name in (names[field] for field in required):
        if name not in schema.names:
            raise DataError(f"{file}: no column {quoted(name)} among {known}; name it, or map it with columns={{…}}")
    there = {field: name for field, name in names.items() if name in schema.names}
    for field, name in there.items():
        if schema.names.count(name) > 1:
            raise DataError(f"{file}: the column {quoted(name)} stands there twice")
        kind = schema.field(name).type
        if not _is_plain(kind, dated=field == "date"):
            found, wanted = one_line(str(kind)), "text or dates" if field == "date" else "text or numbers"
            raise DataError(f"{file}, column {quoted(name)}: its type is {found:.60}; it must be {wanted}")
    return there


def _is_plain(kind: pa.DataType, *, dated: bool) -> bool:
    """Whether a column's cells can be told as text."""
    from pyarrow import types

    if types.is_dictionary(kind):
        return _is_plain(kind.value_type, dated=dated)
    text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind) or types.is_null(kind)
    if dated:
        return bool(text or types.is_date(kind) or types.is_timestamp(kind))
    return bool(text or types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _texts(column: pa.Array) -> list[str]:
    """A column's cells as text."""
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)  # Python's own clock has no nanoseconds
    return [_text(value) for value in column.to_pylist()]


def _text(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, str):
        return cleaned(value)
    return value.isoformat() if hasattr(value, "isoformat") else str(value)

"""Parquet tables: a file, or a folder of files, perhaps divided by folders such as ``year=2020``.

Memory: at most about one row group. Its columns are stored one after the other and read together. `pyarrow.dataset`
would do more of this, but it decodes whole row groups, and reads the next ones meanwhile: several times the memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import numpy as np

from dsel._lib.text import shorten
from dsel.data.formats.base import Format, file_identity
from dsel.data.formats.tables.base import Table, from_row, rows_of_batch
from dsel.data.formats.tables.source import TableSource
from dsel.errors import DataError
from dsel.storage.paths import AnyPath, walk

_SUFFIXES: Final = (".parquet", ".pq")
_NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"


class ParquetTable(Table):
    """One or more Parquet files, in the order of their names.

    An index that pandas has stored as a column is the default index.
    """

    def __init__(self, path: AnyPath) -> None:
        import pyarrow as pa

        self.name, self.where = path.name, str(path)
        self._files = _files(path)
        schemas, counts = [], []
        for file, _ in self._files:
            with _opened(file) as opened:
                schemas.append(opened.schema_arrow)
                counts.append(opened.metadata.num_rows)
        try:
            schema = pa.unify_schemas(schemas, promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise DataError(f"The files of {path} have different columns: {error}.", "Write them again.") from error
        self.index = _pandas_index(schemas[0], self.where)
        self._stored = list(schema.names)
        folders = _folder_columns([keys for _, keys in self._files], self._stored)
        self._folders = {name: values for name, (values, _) in folders.items()}
        self.names = [*self._stored, *folders]
        self.types = [*schema.types, *(kind for _, kind in folders.values())]
        self._counts, self.rows = counts, sum(counts)

    def identity(self) -> dict[str, Any]:
        return {"files": [file_identity(file) for file, _ in self._files]}

    def batches(self, columns: Sequence[int], start: int) -> Iterator[Any]:
        for number, (file, _) in enumerate(self._files):
            if start < self._counts[number]:
                with _opened(file) as opened:
                    yield from self._read(opened, number, columns, start)
            start = max(0, start - self._counts[number])

    def _read(self, opened: Any, number: int, columns: Sequence[int], start: int) -> Iterator[Any]:
        """Yield the rows of one file from row `start` on, beginning in the row group that contains it."""
        sizes = [opened.metadata.row_group(i).num_rows for i in range(opened.num_row_groups)]
        ends = np.cumsum(sizes)
        group = int(np.searchsorted(ends, start, side="right"))
        skip = start - (int(ends[group - 1]) if group else 0)
        wanted = [self.names[i] for i in columns]
        there = set(opened.schema_arrow.names)
        stored = [name for name in wanted if name in there and name not in self._folders]
        groups = list(range(group, len(sizes)))
        read = opened.iter_batches(rows_of_batch(columns), row_groups=groups, columns=stored, use_threads=False)
        for batch in from_row(read, skip):
            yield self._complete(batch, number, columns)

    def _complete(self, batch: Any, number: int, columns: Sequence[int]) -> Any:
        """Add the columns that this file lacks, and give all the types of the whole table."""
        import pyarrow as pa

        parts = []
        for i in columns:
            name, kind = self.names[i], self.types[i]
            at = batch.schema.get_field_index(name)
            if name in self._folders:
                parts.append(pa.repeat(pa.scalar(self._folders[name][number], kind), batch.num_rows))
            elif at < 0:
                parts.append(pa.nulls(batch.num_rows, kind))
            else:
                column = batch.column(at)
                parts.append(column if column.type == kind else column.cast(kind))
        return pa.RecordBatch.from_arrays(parts, [self.names[i] for i in columns])


def _files(path: AnyPath) -> list[tuple[AnyPath, dict[str, str]]]:
    """Return the files of a table, each with the values that the names of its folders hold."""
    if path.is_file():
        return [(path, {})]
    keys = sorted(entry.key for entry in walk(path) if entry.key.endswith(_SUFFIXES))
    keys = [key for key in keys if not any(part.startswith(("_", ".")) for part in key.split("/"))]
    if not keys:
        raise DataError(f"{path} has no Parquet files.", "Their names end with .parquet.")
    found = []
    for key in keys:
        folders = [part.split("=", 1) for part in key.split("/")[:-1] if "=" in part]
        found.append((path / key, {unquote(name): unquote(value) for name, value in folders}))
    return found


def _folder_columns(keys: list[dict[str, str]], stored: list[str]) -> dict[str, tuple[list[Any], Any]]:
    """Return the values of each column that the names of folders hold, one for each file, and its type."""
    import pyarrow as pa

    found: dict[str, tuple[list[Any], Any]] = {}
    for name in dict.fromkeys(name for files in keys for name in files if name not in stored):
        words = [files.get(name) for files in keys]
        values: list[Any] = [None if word in (None, _NULL_FOLDER) else word for word in words]
        kind = pa.string()
        if all(value is None or value.lstrip("-").isdigit() for value in values):
            values, kind = [None if value is None else int(value) for value in values], pa.int64()
        found[name] = (values, kind)
    return found


@contextmanager
def _opened(path: AnyPath) -> Iterator[Any]:
    import pyarrow.parquet as pq

    stream = None if isinstance(path, Path) else path.open("rb")
    try:
        opened = pq.ParquetFile(path if stream is None else stream, pre_buffer=False, buffer_size=1 << 20)
    except (ValueError, OSError) as error:
        raise DataError(f"{path} is not a Parquet file: {error}.", "Write the file again.") from error
    try:
        yield opened
    finally:
        opened.close()
        if stream is not None:
            stream.close()


def _pandas_index(schema: Any, where: str) -> str | None:
    """Return the column in which pandas stored the index, if any. Raises DataError if there are several."""
    stored = (schema.pandas_metadata or {}).get("index_columns", [])
    columns = [name for name in stored if isinstance(name, str) and name in schema.names]
    if len(columns) > 1:
        raise DataError(
            f"{where} has an index of {len(columns)} levels: {shorten(map(repr, columns))}.",
            "Write it with one index level, or none.",
        )
    return columns[0] if columns else None


FORMAT = Format(
    "parquet", _SUFFIXES, lambda path, options: TableSource(ParquetTable(path), options),
    frozenset(("target", "index", "weight", "drop", "categorical")),
    "Name the target columns of the table instead (target).", folders=True,
)  # fmt: skip

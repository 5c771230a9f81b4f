"""Parquet tables, read a few megabytes of rows at a time. Needs pyarrow (the extra `parquet`).

Memory: at most about one row group. Its columns are stored one after the other and read together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from dsel._lib.text import shorten
from dsel.data.formats.base import Array, Format, Reader, Rows, Source, SourceOptions, file_identity
from dsel.data.formats.table import TableColumns
from dsel.data.formats.values import put, wanted_dtype
from dsel.data.labels import require_unique
from dsel.errors import DataError, MissingExtraError
from dsel.storage.paths import AnyPath

BATCH_BYTES: Final = 2_000_000  # pyarrow takes about four times as much


class ParquetSource(Source):
    """A table of numbers. X gets the dtype that holds all of its columns.

    An index that pandas has stored as a column is the default index. A null is NaN, which only a float dtype can hold.
    """

    features: list[str]

    def __init__(self, path: AnyPath, options: SourceOptions) -> None:
        self.name = path.name
        self._path = path
        file = _open(path)
        schema = file.schema_arrow
        names = list(schema.names)
        where = str(path)
        require_unique(names, "column", where, "Give every column a unique name.")
        if options.index is None:
            index = _pandas_index(schema, where)
            options = replace(options, index=None if index in (*options.target, options.weight) else index)
        columns = TableColumns.of(names, options, where)
        self.features = [names[i] for i in columns.features]
        self.target_names = [names[i] for i in columns.targets]
        self.targets = self.target_names or None
        self.index, self.weight = (None if i is None else names[i] for i in (columns.index, columns.weight))
        self.dtype = wanted_dtype(options.dtype, _common_dtype(schema, self.features, where), where)
        self.shape = (file.metadata.num_rows, len(self.features))
        self.n_targets = len(columns.targets)
        if self.target_names:
            self.y_dtype = wanted_dtype(None, _common_dtype(schema, self.target_names, where), where)
        if self.weight is not None:
            self.w_dtype = wanted_dtype(None, _common_dtype(schema, [self.weight], where), where)
        self.has_samples = self.index is not None
        file.close()

    def identity(self) -> dict[str, Any]:
        return {
            "files": [file_identity(self._path)], "target": self.target_names, "index": self.index,
            "weight": self.weight,
        }  # fmt: skip

    def open(self, start: int, scratch: Path) -> Reader:
        return ParquetReader(self._path, self, start)


class ParquetReader(Reader):
    """Reads record batches in order, beginning in the row group that contains the first row asked for."""

    def __init__(self, path: AnyPath, table: ParquetSource, start: int) -> None:
        self._table = table
        self._where = str(path)
        self._row = start
        self._file = _open(path)
        sizes = [self._file.metadata.row_group(i).num_rows for i in range(self._file.num_row_groups)]
        ends = np.cumsum(sizes)
        group = int(np.searchsorted(ends, start, side="right"))
        self._skip = start - (int(ends[group - 1]) if group else 0)
        self._batches = self._read(list(range(group, len(sizes))))
        self._rest: Any = None

    def _read(self, groups: list[int]) -> Iterator[Any]:
        table = self._table
        columns = [*table.features, *table.target_names, *(name for name in (table.weight, table.index) if name)]
        rows = max(1, BATCH_BYTES // (8 * len(columns)))
        for batch in self._file.iter_batches(rows, row_groups=groups, columns=columns, use_threads=False):
            cut = min(self._skip, batch.num_rows)
            self._skip -= cut
            if cut < batch.num_rows:
                yield batch.slice(cut)

    def fill(self, rows: Rows) -> None:
        table, done = self._table, 0
        while done < len(rows):
            batch = self._next_batch()
            count = min(batch.num_rows, len(rows) - done)
            piece, self._rest = batch.slice(0, count), batch.slice(count)
            part = rows[done : done + count]
            self._put(piece, table.features, part.x)
            if part.y is not None:
                self._put(piece, table.target_names, part.y)
            if part.w is not None and table.weight is not None:
                self._put(piece, [table.weight], part.w[:, None])
            if part.samples is not None:
                labels = piece.column(piece.schema.get_field_index(table.index))
                part.samples[:] = [str(label) for label in labels.to_pylist()]
            done += count
            self._row += count

    def _next_batch(self) -> Any:
        if self._rest is not None and self._rest.num_rows:
            return self._rest
        try:
            return next(self._batches)
        except (OSError, ValueError, StopIteration) as error:
            raise DataError(
                f"{self._where} cannot be read at row {self._row} and after: {error}.",
                "Copy or write the file again.",
            ) from error

    def _put(self, piece: Any, names: Sequence[str], out: Array) -> None:
        for j, name in enumerate(names):
            column = piece.column(piece.schema.get_field_index(name))
            if column.null_count and out.dtype.kind != "f":
                nulls = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))
                row = self._row + int(nulls[0])
                raise DataError(
                    f"{self._where}: row {row}, column {name!r}: a null, which {out.dtype} does not have.",
                    'Give dtype="float64", or fill the nulls.',
                )
            values = column.to_numpy(zero_copy_only=False)
            if values.dtype == object:  # booleans with nulls arrive as True, False and None
                values = np.array([np.nan if v is None else float(v) for v in values])
            put(out[:, j : j + 1], values[:, None], self._where, self._row, [name])

    def close(self) -> None:
        self._file.close()


def _open(path: AnyPath) -> Any:
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtraError(
            f"Reading {path} needs pyarrow, which is not installed.", "pip install 'dsel[parquet]'"
        ) from error
    try:
        source = path if isinstance(path, Path) else path.open("rb")
        return pq.ParquetFile(source, pre_buffer=False, buffer_size=1 << 20)
    except (ValueError, OSError) as error:
        raise DataError(f"{path} is not a Parquet file: {error}.", "Write the file again.") from error


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


def _common_dtype(schema: Any, names: Sequence[str], where: str) -> np.dtype[Any]:
    """Return the dtype that holds all the columns. Raises DataError that names those that are not numbers."""
    import pyarrow.types as types

    kinds = {name: schema.field(name).type for name in names}
    numeric = (types.is_integer, types.is_floating, types.is_boolean)
    bad = [f"{name!r} ({kind})" for name, kind in kinds.items() if not any(test(kind) for test in numeric)]
    if bad:
        raise DataError(
            f"{where}: {len(bad)} columns are not numbers: {shorten(bad)}.",
            "Encode them as numbers or drop them; a column of sample labels is the index.",
        )
    return np.result_type(*{np.dtype(kind.to_pandas_dtype()) for kind in kinds.values()})


FORMAT = Format(
    "parquet", (".parquet",), ParquetSource, frozenset(("target", "index", "weight")),
    "Name the target columns of the table instead (target).",
)  # fmt: skip

"""Arrow files: Feather and the IPC format, as a file of record batches or as a stream of them.

Memory: at most about one record batch, which a file on disk without compression maps.

Data frames in memory as tables: pandas, polars, Arrow, Dask, and others with the Arrow stream interface.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from dsel._lib.types import is_a
from dsel.data.formats.base import Format, Source, SourceOptions, file_identity
from dsel.data.formats.tables.base import Table, from_row, rows_of_batch
from dsel.data.formats.tables.source import TableSource
from dsel.errors import DataError
from dsel.storage.paths import AnyPath


class ArrowTable(Table):
    """A file in Arrow's IPC format. An index that pandas has stored as a column is the default index."""

    def __init__(self, path: AnyPath) -> None:
        self.name, self.where, self._path = path.name, str(path), path
        with _batches(path) as (schema, _):
            self.names, self.types = list(schema.names), list(schema.types)
            stored = (schema.pandas_metadata or {}).get("index_columns", [])
        columns = [name for name in stored if isinstance(name, str) and name in self.names]
        self.index = columns[0] if len(columns) == 1 else None

    def identity(self) -> dict[str, Any]:
        return {"files": [file_identity(self._path)]}

    def batches(self, columns: Sequence[int], start: int) -> Iterator[Any]:
        rows = rows_of_batch(columns)
        with _batches(self._path) as (_, whole):
            for batch in from_row(whole, start):
                for first in range(0, batch.num_rows, rows):
                    yield batch.slice(first, rows).select(list(columns))


@contextmanager
def _batches(path: AnyPath) -> Iterator[tuple[Any, Iterator[Any]]]:
    """Yield the schema and the record batches of a file or a stream."""
    import pyarrow as pa

    with ExitStack() as stack:
        if isinstance(path, Path):
            source: Any = stack.enter_context(pa.memory_map(str(path)))
        else:
            source = stack.enter_context(pa.PythonFile(stack.enter_context(path.open("rb")), "r"))
        try:
            reader = pa.ipc.open_file(source)
        except pa.ArrowInvalid:
            source.seek(0)
            try:
                stream = pa.ipc.open_stream(source)
            except (pa.ArrowInvalid, OSError) as error:
                raise DataError(
                    f"{path} is not an Arrow file: {error}.", "Write it again, in version 2 of Feather."
                ) from error
            yield stream.schema, iter(stream)
        else:
            yield reader.schema, (reader.get_batch(i) for i in range(reader.num_record_batches))


FORMAT = Format(
    "arrow", (".arrow", ".feather", ".ipc", ".arrows"), lambda path, options: TableSource(ArrowTable(path), options),
    frozenset(("target", "index", "weight", "drop", "categorical")),
    "Name the target columns of the table instead (target).",
)  # fmt: skip


class ArrowFrame(Table):
    """A table of Arrow in memory. `index` names the column with the labels of the rows, if there is one."""

    def __init__(self, table: Any, index: str | None = None) -> None:
        self.name = self.where = "table"
        self._table, self._token, self.index = table, uuid4().hex, index
        self.names, self.types, self.rows = list(table.schema.names), list(table.schema.types), table.num_rows

    def identity(self) -> dict[str, Any]:
        return {"object": self._token}

    def batches(self, columns: Sequence[int], start: int) -> Iterator[Any]:
        yield from self._table.select(list(columns)).slice(start).to_batches(max_chunksize=rows_of_batch(columns))


class DaskFrame(Table):
    """A DataFrame of Dask, of which one partition at a time is computed."""

    def __init__(self, frame: Any) -> None:
        self.name = self.where = "table"
        self._frame, self._token = frame, uuid4().hex
        self.names = [str(name) for name in frame.columns]
        self.types = list(_from_pandas(frame.partitions[0].compute().head(1000), keep_index=False)[0].schema.types)

    def identity(self) -> dict[str, Any]:
        return {"object": self._token}

    def batches(self, columns: Sequence[int], start: int) -> Iterator[Any]:
        import pyarrow as pa

        rows = rows_of_batch(columns)
        wanted = self._frame.iloc[:, list(columns)]
        for number in range(self._frame.npartitions):
            table, _ = _from_pandas(wanted.partitions[number].compute(), keep_index=False)
            kinds = [(self.names[i], self.types[i]) for i in columns]
            try:
                table = table.cast(pa.schema(kinds))
            except pa.ArrowInvalid as error:
                raise DataError(
                    f"Partition {number} of the table has other types than the first: {error}.",
                    "Give every column one type with astype.",
                ) from error
            yield from table.slice(min(start, table.num_rows)).to_batches(max_chunksize=rows)
            start = max(0, start - table.num_rows)


def is_frame(data: Any) -> bool:
    """Return whether `data` is a data frame."""
    has_columns = hasattr(data, "__arrow_c_stream__") and type(data).__module__.split(".")[0] != "xarray"
    return _is_dask(data) or has_columns or is_a(data, "pandas", "DataFrame")


def open_frame(data: Any, options: SourceOptions) -> Source:
    """Open a data frame and read it once.

    Raises DataError if a column cannot be a column of Arrow, or holds values that cannot be used.
    """
    import pyarrow as pa

    if _is_dask(data):
        return TableSource(DaskFrame(data), options)
    is_pandas = is_a(data, "pandas", "DataFrame")
    return TableSource(ArrowFrame(*(_from_pandas(data, keep_index=True) if is_pandas else (pa.table(data),))), options)


def _from_pandas(frame: Any, *, keep_index: bool) -> tuple[Any, str | None]:
    """Return a DataFrame as a table of Arrow, and the name of the column that holds its index, if that has labels."""
    import pyarrow as pa

    names = [str(name) for name in frame.columns]
    parts, problems = [], []
    for j, name in enumerate(names):
        column = frame.iloc[:, j]
        try:
            found = pa.array(column, from_pandas=True)
            parts.append(found.combine_chunks() if hasattr(found, "combine_chunks") else found)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            said = str(error).splitlines()[0]
            problems.append(f"column {name!r} of type {column.dtype} holds values of several kinds: {said}")
    if problems:
        raise DataError(f"table: {'; '.join(problems)}.", "Give each column one type with astype, or drop it.")
    index = None
    if keep_index and type(frame.index).__name__ != "RangeIndex":
        index = next(name for name in (str(frame.index.name or "index"), f"index {uuid4().hex}") if name not in names)
        names.append(index)
        parts.append(pa.array([str(label) for label in frame.index]))
    return pa.table(parts, names), index


def _is_dask(data: Any) -> bool:
    return hasattr(data, "npartitions") and hasattr(data, "partitions") and hasattr(data, "columns")

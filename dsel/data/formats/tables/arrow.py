"""Tables that pyarrow reads as they are: Arrow and Parquet files, and data frames in memory.

Arrow files are Feather and the IPC format, as a file of record batches or as a stream of them. Memory: at most about
one record batch, which a file on disk without compression maps.

Data frames are those of pandas, polars, Arrow, Dask, and others with the Arrow stream interface.

A Parquet table is a file, or a folder of files, perhaps divided by folders such as ``year=2020``. Memory: at most about
one row group. Its columns are stored one after the other and read together. `pyarrow.dataset`
would do more of this, but it decodes whole row groups, and reads the next ones meanwhile: several times the memory.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote
from uuid import uuid4

import numpy as np

from dsel._lib.text import shorten
from dsel.data.formats.source import EXACT_INTEGERS, Format, Source, SourceOptions, file_identity
from dsel.data.formats.tables.source import TableSource
from dsel.data.formats.tables.table import IN_MEMORY, Table, TableColumns, from_row, rows_of_batch
from dsel.data.labels import index_words, is_a
from dsel.errors import DataError
from dsel.storage.paths import AnyPath, walk


class ArrowTable(Table):
    """A file in Arrow's IPC format. An index that pandas has stored as a column is the default index."""

    def __init__(self, path: AnyPath) -> None:
        self.name, self.where, self._path = path.name, str(path), path
        with _batches(path) as (schema, _):
            self.names, self.types = list(schema.names), list(schema.types)
            columns = _index_columns(schema)
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
                    f"{path} cannot be read as an Arrow file: {error}.", "Write it again, in version 2 of Feather."
                ) from error
            yield stream.schema, iter(stream)
        else:
            yield reader.schema, (reader.get_batch(i) for i in range(reader.num_record_batches))


FORMAT = Format(
    "arrow", (".arrow", ".feather", ".ipc", ".arrows"), lambda path, options: TableSource(ArrowTable(path), options),
    frozenset(("target", "index", "weight", "drop", "categorical", "dates", "na")),
    "Name the target columns of the table instead (target).",
)  # fmt: skip


class ArrowFrame(Table):
    """A table of Arrow in memory.

    index: the column with the labels of the rows, if there is one. unusable: by the names of columns that Arrow cannot
    hold, what is wrong with them.
    """

    def __init__(
        self, table: Any, index: str | None = None, where: str = "table", unusable: dict[str, str] | None = None
    ) -> None:
        self.name = self.where = where
        self.unusable, self._problems = unusable or {}, list[str]()
        self._table, self._token, self.index = table, uuid4().hex, index
        self.names, self.types, self.rows = list(table.schema.names), list(table.schema.types), table.num_rows
        self.whole = _whole_columns(table.schema)

    def prepare(self, roles: TableColumns) -> None:
        self._problems = [self.unusable[self.names[i]] for i in roles.used if self.names[i] in self.unusable]

    def problems(self) -> list[str]:
        return self._problems

    def identity(self) -> dict[str, Any]:
        return {"object": self._token}

    def batches(self, columns: Sequence[int], start: int) -> Iterator[Any]:
        yield from self._table.select(list(columns)).slice(start).to_batches(max_chunksize=rows_of_batch(columns))


class DaskFrame(Table):
    """A DataFrame of Dask, of which one partition at a time is computed."""

    def __init__(self, frame: Any, where: str = "table") -> None:
        self.name = self.where = where
        self._frame, self._token = frame, uuid4().hex
        self.names = index_words(frame.columns)
        schema = arrow_table(frame.partitions[0].compute().head(1000), keep_index=False)[0].schema
        self.types, self.whole = list(schema.types), _whole_columns(schema)

    def identity(self) -> dict[str, Any]:
        return {"object": self._token}

    def batches(self, columns: Sequence[int], start: int) -> Iterator[Any]:
        import pyarrow as pa

        rows = rows_of_batch(columns)
        wanted = self._frame.iloc[:, list(columns)]
        for number in range(self._frame.npartitions):
            table, _ = arrow_table(wanted.partitions[number].compute(), keep_index=False)
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
    has_columns |= is_a(data, "polars", "LazyFrame")
    return is_dask_frame(data) or has_columns or is_a(data, "pandas", "DataFrame")


def open_frame(data: Any, options: SourceOptions) -> Source:
    """Open a data frame and read it once.

    Raises DataError if a column cannot be a column of Arrow, or holds values that cannot be used.
    """
    if is_dask_frame(data):
        return TableSource(DaskFrame(data), options)
    unusable: dict[str, str] = {}
    return TableSource(ArrowFrame(*arrow_table(data, unusable=unusable), unusable=unusable), options)


def frame_table(frame: Any, what: str) -> Table:
    """Return a frame in memory or of Dask as a table without labels of rows, for `dsel.select`.

    Messages call it `what`, and advise to change the frame. Errors: DataError, as those of `open_frame`.
    """
    if is_dask_frame(frame):
        table: Table = DaskFrame(frame, what)
    else:
        unusable: dict[str, str] = {}
        table = ArrowFrame(arrow_table(frame, False, unusable)[0], where=what, unusable=unusable)
    table.remedies = IN_MEMORY
    return table


def arrow_table(frame: Any, keep_index: bool = True, unusable: dict[str, str] | None = None) -> tuple[Any, str | None]:
    """Return a frame in memory as a table of Arrow, and the name of the column that holds its index, if it has one.

    unusable: takes what is wrong with columns that Arrow cannot hold, by name. Without it they are a DataError.
    """
    import pyarrow as pa

    if is_a(frame, "pandas", "DataFrame"):
        found: dict[str, str] = {}
        table = _from_pandas(frame, keep_index, found)
        if found and unusable is None:
            raise DataError(" ".join(f"{text[:1].upper()}{text[1:]}" for text in found.values()))
        (unusable if unusable is not None else {}).update(found)
        return table
    frame = frame.collect() if hasattr(frame, "collect") else frame
    try:
        return pa.table(frame), None
    except pa.ArrowInvalid as error:
        wide = [name for name, kind in getattr(frame, "schema", {}).items() if str(kind) in ("Int128", "UInt128")]
        what = f"Arrow cannot hold the columns {shorten(map(repr, wide))}: {error}."
        raise DataError(what, "Cast them, such as to Int64.") from error


def _from_pandas(frame: Any, keep_index: bool, unusable: dict[str, str]) -> tuple[Any, str | None]:
    """Return a DataFrame as a table of Arrow, and the name of the column that holds its index, if that has labels.

    A category stands for a column that Arrow cannot hold, and `unusable` says what is wrong with it.
    """
    import pyarrow as pa

    names = index_words(frame.columns)
    parts, whole = [], set()
    for j, name in enumerate(names):
        column = frame.iloc[:, j]
        try:
            found = _array(column)
            parts.append(found.combine_chunks() if hasattr(found, "combine_chunks") else found)
            if pa.types.is_floating(found.type) and column.dtype == object and any(map(_is_large, column)):
                whole.add(name)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            kinds = dict.fromkeys(type(value).__name__ for value in column[column.notna()].tolist())
            what = f"holds values of several kinds: {shorten(kinds)}"
            if len(kinds) < 2:
                what = f"cannot be used: {str(error).splitlines()[0]}"
            remedy = "Give it one type with astype, or leave it out."
            unusable[name] = f"column {name!r} of type {column.dtype} {what}. {remedy}"
            parts.append(pa.array(["unusable"] * len(column)).dictionary_encode())
    index = None
    if keep_index and type(frame.index).__name__ != "RangeIndex":
        index = next(name for name in (str(frame.index.name or "index"), f"index {uuid4().hex}") if name not in names)
        names.append(index)
        parts.append(pa.array([str(label) for label in frame.index]))
    fields = [
        pa.field(n, part.type, metadata=_WHOLE if n in whole else None) for n, part in zip(names, parts, strict=True)
    ]
    return pa.table(parts, pa.schema(fields)), index


#: Marks a column of Arrow whose floats were whole numbers in Python.
_WHOLE: Final = {"dsel": "whole"}


def _is_large(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and abs(int(value)) > EXACT_INTEGERS


def _whole_columns(schema: Any) -> frozenset[int]:
    return frozenset(i for i, field in enumerate(schema) if b"dsel" in (field.metadata or {}))


def _array(column: Any) -> Any:
    """Return a column of pandas as an Arrow array.

    Objects that are numbers of several types become floats, periods become times, and intervals become categories.
    """
    import pyarrow as pa

    if is_a(column.dtype, "pandas", "PeriodDtype"):
        column = column.dt.to_timestamp()
    if is_a(column.dtype, "pandas", "IntervalDtype"):
        column = column.astype("category")
    if type(getattr(getattr(column.dtype, "categories", None), "dtype", None)).__name__ in (
        "IntervalDtype",
        "PeriodDtype",
    ):
        column = column.cat.rename_categories(str)

    if is_a(column.dtype, "pandas", "SparseDtype"):
        column = column.sparse.to_dense()
    try:
        return pa.array(column, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        if not all(value is None or isinstance(value, numbers.Real | np.bool_) for value in column):
            raise
        return pa.array(column.to_numpy(dtype=np.float64, na_value=np.nan), from_pandas=True)


def is_dask_frame(data: Any) -> bool:
    """Return whether `data` is a DataFrame of Dask."""
    return hasattr(data, "npartitions") and hasattr(data, "partitions") and hasattr(data, "columns")


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
        columns = _index_columns(schemas[0])
        if len(columns) > 1:
            raise DataError(
                f"{path} has an index of {len(columns)} levels: {shorten(map(repr, columns))}.",
                "Write it with one index level, or none.",
            )
        self.index = columns[0] if columns else None
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

    with ExitStack() as stack:
        source = path if isinstance(path, Path) else stack.enter_context(path.open("rb"))
        try:
            opened = stack.enter_context(pq.ParquetFile(source, pre_buffer=False, buffer_size=1 << 20))
        except (ValueError, OSError) as error:
            raise DataError(f"{path} cannot be read as a Parquet file: {error}.", "Write the file again.") from error
        yield opened


def _index_columns(schema: Any) -> list[str]:
    """Return the columns in which pandas stored the index."""
    stored = (schema.pandas_metadata or {}).get("index_columns", [])
    return [name for name in stored if isinstance(name, str) and name in schema.names]


PARQUET = Format(
    "parquet", _SUFFIXES, lambda path, options: TableSource(ParquetTable(path), options),
    frozenset(("target", "index", "weight", "drop", "categorical", "dates", "na")),
    "Name the target columns of the table instead (target).", folders=True,
)  # fmt: skip

"""Arrow files: Feather and the IPC format, as a file of record batches or as a stream of them.

Memory: at most about one record batch, which a file on disk without compression maps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

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


def open_arrow(path: AnyPath, options: SourceOptions) -> Source:
    """Open an Arrow file and read it once."""
    return TableSource(ArrowTable(path), options)


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
    "arrow", (".arrow", ".feather", ".ipc", ".arrows"), open_arrow,
    frozenset(("target", "index", "weight", "drop", "categorical")),
    "Name the target columns of the table instead (target).",
)  # fmt: skip

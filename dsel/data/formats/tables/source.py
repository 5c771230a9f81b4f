"""A table as a source of X, Y, weights and labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dsel.data.formats.base import Array, Reader, Rows, Source, SourceOptions, put, wanted_dtype
from dsel.data.formats.tables.base import Table, TableColumns
from dsel.data.formats.tables.encoding import Encoder, OneHot, choose_encoders
from dsel.data.formats.tables.scan import cannot_read, is_plain, is_text_type, plain_values, scan_table
from dsel.data.labels import require_unique


class TableSource(Source):
    """A table that was read once, so that the columns of X and Y are known.

    Parameters
    ----------
    table : Table
        The table.
    options : SourceOptions
        Which columns are what.

    Raises
    ------
    OptionError
        If an option names a column that does not exist.
    DataError
        If the table cannot be read or has values that cannot be used; it lists all of them.
    """

    features: list[str]

    def __init__(self, table: Table, options: SourceOptions) -> None:
        require_unique(table.names, "column", table.where, "Give every column a unique name.")
        if options.index is None and table.index not in (*options.target, *options.drop, options.weight):
            options = replace(options, index=table.index)
        self.name, self.table, self.roles = table.name, table, TableColumns.of(table.names, options, table.where)
        table.prepare(self.roles)
        asked = None if options.dtype is None else wanted_dtype(options.dtype, np.dtype(np.float64), table.where)
        scan = scan_table(
            table, self.roles, na=options.na, decimal=options.decimal or ".", dtype=asked, scanned=options.scanned
        )
        encoders = choose_encoders(scan, self.roles, table.where, options.missing)
        self._options = options
        self.encoders = encoders
        self.features = [label for encoder in encoders.features for label in encoder.labels]
        self.shape = (scan.rows, len(self.features))
        self.dtype = wanted_dtype(options.dtype, _common(encoders.features), table.where)
        self.targets = [label for encoder in encoders.targets for label in encoder.labels] or None
        self.n_targets = len(self.targets or ())
        self.y_dtype = wanted_dtype(None, _common(encoders.targets), table.where) if self.n_targets else None
        self.w_dtype = None if encoders.weight is None else wanted_dtype(None, encoders.weight.dtype, table.where)
        self.has_samples = self.roles.index is not None
        if any(isinstance(encoder, OneHot) for encoder in encoders.features):
            self.sources = [encoder.scan.name for encoder in encoders.features for _ in encoder.labels]
        self.classes = {e.scan.name: list(e.levels) for e in encoders.targets if isinstance(e, OneHot)}
        self.types = dict(Counter(_kind(encoder) for encoder in (*encoders.features, *encoders.targets)))

    def identity(self) -> dict[str, Any]:
        roles, options = self.roles, self._options
        return {
            **self.table.identity(), "target": roles.targets, "index": roles.index, "weight": roles.weight,
            "features": roles.features, "categorical": [*sorted(roles.categorical), roles.auto],
            "text": [list(options.na), options.decimal],
        }  # fmt: skip

    def open(self, start: int, scratch: Path) -> Reader:
        return TableReader(self, start)


class TableReader(Reader):
    """Reads the rows of a table in order, one record batch after the other."""

    def __init__(self, source: TableSource, start: int) -> None:
        self._source = source
        self._row = start
        roles = source.roles
        self._columns = roles.used
        self._at = {column: i for i, column in enumerate(self._columns)}
        self._batches: Iterator[Any] = source.table.batches(self._columns, start)
        self._rest: Any = None
        encoders = source.encoders
        self._features = _Matrix(encoders.features, [self._at[column] for column in roles.features])
        self._targets = _Matrix(encoders.targets, [self._at[column] for column in roles.targets])

    def fill(self, rows: Rows) -> None:
        done, encoders, roles, where = 0, self._source.encoders, self._source.roles, self._source.table.where
        while done < len(rows):
            batch = self._next_batch()
            count = min(batch.num_rows, len(rows) - done)
            piece, self._rest = batch, None
            if count < batch.num_rows:  # a slice of many columns takes time
                piece, self._rest = batch.slice(0, count), batch.slice(count)
            part = rows[done : done + count]
            self._features.fill(part.x, piece, where, self._row)
            if part.y is not None:
                self._targets.fill(part.y, piece, where, self._row)
            if part.w is not None and encoders.weight is not None and roles.weight is not None:
                encoders.weight.fill(part.w[:, None], piece.column(self._at[roles.weight]), where, self._row)
            if part.samples is not None and roles.index is not None:
                labels = piece.column(self._at[roles.index]).to_pylist()
                part.samples[:] = ["" if label is None else str(label) for label in labels]
            done += count
            self._row += count

    def _next_batch(self) -> Any:
        if self._rest is not None and self._rest.num_rows:
            return self._rest
        try:
            return next(self._batches)
        except (OSError, ValueError, StopIteration) as error:
            raise cannot_read(self._source.table, self._row, error) from error

    def close(self) -> None:
        self._batches = iter(())


class _Matrix:
    """Columns of a record batch that become X or Y: floats together, the others one by one."""

    def __init__(self, encoders: Sequence[Encoder], columns: Sequence[int]) -> None:
        widths = [len(encoder.levels) if isinstance(encoder, OneHot) else 1 for encoder in encoders]
        starts = np.cumsum([0, *widths]).tolist()
        is_float = [not isinstance(encoder, OneHot) and is_plain(encoder.scan.type) for encoder in encoders]
        parts = list(zip(encoders, columns, starts[:-1], starts[1:], strict=True))
        plain = [part for part, fits in zip(parts, is_float, strict=True) if fits]
        self._others = [part for part, fits in zip(parts, is_float, strict=True) if not fits]
        self._from = [column for _, column, _, _ in plain]
        self._to = [start for _, _, start, _ in plain]
        self._names = [encoder.scan.name for encoder, _, _, _ in plain]

    def fill(self, out: Array, piece: Any, where: str, first_row: int) -> None:
        """Write the rows of a record batch to `out`. Raises DataError for a value that does not fit."""
        for encoder, column, start, stop in self._others:
            encoder.fill(out[:, start:stop], piece.column(column), where, first_row)
        if not self._from:
            return
        values = plain_values(piece, self._from)
        whole = np.empty(values.shape, out.dtype) if values.shape[1] < out.shape[1] else out
        put(whole, values, where, first_row, self._names)
        if whole is not out:
            out[:, self._to] = whole


def _common(encoders: Sequence[Encoder]) -> np.dtype[Any]:
    return np.result_type(*{encoder.dtype for encoder in encoders})


def _kind(encoder: Encoder) -> str:
    """Return the type of a column as the report calls it."""
    if isinstance(encoder, OneHot):
        return "categories"
    return "numbers as text" if is_text_type(encoder.scan.type) else str(encoder.scan.type)

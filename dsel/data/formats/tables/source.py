"""A table as a source of X, Y, weights and labels.

The first reading says what each column holds (`scan.py`). Then each column has an encoder, or a problem with its remedy
(`encoders.py`). In the second reading, the encoders turn its values into columns of X or Y.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Sequence
from copy import copy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from dsel.data.formats.source import (
    Array,
    PieceReader,
    Reader,
    Rows,
    Source,
    SourceOptions,
    buffer_rows,
    put,
    wanted_dtype,
)
from dsel.data.formats.tables.encoders import Encoder, choose_encoders, rounded_names
from dsel.data.formats.tables.scan import cannot_read, is_plain, is_text_type, plain_values, rounding_note, scan_table
from dsel.data.formats.tables.table import Table, TableColumns
from dsel.data.labels import require_unique
from dsel.errors import DataError, OptionError


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
        self.name, self.table = table.name, table
        try:
            self.roles = TableColumns.of(table.names, options, table.where)
        except OptionError as error:
            raise OptionError(error.what, f"{error.remedy} {table.hint}".rstrip()) from error
        table.prepare(self.roles)
        asked = None if options.dtype is None else wanted_dtype(options.dtype, np.dtype(np.float64), table.where)
        scan = scan_table(table, self.roles, options, asked)
        encoders = choose_encoders(scan, self.roles, table.where, options.missing, table.remedies)
        self._options = options
        self.encoders = encoders
        self.features = [label for encoder in encoders.features for label in encoder.labels]
        self._require_one_of_each(table.where)
        self.shape = (scan.rows, len(self.features))
        self.dtype = wanted_dtype(options.dtype, _common(encoders.features), table.where)
        self.targets = [label for encoder in encoders.targets for label in encoder.labels] or None
        self.n_targets = len(self.targets or ())
        self.y_dtype = wanted_dtype(None, _common(encoders.targets), table.where) if self.n_targets else None
        self.w_dtype = None if encoders.weight is None else wanted_dtype(None, encoders.weight.dtype, table.where)
        self.notes = self.notes_without(())
        self.has_samples = self.roles.index is not None
        if any(encoder.levels is not None for encoder in encoders.features):
            self.sources = [encoder.scan.name for encoder in encoders.features for _ in encoder.labels]
        self.classes = {e.scan.name: list(e.levels) for e in encoders.targets if e.levels is not None}
        self.types, self.target_types = (dict(Counter(map(_kind, e))) for e in (encoders.features, encoders.targets))

    def _require_one_of_each(self, where: str) -> None:
        """Raise DataError if the value of a category has the label of another column."""
        others = [(encoder.scan.name, label) for encoder in self.encoders.features for label in encoder.labels]
        plain = {label for name, label in others if name == label}
        for name, label in others:
            if name != label and label in plain:
                raise DataError(
                    f"{where} has a column {label!r}, and the value {label[len(name) + 1 :]!r} of its category "
                    f"{name!r} becomes a column of this label, too.",
                    f"Rename the column {label!r}, or leave it out.",
                )

    def identity(self) -> dict[str, Any]:
        roles, options = self.roles, self._options
        return {
            **self.table.identity(), "target": roles.targets, "index": roles.index, "weight": roles.weight,
            "features": roles.features, "categorical": [*sorted(roles.categorical), roles.auto],
            "text": [list(options.na), options.decimal], **({"dates": "days"} if options.dates == "days" else {}),
        }  # fmt: skip

    def notes_without(self, names: Collection[str]) -> tuple[str, ...]:
        """Return the notes, without those on features of these names."""
        rounded = [name for name in rounded_names(self.encoders.features) if name not in names]
        return (
            *(note for name, note in self.encoders.notes if name not in names),
            *rounding_note(rounded),
            *rounding_note(rounded_names(self.encoders.targets), "target"),
        )

    def open(self, start: int, scratch: Path) -> Reader:
        return PieceReader(self._pieces(start))

    def of_table(self, table: Table) -> TableSource:
        """Return a source of another table with the same columns, such as some of the rows."""
        other = copy(self)
        other.table, other.shape = table, (table.rows or 0, self.shape[1])
        return other

    def _pieces(self, row: int) -> Generator[Rows, None, None]:
        """Yield the rows from this one on, those of a record batch together, or fewer if categories are many."""
        roles, encoders, where = self.roles, self.encoders, self.table.where
        at = {column: i for i, column in enumerate(roles.used)}
        features = _Matrix(encoders.features, [at[column] for column in roles.features])
        targets = _Matrix(encoders.targets, [at[column] for column in roles.targets])
        batches, step = self.table.batches(roles.used, row), buffer_rows(self)
        while True:
            try:
                batch = next(batches)
            except (OSError, ValueError, StopIteration) as error:
                raise cannot_read(self.table, row, error) from error
            for first in range(0, batch.num_rows, step):
                # A slice of many columns takes time.
                piece = batch.slice(first, step) if batch.num_rows > step else batch
                rows = Rows.of(self, piece.num_rows)
                features.fill(rows.x, piece, where, row)
                if rows.y is not None:
                    targets.fill(rows.y, piece, where, row)
                if rows.w is not None and encoders.weight is not None and roles.weight is not None:
                    encoders.weight.fill(rows.w[:, None], piece.column(at[roles.weight]), where, row)
                if rows.samples is not None and roles.index is not None:
                    labels = piece.column(at[roles.index]).to_pylist()
                    rows.samples[:] = ["" if label is None else str(label) for label in labels]
                yield rows
                row += piece.num_rows


class _Matrix:
    """Columns of a record batch that become X or Y: floats together, the others one by one."""

    def __init__(self, encoders: Sequence[Encoder], columns: Sequence[int]) -> None:
        starts = np.cumsum([0, *(len(encoder.labels) for encoder in encoders)]).tolist()
        parts = list(zip(encoders, columns, pairwise(starts), strict=True))
        is_float = [encoder.levels is None and is_plain(encoder.scan.type) for encoder in encoders]
        plain = [part for part, fits in zip(parts, is_float, strict=True) if fits]
        self._others = [part for part, fits in zip(parts, is_float, strict=True) if not fits]
        self._from = [column for _, column, _ in plain]
        self._to = [start for _, _, (start, _) in plain]
        self._names = [encoder.scan.name for encoder, _, _ in plain]

    def fill(self, out: Array, piece: Any, where: str, first_row: int) -> None:
        """Write the rows of a record batch to `out`. Raises DataError for a value that does not fit."""
        for encoder, column, (start, stop) in self._others:
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
    if encoder.levels is not None:
        return "categories"
    if encoder.scan.is_dates:
        return "dates as text"
    return "numbers as text" if is_text_type(encoder.scan.type) else str(encoder.scan.type)

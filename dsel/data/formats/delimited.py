"""Comma- or tab-separated text: a header line of column names, then one line a sample.

Two passes over the file: the first counts the lines and refuses a ragged one, so that shape and disk space
are known before anything is written; the second reads the numbers, a few megabytes of text at a time. A
quoted field may hold the delimiter, not a line break. Blank lines are skipped. An empty field, NA, N/A, NaN,
null, None and ? are missing values: NaN, which only a float dtype can hold.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from dsel._lib.text import shorten
from dsel.data.formats.base import Array, Reader, file_identity, find_columns, put, wanted_dtype
from dsel.data.labels import require_unique
from dsel.errors import DataError
from dsel.storage.paths import AnyPath, stat

TEXT_BYTES: Final = 4_000_000
MISSING: Final = frozenset(("", "na", "n/a", "nan", "null", "none", "?"))


class DelimitedSource:
    """A table in text. X is every column that is neither a target nor the index, in the order of the file."""

    def __init__(
        self,
        path: AnyPath,
        delimiter: str,
        target: Sequence[str | int],
        index: str | int | None,
        dtype: str | None,
    ) -> None:
        self.name = path.name
        self._path = path
        self.delimiter = delimiter
        self.names = _header(path, delimiter)
        self.target_columns = find_columns(self.names, target, "target", str(path))
        self.index_column = None if index is None else find_columns(self.names, [index], "index", str(path))[0]
        taken = {*self.target_columns, self.index_column}
        self.feature_columns = [i for i in range(len(self.names)) if i not in taken]
        _require_named(path, [self.names[i] for i in self.feature_columns])
        self.features = [self.names[i] for i in self.feature_columns]
        self.dtype = wanted_dtype(dtype, np.dtype(np.float64), str(path))
        rows = _count_rows(path, delimiter, len(self.names))
        self.shape = (rows, len(self.features))
        self.targets = [self.names[i] for i in self.target_columns] or None
        self.y_shape = (rows, len(self.target_columns)) if self.target_columns else None
        self.y_dtype = np.dtype(np.float64) if self.target_columns else None
        self.has_samples = self.index_column is not None

    def identity(self) -> dict[str, Any]:
        return {
            "files": [file_identity(self._path)],
            "target": self.target_columns,
            "index": self.index_column,
        }

    def open(self, start: int, scratch: Path) -> Reader:
        return DelimitedReader(self._path, self, start)


class DelimitedReader:
    """Reads the lines in order; a block that holds anything unusual is read again, field by field."""

    def __init__(self, path: AnyPath, table: DelimitedSource, start: int) -> None:
        self._table = table
        self._where = str(path)
        self._row = 0
        self._file: IO[str] = path.open(encoding="utf-8-sig", newline="")
        next(self._file)
        average = max(1, stat(path).size // max(1, table.shape[0]))
        self._lines_at_once = max(1, TEXT_BYTES // average)
        while self._row < start:
            self._lines(start - self._row)

    def _lines(self, limit: int) -> list[str]:
        """At least one and at most `limit` of the next lines that are not blank."""
        lines: list[str] = []
        while not lines:
            raw = self._raw_lines(min(limit, self._lines_at_once))
            if not raw:
                raise DataError(
                    f"{self._where} ends after {self._row} rows; {self._table.shape[0]} were counted.",
                    "Start again when nothing writes to the file.",
                )
            lines = [line for line in raw if not line.isspace()]
        self._row += len(lines)
        return lines

    def _raw_lines(self, limit: int) -> list[str]:
        try:
            return list(islice(self._file, limit))
        except UnicodeDecodeError as error:
            raise DataError(
                f"{self._where} is not UTF-8 text after row {self._row}: {error}.", "Convert it to UTF-8."
            ) from error

    def fill(self, x: Array, y: Array | None, samples: Array | None) -> None:
        done = 0
        while done < len(x):
            first = self._row
            lines = self._lines(len(x) - done)
            at = slice(done, done + len(lines))
            self._numbers(lines, first, x[at], None if y is None else y[at])
            if samples is not None and self._table.index_column is not None:
                samples[at] = [fields[self._table.index_column] for fields in self._fields(lines)]
            done += len(lines)

    def _numbers(self, lines: list[str], first: int, x: Array, y: Array | None) -> None:
        table = self._table
        wanted = [(x, table.feature_columns)]
        if y is not None:
            wanted.append((y, table.target_columns))
        if all(out.dtype.kind == "f" for out, _ in wanted):  # one parse for X and Y
            both = self._parse(lines, first, [i for _, columns in wanted for i in columns], np.dtype(np.float64))
            parts = np.split(both, [len(table.feature_columns)], axis=1)
        else:
            parts = [self._parse(lines, first, columns, _parsed_as(out.dtype)) for out, columns in wanted]
        for (out, columns), values in zip(wanted, parts, strict=False):
            put(out, values, self._where, first, [table.names[i] for i in columns])

    def _parse(self, lines: list[str], first: int, columns: list[int], dtype: np.dtype[Any]) -> Array:
        every = columns == list(range(len(self._table.names)))
        try:
            values: Array = np.loadtxt(
                lines,
                dtype,
                comments=None,
                delimiter=self._table.delimiter,
                quotechar='"',
                usecols=None if every else columns,
                ndmin=2,
            )
            if values.shape == (len(lines), len(columns)):
                return values
        except (ValueError, OverflowError):
            pass
        return self._parse_fields(lines, first, columns)

    def _parse_fields(self, lines: list[str], first: int, columns: list[int]) -> Array:
        """The same, field by field in float64: missing values become NaN, and the first bad one is named."""
        values = np.empty((len(lines), len(columns)))
        for i, fields in enumerate(self._fields(lines)):
            if len(fields) != len(self._table.names):
                raise _ragged(self._where, first + i, len(fields), len(self._table.names))
            for j, column in enumerate(columns):
                try:
                    values[i, j] = fields[column]
                except ValueError:
                    if fields[column].strip().lower() not in MISSING:
                        raise DataError(
                            f"{self._where}: row {first + i}, column {self._table.names[column]!r}: "
                            f"{fields[column][:60]!r} is not a number.",
                            "Encode it as numbers or leave the column out; sample labels are the index.",
                        ) from None
                    values[i, j] = np.nan
        return values

    def _fields(self, lines: list[str]) -> Iterator[list[str]]:
        return csv.reader(lines, delimiter=self._table.delimiter)

    def close(self) -> None:
        self._file.close()


def _parsed_as(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.float64 if dtype.kind == "f" else np.int64)


def _header(path: AnyPath, delimiter: str) -> list[str]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            line = file.readline()
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: {error}.", "Convert it, or use the right suffix.") from error
    names = [name.strip() for name in next(csv.reader([line], delimiter=delimiter), [])]
    if not names:
        raise DataError(f"{path} has no header line.", "Put the column names into the first line.")
    remedy = "Give every column a name of its own in the first line."
    if _looks_like_data(names):
        raise DataError(f"The first line of {path} has numbers, not names: {shorten(names)}.", remedy)
    require_unique(names, "column", str(path), remedy)
    return names


def _looks_like_data(names: list[str]) -> bool:
    """Whether the names are a row of numbers. Wavelengths and years, which rise or fall, are names."""
    try:
        steps = np.diff([float(name) for name in names])
    except ValueError:
        return False
    return not (bool((steps > 0).all()) or bool((steps < 0).all()))


def _require_named(path: AnyPath, features: list[str]) -> None:
    if not features:
        raise DataError(f"{path} has no column left for X.", "Name fewer columns as targets or index.")
    if "" in features:
        raise DataError(
            f"{path} has a column without a name, as pandas writes an index.",
            "If it holds sample labels give index=0 (its position), otherwise name it.",
        )


def _count_rows(path: AnyPath, delimiter: str, columns: int) -> int:
    """The number of lines with values; DataError at the first that has not `columns` fields."""
    rows = 0
    mark = delimiter.encode()
    with path.open("rb") as file:
        next(file)
        for line in file:
            if line.isspace():
                continue
            if line.count(mark) != columns - 1 or b'"' in line:
                fields = _count_fields(line.decode("utf-8", "replace"), delimiter)
                if fields != columns:
                    raise _ragged(str(path), rows, fields, columns)
            rows += 1
    return rows


def _count_fields(line: str, delimiter: str) -> int:
    """Fields of a line; 0 when a quote is left open, which would join it to the next line."""
    try:
        return len(next(csv.reader([line], delimiter=delimiter, strict=True)))
    except csv.Error:
        return 0


def _ragged(where: str, row: int, fields: int, columns: int) -> DataError:
    return DataError(
        f"{where}: row {row} has {fields} fields and the header has {columns}.",
        "Mend that line (a line break inside quotes is not supported).",
    )

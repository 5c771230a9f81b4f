"""Comma- or tab-separated text: a header line with the names of the columns, then one line per sample.

The file is read twice. The first pass counts the lines and refuses a line of another length, so that shape and disk
space are known before anything is written. The second pass reads the numbers, a few megabytes of text at a time.

A quoted field may contain the delimiter, but no line break. Blank lines are skipped. An empty field, NA, N/A, NaN,
null, None and ? are missing values: NaN, which only a float dtype can hold.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from dsel._lib.text import shorten
from dsel.data.formats.base import Array, Format, Reader, Rows, Source, SourceOptions, file_identity
from dsel.data.formats.table import TableColumns
from dsel.data.formats.values import put, wanted_dtype
from dsel.data.labels import require_unique
from dsel.errors import DataError
from dsel.storage.paths import AnyPath, stat

TEXT_BYTES: Final = 4_000_000
MISSING: Final = frozenset(("", "na", "n/a", "nan", "null", "none", "?"))


class DelimitedSource(Source):
    """A table in text."""

    def __init__(self, path: AnyPath, options: SourceOptions, delimiter: str) -> None:
        self.name = path.name
        self._path = path
        self.delimiter = delimiter
        self.names = _header(path, delimiter)
        self.columns = TableColumns.of(self.names, options, str(path))
        self.features = [self.names[i] for i in self.columns.features]
        _require_named(path, self.features)
        self.dtype = wanted_dtype(options.dtype, np.dtype(np.float64), str(path))
        self.shape = (_count_rows(path, delimiter, len(self.names)), len(self.features))
        self.targets = [self.names[i] for i in self.columns.targets] or None
        self.n_targets = len(self.columns.targets)
        self.y_dtype = np.dtype(np.float64) if self.n_targets else None
        self.w_dtype = None if self.columns.weight is None else np.dtype(np.float64)
        self.has_samples = self.columns.index is not None

    def identity(self) -> dict[str, Any]:
        columns = self.columns
        return {
            "files": [file_identity(self._path)], "target": columns.targets, "index": columns.index,
            "weight": columns.weight,
        }  # fmt: skip

    def open(self, start: int, scratch: Path) -> Reader:
        return DelimitedReader(self._path, self, start)


class DelimitedReader(Reader):
    """Reads the lines in order; a block with anything unusual is parsed again, field by field."""

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
        """Return at least one and at most `limit` of the next lines that are not blank."""
        lines: list[str] = []
        while not lines:
            raw = self._raw_lines(min(limit, self._lines_at_once))
            if not raw:
                raise DataError(
                    f"{self._where} ends after {self._row} rows; {self._table.shape[0]} were counted.",
                    "Start again when no program writes to the file.",
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

    def fill(self, rows: Rows) -> None:
        done = 0
        while done < len(rows):
            first = self._row
            lines = self._lines(len(rows) - done)
            part = rows[done : done + len(lines)]
            self._fill_numbers(lines, first, part)
            if part.samples is not None and self._table.columns.index is not None:
                part.samples[:] = [fields[self._table.columns.index] for fields in self._fields(lines)]
            done += len(lines)

    def _fill_numbers(self, lines: list[str], first: int, rows: Rows) -> None:
        columns = self._table.columns
        wanted = [(rows.x, columns.features)]
        if rows.y is not None:
            wanted.append((rows.y, columns.targets))
        if rows.w is not None and columns.weight is not None:
            wanted.append((rows.w[:, None], [columns.weight]))
        if all(out.dtype.kind == "f" for out, _ in wanted):  # parse all of them together
            values = self._parse(lines, first, [i for _, some in wanted for i in some], np.dtype(np.float64))
            parts = np.split(values, np.cumsum([len(some) for _, some in wanted])[:-1], axis=1)
        else:
            parts = [self._parse(lines, first, some, _parsed_as(out.dtype)) for out, some in wanted]
        for (out, some), values in zip(wanted, parts, strict=True):
            put(out, values, self._where, first, [self._table.names[i] for i in some])

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
        """Parse field by field in float64. Missing values become NaN; the first invalid one is reported."""
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
    remedy = "Give every column a unique name in the first line."
    if _looks_like_data(names):
        raise DataError(f"The first line of {path} has numbers, not names: {shorten(names)}.", remedy)
    require_unique(names, "column", str(path), remedy)
    return names


def _looks_like_data(names: list[str]) -> bool:
    """Return whether the names are a row of numbers. Increasing or decreasing numbers are names, such as years."""
    try:
        steps = np.diff([float(name) for name in names])
    except ValueError:
        return False
    return not (bool((steps > 0).all()) or bool((steps < 0).all()))


def _require_named(path: AnyPath, features: list[str]) -> None:
    if "" in features:
        raise DataError(
            f"{path} has a column without a name, as pandas writes an index.",
            "If it contains sample labels, give index=0 (its position); otherwise name it.",
        )


def _count_rows(path: AnyPath, delimiter: str, columns: int) -> int:
    """Return the number of lines with values. Raises DataError for a line that does not have `columns` fields."""
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
    """Return the number of fields of a line; 0 if a quote is not closed, which would join it to the next line."""
    try:
        return len(next(csv.reader([line], delimiter=delimiter, strict=True)))
    except csv.Error:
        return 0


def _ragged(where: str, row: int, fields: int, columns: int) -> DataError:
    return DataError(
        f"{where}: row {row} has {fields} fields and the header has {columns}.",
        "Correct that line (a line break inside quotes is not supported).",
    )


_TABLE = frozenset(("target", "index", "weight"))
_INSTEAD = "Name the target columns of the table instead (target)."
CSV = Format("csv", (".csv",), partial(DelimitedSource, delimiter=","), _TABLE, _INSTEAD)
TSV = Format("tsv", (".tsv",), partial(DelimitedSource, delimiter="\t"), _TABLE, _INSTEAD)

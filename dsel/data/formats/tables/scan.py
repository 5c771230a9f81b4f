"""What each column of a table holds, and which of its values cannot be used: the first reading."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dsel._lib.text import FIRST_ROW, counted, shorten
from dsel.data.formats.source import EXACT_INTEGERS, SourceOptions, lost
from dsel.data.formats.tables.table import (
    TRUTH_WORDS,
    Table,
    TableColumns,
    as_days,
    as_integers,
    as_numbers,
    has_long_numbers,
    without_missing,
)
from dsel.errors import DataError

#: More values than this do not become columns, even if the column is named under `categorical`.
MOST_LEVELS: Final = 1000


@dataclass
class Found:
    """Values of one kind: how many there are, and the first of them with its row."""

    count: int = 0
    row: int = 0
    value: str = ""

    def add(self, where: NDArray[np.bool_], first_row: int, values: Callable[[int], Any]) -> None:
        """Count the rows that are True in `where`; `values` returns the value of a row relative to the first."""
        rows = np.flatnonzero(where)
        if rows.size and not self.count:
            self.row, self.value = first_row + int(rows[0]), str(values(int(rows[0])))
        self.count += int(rows.size)


@dataclass
class ColumnScan:
    """What one column holds.

    Parameters
    ----------
    name : str
        The name of the column.
    type : pyarrow.DataType
        Its type in the table.
    is_text : bool
        Whether text in it may stand for numbers.
    is_weight : bool
        Whether it holds weights, which are not negative.
    as_days : bool
        Whether dates, also those in text, count as numbers.
    has_levels : bool
        Whether numbers in it are categories.
    na, decimal
        As in `SourceOptions`.
    dtype : dtype, optional
        A dtype that all numbers must fit.
    is_whole : bool
        Whether the numbers are whole numbers or decimals, which floats may round, also if they are read as floats.
    """

    name: str
    type: Any
    is_text: bool = False
    has_levels: bool = False
    is_weight: bool = False
    as_days: bool = False
    na: tuple[str, ...] = ()
    decimal: str = "."
    dtype: np.dtype[Any] | None = None
    is_whole: bool = False
    missing: Found = field(default_factory=Found)
    infinite: Found = field(default_factory=Found)
    negative: Found = field(default_factory=Found)
    misfits: Found = field(default_factory=Found)
    no_numbers: Found = field(default_factory=Found)
    no_dates: Found = field(default_factory=Found)  # of text, if dates count as numbers
    values: Found = field(default_factory=Found)  # of text and of types that have no numbers
    levels: set[str] = field(default_factory=set)
    has_more_levels: bool = False
    rounded: bool = False  # whether float64 cannot hold all whole numbers of this size
    mistake: str | None = None  # what the first rows of whole numbers look like, if not like a feature

    @property
    def numbers(self) -> int:
        """How many values of text are numbers."""
        return self.values.count - self.no_numbers.count

    @property
    def dates(self) -> int:
        """How many values of text are dates, if dates count as numbers."""
        return self.values.count - self.no_dates.count if self.as_days and is_text_type(self.type) else 0

    @property
    def is_dates(self) -> bool:
        """Whether the text in it consists of dates, which become numbers."""
        return self.dates > 0 and not self.no_dates.count and not self.has_levels

    @property
    def kind(self) -> str:
        """One of number, truth (text that says true or false), text, category, time and other."""
        import pyarrow.types as types

        if types.is_dictionary(self.type):
            return "category"
        if is_text_type(self.type):
            if self.is_dates:
                return "number"
            if self.is_text and not self.has_levels and not self.no_numbers.count:
                return "number"
            is_truth = self.is_text and bool(self.levels) and {level.lower() for level in self.levels} <= TRUTH_WORDS
            is_truth = is_truth and not self.numbers and not self.has_levels
            return "truth" if is_truth and not self.has_more_levels else "text"
        if types.is_temporal(self.type):
            return "number" if self.as_days and is_date_type(self.type) else "time"
        return "number" if is_number_type(self.type) else "other"

    def add(self, column: Any, first: int) -> None:
        """Examine rows of the column from row `first` on, an Arrow array."""
        import pyarrow.types as types

        is_number = is_number_type(column.type) or (self.as_days and is_date_type(column.type))
        if (types.is_temporal(self.type) and not is_number) or not (
            is_number or types.is_dictionary(column.type) or is_text_type(column.type)
        ):
            is_valid = column.is_valid().to_numpy(zero_copy_only=False)
            self.values.add(is_valid, first, lambda i: column[i].as_py())
            if is_date_type(self.type):
                self.missing.add(~is_valid, first, lambda i: "")
        elif is_number and not self.has_levels:
            values = number_values(column)
            self._add_numbers(values, first)
            self.rounded |= self.is_whole and beyond_floats(values)
        else:
            self._add_text(as_words(column) if is_number else column, first)

    def _add_numbers(self, values: NDArray[Any], first: int) -> None:
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            self.missing.add(np.isnan(values), first, values.__getitem__)
            self.infinite.add(np.isinf(values), first, values.__getitem__)
        if self.is_weight and values.dtype.kind in "fi":
            is_negative = values < 0
            if is_negative.any():
                self.negative.add(is_negative, first, values.__getitem__)
        if self.dtype is not None and self.dtype != values.dtype:
            is_lost = lost(values, self.dtype)
            if is_lost is not None:
                self.misfits.add(is_lost & np.isfinite(values), first, values.__getitem__)

    def _add_text(self, column: Any, first: int) -> None:
        import pyarrow.types as types

        if self.is_text and not types.is_dictionary(column.type):
            column = without_missing(as_words(column), self.na)
            if not self.has_levels and not self.levels and self._add_number_text(column, first):
                return
        words, codes = encoded(column)
        is_null = codes < 0
        self.missing.add(is_null, first, lambda i: "")
        _, bad = as_numbers(words, self.decimal)
        is_bad = np.zeros(len(codes), bool)
        is_bad[~is_null] = bad[codes[~is_null]]

        def value(i: int) -> str:
            return str(words[int(codes[i])].as_py())

        self.values.add(~is_null, first, value)
        self.no_numbers.add(is_bad, first, value)
        if self.as_days and is_text_type(column.type):
            is_no_date = np.zeros(len(codes), bool)
            is_no_date[~is_null] = as_days(words)[1][codes[~is_null]]
            self.no_dates.add(is_no_date, first, value)
        if not self.has_more_levels:
            used = np.unique(codes[~is_null])
            self.levels.update(words[int(code)].as_py() for code in used[: MOST_LEVELS + 1])
            self.has_more_levels = len(self.levels) > MOST_LEVELS

    def _add_number_text(self, column: Any, first: int) -> bool:
        """Examine text that consists of numbers and nulls only; return False if it does not."""
        numbers, bad = as_numbers(column, self.decimal)
        if bad.any():
            return False
        asked = self.dtype is not None and self.dtype.kind in "iu"
        integers = as_integers(column) if asked else None
        self.rounded |= beyond_floats(numbers) and has_long_numbers(column)
        for found in (self.values, self.no_dates):
            found.add(~np.isnan(numbers), first, lambda i: column[i].as_py())
        self._add_numbers(numbers if integers is None else integers, first)
        return True


@dataclass(frozen=True)
class TableScan:
    """What all the columns that are used hold, by position."""

    rows: int
    columns: dict[int, ColumnScan]
    problems: list[str]


def scan_table(table: Table, roles: TableColumns, options: SourceOptions, dtype: np.dtype[Any] | None) -> TableScan:
    """Read a table once and return what its columns hold.

    `dtype` is that which all numbers of X must fit, if the user has chosen one. Raises DataError if the table cannot
    be read.
    """
    import pyarrow as pa
    import pyarrow.types as types

    is_text = table.is_text or bool(options.na)
    while True:
        features = set(roles.features)
        used = [column for column in roles.used if column != roles.index]
        columns = {
            i: ColumnScan(
                table.names[i], table.types[i], is_text, i in roles.categorical, i == roles.weight,
                options.dates == "days", options.na, options.decimal or ".", dtype if i in features else None,
                i in table.whole or types.is_integer(table.types[i])
                or types.is_decimal(table.types[i]),
            )
            for i in used
        }  # fmt: skip
        scans, rows = list(columns.values()), 0
        together = [
            j for j, scan in enumerate(scans)
            if is_plain(scan.type) and not scan.has_levels and not scan.is_weight and scan.dtype is None
        ]  # fmt: skip
        plain = together if len(together) > 1 else []
        whole = [i for i, j in enumerate(plain) if scans[j].is_whole]
        others = sorted(set(range(len(scans))) - set(plain))
        try:
            for batch in table.batches(used, 0):
                if not rows:
                    _judge(batch, scans)
                bad: list[int] = []  # floats are examined together, and again one by one if some are not finite
                if plain:
                    values = plain_values(batch, plain)
                    good = np.isfinite(values).all(axis=0)
                    for i in whole:
                        scans[plain[i]].rounded |= beyond_floats(values[:, i])
                    bad = [plain[i] for i in np.flatnonzero(~good).tolist()]
                for j in (*others, *bad):
                    scans[j].add(batch.column(j), rows)
                rows += batch.num_rows
                if options.scanned is not None:
                    options.scanned(*table.progress(rows))
            return TableScan(rows, columns, table.problems())
        except (pa.ArrowInvalid, OSError) as error:
            if not table.relax(error):
                raise cannot_read(table, rows, error) from error


def _judge(batch: Any, scans: list[ColumnScan]) -> None:
    """Note which columns of whole numbers look like codes or identifiers, by the first rows of a table."""
    import pyarrow.types as types

    for j, scan in enumerate(scans):
        if scan.has_levels or not scan.is_whole or types.is_decimal(scan.type):
            continue
        values = number_values(batch.column(j).slice(0, IDENTIFIER_ROWS))
        if values.dtype.kind == "f" and (values == np.trunc(values)).all() and not beyond_floats(values):
            values = values.astype(np.int64)  # of a text file
        scan.mistake = likely_mistake(scan.name, values)


def is_plain(kind: Any) -> bool:
    """Return whether an Arrow type is float32 or float64."""
    import pyarrow.types as types

    return bool(types.is_float32(kind) or types.is_float64(kind))


def plain_values(batch: Any, columns: list[int]) -> NDArray[Any]:
    """Return some columns of floats of a record batch as a matrix, with NaN for nulls."""
    part = batch if len(columns) == batch.num_columns else batch.select(columns)
    return np.asarray(part.to_tensor(null_to_nan=True, row_major=True))


def cannot_read(table: Table, row: int, error: Exception) -> DataError:
    """Return the error for a table whose rows from `row` on cannot be read."""
    said = str(error).rstrip(".").splitlines() or [type(error).__name__]
    return DataError(
        f"{table.where} cannot be read at row {row} and after ({FIRST_ROW}): {said[0]}.", "Copy or write it again."
    )


def is_text_type(kind: Any) -> bool:
    """Return whether an Arrow type is text."""
    import pyarrow.types as types

    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def has_levels(kind: Any) -> bool:
    """Return whether the values of an Arrow type are text or categories."""
    import pyarrow.types as types

    return bool(types.is_dictionary(kind)) or is_text_type(kind)


def is_number_type(kind: Any) -> bool:
    """Return whether the values of an Arrow type are numbers; truth values are, and a column of nulls only is."""
    import pyarrow.types as types

    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    return any(test(kind) for test in tests)


def is_date_type(kind: Any) -> bool:
    """Return whether an Arrow type is a date, a point in time or a duration, which a number of days can stand for."""
    import pyarrow.types as types

    return bool(types.is_date(kind) or types.is_timestamp(kind) or types.is_duration(kind))


#: The number of first rows by which a column of whole numbers is judged.
IDENTIFIER_ROWS: Final = 1000
#: Of so few rows, all numbers may differ by chance.
_FEWEST_ROWS: Final = 100
#: Of so few rows, all numbers may follow each other by chance.
_FEWEST_COUNTED: Final = 20
_CODES: Final = re.compile(r"(^|[^a-z])(zip|plz|post_?codes?|postal)([^a-z]|$)|zip_?codes?", re.IGNORECASE)


def beyond_floats(values: NDArray[Any]) -> bool:
    """Return whether numbers are so large that float64 does not hold all whole numbers of their size."""
    known = values[np.isfinite(values)]
    return bool(known.size) and bool(known.max() > EXACT_INTEGERS or known.min() < -EXACT_INTEGERS)


def rounding_note(names: Sequence[str], word: str = "column") -> tuple[str, ...]:
    """Return a note on columns or targets of exact numbers beyond 2^53, or nothing."""
    if not names:
        return ()
    which = counted(len(names), f"{word} has", f"{word}s have")
    return (f"{which} numbers beyond 2^53, which float64 may round (subtract a constant before): {shorten(names)}",)


def likely_mistake(name: str, values: NDArray[Any]) -> str | None:
    """Return what to do with a column of whole numbers that looks like codes or an identifier, by its first rows."""
    if values.dtype.kind not in "iu":
        return None
    if _CODES.search(name):
        return f"make {name!r} a category, or leave it out, if its numbers are codes: their size means nothing"
    levels = np.unique(values)
    counts_rows = len(values) >= _FEWEST_COUNTED and levels.size == levels[-1] - levels[0] + 1
    if levels.size == len(values) and (len(values) >= _FEWEST_ROWS or counts_rows):
        return f"leave {name!r} out if it is an identifier: its first {len(values)} whole numbers are all different"
    return None


def number_values(column: Any) -> NDArray[Any]:
    """Return the numbers of an Arrow array whose type has numbers, with NaN for nulls. Dates are days since 1970."""
    import pyarrow as pa
    import pyarrow.types as types

    if is_date_type(column.type):
        if getattr(column.type, "tz", None) is not None:
            column = column.cast(pa.timestamp(column.type.unit))  # in UTC
        times = np.asarray(column.to_numpy(zero_copy_only=False))
        start = times.dtype.type(0, "D") if times.dtype.kind == "m" else np.datetime64("1970-01-01")
        return np.asarray((times - start) / np.timedelta64(1, "D"), np.float64)
    if types.is_null(column.type):
        return np.full(len(column), np.nan)
    if types.is_decimal(column.type):
        column = column.cast(pa.float64())
    elif types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    return np.asarray(column.to_numpy(zero_copy_only=False))


def encoded(column: Any) -> tuple[Any, NDArray[np.int64]]:
    """Return the different values of an Arrow array as text, and the number of each row's value; -1 for a null."""
    import pyarrow as pa
    import pyarrow.types as types

    if not types.is_dictionary(column.type):
        column = as_words(column).dictionary_encode()
    words = as_words(column.dictionary)
    codes = np.array(column.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False))
    if words.null_count:  # a null may be one of the values
        is_null = np.append(np.asarray(words.is_null().to_numpy(zero_copy_only=False), bool), False)
        codes[is_null[codes]] = -1
    return words, codes


def as_words(column: Any) -> Any:
    """Return an Arrow array as text."""
    import pyarrow as pa
    import pyarrow.types as types

    if types.is_floating(column.type) or types.is_decimal(column.type):  # 3.0 as 3
        values = (None if v is None else f"{float(v):.17g}" for v in column.to_pylist())
        return pa.array([None if v == "nan" else v for v in values], pa.string())
    return column if types.is_string(column.type) else column.cast(pa.string())

"""A table as a source of X, Y, weights and labels.

The first reading says what each column holds, and which of its values cannot be used (`scan_table`). Then each column
has an encoder, or a problem with its remedy (`choose_encoders`). In the second reading, the encoders turn its values
into columns of X or Y.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dsel._lib.text import shorten
from dsel.data.formats.source import (
    Array,
    Missing,
    PieceReader,
    Reader,
    Rows,
    Source,
    SourceOptions,
    buffer_rows,
    lost,
    put,
    wanted_dtype,
)
from dsel.data.formats.tables.table import (
    IN_INGEST,
    TRUTH_WORDS,
    Remedies,
    Table,
    TableColumns,
    as_integers,
    as_numbers,
    without_missing,
)
from dsel.data.labels import require_unique
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
        Whether dates count as numbers.
    has_levels : bool
        Whether numbers in it are categories.
    na, decimal
        As in `SourceOptions`.
    dtype : dtype, optional
        A dtype that all numbers must fit.
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
    missing: Found = field(default_factory=Found)
    infinite: Found = field(default_factory=Found)
    negative: Found = field(default_factory=Found)
    misfits: Found = field(default_factory=Found)
    no_numbers: Found = field(default_factory=Found)
    values: Found = field(default_factory=Found)  # of text and of types that have no numbers
    levels: set[str] = field(default_factory=set)
    has_more_levels: bool = False
    mistake: str | None = None  # what the first rows of whole numbers look like, if not like a feature

    @property
    def numbers(self) -> int:
        """How many values of text are numbers."""
        return self.values.count - self.no_numbers.count

    @property
    def kind(self) -> str:
        """One of number, truth (text that says true or false), text, category, time and other."""
        import pyarrow.types as types

        if types.is_dictionary(self.type):
            return "category"
        if is_text_type(self.type):
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

        is_number = is_number_type(column.type) or (self.as_days and is_date_type(self.type))
        if (types.is_temporal(self.type) and not is_number) or not (
            is_number or types.is_dictionary(column.type) or is_text_type(column.type)
        ):
            self.values.add(column.is_valid().to_numpy(zero_copy_only=False), first, lambda i: column[i].as_py())
        elif is_number and not self.has_levels:
            self._add_numbers(number_values(column), first)
            if not first and types.is_integer(column.type):
                self.mistake = likely_mistake(self.name, number_values(column.slice(0, IDENTIFIER_ROWS)))
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
        if not self.has_more_levels:
            used = np.unique(codes[~is_null])
            self.levels.update(words[int(code)].as_py() for code in used[: MOST_LEVELS + 1])
            self.has_more_levels = len(self.levels) > MOST_LEVELS

    def _add_number_text(self, column: Any, first: int) -> bool:
        """Examine text that consists of numbers and nulls only; return False if it does not."""
        numbers, bad = as_numbers(column, self.decimal)
        if bad.any():
            return False
        integers = as_integers(column) if self.dtype is not None and self.dtype.kind in "iu" else None
        self.values.add(~np.isnan(numbers), first, lambda i: column[i].as_py())
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

    while True:
        features = set(roles.features)
        used = [column for column in roles.used if column != roles.index]
        columns = {
            i: ColumnScan(
                table.names[i], table.types[i], table.is_text, i in roles.categorical, i == roles.weight,
                options.dates == "days", options.na, options.decimal or ".", dtype if i in features else None,
            )
            for i in used
        }  # fmt: skip
        scans, rows = list(columns.values()), 0
        together = [
            j for j, scan in enumerate(scans)
            if is_plain(scan.type) and not scan.has_levels and not scan.is_weight and scan.dtype is None
        ]  # fmt: skip
        plain = together if len(together) > 1 else []
        others = sorted(set(range(len(scans))) - set(plain))
        try:
            for batch in table.batches(used, 0):
                bad: list[int] = []  # floats are examined together, and again one by one if some are not finite
                if plain:
                    good = np.isfinite(plain_values(batch, plain)).all(axis=0)
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
    return DataError(f"{table.where} cannot be read at row {row} and after: {said[0]}.", "Copy or write it again.")


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


#: By so many of the first rows a column of whole numbers is judged.
IDENTIFIER_ROWS: Final = 1000
#: Of so few rows, all numbers may differ by chance.
_FEWEST_ROWS: Final = 100
_CODES: Final = re.compile(r"(^|[^a-z])(zip|plz|post_?codes?|postal)([^a-z]|$)|zip_?codes?", re.IGNORECASE)


def likely_mistake(name: str, values: NDArray[Any]) -> str | None:
    """Return what to do with a column of whole numbers that looks like codes or an identifier, by its first rows."""
    if values.dtype.kind not in "iu":
        return None
    if _CODES.search(name):
        return f"make {name!r} text or a category, or leave it out, if its numbers are codes: their size means nothing"
    if len(values) >= _FEWEST_ROWS and np.unique(values).size == len(values):
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


@dataclass(frozen=True)
class Encoder:
    """How a column is stored: as numbers, or as a column of zeros and ones for each level.

    Text may stand for numbers or truth values. Where a category is missing, all of its columns are NaN.
    """

    scan: ColumnScan
    levels: tuple[str, ...] | None = None

    @property
    def labels(self) -> list[str]:
        """The labels of the columns that are stored."""
        return [self.scan.name] if self.levels is None else [f"{self.scan.name}={level}" for level in self.levels]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype that holds the values without loss."""
        import pyarrow.types as types

        kind, has_missing = self.scan.type, self.scan.missing.count > 0
        if self.levels is not None or self.scan.kind == "truth":
            return np.dtype(np.float32 if has_missing else np.uint8)
        if is_text_type(kind) or types.is_decimal(kind) or types.is_null(kind) or is_date_type(kind):
            return np.dtype(np.float64)
        dtype = np.dtype(kind.to_pandas_dtype())
        return np.result_type(dtype, np.float32) if has_missing and dtype.kind in "biu" else dtype

    def fill(self, out: Array, column: Any, where: str, first_row: int) -> None:
        """Write an Arrow array to `out`, shape (rows, columns). Raises DataError for a value that does not fit."""
        if self.levels is None:
            values = self._numbers(column, out.dtype)[:, None]
        else:
            values = self._indicators(column, self.levels, where)
        put(out, values, where, first_row, self.labels)

    def _numbers(self, column: Any, dtype: np.dtype[Any]) -> Array:
        import pyarrow.compute as pc

        if not is_text_type(column.type):
            return number_values(column)
        text = without_missing(column, self.scan.na)
        if self.scan.kind == "truth":
            return number_values(pc.equal(pc.utf8_lower(text), "true"))
        integers = as_integers(text) if dtype.kind in "iu" else None
        return as_numbers(text, self.scan.decimal)[0] if integers is None else integers

    def _indicators(self, column: Any, levels: tuple[str, ...], where: str) -> Array:
        import pyarrow as pa
        import pyarrow.compute as pc

        words, codes = encoded(without_missing(as_words(column), self.scan.na) if self.scan.is_text else column)
        number = pc.index_in(words, pa.array(levels, pa.string())).fill_null(-1).to_numpy(zero_copy_only=False)
        is_null = codes < 0
        of_row = np.append(number, -1)[codes]  # code -1 takes the last: no level
        is_level = of_row[:, None] == np.arange(len(levels))
        if (is_level.sum(axis=1) + is_null != 1).any():
            raise DataError(
                f"{where}: column {self.scan.name!r} has other values than before.", "Start when nothing writes to it."
            )
        return np.where(is_null[:, None], np.nan, is_level) if is_null.any() else is_level


def _in_order(level: str) -> tuple[float, str]:
    """Numbers come first and by size, then words by alphabet."""
    try:
        return float(level), level
    except ValueError:
        return float("inf"), level


#: With `categorical=auto`, text becomes columns only if it has at most this many different values.
AUTO_LEVELS: Final = 50
#: The number of problems that are listed.
MOST_PROBLEMS: Final = 50


@dataclass
class Encoders:
    """How the columns are stored."""

    features: list[Encoder] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    targets: list[Encoder] = field(default_factory=list)
    weight: Encoder | None = None


def choose_encoders(
    scan: TableScan, roles: TableColumns, where: str, missing: Missing, words: Remedies = IN_INGEST
) -> Encoders:
    """Return an encoder for each column. Raises DataError that lists all problems of all columns."""
    found, problems = Encoders(), list(scan.problems)
    for i in roles.used:
        if i == roles.index:
            continue
        column = scan.columns[i]
        role = "weight" if i == roles.weight else "target" if i in roles.targets else "feature"
        wrong = _problem(column, role, i in roles.categorical, roles.auto, words)
        problems += [wrong] if wrong else _value_problems(column, role, missing)
        if not wrong and role == "feature":
            found.features.append(_encoder(column))
        found.notes += [] if wrong else [note for note in (column.mistake, _same_levels(column)) if note]
        if not wrong and role == "weight":
            found.weight = _encoder(column)
    if problems:
        raise DataError(_listed(where, problems))
    found.targets = [_encoder(scan.columns[i]) for i in roles.targets]
    return found


def _same_levels(column: ColumnScan) -> str | None:
    """Return what to do about values of text that differ by case or spaces only."""
    forms: dict[str, list[str]] = {}
    for level in sorted(column.levels) if column.kind in ("text", "category") else ():
        forms.setdefault(" ".join(level.split()).casefold(), []).append(level)
    same = [" and ".join(map(repr, levels)) for levels in forms.values() if len(levels) > 1]
    if not same:
        return None
    return f"write the values of {column.name!r} in one way: {shorten(same)} differ by case or spaces only"


def _encoder(column: ColumnScan) -> Encoder:
    is_number = column.kind in ("number", "truth") and not column.has_levels
    return Encoder(column, None if is_number else tuple(sorted(column.levels, key=_in_order)))


def _problem(column: ColumnScan, role: str, is_named: bool, auto: bool, words: Remedies) -> str | None:
    """Return why a column as a whole cannot be used, or None."""
    kind, name = column.kind, column.name
    if column.has_levels or kind in ("text", "category"):
        return _level_problem(column, role, is_named, auto, words)
    if kind in ("time", "other"):
        what = "dates or times" if kind == "time" else "no numbers"
        example = f", such as {column.values.value[:60]} in row {column.values.row}" if column.values.count else ""
        remedy = "Encode it"
        if kind == "time":
            remedy = words.days if is_date_type(column.type) else "Replace them by numbers, such as seconds"
        return f"column {name!r} holds {what} ({column.type}){example}. {remedy}, or {words.drop}."
    return None


def _level_problem(column: ColumnScan, role: str, is_named: bool, auto: bool, words: Remedies) -> str | None:
    name, count = column.name, len(column.levels)
    at = f"row {column.values.row}, column {name!r}: {column.values.value[:60]!r} is text"
    many = f"more than {MOST_LEVELS}" if column.has_more_levels else str(count)
    if role == "weight":
        return f"{at}. Weights are finite numbers >= 0."
    if column.no_numbers.count and column.numbers and not is_named and column.kind != "category":
        wrong = column.no_numbers
        return (
            f"row {wrong.row}, column {name!r}: {wrong.value[:60]!r} is not a number ({wrong.count} of "
            f"{column.values.count} values are not). {words.mixed}."
        )
    if column.has_more_levels:
        return f"{at} with {many} different values, too many for a column each. {words.too_many}."
    if is_named or role == "target" or column.kind == "category":
        return None if count else f"column {name!r} has no values. {words.drop.capitalize()}."
    if not column.no_numbers.count:
        return f"{at} ({many} different values), though it holds numbers only. Convert the column to numbers."
    if auto and count <= AUTO_LEVELS:
        return None
    if count > AUTO_LEVELS and 10 * count > 9 * column.values.count:
        return f"{at}, and nearly all of its values differ, as those of an identifier. {words.too_many}."
    return f"{at} ({many} different values). {words.levels}."


def _value_problems(column: ColumnScan, role: str, missing: Missing) -> list[str]:
    """Return what is wrong with single values of a column that can be used otherwise."""
    checks = [(column.infinite, "is infinite", "Correct it, or make it a missing value.")]
    if role == "weight":
        checks.append((column.negative, "is negative", "Weights are finite numbers >= 0."))
    if column.dtype is not None:
        checks.append((column.misfits, f"does not fit {column.dtype}", 'Give a wider dtype, such as dtype="float64".'))
        if column.dtype.kind in "iu" and column.missing.count:
            remedy = 'Give dtype="float64", or fill it in.'
            checks.append((column.missing, f"is missing, which {column.dtype} does not have", remedy))
            return [_sentence(column.name, *check) for check in checks if check[0].count]
    needs_all = role == "weight" or (role == "target" and missing == "mean")
    if column.missing.count and (missing == "refuse" or (needs_all and missing != "rows")):
        rows = "missing=rows leaves such rows out"
        remedy = f"Fill it in; {rows}." if needs_all else f"Fill it in; {rows}, missing=mean or keep admits them."
        checks.append((column.missing, "is missing", remedy))
    return [_sentence(column.name, *check) for check in checks if check[0].count]


def _sentence(name: str, found: Found, what: str, remedy: str) -> str:
    value = f"the value {found.value}" if found.value not in ("", "nan") else "the value"
    more = f", and {found.count - 1} more" if found.count > 1 else ""
    return f"row {found.row}, column {name!r}: {value} {what}{more}. {remedy}"


def _listed(where: str, problems: list[str]) -> str:
    if len(problems) == 1:
        return f"{where}: {problems[0]}"
    shown = problems[:MOST_PROBLEMS]
    if len(problems) > MOST_PROBLEMS:
        shown.append(f"and {len(problems) - MOST_PROBLEMS} more problems.")
    return "\n".join([f"{where} has {len(problems)} problems:", *(f"  - {problem}" for problem in shown)])


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
        scan = scan_table(table, self.roles, options, asked)
        encoders = choose_encoders(scan, self.roles, table.where, options.missing, table.remedies)
        self._options = options
        self.encoders = encoders
        self.notes = tuple(encoders.notes)
        self.features = [label for encoder in encoders.features for label in encoder.labels]
        self.shape = (scan.rows, len(self.features))
        self.dtype = wanted_dtype(options.dtype, _common(encoders.features), table.where)
        self.targets = [label for encoder in encoders.targets for label in encoder.labels] or None
        self.n_targets = len(self.targets or ())
        self.y_dtype = wanted_dtype(None, _common(encoders.targets), table.where) if self.n_targets else None
        self.w_dtype = None if encoders.weight is None else wanted_dtype(None, encoders.weight.dtype, table.where)
        self.has_samples = self.roles.index is not None
        if any(encoder.levels is not None for encoder in encoders.features):
            self.sources = [encoder.scan.name for encoder in encoders.features for _ in encoder.labels]
        self.classes = {e.scan.name: list(e.levels) for e in encoders.targets if e.levels is not None}
        self.types = dict(Counter(_kind(encoder) for encoder in (*encoders.features, *encoders.targets)))

    def identity(self) -> dict[str, Any]:
        roles, options = self.roles, self._options
        return {
            **self.table.identity(), "target": roles.targets, "index": roles.index, "weight": roles.weight,
            "features": roles.features, "categorical": [*sorted(roles.categorical), roles.auto],
            "text": [list(options.na), options.decimal], **({"dates": "days"} if options.dates == "days" else {}),
        }  # fmt: skip

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
    return "numbers as text" if is_text_type(encoder.scan.type) else str(encoder.scan.type)

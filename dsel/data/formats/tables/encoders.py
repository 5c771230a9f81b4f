"""How each column of a table is stored: as numbers, or as a column of zeros and ones for each value.

A column that cannot be stored has a problem with its remedy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from dsel._lib.text import FIRST_ROW, counted, shorten
from dsel.data.classes import MOST_CLASSES
from dsel.data.formats.source import Array, Missing, put
from dsel.data.formats.tables.scan import (
    MOST_LEVELS,
    ColumnScan,
    Found,
    TableScan,
    as_words,
    encoded,
    is_date_type,
    is_text_type,
    number_values,
)
from dsel.data.formats.tables.table import (
    IN_INGEST,
    Remedies,
    TableColumns,
    as_days,
    as_integers,
    as_numbers,
    is_date,
    without_missing,
    written_number,
)
from dsel.errors import DataError


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
            values = self._numbers(column, out.dtype, where, first_row)[:, None]
        else:
            values = self._indicators(column, self.levels, where)
        put(out, values, where, first_row, self.labels)

    def _numbers(self, column: Any, dtype: np.dtype[Any], where: str, first_row: int) -> Array:
        import pyarrow.compute as pc

        if not is_text_type(column.type):
            return number_values(column)
        text = without_missing(as_words(column), self.scan.na)
        if self.scan.kind == "truth":
            return number_values(pc.equal(pc.utf8_lower(text), "true"))
        integers = as_integers(text) if dtype.kind in "iu" else None
        if integers is not None:
            return integers
        values, bad = as_days(text) if self.scan.is_dates else as_numbers(text, self.scan.decimal)
        if bad.any():
            i = int(bad.argmax())
            what = "date" if self.scan.is_dates else "number"
            raise DataError(
                f"{where}: row {first_row + i}, column {self.scan.name!r}: {text[i].as_py()[:60]!r} is not a {what}, "
                f"unlike the values in the first reading ({FIRST_ROW}).",
                "Start when nothing writes to it.",
            )
        return values

    def _indicators(self, column: Any, levels: tuple[str, ...], where: str) -> Array:
        is_text = self.scan.is_text and self.scan.kind != "category"
        found = indicators(without_missing(as_words(column), self.scan.na) if is_text else column, levels)
        if (found.sum(axis=1) == 0).any():
            raise DataError(
                f"{where}: column {self.scan.name!r} has other values than before.", "Start when nothing writes to it."
            )
        return found


def rounded_names(encoders: Sequence[Encoder]) -> list[str]:
    """Return the columns of numbers that float64 may round."""
    return [one.scan.name for one in encoders if one.levels is None and one.scan.rounded]


def indicators(column: Any, levels: Sequence[str]) -> Array:
    """Return (rows, levels) whether each value of an Arrow array is a level; NaN in the rows without a value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    words, codes = encoded(column)
    number = pc.index_in(words, pa.array(levels, pa.string())).fill_null(-1).to_numpy(zero_copy_only=False)
    is_null = codes < 0
    of_row = np.append(number, -1)[codes]  # code -1 takes the last: no level
    is_level = of_row[:, None] == np.arange(len(levels))
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
    notes: list[tuple[str, str]] = field(default_factory=list)  # with the column that each is on
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
        mistake = column.mistake if role == "feature" else None
        found.notes += [] if wrong else [(column.name, note) for note in (mistake, _same_levels(column)) if note]
        if not wrong and role == "weight":
            found.weight = _encoder(column)
    if problems and words is not IN_INGEST and missing != "mean":  # of a frame: the selection will refuse them
        remedy = 'Fill it in, or set missing="mean".'
        columns = [scan.columns[i] for i in roles.features]
        problems += [_sentence(c.name, c.missing, "is missing", remedy) for c in columns if c.missing.count]
    if problems:
        raise DataError(_listed(where, problems, words is IN_INGEST))
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
        found = _level_problem(column, role, is_named, auto, words)
        return found and found + written_number((column.no_numbers if column.no_numbers.count else column.values).value)
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
    many = f"more than {MOST_LEVELS} different values" if column.has_more_levels else counted(count, "different value")
    if role == "weight":
        return f"{at}. Weights are finite numbers >= 0."
    if column.no_dates.count and column.dates and not is_named:
        return _mixed(column, column.no_dates, "date", words)
    if column.no_numbers.count and column.numbers and not is_named and column.kind != "category":
        return _mixed(column, column.no_numbers, "number", words)
    are_numbers = column.kind == "text" and not column.no_numbers.count and count > MOST_CLASSES
    is_category = is_named or column.kind == "category" or (role == "target" and not are_numbers)
    if not column.as_days and is_date(column.values.value) and (column.has_more_levels or not is_category):
        return f"{at} and looks like a date. {words.days}, or {words.drop}."
    if column.has_more_levels:
        return f"{at} with {many}, too many for a column each. {words.too_many}."
    if is_category:
        return None if count else f"column {name!r} has no values. {words.drop.capitalize()}."
    if not column.no_numbers.count and column.values.value[:1] == "0" and column.values.value[1:].isdigit():
        return f"{at} ({many}), with leading zeros as codes have. {words.levels}."
    if not column.no_numbers.count:
        codes = f"{words.levels[:1].lower()}{words.levels[1:]}"
        return (
            f"{at} ({many}), though it holds numbers only. Convert the column to numbers if they are "
            f"amounts. If they are codes, {codes}."
        )
    if auto and count <= AUTO_LEVELS:
        return None
    if count > AUTO_LEVELS and 10 * count > 9 * column.values.count:
        return f"{at}, and nearly all of its values differ, as those of an identifier. {words.too_many}."
    beyond = f", and only up to {AUTO_LEVELS} become columns without being a category" if auto else ""
    return f"{at} ({many}{beyond}). {words.levels}."


def _mixed(column: ColumnScan, wrong: Found, what: str, words: Remedies) -> str:
    return (
        f"row {wrong.row}, column {column.name!r}: {wrong.value[:60]!r} is not a {what} ({wrong.count} of "
        f"{column.values.count} values are not). {words.mixed}."
    )


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
    needed = role == "weight" or (role == "target" and missing == "mean")
    if column.missing.count and (missing == "refuse" or (needed and missing != "rows")):
        admits = ", missing=mean or keep admits them" if role == "feature" else ""  # no selection takes other values
        remedy = f"Fill it in; missing=rows leaves such rows out{admits}."
        checks.append((column.missing, "is missing", remedy))
    return [_sentence(column.name, *check) for check in checks if check[0].count]


def _sentence(name: str, found: Found, what: str, remedy: str) -> str:
    value = f"the value {found.value}" if found.value not in ("", "nan") else "the value"
    more = f", and {found.count - 1} more" if found.count > 1 else ""
    return f"row {found.row}, column {name!r}: {value} {what}{more}. {remedy}"


def _listed(where: str, problems: list[str], of_file: bool) -> str:
    """Return all problems as a message. Those of a file say how rows count, which users of frames know."""
    counting = of_file and any("row " in problem for problem in problems)
    if len(problems) == 1:
        return f"{where}: {problems[0]}" + (f" ({FIRST_ROW[0].upper()}{FIRST_ROW[1:]}.)" if counting else "")
    shown = problems[:MOST_PROBLEMS]
    if len(problems) > MOST_PROBLEMS:
        shown.append(f"and {len(problems) - MOST_PROBLEMS} more problems.")
    title = f"{where} has {len(problems)} problems" + (f" ({FIRST_ROW}):" if counting else ":")
    return "\n".join([title, *(f"  - {problem}" for problem in shown)])

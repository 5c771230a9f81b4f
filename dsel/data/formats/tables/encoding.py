"""The second reading of a table: how the values of a column become columns of X or Y.

What becomes of each column after the first reading: an encoder, or a problem with its remedy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from dsel.data.formats.base import Array, Missing, put
from dsel.data.formats.tables.base import TableColumns, as_integers, as_numbers, without_missing
from dsel.data.formats.tables.scan import (
    MOST_LEVELS,
    ColumnScan,
    Found,
    TableScan,
    as_words,
    encoded,
    is_text_type,
    number_values,
)
from dsel.errors import DataError


@dataclass(frozen=True)
class Encoder(ABC):
    """Turns a column of a table into one or more columns of numbers."""

    scan: ColumnScan

    @property
    @abstractmethod
    def labels(self) -> list[str]:
        """The labels of the columns."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """The dtype that holds the values without loss."""

    @abstractmethod
    def fill(self, out: Array, column: Any, where: str, first_row: int) -> None:
        """Write an Arrow array to `out`, shape (rows, columns). Raises DataError for a value that does not fit."""


class Number(Encoder):
    """A column of numbers, or of text that stands for numbers or truth values."""

    @property
    def labels(self) -> list[str]:
        return [self.scan.name]

    @property
    def dtype(self) -> np.dtype[Any]:
        import pyarrow.types as types

        kind, has_missing = self.scan.type, self.scan.missing.count > 0
        if self.scan.kind == "truth":
            return np.dtype(np.float32 if has_missing else np.uint8)
        if is_text_type(kind) or types.is_decimal(kind) or types.is_null(kind):
            return np.dtype(np.float64)
        dtype = np.dtype(kind.to_pandas_dtype())
        return np.result_type(dtype, np.float32) if has_missing and dtype.kind in "biu" else dtype

    def fill(self, out: Array, column: Any, where: str, first_row: int) -> None:
        put(out, self._values(column, out.dtype)[:, None], where, first_row, [self.scan.name])

    def _values(self, column: Any, dtype: np.dtype[Any]) -> Array:
        import pyarrow.compute as pc

        if not is_text_type(column.type):
            return number_values(column)
        text = without_missing(column, self.scan.na)
        if self.scan.kind == "truth":
            return number_values(pc.equal(pc.utf8_lower(text), "true"))
        integers = as_integers(text) if dtype.kind in "iu" else None
        return as_numbers(text, self.scan.decimal)[0] if integers is None else integers


@dataclass(frozen=True)
class OneHot(Encoder):
    """A column of categories: one column of zeros and ones for each level, NaN in all of them where it is missing."""

    levels: tuple[str, ...]

    @classmethod
    def of(cls, scan: ColumnScan) -> OneHot:
        """Return the encoder of a column, with its levels in order."""
        return cls(scan, tuple(sorted(scan.levels, key=_in_order)))

    @property
    def labels(self) -> list[str]:
        return [f"{self.scan.name}={level}" for level in self.levels]

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float32 if self.scan.missing.count else np.uint8)

    def fill(self, out: Array, column: Any, where: str, first_row: int) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self.scan.is_text:
            words, codes = encoded(column)
        else:
            words, codes = encoded(without_missing(as_words(column), self.scan.na))
        levels = pc.index_in(words, pa.array(self.levels, pa.string())).fill_null(-1).to_numpy(zero_copy_only=False)
        is_null = codes < 0
        is_level = np.append(levels, -1)[codes][:, None] == np.arange(
            len(self.levels)
        )  # code -1 takes the last: no level
        if (is_level.sum(axis=1) + is_null != 1).any():
            raise DataError(
                f"{where}: column {self.scan.name!r} has other values than before.", "Start when nothing writes to it."
            )
        out[...] = is_level
        if is_null.any():
            put(out[is_null], np.full((int(is_null.sum()), len(self.levels)), np.nan), where, first_row, self.labels)
            out[is_null] = np.nan


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
    targets: list[Encoder] = field(default_factory=list)
    weight: Encoder | None = None


def choose_encoders(scan: TableScan, roles: TableColumns, where: str, missing: Missing) -> Encoders:
    """Return an encoder for each column. Raises DataError that lists all problems of all columns."""
    found, problems = Encoders(), list(scan.problems)
    for i in roles.used:
        if i == roles.index:
            continue
        column = scan.columns[i]
        role = "weight" if i == roles.weight else "target" if i in roles.targets else "feature"
        wrong = _problem(column, role, i in roles.categorical, roles.auto)
        problems += [wrong] if wrong else _value_problems(column, role, missing)
        if not wrong and role == "feature":
            found.features.append(_encoder(column))
        if not wrong and role == "weight":
            found.weight = _encoder(column)
    if problems:
        raise DataError(_listed(where, problems))
    found.targets = [_encoder(scan.columns[i]) for i in roles.targets]
    return found


def _encoder(column: ColumnScan) -> Encoder:
    is_number = column.kind in ("number", "truth") and not column.has_levels
    return Number(column) if is_number else OneHot.of(column)


def _problem(column: ColumnScan, role: str, is_named: bool, auto: bool) -> str | None:
    """Return why a column as a whole cannot be used, or None."""
    kind, name = column.kind, column.name
    if column.has_levels or kind in ("text", "category"):
        return _level_problem(column, role, is_named, auto)
    if kind in ("time", "other"):
        what = "dates or times" if kind == "time" else "no numbers"
        example = f", such as {column.values.value[:60]} in row {column.values.row}" if column.values.count else ""
        remedy = "Replace them by numbers, such as days since the first one" if kind == "time" else "Encode it"
        return f"column {name!r} holds {what} ({column.type}){example}. {remedy}, or name it under drop or index."
    return None


def _level_problem(column: ColumnScan, role: str, is_named: bool, auto: bool) -> str | None:
    name, count = column.name, len(column.levels)
    at = f"row {column.values.row}, column {name!r}: {column.values.value[:60]!r} is text"
    many = f"more than {MOST_LEVELS}" if column.has_more_levels else str(count)
    if role == "weight":
        return f"{at}. Weights are finite numbers >= 0."
    if column.no_numbers.count and column.numbers and not is_named and column.kind != "category":
        wrong = column.no_numbers
        return (
            f"row {wrong.row}, column {name!r}: {wrong.value[:60]!r} is not a number ({wrong.count} of "
            f"{column.values.count} values are not). Correct them, or give words for missing values under na; if the "
            "column holds categories, name it under categorical."
        )
    if column.has_more_levels:
        return (
            f"{at} with {many} different values, too many for a column each. "
            "Name it under drop, or under index if it labels the samples."
        )
    if is_named or role == "target" or column.kind == "category":
        return None if count else f"column {name!r} has no values. Name it under drop."
    if not column.no_numbers.count:
        return f"{at} ({many} different values), though it holds numbers only. Convert the column to numbers."
    if auto and count <= AUTO_LEVELS:
        return None
    return (
        f"{at} ({many} different values). Name it under categorical to have a column of zeros and ones for each "
        "value, under index if it labels the samples, or under drop."
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

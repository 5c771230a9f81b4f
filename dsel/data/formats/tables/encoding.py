"""The second reading of a table: how the values of a column become columns of X or Y."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsel.data.formats.base import Array
from dsel.data.formats.tables.scan import ColumnScan, as_words, encoded, is_text_type, number_values
from dsel.data.formats.tables.words import as_integers, as_numbers, without_missing
from dsel.data.formats.values import put
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

"""What is done about missing values of any source: rows are left out, means are filled in, or they are refused.

The source is read once more before anything is written, a few megabytes at a time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel._lib.text import FIRST_ROW, counted, shorten
from dsel.data.formats.source import Array, DerivedSource, Missing, Rows, Source, buffer_rows, buffers
from dsel.data.labels import by_source, default_labels, of_means
from dsel.errors import DataError


def without_missing_values(
    source: Source, missing: Missing, scanned: Callable[[int, int], None] | None = None
) -> Source:
    """Return a source whose missing values are treated as `missing` says; the same one where there are none.

    Raises DataError if missing values are refused or nothing is left.
    """
    dtypes = (source.dtype, source.y_dtype, source.w_dtype)
    if missing == "keep" or not any(dtype is not None and dtype.kind == "f" for dtype in dtypes):
        return source
    found = _count(source, scanned)
    if not found.x.any() and not found.y.any() and not found.w:
        return source
    if missing == "refuse":
        raise _refused(source, found)
    if missing == "mean":
        return FilledSource(source, found)
    return CompleteRows(source, found)


@dataclass
class _Counts:
    """Missing values of a source: per column, and the rows without any up to each buffer.

    sums, weight: of each column of X, over the values that are there, the weighted sum and the sum of the weights.
    """

    x: NDArray[np.int64]
    y: NDArray[np.int64]
    sums: NDArray[np.float64]
    weight: NDArray[np.float64]
    first: NDArray[np.int64]  # of each column of X: the first row with a missing value
    w: int = 0
    complete: list[int] = field(default_factory=lambda: [0])  # rows without missing values before each buffer


class FilledSource(DerivedSource):
    """A source in which a missing value of X is the mean of the others in its column, weighted if rows have weights."""

    def __init__(self, source: Source, found: _Counts) -> None:
        super().__init__(source)
        if found.y.any() or found.w:
            of_y = int(found.y.sum())
            what = f"{counted(of_y, 'missing value')} in Y" if of_y else counted(found.w, "missing weight")
            raise DataError(f"{source.name} has {what}.", "Means are for X only: give missing=rows.")
        if not found.weight.all():
            labels = _labels(source, np.flatnonzero(found.weight == 0))
            raise DataError(f"{source.name}: no value of {labels} is there.", "Name these columns under drop.")
        self.means = found.sums / found.weight
        names = default_labels("x", source.shape[1]) if source.features is None else list(source.features)
        missing = by_source(found.x.tolist(), names, source.sources)
        self.notes = (*source.notes, *of_means(missing, source.shape[0], names))

    def identity(self) -> dict[str, Any]:
        return {**super().identity(), "missing": "mean"}

    def pieces(self, start: int, scratch: Path) -> Generator[Rows, None, None]:
        for rows in buffers(self.source, start, scratch):
            row, column = np.nonzero(np.isnan(rows.x))
            rows.x[row, column] = self.means[column]
            yield rows


class CompleteRows(DerivedSource):
    """The rows of a source that have no missing value in X, Y and the weights."""

    def __init__(self, source: Source, found: _Counts) -> None:
        super().__init__(source)
        kept = found.complete[-1]
        if not kept:
            raise DataError(f"{source.name}: every row has a missing value.", "Drop columns, or give missing=mean.")
        self.found, self.shape = found, (kept, source.shape[1])
        rows = counted(source.shape[0] - kept, "row with missing values was", "rows with missing values were")
        self.notes = (*source.notes, f"{rows} left out")

    def identity(self) -> dict[str, Any]:
        return {**super().identity(), "missing": "rows"}

    def pieces(self, start: int, scratch: Path) -> Generator[Rows, None, None]:
        complete = self.found.complete
        buffer = min(int(np.searchsorted(complete, start, side="right")) - 1, len(complete) - 2)
        skip = start - complete[buffer]
        for rows in buffers(self.source, buffer * buffer_rows(self.source), scratch):
            yield rows[np.flatnonzero(~_incomplete(rows))[skip:]]
            skip = 0


def _count(source: Source, scanned: Callable[[int, int], None] | None) -> _Counts:
    m, n = source.shape
    missing = np.zeros(n, np.int64), np.zeros(source.n_targets, np.int64)
    counts = _Counts(*missing, np.zeros(n), np.zeros(n), np.full(n, -1, np.int64))
    first = 0
    with tempfile.TemporaryDirectory() as scratch:
        for rows in buffers(source, 0, Path(scratch)):
            _add(counts, rows, first)
            first += len(rows)
            if scanned is not None:
                scanned(first, m)
    return counts


def _add(counts: _Counts, rows: Rows, first_row: int) -> None:
    is_nan = _is_nan(rows.x)
    known = np.where(is_nan, 0.0, rows.x)
    if rows.w is None:
        counts.sums += known.sum(axis=0, dtype=np.float64)
        counts.weight += (~is_nan).sum(axis=0)
    else:
        w = np.asarray(rows.w, np.float64)
        counts.sums += w @ known
        counts.weight += w @ ~is_nan
    counts.x += is_nan.sum(axis=0)
    is_new = is_nan.any(axis=0) & (counts.first < 0)
    counts.first[is_new] = first_row + is_nan.argmax(axis=0)[is_new]
    if rows.y is not None:
        counts.y += _is_nan(rows.y).sum(axis=0)
    if rows.w is not None:
        counts.w += int(_is_nan(rows.w).sum())
    counts.complete.append(counts.complete[-1] + len(rows) - int(_incomplete(rows).sum()))


def _incomplete(rows: Rows) -> NDArray[np.bool_]:
    """Return which rows have a missing value."""
    found = np.asarray(_is_nan(rows.x).any(axis=1))
    if rows.y is not None:
        found |= _is_nan(rows.y).any(axis=1)
    if rows.w is not None:
        found |= _is_nan(rows.w)
    return found


def _is_nan(values: Array) -> NDArray[np.bool_]:
    return np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, bool)


def _refused(source: Source, found: _Counts) -> DataError:
    columns = np.flatnonzero(found.x)
    said = [
        f"{_labels(source, [j])} ({found.x[j]}, the first in row {found.first[j]})" for j in columns.tolist()
    ]  # fmt: skip
    if found.y.any():
        said.append(f"Y ({int(found.y.sum())})")
    if found.w:
        said.append(f"the weights ({found.w})")
    have = "column has" if len(said) == 1 else "columns have"
    others = ", mean fills in means, keep stores NaN" + (", both for X only" if found.y.any() or found.w else "")
    return DataError(
        f"{source.name} ({FIRST_ROW}): {len(said)} {have} missing values: {shorten(said, 20)}.",
        f"Fill them in, or give missing: rows leaves such rows out{others if columns.size else ''}.",
    )


def _labels(source: Source, columns: Any) -> str:
    names = [f"column {j}" if source.features is None else repr(source.features[j]) for j in columns]
    return shorten(names, 8)

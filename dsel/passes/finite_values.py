"""The search for NaN and infinite values, and the error that names their columns and rows.

A worker knows the numbers of the columns; the caller adds the labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from dsel._lib.text import FIRST_ROW, counted, noun, shorten
from dsel._lib.types import Floats
from dsel.data.blocks import dense_rows, load_block, row_pieces
from dsel.data.dataset import Dataset
from dsel.data.labels import by_source
from dsel.data.schema import ATTR_MISSING_TARGETS
from dsel.errors import DataError

#: How many columns, and rows, an error names at most.
_NAMED = 5
#: An error reads a store of up to this many bytes again, to count the wrong values of all rows.
COUNTED_BYTES = 256 << 20
#: What makes a value wrong, by the name of its kind.
_WRONG: dict[str, Callable[[Floats], NDArray[np.bool_]]] = {"NaN": np.isnan, "infinite": np.isinf}


class NonFiniteError(DataError):
    """The data have values that are NaN or infinite. A worker knows the numbers of the columns; `named` adds labels.

    Parameters
    ----------
    place : str
        Where the values are, such as "X of data.zarr".
    kind : {"NaN", "infinite"}
        What they are.
    remedy : str
        As for `DataError`.
    variable : str
        X or Y.
    counts : dict of int or str to int
        How many such values each column has, by its number, or by its label where that is known.
    lines : sequence of int
        The first rows that have some.
    among : (int, int), optional
        The first and the last row that were counted; None for all of them.
    more : str
        A sentence about the other rows.
    """

    def __init__(
        self, place: str, kind: str, remedy: str, variable: str, counts: Mapping[int, int] | Mapping[str, int],
        lines: Sequence[int], among: tuple[int, int] | None = None, more: str = "",
    ) -> None:  # fmt: skip
        several = len(counts) > 1
        names = shorten((f"{name!r} ({count})" if several else repr(name) for name, count in counts.items()), _NAMED)
        counted_in = f" in rows {among[0]} to {among[1]}" if among else ""
        found = f"{kind} values{counted_in}: {sum(counts.values())}, in {noun(len(counts), 'column')} {names}"
        rows = f"{noun(len(lines), 'row')} {shorten(map(str, lines), _NAMED)}"
        super().__init__(f"{place} has {found}, {rows} ({FIRST_ROW}).{more}", remedy)
        self.args = (place, kind, remedy, variable, counts, lines, among, more)

    def named(self, dataset: Dataset) -> NonFiniteError:
        """Return the error with the labels of the columns, and the category in place of its columns of 0 and 1.

        All rows are counted in memory and in a store of up to COUNTED_BYTES. Elsewhere that would take a pass, and the
        error says what was not counted. Rows of a window have the numbers that they have in the store.
        """
        place, kind, remedy, variable, counts, lines, among, more = self.args
        labels = dataset.features if variable == "X" else dataset.targets
        sources = dataset.categories if variable == "X" else None
        if any(isinstance(j, str) or j >= len(labels) for j in counts):
            return self
        others, given = len(dataset.blocks) - 1, variable == "Y" and dataset.has_given_targets
        if given:
            remedy = "Give a number for each row, or ingest only the rows that have one."
        if given or dataset.in_memory or (dataset.store is not None and dataset.nbytes <= COUNTED_BYTES):
            counts, lines = _count_wrong(_parts(dataset, variable), _WRONG[kind])
        elif others:
            more = f" {counted(others, 'other block')} of rows {noun(others, 'was', 'were')} not counted."
            had = dataset.missing_when_written()
            if variable == "Y":
                of_targets = dataset.recorded(ATTR_MISSING_TARGETS)
                had = counted(of_targets, "missing value") if of_targets else ""
            if kind == "NaN" and had:
                more = f" {variable} had {had} when it was written."
        lines = [line + dataset.first_row for line in lines]
        among = (among[0] + dataset.first_row, among[1] + dataset.first_row) if more and among else None
        columns = list(counts)
        known = by_source(counts.values(), labels[columns], None if sources is None else sources[columns])
        if not known.keys() <= set(labels):
            remedy += ' A category may also have a value of its own where it is missing, such as "unknown".'
        return NonFiniteError(place, kind, remedy, variable, known, lines, among, more)


def _parts(dataset: Dataset, variable: str) -> Iterator[tuple[int, Floats]]:
    """Yield the first row and the values of pieces of X or Y, read in this process."""
    for block in dataset.blocks:
        part = load_block(block.x) if variable == "X" else load_block(block.y, dataset.target_columns)
        for start, stop in row_pieces(*part.shape):
            yield block.start + start, dense_rows(part, start, stop)


def _count_wrong(
    parts: Iterable[tuple[int, Floats]], is_wrong: Callable[[Floats], NDArray[np.bool_]]
) -> tuple[dict[int, int], list[int]]:
    """Return how many wrong values each column has, by its number, and the rows that have some.

    parts: the first row and the values of consecutive rows.
    """
    counts: Counter[int] = Counter()
    lines: list[int] = []
    for first, z in parts:
        rows, columns = np.nonzero(is_wrong(z))
        counts.update(columns.tolist())
        lines += (np.unique(rows) + first).tolist()
    return dict(sorted(counts.items())), lines


@contextmanager
def naming_columns(dataset: Dataset) -> Iterator[None]:
    """Name columns by their labels in an error about values that are not finite."""
    try:
        yield
    except NonFiniteError as error:
        raise error.named(dataset) from error


def require_finite(
    z: Floats, where: str, variable: str, first_row: int, first_column: int = 0,
    parts: Callable[[], Iterable[tuple[int, Floats]]] | None = None,
) -> None:  # fmt: skip
    """Raise NonFiniteError for values that are not finite, with their rows and columns.

    parts: returns the first row and the values of all rows that the error counts; without it those of z.
    """
    if np.isfinite(z).all():
        return
    kind = "NaN" if np.isnan(z).any() else "infinite"
    name, _, place = where.rpartition(", rows ")
    in_memory = where.partition(",")[0] == "X"  # the name of the matrix in memory
    remedy = "Correct the data."
    if kind == "NaN":
        leave_out = (
            "dropna(subset=[...]) of a data frame" if in_memory else 'ingest with missing="rows" (--missing rows)'
        )
        remedy = {
            "X": 'Correct the data, or set missing to "mean" to replace NaN by the mean of each column.',
            "Y": f"Correct the data, or leave these rows out, as by {leave_out}.",
        }.get(variable, remedy)
    counts, lines = _count_wrong([(first_row, z)] if parts is None else parts(), _WRONG[kind])
    first, last = map(int, place.split(" to ")) if name else (0, 0)
    raise NonFiniteError(
        variable if in_memory else f"{variable} of {name or where}", kind, remedy, variable,
        {j + first_column: count for j, count in counts.items()}, lines, (first, last) if name else None,
    )  # fmt: skip

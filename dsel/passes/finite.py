"""Values that are not finite: the error that names them, first by the numbers of the columns, then by their labels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from dsel._lib.text import shorten
from dsel._lib.types import Floats
from dsel.data.dataset import Dataset
from dsel.errors import DataError

#: How many columns, and rows, an error names at most.
_NAMED = 5


class NonFiniteError(DataError):
    """The data have values that are NaN or infinite. A worker knows the numbers of the columns; `named` adds labels.

    Parameters
    ----------
    what, remedy : str
        As for `DataError`. `what` has the place of the columns as ``{columns}``.
    variable : str
        X or Y.
    columns : tuple of int
        The columns with such values, in ascending order.
    labels : tuple of str
        The labels of the first of these columns, where they are known.
    """

    def __init__(
        self, what: str, remedy: str, variable: str, columns: tuple[int, ...], labels: tuple[str, ...] = ()
    ) -> None:
        shown = [repr(label) for label in labels] or [str(j) for j in columns[:_NAMED]]
        more = f" and {len(columns) - len(shown)} more" if len(columns) > len(shown) else ""
        names = f"column{'s' if len(columns) > 1 else ''} {', '.join(shown)}{more}"
        super().__init__(what.replace("{columns}", names), remedy)
        self.args = (what, remedy, variable, columns, labels)

    def named(self, dataset: Dataset) -> NonFiniteError:
        """Return the error with the labels of the columns."""
        what, remedy, variable, columns, _ = self.args
        labels = dataset.features if variable == "X" else dataset.targets
        known = tuple(str(labels[j]) for j in columns[:_NAMED]) if columns[-1] < len(labels) else ()
        return NonFiniteError(what, remedy, variable, columns, known)


@contextmanager
def naming_columns(dataset: Dataset) -> Iterator[None]:
    """Name columns by their labels in an error about values that are not finite."""
    try:
        yield
    except NonFiniteError as error:
        raise error.named(dataset) from error


def require_finite(z: Floats, where: str, variable: str, first_row: int, first_column: int = 0) -> None:
    """Raise NonFiniteError for values that are not finite, with their rows and columns."""
    bad = ~np.isfinite(z)
    if not bad.any():
        return
    rows, columns = np.nonzero(bad)
    kind = "NaN" if np.isnan(z[rows[0], columns[0]]) else "infinite"
    lines = np.unique(rows) + first_row
    shown = f"row{'s' if lines.size > 1 else ''} {shorten(map(str, lines), _NAMED)}"
    remedy = "Correct the data."
    if variable == "X" and kind == "NaN":
        remedy = "Correct the data, or set missing: mean to replace NaN by the mean of each column."
    raise NonFiniteError(
        f"{variable} of {where.replace('{', '(').replace('}', ')')} has {kind} values: {int(bad.sum())} in these rows, "
        f"in {{columns}}, {shown}.",
        remedy, variable, tuple(int(j) + first_column for j in np.unique(columns)),
    )  # fmt: skip

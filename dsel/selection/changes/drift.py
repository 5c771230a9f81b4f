"""Drift: how far means and scales of the new rows are from those of the previous run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dsel._lib.types import Floats
from dsel.selection.changes.previous import ColumnSummary

#: The number of columns with the largest drift that are listed, besides the chosen ones.
_LISTED = 5


def new_rows(before: ColumnSummary, now: ColumnSummary) -> tuple[float, Floats, Floats] | None:
    """Return the weight, the means and the variances of X in the rows that came after `before`; None without any.

    Sums of squares about means merge as in Chan, Golub and LeVeque (1979). This takes a part out again. O(n).
    """
    weight = now.weight - before.weight
    if not weight > 0.0 or before.mean_x.size != now.mean_x.size:
        return None
    mean = (now.weight * now.mean_x - before.weight * before.mean_x) / weight
    squares = now.squares_x - before.squares_x - before.weight * weight / now.weight * (mean - before.mean_x) ** 2
    return weight, mean, np.maximum(squares, 0.0) / weight


def drift(
    before: ColumnSummary, now: ColumnSummary, labels: Sequence[Any], chosen: Sequence[int], appended: bool
) -> dict[str, Any]:
    """Return the drift of the chosen columns and of those with the largest one.

    Parameters
    ----------
    before, now : ColumnSummary
        Means and scales of the previous run and of this one.
    labels : sequence
        The labels of the columns.
    chosen : sequence of int
        The chosen columns.
    appended : bool
        Whether the rows of this run are those of the previous one and new ones. Then the new rows are compared with the
        old ones, else all rows with all rows.

    Returns
    -------
    dict
        rows: what is compared, "new" or "all". columns: for each listed column its label, the shift of its mean in
        standard deviations, and the ratio of its standard deviations. largest_shift: over all columns.
    """
    parts = new_rows(before, now) if appended else None
    mean, variance = (now.mean_x, now.squares_x / now.weight) if parts is None else parts[1:]
    old = np.sqrt(before.squares_x / before.weight)
    varies = old > 0.0
    scale = np.where(varies, old, 1.0)
    shift = np.where(varies, (mean - before.mean_x) / scale, 0.0)
    ratio = np.where(varies, np.sqrt(variance) / scale, 1.0)
    largest = np.argsort(-np.abs(shift), kind="stable")[:_LISTED]
    listed = list(dict.fromkeys([*(int(j) for j in chosen), *(int(j) for j in largest)]))
    return {
        "rows": "all" if parts is None else "new",
        "columns": [
            {"label": str(labels[j]), "shift": float(shift[j]), "scale_ratio": float(ratio[j]), "chosen": j in chosen}
            for j in listed
        ],
        "largest_shift": float(np.abs(shift).max(initial=0.0)),
    }

"""How far columns are from being multiples of others, from one read of these columns in extended precision.

A correlation cannot tell this: 1 - correlation is half the square of the distance, and rounds to 1e-15, which is a
distance of 5e-8. Subsets with such a column can differ by that share of ||Y||^2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel._lib.types import Floats, Ints
from dsel.data.blocks import Block, dense_rows, fill_missing
from dsel.data.dataset import Dataset
from dsel.engine.engine_protocol import Engine
from dsel.passes.reduce_blocks import RowPass

#: The name of the read.
COPIES = "copies"
#: Values of a piece of rows in extended precision.
_PIECE = 1 << 20
#: Squares below this share of those from which they were subtracted may be rounding, and count as this share.
_LEAST = 1e-15


def distances_to_multiples(
    dataset: Dataset, pairs: Sequence[tuple[int, int]], squares: Any, centers: Any, fill: Any, engine: Engine
) -> Floats:
    """Return how far columns are from the nearest multiples of others, as shares of their norms.

    Parameters
    ----------
    dataset : Dataset
        The data.
    pairs : sequence of p pairs of int
        A column and one that is nearly a multiple of it.
    squares : (n,) array
        Squared norms of the columns, about their means where they are centered.
    centers : (n,) array or None
        Means up to rounding; None if columns are not centered.
    fill : (n,) array or None
        Values that replace NaN.
    engine : Engine
        Where the read runs.

    Returns
    -------
    (p,) array
        The norm of x_j - c x_i as a share of that of x_j, for the best c, never below it but for rounding in extended
        precision. Infinity if the data have no rows that can be read.
    """
    if not pairs or not dataset.blocks:
        return np.full(len(pairs), np.inf)
    columns, places = np.unique(np.asarray(pairs, np.int64), return_inverse=True)
    places = places.reshape(-1, 2).T
    norms = np.sqrt(np.asarray(squares, np.longdouble)[columns])
    ratios = norms[places[1]] / norms[places[0]]
    read = RowPass(
        COPIES, dataset, _block_sums, np.add, 16 * 9 * len(pairs), 8 * len(pairs), columns, share=True, whole=False
    )
    of_columns = (None if values is None else values[columns] for values in (centers, fill))
    center, filled = of_columns
    sums = read.run(engine, places=places, ratios=ratios, center=center, fill=filled)
    weight, x, xx = sums[0]
    e, ee, xe = np.where(sums[1, 1] <= sums[2, 1], sums[1], sums[2])
    least = _LEAST * ee
    if centers is not None:
        xx, xe, ee = xx - x * x / weight, xe - x * e / weight, ee - e * e / weight
    with np.errstate(invalid="ignore", divide="ignore"):
        left = np.maximum(ee - xe * xe / xx, least)
        found = np.sqrt(left) / norms[places[1]]
    return np.where(np.isnan(found), np.inf, found).astype(np.float64)


def _block_sums(
    x: Any, y: Any, block: Block, places: Ints, ratios: Any, center: Any, fill: Any
) -> NDArray[np.longdouble]:
    """Return sums over rows: of 1, x_i and x_i^2; and of e, e^2 and x_i e for e = x_j - r x_i and e = x_j + r x_i."""
    sums = np.zeros((3, 3, ratios.size), np.longdouble)
    step = max(16, _PIECE // max(x.shape[1], ratios.size))
    for start in range(0, x.shape[0], step):
        z = np.array(dense_rows(x, start, start + step), np.longdouble)
        fill_missing(z, fill)
        z -= 0.0 if center is None else center
        w = np.ones(len(z), np.longdouble) if block.w is None else block.w[start : start + step].astype(np.longdouble)
        first, copy = z[:, places[0]], z[:, places[1]]
        sums[0] += np.stack([np.full(ratios.size, w.sum()), w @ first, w @ (first * first)])
        for sign, part in ((1, sums[1]), (-1, sums[2])):
            e = copy - sign * ratios * first
            part += np.stack([w @ e, w @ (e * e), w @ (first * e)])
    return sums

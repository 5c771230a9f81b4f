"""Compare two subsets on resampled parts of the rows, and a fit of the previous run on the new rows alone.

One pass sums Z'Z of Z = [1, X_U, Y] over parts of consecutive rows, where U holds the columns of both subsets. Each
error is then a small least-squares problem on a weighted sum of these matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel._lib.types import Floats, Ints
from dsel.data.blocks import Block, dense_rows
from dsel.data.dataset import Dataset
from dsel.engine.base import Engine
from dsel.passes.reduce_blocks import RowPass
from dsel.passes.statistics import Scaling

#: The number of parts of the rows, which are drawn with replacement, and the number of draws.
PARTS, DRAWS = 32, 400
#: With more columns and targets than this, the sums would take too much memory.
MOST_COLUMNS = 300
_PIECE_ROWS = 1 << 14


@dataclass(frozen=True)
class PartSums:
    """Sums of Z'Z over parts of the rows, Z = [1, X_U, Y] preprocessed.

    Parameters
    ----------
    columns : ndarray of int, shape (u,)
        The columns U, ascending.
    parts : ndarray, shape (PARTS, 1 + u + N, 1 + u + N)
        The sums of each part.
    new : ndarray, shape (1 + u + N, 1 + u + N)
        The sum over the new rows.
    centered : bool
        Whether columns are centered, so that a fit has an intercept.
    lam : float
        The ridge penalty.
    """

    columns: Ints
    parts: Floats
    new: Floats
    centered: bool
    lam: float

    def error(self, S: Sequence[int], sums: Floats) -> float:
        """Return min ||Y - X_S A||^2 + lam ||A||^2 over the rows of these sums."""
        u = self.columns.size
        members = 1 + np.searchsorted(self.columns, np.asarray(S, np.int64))
        chosen = np.concatenate([np.zeros(int(self.centered), np.int64), members])
        targets = np.arange(1 + u, sums.shape[0])
        total = float(np.trace(sums[np.ix_(targets, targets)]))
        if not chosen.size:
            return total
        penalty = np.full(chosen.size, self.lam)
        penalty[: int(self.centered)] = 0.0
        K = sums[np.ix_(chosen, chosen)] + np.diag(penalty)
        B = sums[np.ix_(chosen, targets)]
        return total - float(np.vdot(B, np.linalg.lstsq(K, B, rcond=None)[0]))

    def predicted(self, S: Sequence[int], coefficients: Floats, intercept: Floats, scaling: Scaling) -> dict[str, Any]:
        """Return the error and R2 on the new rows of a fit in units of the data. Targets are in preprocessed units."""
        u, N = self.columns.size, self.new.shape[0] - 1 - self.columns.size
        chosen = np.asarray(S, np.int64)
        weights = np.zeros((self.new.shape[0], N))
        weights[0] = (intercept + scaling.center_x[chosen] @ coefficients - scaling.center_y) / scaling.scale_y
        scale = scaling.scale_x[chosen][:, None] / scaling.scale_y
        weights[1 + np.searchsorted(self.columns, chosen)] = coefficients * scale
        weights[1 + u :] = -np.eye(N)
        error = float(np.vdot(weights, self.new @ weights))
        count, sums = self.new[0, 0], self.new[0, 1 + u :]
        total = float(np.trace(self.new[1 + u :, 1 + u :])) - (float(sums @ sums) / count if self.centered else 0.0)
        return {"error": max(error, 0.0), "r2": 1.0 - error / total if total > 0.0 else None}

    def compare(self, before: Sequence[int], now: Sequence[int], seed: int) -> dict[str, Any]:
        """Return how much less the error of `now` is than that of `before`, as a share of ||Y||^2, with its interval.

        The parts are drawn with replacement. Both subsets are fitted to each draw, so the comparison is paired.
        """
        rng = np.random.default_rng((seed, PARTS, DRAWS))
        counts = rng.multinomial(PARTS, np.full(PARTS, 1.0 / PARTS), size=DRAWS)
        gains = []
        for draw in counts:
            sums = np.tensordot(draw.astype(np.float64), self.parts, axes=1)
            total = self.error((), sums)
            gains.append((self.error(before, sums) - self.error(now, sums)) / total if total > 0.0 else 0.0)
        low, high = (float(value) for value in np.quantile(gains, [0.025, 0.975]))
        whole = self.parts.sum(axis=0)
        gain = (self.error(before, whole) - self.error(now, whole)) / self.error((), whole)
        return {
            "gain": gain, "low": low, "high": high, "parts": PARTS, "draws": DRAWS, "beyond_splitting": bool(low > 0.0),
        }  # fmt: skip


def part_sums(
    dataset: Dataset, columns: Ints, scaling: Scaling, *, first_new: int, only_new: bool, centered: bool, lam: float,
    fill: Floats | None, engine: Engine,
) -> PartSums:  # fmt: skip
    """Return the sums of the parts in one pass over the columns.

    Parameters
    ----------
    dataset : Dataset
        The data, with targets.
    columns : ndarray of int
        U, ascending.
    scaling : Scaling
        Centers and scales of all columns.
    first_new : int
        The first new row.
    only_new : bool
        Read the new rows only.
    centered, lam
        As in `PartSums`.
    fill : ndarray of shape (n,), optional
        Values that replace NaN.
    engine : Engine
        Where the pass runs.
    """
    size = 1 + columns.size + dataset.n_targets
    scaled = Scaling(scaling.center_x[columns], scaling.scale_x[columns], scaling.center_y, scaling.scale_y)
    row_pass = RowPass(
        "comparison", dataset, _sums_of_block, np.add, 8 * (PARTS + 1) * size**2, 2 * dataset.m * size**2, columns,
        whole=False, ranges=((first_new, dataset.m),) if only_new else None,
    )  # fmt: skip
    found = row_pass.run(
        engine, scaling=scaled, fill=None if fill is None else fill[columns], m=dataset.m, first_new=first_new
    )  # fmt: skip
    return PartSums(columns, found[:PARTS], found[PARTS], centered, lam)


def _sums_of_block(
    x: Any, y: Any, block: Block, scaling: Scaling, fill: Floats | None, m: int, first_new: int
) -> NDArray[np.float64]:
    """Return Z'Z of the rows of a block by part, and last that of its new rows."""
    size = 1 + x.shape[1] + y.shape[1]
    sums = np.zeros((PARTS + 1, size, size))
    for start in range(0, x.shape[0], _PIECE_ROWS):
        rows = dense_rows(x, start, start + _PIECE_ROWS)
        if fill is not None:
            where, which = np.nonzero(np.isnan(rows))
            rows[where, which] = fill[which]
        Z = np.empty((len(rows), size))
        Z[:, 0] = 1.0
        Z[:, 1 : 1 + x.shape[1]] = (rows - scaling.center_x) / scaling.scale_x
        targets = dense_rows(y, start, start + _PIECE_ROWS)
        Z[:, 1 + x.shape[1] :] = (targets - scaling.center_y) / scaling.scale_y
        if block.w is not None:
            Z *= np.sqrt(block.w[start : start + len(rows), None])
        numbers = block.start + start + np.arange(len(rows))
        for part in np.unique(numbers * PARTS // m):
            some = Z[numbers * PARTS // m == part]
            sums[part] += some.T @ some
        some = Z[numbers >= first_new]
        sums[PARTS] += some.T @ some
    return sums

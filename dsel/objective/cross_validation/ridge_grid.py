"""Choose the ridge penalty by leave-one-out with all columns, as in section 4.2 of the greedy RLS paper.

It takes one eigendecomposition of K, and one pass over the rows for a whole grid of penalties.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from dsel._lib.types import Floats, Ints
from dsel.objective.cross_validation.leave_one_out import LooProblem, member_cross, member_gram
from dsel.objective.cross_validation.losses import (
    PIECE_BYTES,
    RowTransform,
    RowWeights,
    drop_zero_weights,
    member_rows,
    rows_of,
    subset_errors,
)


@dataclass(frozen=True, eq=False)
class RidgeSpectrum:
    """K = V diag(values) V' of the columns (with a column of ones first if `constant`), and V' B, for a grid of lam."""

    members: Ints
    constant: bool
    V: Floats
    shrink: Floats  # (n, lams) 1 / (value + lam)
    VB: Floats
    base_leverage: float


def ridge_spectrum(problem: LooProblem, members: Ints, lams: Floats) -> RidgeSpectrum:
    """Compute what a block needs to score every lam > 0 with the columns `members`. O(n^3)."""
    whole = member_gram(problem, members)
    values, V = scipy.linalg.eigh(whole)
    shrink = 1.0 / (np.maximum(values, 0.0)[:, None] + lams)
    return RidgeSpectrum(
        np.asarray(members, np.int64),
        problem.constant,
        V,
        shrink,
        V.T @ member_cross(problem, members),
        problem.base_leverage,
    )


def block_ridge_errors(
    x: Any, y: Any, spectrum: RidgeSpectrum, transform: RowTransform, where: str = "Y", w: Floats | None = None
) -> Floats:
    """Return (lams,) the errors with all columns over one block, for every lam of the grid.

    2 r n^2 multiplications.
    """
    lams = spectrum.shrink.shape[1]
    errors = np.zeros(lams)
    x, y, w = drop_zero_weights(x, y, w)
    targets, labels = transform.targets(y, where)
    weights = RowWeights.of(w, x.shape[0], spectrum.base_leverage)
    step = max(16, PIECE_BYTES // (8 * spectrum.V.shape[0]))
    for start in range(0, x.shape[0], step):
        rows = rows_of(x[start : start + step], transform)
        z, t = member_rows(rows, spectrum.members, spectrum.constant, transform), targets[start : start + step]
        part = weights.rows(start, start + step)
        if w is not None:
            z, t = z * part.root[:, None], t * part.root[:, None]
        z = z @ spectrum.V
        g = part.g0[:, None] - np.square(z) @ spectrum.shrink
        flip = part.flip(labels[start : start + step], transform)
        for l in range(lams):
            e = t - z @ (spectrum.VB * spectrum.shrink[:, l, None])
            errors[l] += subset_errors(e, g[:, l], flip, part.w)
    return errors

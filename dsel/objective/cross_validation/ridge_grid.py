"""The ridge penalty by leave-one-out with all columns, as in section 4.2 of the greedy RLS paper.

One eigendecomposition of K, and one pass over the rows for a whole grid of penalties.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from dsel._lib.types import Floats, Ints
from dsel.objective.cross_validation.leave_one_out import LooProblem, prepare_gram
from dsel.objective.cross_validation.losses import (
    PIECE_BYTES,
    RowView,
    Weighing,
    member_rows,
    plain_errors,
    rows_of,
    with_weight,
)


@dataclass(frozen=True, eq=False)
class LamSpectrum:
    """K = V diag(values) V' of the columns (data columns, ones first if `constant`), and V' B; for a grid of lam."""

    members: Ints
    constant: bool
    V: Floats
    shrink: Floats  # (n, lams) 1 / (value + lam)
    VB: Floats
    share: float


def lam_spectrum(problem: LooProblem, members: Ints, lams: Floats) -> LamSpectrum:
    """Compute what a block needs to score every lam > 0 with the columns `members`. O(n^3)."""
    whole = prepare_gram(problem, members)
    values, V = scipy.linalg.eigh(whole)
    B = problem.B[members]
    if problem.constant:
        B = np.vstack([problem.sum_y, B])
    shrink = 1.0 / (np.maximum(values, 0.0)[:, None] + lams)
    return LamSpectrum(np.asarray(members, np.int64), problem.constant, V, shrink, V.T @ B, problem.share)


def block_lam_errors(
    x: Any, y: Any, spectrum: LamSpectrum, view: RowView, where: str = "Y", w: Floats | None = None
) -> Floats:
    """(lams,) errors with all columns over one block, for every lam of the grid. 2 r n^2 multiplications."""
    lams = spectrum.shrink.shape[1]
    errors = np.zeros(lams)
    x, y, w = with_weight(x, y, w)
    targets, labels = view.targets(y, where)
    weighing = Weighing.of(w, x.shape[0], spectrum.share)
    step = max(16, PIECE_BYTES // (8 * spectrum.V.shape[0]))
    for start in range(0, x.shape[0], step):
        rows = rows_of(x[start : start + step], view)
        z, t = member_rows(rows, spectrum.members, spectrum.constant, view), targets[start : start + step]
        part = weighing.rows(start, start + step)
        if w is not None:
            z, t = z * part.root[:, None], t * part.root[:, None]
        z = z @ spectrum.V
        g = part.g0[:, None] - np.square(z) @ spectrum.shrink
        flip = part.flip(labels[start : start + step], view)
        for l in range(lams):
            e = t - z @ (spectrum.VB * spectrum.shrink[:, l, None])
            errors[l] += plain_errors(e, g[:, l], flip, part.w)
    return errors

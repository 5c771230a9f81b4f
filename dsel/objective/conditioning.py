"""Columns that are neither clearly independent of each other nor clearly dependent."""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dpstrf

from dsel._lib.types import Floats
from dsel.objective.base import DEPENDENCE_TOLERANCE
from dsel.objective.kernels.elimination import NOISE_RATIO

#: If pivots in the order of the largest first leave more than this share of each column's square, no other order comes
#: near the tolerance of dependence.
_WELL_CONDITIONED = 1e-4
#: Bounds add this share of each column's square to its pivots.
_RIDGE = DEPENDENCE_TOLERANCE * NOISE_RATIO
#: Pivots at or below this, times the number of columns, are rounding errors.
_ROUNDING = 8 * np.finfo(float).eps


def smallest_pivot_share(K: Floats, lam: float = 0.0) -> float | None:
    """Return the smallest pivot of a pivoted Cholesky factor of K, as a share of its column's square with the penalty.

    None where the columns are well conditioned, or the small pivots are rounding errors only. O(n^3 / 3).
    """
    d = np.diag(K) + lam
    kept = d > 0.0
    root = np.sqrt(d[kept])
    C = K[np.ix_(kept, kept)] / np.outer(root, root)
    np.fill_diagonal(C, 1.0)
    factor, _, rank, _ = dpstrf(C, tol=_ROUNDING * root.size)
    pivots = np.square(np.diag(factor)[:rank])
    small = pivots[pivots < _WELL_CONDITIONED]
    return float(small.min()) if small.size else None


def bound_error(share: float, k: int) -> float:
    """Return the share of ||Y||^2 by which bounds may understate what k columns explain, given the smallest pivot.

    Bounds add a ridge r D to K, D its diagonal (NOISE_RATIO in dsel.objective.kernels.elimination). That removes at
    most r b'Db from what columns with coefficients b explain. b'Db is at most ||Y||^2 divided by the smallest
    eigenvalue of their correlation matrix, which share / k estimates.
    """
    return min(_RIDGE * k / share, 1.0)

"""Columns that are neither clearly independent of each other nor clearly dependent."""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dpstrf

from dsel._lib.types import Floats
from dsel.objective.dense import DEPENDENCE_TOLERANCE
from dsel.objective.kernels.elimination import NOISE_RATIO

#: Where more than this share of each column's square is left beside the others, no order of the columns brings one near
#: the tolerance of dependence.
_CLEAR = 1e-4
#: So much of a column's square bounds add to its pivots.
_RIDGE = DEPENDENCE_TOLERANCE * NOISE_RATIO
#: What is left by rounding, times the number of columns.
_ROUNDING = 8 * np.finfo(float).eps


def near_dependence(K: Floats, lam: float = 0.0) -> float | None:
    """The least share of a column's square (with the penalty) that is left of it beside columns chosen one after the
    other, each the one of which most is left; None where that is no trifle or nothing but rounding.

    O(n^3 / 3).
    """
    d = np.diag(K) + lam
    kept = d > 0.0
    root = np.sqrt(d[kept])
    C = K[np.ix_(kept, kept)] / np.outer(root, root)
    np.fill_diagonal(C, 1.0)
    factor, _, rank, _ = dpstrf(C, tol=_ROUNDING * root.size)
    pivots = np.square(np.diag(factor)[:rank])
    trifles = pivots[pivots < _CLEAR]
    return float(trifles.min()) if trifles.size else None


def missed(share: float, k: int) -> float:
    """The share of ||Y||^2 by which bounds may fall short of what k columns explain, that share being left of one.

    Bounds add a ridge r D to K, D its diagonal (NOISE_RATIO in dsel.objective.kernels.elimination). That takes at
    most r b'Db of
    what columns with coefficients b explain, and b'Db is at most ||Y||^2 divided by the least eigenvalue of their
    correlation matrix, for which share / k stands.
    """
    return min(_RIDGE * k / share, 1.0)

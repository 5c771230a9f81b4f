"""Columns that are neither clearly independent of each other nor clearly dependent."""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dpstrf

from dsel.objective.memory import Floats

#: Where more than this share of each column's square is left beside the others, no order of the columns brings one near
#: the tolerance of dependence.
_CLEAR = 1e-4
#: What is left by rounding, times the number of columns.
_ROUNDING = 8 * np.finfo(float).eps


def near_dependence(K: Floats, lam: float = 0.0) -> float | None:
    """The least share of a column's square (with the penalty) that is left of it beside columns chosen one after the
    other, each the one of which most is left; None where that is no trifle or nothing but rounding.

    Whether a subset is dependent is judged column by column, in the order of the indices. Where shares multiply to
    trifles, another order may come to another judgement, and bounds, which judge in orders of their own, may leave out
    what such a subset could explain. O(n^3 / 3).
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

"""Solve systems with a positive definite matrix whose columns may have any scale.

The matrix is scaled to a diagonal near 1 first, by powers of two. So pivoting does not depend on units, no product
leaves float64's range, and where all columns have one norm, the bits are those without scaling.
"""

from __future__ import annotations

import numpy as np

from dsel._lib.types import Floats


def near_norms(squares: Floats) -> Floats:
    """Return a power of two near the square root of each number, and 1 for those that are not positive."""
    _, exponent = np.frexp(np.where(squares > 0.0, squares, 1.0))
    return np.asarray(np.ldexp(1.0, exponent // 2), np.float64)


def solve(K: Floats, B: Floats) -> Floats:
    """Return K^-1 B, for K (s, s) and B (s, N)."""
    scale = near_norms(np.diag(K))[:, None]
    return np.asarray(np.linalg.solve(K / scale / scale.T, B / scale) / scale)


def inverse(K: Floats) -> Floats:
    """Return K^-1, for K (s, s)."""
    scale = near_norms(np.diag(K))[:, None]
    return np.asarray(np.linalg.inv(K / scale / scale.T) / scale / scale.T)

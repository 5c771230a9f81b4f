"""The diagonal D that the perspective relaxation takes out of K."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from dsel._lib.types import Floats

#: Share of D that is used, so that K - D is positive semidefinite in spite of rounding.
_INSIDE, _INSIDE_RIDGE = 0.999, 1.0 - 1e-6
#: Elements of D below this would make rounding count: the relaxation is useless then.
_SMALLEST, _SMALLEST_RIDGE = 1e-7, 1e-6
#: More columns than this have no D beyond the ridge penalty: its eigenvalues would take too long.
_MOST = 5000


def diagonals(K: Floats, ridge: Floats) -> list[Floats]:
    """Return the diagonals D (n,) that keep K - D positive semidefinite; none if the columns are nearly dependent.

    K (n, n) has a diagonal of 1, `ridge` (n,) of it from the penalty. One D is this ridge. Another one is in proportion
    to each column's part outside the others, which is more where there are more rows than columns. O(n^3).
    """
    found = []
    if float(ridge.min()) >= _SMALLEST_RIDGE:
        found.append(_INSIDE_RIDGE * ridge)
    if K.shape[0] <= _MOST:
        outside = _outside(K)
        if outside is not None and float(outside.min()) >= _SMALLEST:
            found.append(outside)
    return found


def _outside(K: Floats) -> Floats | None:
    """Return D (n,) in proportion to 1 / diag(K^-1), or None if K is nearly singular."""
    try:
        factor = scipy.linalg.cho_factor(K, lower=True, check_finite=False)
    except np.linalg.LinAlgError:
        return None
    inverse = scipy.linalg.cho_solve(factor, np.eye(K.shape[0]), check_finite=False)
    alone = 1.0 / np.diag(inverse)
    if not (np.isfinite(alone).all() and alone.min() > 0.0):
        return None
    root = np.sqrt(alone)
    share = scipy.linalg.eigh(
        K / np.outer(root, root), eigvals_only=True, subset_by_index=[0, 0], check_finite=False
    )[0]  # fmt: skip
    return np.asarray(_INSIDE * max(float(share), 0.0) * alone)

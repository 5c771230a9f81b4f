"""Columns of norm 1 with their penalty, and the diagonals D for which K - D stays positive semidefinite.

The first diagonal is that of the ridge penalty. The second is in proportion to each column's part outside the others,
which takes O(n^3).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import scipy.linalg

from dsel._lib.tolerances import ridge
from dsel._lib.types import Floats
from dsel.objective.few_targets import column_norms, few_targets
from dsel.objective.objective_interface import Objective
from dsel.search.exact.bounds import penalized
from dsel.search.exact.perspective.relaxation import SMALLEST, Box

#: Share of D that is used, so that K - D is positive semidefinite in spite of rounding.
_INSIDE, _INSIDE_RIDGE = 0.999, 1.0 - 1e-6
#: A penalty is a diagonal if its elements are at least this.
_SMALLEST_RIDGE = 1e-6
#: More columns than this have no D beyond the ridge penalty: its eigenvalues would take too long.
MOST_OUTSIDE = 5000
#: With this number of columns, some of them show whether all are independent, in less time.
_MANY = 1000
#: Seconds of `diagonal_outside`, about, over n^3.
_OUTSIDE_SECONDS = 6e-10


def scaled_columns(objective: Objective) -> tuple[Floats, Floats, Floats]:
    """Return K + lam I, the products c with few targets, and each column's share of the penalty, for columns of norm 1.

    c has the shape (n,) for one target, else (n, N). Errors: ValueError if the relaxation is useless.
    """
    if not objective.has_gram:
        raise ValueError("the perspective relaxation needs the whole Gram matrix")
    diagonal = np.diag(objective.K) + objective.lam
    if (diagonal <= objective.floor).any():
        raise ValueError("columns are nearly dependent, so that the perspective relaxation is useless")
    norms = column_norms(diagonal)
    c = few_targets(objective) / norms[:, None]
    return scaled_gram(objective), c[:, 0] if c.shape[1] == 1 else c, objective.lam / norms**2


def scaled_gram(objective: Objective) -> Floats:
    """Return K + lam I (n, n) for columns of norm 1."""
    K = penalized(objective)
    norms = column_norms(np.diag(K))
    K = K / norms
    K /= norms[:, None]
    return K


def largest_coefficient(objective: Objective, S: Iterable[int]) -> float:
    """Return the largest coefficient of a subset for columns of norm 1, with one target and K in memory."""
    members = np.asarray(sorted(S), np.int64)
    assert objective.cross is not None
    K = objective.K[np.ix_(members, members)] + objective.lam * np.eye(members.size)
    b = np.linalg.lstsq(K, objective.cross[members, 0], rcond=None)[0]
    return float(np.abs(b * _norms(objective)[members]).max(initial=0.0))


def _norms(objective: Objective) -> Floats:
    """Return the norms (n,) of the columns, before included ones were removed."""
    return np.sqrt(np.maximum(objective.scale - objective.lam, 0.0))


def box_of(objective: Objective, k: int, largest: float) -> Box:
    """Return the box of subsets of k columns whose coefficients, for columns of norm 1, are at most `largest`.

    The columns of the relaxation have norm 1 together with their penalty.
    """
    norms, own = column_norms(np.diag(objective.K) + objective.lam), _norms(objective)
    limit = np.divide(largest * norms, own, out=np.full(objective.n, np.inf), where=own > 0.0)
    return Box(limit, float(np.sort(limit[own > 0.0])[-k:].sum()), ridge(objective.n))


def diagonals(K: Floats, ridge: Floats) -> list[Floats]:
    """Return the diagonals D (n,) that keep K - D positive semidefinite; none if the columns are nearly dependent.

    K (n, n) has a diagonal of 1, `ridge` (n,) of it from the penalty. O(n^3).
    """
    outside = diagonal_outside(K) if K.shape[0] <= MOST_OUTSIDE else None
    return [d for d in (ridge_diagonal(ridge), outside) if d is not None]


def ridge_diagonal(ridge: Floats) -> Floats | None:
    """Return D (n,) from the ridge penalty, or None if that is too small."""
    return _INSIDE_RIDGE * ridge if float(ridge.min()) >= _SMALLEST_RIDGE else None


def diagonal_outside(K: Floats) -> Floats | None:
    """Return D (n,) in proportion to each column's part outside the others, or None if they are nearly dependent.

    It is more where there are more rows than columns. O(n^3).
    """
    n = K.shape[0]
    try:
        for part in (n // 4, n // 2) if n >= _MANY else ():  # more columns than rows are seen sooner
            scipy.linalg.cholesky(K[:part, :part], lower=True, check_finite=False)
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
    outside = np.asarray(_INSIDE * max(float(share), 0.0) * alone)
    return outside if float(outside.min()) >= SMALLEST else None


def seconds_outside(n: int) -> float:
    """Return about how long `diagonal_outside` takes, which does not depend on the machine."""
    return _OUTSIDE_SECONDS * n**3

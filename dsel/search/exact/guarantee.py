"""What a proof in float64 guarantees: how far rounding may hide a subset, and what the dependence tolerance excludes.

Bounds are those of a matrix that differs from K by a ridge and by rounding, together at most r D, with D the diagonal
of K (`dsel._lib.tolerances.perturbation`). For coefficients b of a subset T, the ridge changes f(T) by at most r b'Db.
The other columns of T leave the share 1 / v_j of the square of column j, so that

    r b'Db <= r ||Y||^2 sum over T of v_j,

with v_j <= 1e7 for independent subsets, and v_j at most the variance inflation factor of column j on all others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from scipy.linalg.lapack import dpstrf, dtrtri

from dsel._lib.tolerances import MARGIN, perturbation, ridge
from dsel._lib.types import Floats
from dsel.objective.base import Objective

#: With more columns, v_j counts as its limit: the decomposition would take minutes.
_MOST_COLUMNS = 10_000
#: An error of a proof below this share of ||Y||^2 needs no note.
_WORTH_A_NOTE = 1e-8


@dataclass(frozen=True)
class Guarantee:
    """The limits of a proof about subsets of at most k columns, as shares of ||Y||^2.

    error: no independent subset has an f below the bound by more than this. explained_by_all: what all columns explain,
    if some subsets are dependent by the tolerance but not to rounding, so that they are never chosen; 0 if none are.
    """

    error: float
    explained_by_all: float = 0.0

    def hidden(self, value: float, objective: Objective) -> float:
        """Return by how much of ||Y||^2 a dependent subset may be better than f = `value`; 0 if there are none."""
        if not self.explained_by_all:
            return 0.0
        least = max(objective.c - self.explained_by_all * objective.total, 0.0)
        share = (value - least) / objective.total
        return share if share > 2.0 * MARGIN else 0.0


def limit_notes(error: float, excluded: float, tolerance: float) -> Iterator[str]:
    """Yield notes for users on what a proof does not guarantee: see `Guarantee.error` and `Guarantee.hidden`."""
    if error > _WORTH_A_NOTE:
        yield (
            f"columns may be nearly dependent: rounding in the proof is worth up to {error:.0e} of ||Y||^2, for "
            "subsets with large coefficients of opposite signs"
        )
    if excluded:
        yield (
            f"subsets in which others leave at most {tolerance:.0e} of a column's square count as dependent: they are "
            f"never chosen, and the proof does not cover them; one may explain up to {excluded:.2g} of ||Y||^2 more"
        )


def guarantee_of(objective: Objective, k: int, steps: int | None = None) -> Guarantee:
    """Return the limits of proofs about an objective. O(n^3), or O(n^2 rank) if the columns are dependent.

    steps: how many columns the bounds eliminate; by default all.
    """
    n = objective.n
    most = 1.0 / objective.tolerance
    factors = np.full(n, most)
    near = False
    if objective.has_gram and n <= _MOST_COLUMNS:
        factors, near = _inflation(_correlations(objective), k, most)
    share = perturbation(n if steps is None else min(steps, n))
    error = share * float(np.sort(factors)[-k:].sum()) * objective.c / objective.total
    return Guarantee(min(error, 1.0), _explained_share(objective) if near else 0.0)


def _correlations(objective: Objective) -> Floats:
    """Return K + lam I of the columns that can be chosen, scaled to a diagonal of at most 1.

    The scale is that of the columns before the included ones were removed, by which dependence is judged.
    """
    kept = objective.diagonal + objective.lam > objective.floor
    root = np.sqrt(objective.scale[kept])
    C = objective.K[np.ix_(kept, kept)] / root
    C /= root[:, None]
    C[np.diag_indices_from(C)] += objective.lam / objective.scale[kept]
    return np.asarray(C)


def _inflation(C: Floats, k: int, most: float) -> tuple[Floats, bool]:
    """Return upper bounds on v_j in independent subsets of k columns, and whether some subsets are nearly dependent.

    C: the columns' correlations. Copies of a column do not count, because no independent subset has both. The columns
    are factored in the order of the largest pivot. If pivots are rounding, there are dependent columns. With three
    columns or more, v_j then has no other limit than `most`.
    """
    if C.shape[0] == 0:
        return np.zeros(0), False
    found, dependent = _variance_inflation(C)
    if dependent:
        diagonal = np.diag(C)
        copies = np.outer(diagonal, diagonal) - np.square(C) <= ridge(C.shape[0]) * np.outer(diagonal, diagonal)
        first = ~np.tril(copies, -1).any(axis=1)
        if not first.all():
            C = C[np.ix_(first, first)]
            found, dependent = _variance_inflation(C)
    near = bool(found.max(initial=0.0) >= most)
    if k <= 2:
        return _inflation_of_pairs(C, k, most), near
    return np.full(C.shape[0], most) if dependent else np.minimum(found, most), near


def _variance_inflation(C: Floats) -> tuple[Floats, bool]:
    """Return the variance inflation factors of a largest set of independent columns, and whether there are others."""
    L, _, rank, _ = dpstrf(C.T, tol=ridge(C.shape[0]), lower=1)
    inverse, _ = dtrtri(np.tril(L[:rank, :rank]), lower=1)
    return np.asarray(np.square(inverse).sum(axis=0)), bool(rank < C.shape[0])


def _inflation_of_pairs(C: Floats, k: int, most: float) -> Floats:
    """Return the largest v_j in independent subsets of one or two columns. O(n^2)."""
    diagonal = np.diag(C)
    if k == 1:
        return np.asarray(1.0 / diagonal)
    left = diagonal[:, None] - np.square(C) / diagonal  # of column i given column j
    np.fill_diagonal(left, diagonal)
    least = 1.0 / most
    pairs = np.where((left > least) & (least < left.T), left, np.inf)
    return np.asarray(1.0 / pairs.min(axis=1))


def _explained_share(objective: Objective) -> float:
    """Return an upper bound on the share of ||Y||^2 that all columns explain, pivots down to rounding included.

    Rounding in K counts as the ridge does: at most r times the sum of the v_j.
    """
    K = np.asarray(objective.K, np.float64)
    norms = np.sqrt(np.where(objective.diagonal > 0.0, objective.diagonal, 1.0))
    C = K / norms
    C /= norms[:, None]
    C[np.diag_indices_from(C)] += objective.lam / norms**2
    L, pivots, rank, _ = dpstrf(C.T, tol=ridge(objective.n), lower=1, overwrite_a=1)
    used = pivots[:rank] - 1
    if objective.moments is None:
        B = K if objective.cross is None else objective.cross
        Z = scipy.linalg.solve_triangular(L[:rank, :rank], (B / norms[:, None])[used], lower=True)
        explained = float(np.square(Z).sum())
    else:
        M = (objective.moments / np.outer(norms, norms))[np.ix_(used, used)]
        half = scipy.linalg.solve_triangular(L[:rank, :rank], M, lower=True)
        explained = float(np.trace(scipy.linalg.solve_triangular(L[:rank, :rank], half.T, lower=True)))
    inverse, _ = dtrtri(np.tril(L[:rank, :rank]), lower=1)
    rounding = perturbation(objective.n) * float(np.square(inverse).sum())
    return min(max(explained / objective.total + rounding, 0.0), 1.0)

"""The submodularity ratio of a selection's objective, with the guarantee 1 - e^-gamma of POSS and forward selection.

Write g(S) = f(empty set) - f(S) for what S explains. The ratio is

    gamma = min over L and S of sum_{x in S} (g(L + x) - g(L)) / (g(L + S) - g(L)),    |L| < k, |S| <= k, apart

(Das and Kempe, ICML 2011; Qian et al., NIPS 2015). It is at most 1, with equality where g is submodular. Forward
selection explains at least the share 1 - e^-gamma of what the best k columns explain. So does POSS after its 2 e k^2 n
iterations on average.

Let C be the matrix K + lam I with its rows and columns scaled to a diagonal of 1. A pair of L and S has at least the
least eigenvalue of C over L + S: the columns of S, as L leaves them, have a Schur complement of C, whose diagonal is at
most 1 and whose eigenvalues are at least that. The sum over several targets keeps the bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dsel._lib.blas import one_blas_thread
from dsel._lib.types import Floats, Ints
from dsel.objective.objective_interface import Objective

#: The eigenvalues of C take O(n^3) operations: about a second for this many columns.
MOST_EIGENVALUES = 2000
#: Prefixes of a chain that are compared, evenly spread.
_MOST_PREFIXES = 50
#: Rows of C that are sorted at once.
_ROWS = 256
#: A pair counts if its columns explain more than this share of ||Y||^2 together.
_LEAST_GAIN = 1e-9


@dataclass(frozen=True)
class Submodularity:
    """An estimate of the submodularity ratio gamma, and a bound that is proved.

    Parameters
    ----------
    estimate : float
        The least ratio along the chosen columns and along the path of forward selection, in order of gain, to the
        chosen columns and to those of the path. gamma is at most this.
    bound : float
        gamma is at least this. It is 0 where columns are nearly dependent.

    Examples
    --------
    >>> round(Submodularity(estimate=0.9, bound=0.5).guarantee, 4)
    0.3935
    """

    estimate: float
    bound: float

    @property
    def guarantee(self) -> float:
        """1 - e^-bound: at least this share of what the best k columns explain is explained by forward selection."""
        return -math.expm1(-self.bound)


def submodularity(objective: Objective, k: int, chains: Sequence[Sequence[int]]) -> Submodularity | None:
    """Return the estimate and the bound, or None if there is nothing to choose or no Gram matrix in memory.

    Parameters
    ----------
    objective : Objective
        Over the columns that may be chosen.
    k : int
        The number of columns to choose, without included ones.
    chains : sequence of sequence of int
        Local columns in the order in which they were chosen. Those that depend on others do not count.
    """
    k = min(k, objective.n)
    if k < 1 or not objective.has_gram:
        return None
    independent = [set(objective.without_dependent(chain)) for chain in chains]
    chains = [[j for j in chain if j in kept] for chain, kept in zip(chains, independent, strict=True)]
    with one_blas_thread():
        ratios = [ratio for L, S in _pairs(chains) if (ratio := _ratio(objective, L, S)) is not None]
        return Submodularity(min([1.0, *ratios]), ratio_bound(objective, k))


def _pairs(chains: Sequence[Sequence[int]]) -> Iterator[tuple[Sequence[int], list[int]]]:
    """Yield each compared prefix of a chain, with the columns that each chain has beyond it."""
    for chain in chains:
        lengths = np.unique(np.linspace(0, len(chain) - 1, min(len(chain), _MOST_PREFIXES)).astype(int))
        for L in (chain[:length] for length in lengths):
            for other in chains:
                if S := [j for j in other if j not in L]:
                    yield L, S


def _ratio(objective: Objective, L: Sequence[int], S: list[int]) -> float | None:
    """Return the single gains of S over its joint gain, given independent columns L; None if S explains nothing."""
    left = objective.restrict([*L, *S]).condition(range(len(L)))
    joint = left.c - left.value(range(left.n))
    if joint <= _LEAST_GAIN * objective.total:
        return None
    squares = left.diagonal + left.lam
    usable = squares > left.floor
    return float((left.moment_diagonal[usable] / squares[usable]).sum() / joint)


def ratio_bound(objective: Objective, k: int) -> float:
    """Return a lower bound of gamma for k columns: on the least eigenvalue of any 2k - 1 columns of C.

    It is the larger one of the least eigenvalue of all of C, and of Gershgorin's bound for 2k - 1 columns. Columns that
    the included ones explain do not count. The bound allows for rounding in K and in the eigenvalues.
    """
    squares = objective.diagonal + objective.lam
    usable = np.flatnonzero(squares > objective.floor)
    if not usable.size:
        return 1.0
    norms = np.sqrt(squares[usable])
    slack = 8.0 * usable.size * np.finfo(float).eps * float((objective.scale[usable] / squares[usable]).max())
    bounds = [1.0 - _largest_row_sum(objective.K, usable, norms, min(2 * k - 2, usable.size - 1))]
    if usable.size <= MOST_EIGENVALUES:
        C = objective.K[np.ix_(usable, usable)] / norms / norms[:, None]
        np.fill_diagonal(C, 1.0)
        values = np.linalg.eigvalsh(C)
        bounds.append(float(values[0]) - slack * float(values[-1]))
    return min(max(max(bounds) - slack, 0.0), 1.0)


def _largest_row_sum(K: Floats, usable: Ints, norms: Floats, others: int) -> float:
    """Return the largest sum of the `others` largest absolute values in a row of C, without its diagonal."""
    largest = 0.0
    for start in range(0, usable.size if others else 0, _ROWS):
        block = slice(start, start + _ROWS)
        C = np.abs(K[np.ix_(usable[block], usable)] / norms / norms[block, None])
        C[np.arange(C.shape[0]), np.arange(start, start + C.shape[0])] = 0.0
        sums = np.partition(C, usable.size - others, axis=1)[:, usable.size - others :].sum(axis=1)
        largest = max(largest, float(sums.max()))
    return largest

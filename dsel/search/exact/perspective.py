"""A lower bound from convex relaxation, which depends on the number of columns to choose even with a single target.

With K - D positive semidefinite for a diagonal D > 0, columns Q explain, for any A (n, N),

    max_C 2 <B, C> - <C, K C>  <=  <A, (K - D) A> + sum over Q of g_j,    g_j = |row j of B - (K - D) A|^2 / d_j

(C is zero outside Q, and <C, (K - D) C> lies above its tangent at A). So no k columns explain more than the right-hand
side with the k largest g. The least such bound over A is the perspective relaxation of Guenluek and Linderoth
("Perspective reformulations of mixed integer nonlinear programs", Math. Programming 2010), where a row of coefficients
is in or out as a whole. The least over D as well is a semidefinite relaxation (Dong, Chen, Linderoth, "Regularization
vs. relaxation", 2015). It is computed by an interior-point method (dsel.search.exact.perspective_tree.semidefinite).

The bound is strong if the columns are nearly independent, and useless if they are not: d_j is a share of the part of
column j that is orthogonal to the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsel.objective.few_targets import column_norms
from dsel.search.anytime import Deadline
from dsel.search.exact.bounds import BoundProblem
from dsel.search.exact.perspective_tree.semidefinite import seconds_of, solve

#: Most seconds of a relaxation, and of one that comes before a search.
_LONGEST, _QUICK = 10.0, 0.1
#: Least weight of a column.
_SMALLEST = 1e-9


def affordable(n: int, k: int) -> bool:
    """Return whether the relaxation is worth its time for k of n columns."""
    return k < n and seconds_of(n) <= _LONGEST


def quick(problem: BoundProblem) -> bool:
    """Return whether the relaxation takes so little time that it comes before a search."""
    return seconds_of(problem.n) <= _QUICK


@dataclass(frozen=True)
class Relaxation:
    """A bound of the relaxation, and what it follows from.

    bound: a lower bound on f, 0 if it is useless. d: the diagonal D, for columns of norm 1. z: the columns' weights, at
    which A = (K - D + D / z)^-1 B gives the bound.
    """

    bound: float
    d: tuple[float, ...] = ()
    z: tuple[float, ...] = ()


def perspective_bound(problem: BoundProblem, k: int, deadline: Deadline | None = None) -> float:
    """Return a lower bound on f of all subsets of at most k columns, or 0 if this bound is useless. O(steps n^3)."""
    return relaxation_of(problem, k, deadline).bound


def relaxation_of(problem: BoundProblem, k: int, deadline: Deadline | None = None) -> Relaxation:
    """Return the relaxation for subsets of at most k columns. O(steps n^3).

    Every step has a valid bound, so that it may end at a deadline. Rounding is worth as much as for other bounds
    (dsel.search.exact.guarantee): K - D stays positive definite by a margin, and g is a sum of squares.
    """
    n, useless = problem.n, Relaxation(0.0)
    if not affordable(n, k):
        return useless
    norms = column_norms(np.diag(problem.K))
    K, B = problem.K / np.outer(norms, norms), problem.B / norms[:, None]
    c = B[:, 0] if problem.N == 1 else B
    found = solve(K, c, np.zeros(n, np.bool_), k, problem.c, 0.0, deadline)
    if found is None or not found.bound < problem.c:
        return useless
    return Relaxation(
        problem.c - found.bound, tuple(found.d.tolist()), tuple(np.maximum(found.bound_z, _SMALLEST).tolist())
    )

"""Ridge regression on the subsets along a path of insertions and deletions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.linalg

from dsel._lib.types import Floats, Ints
from dsel.objective.cross_validation.leave_one_out import LooProblem, coefficients, member_gram
from dsel.search.outcome import PathPoint


def members_along(path: Sequence[PathPoint], start: Sequence[int]) -> list[list[int]]:
    """Return the subset after each step of a path that began with `start`."""
    members, along = list(start), []
    for point in path:
        if point.action == "insert":
            members.append(point.column)
        else:
            members.remove(point.column)
        along.append(list(members))
    return along


def subset_fit(problem: LooProblem, members: Sequence[int]) -> tuple[Ints, Floats, Floats]:
    """Return members, coefficients (s, N) and intercept (N,) of ridge regression, in preprocessed units."""
    S = np.asarray(members, np.int64)
    w = coefficients(problem, S)
    if problem.constant:
        return S, w[1:], w[0]
    return S, w, np.zeros(w.shape[1])


def nested_fits(problem: LooProblem, order: Sequence[int], sizes: Sequence[int]) -> list[tuple[Ints, Floats, Floats]]:
    """Return `subset_fit` of the first columns in `order`, for each size. O(s^3) for all sizes together."""
    last = np.asarray(order, np.int64)
    L = np.linalg.cholesky(member_gram(problem, last) + problem.lam * np.eye(last.size + problem.constant))
    B = np.vstack([problem.sum_y, problem.B[last]]) if problem.constant else problem.B[last]
    half = scipy.linalg.solve_triangular(L, B, lower=True)
    fits = []
    for size in sizes:
        s = size + problem.constant
        w = scipy.linalg.solve_triangular(L[:s, :s], half[:s], lower=True, trans="T")
        fits.append((last[:size], w[s - size :], w[0] if problem.constant else np.zeros(w.shape[1])))
    return fits


def fits_along(
    problem: LooProblem, path: Sequence[PathPoint], start: Sequence[int]
) -> list[tuple[Ints, Floats, Floats]]:
    """Return `subset_fit` of the subset after each step of a path that began with `start`."""
    subsets = members_along(path, start)
    if path and all(point.action == "insert" for point in path):
        return nested_fits(problem, subsets[-1], [len(members) for members in subsets])
    return [subset_fit(problem, members) for members in subsets]

"""Recursive feature elimination: delete the column with the smallest coefficients.

Source: Guyon et al., "Gene selection for cancer classification using support vector machines", 2002, with linear
regression in place of the support vector machine, as in the POSS paper.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from dsel._lib.types import Floats
from dsel.objective.base import Objective
from dsel.objective.subset_state import load_subset_kernels
from dsel.search.greedy.backward import ascending
from dsel.search.greedy.path import Path, cheapest
from dsel.search.method import Method, SearchTask, whole_gram
from dsel.search.outcome import SearchOutcome, check_size

#: The ridge, as a share of the mean squared norm of the columns, that approximates the minimum-norm solution of a
#: singular K.
TINY_RIDGE = 1e-10


def rfe(objective: Objective, k: int) -> SearchOutcome:
    """Return the path of deletions of the column with the smallest coefficients (norm over the targets).

    The coefficients are compared as they are, so the columns should be standardized. If K is singular they are those of
    a tiny ridge, close to the solution of minimum norm. The cost is O(n^3): the inverse is downdated, and computed
    again each time the number of columns has halved.
    """
    check_size(k, objective.n)
    path, taken = Path(objective), []
    targets = _targets(objective)
    left = list(range(objective.n))
    inverse, coefficients = _fit(objective, targets, left)
    fresh = len(left)
    while True:
        if len(left) <= k:
            taken.append(left.copy())
        if len(left) == 1:
            return ascending(path, taken)
        path.steps += 1
        path.evaluated += 1
        place = left.index(cheapest(left, np.square(coefficients).sum(axis=1)))
        left.pop(place)
        if 2 * len(left) <= fresh:
            inverse, coefficients = _fit(objective, targets, left)
            fresh = len(left)
        else:
            inverse, coefficients = _without(inverse, coefficients, place)


def _targets(objective: Objective) -> Floats:
    """Return (n, r) a matrix B with B B' = M. The norms of the coefficients depend on M only."""
    if objective.moments is None:
        return objective.K if objective.cross is None else objective.cross
    values, vectors = scipy.linalg.eigh(objective.moments)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def _fit(objective: Objective, targets: Floats, S: list[int]) -> tuple[Floats, Floats]:
    """Return (s, s) the inverse of K_SS with its ridge, and (s, r) the coefficients."""
    ridge = objective.lam + TINY_RIDGE * float(np.mean(np.diag(objective.K)) or 1.0)
    factor = scipy.linalg.cho_factor(objective.K[np.ix_(S, S)] + ridge * np.eye(len(S)))
    return scipy.linalg.cho_solve(factor, np.eye(len(S))), scipy.linalg.cho_solve(factor, targets[S])


def _without(inverse: Floats, coefficients: Floats, i: int) -> tuple[Floats, Floats]:
    """Return the inverse and the coefficients after deleting the column at place i."""
    keep = np.arange(inverse.shape[0]) != i
    share = inverse[keep, i] / inverse[i, i]
    return (
        inverse[np.ix_(keep, keep)] - np.outer(share, inverse[i, keep]),
        coefficients[keep] - np.outer(share, coefficients[i]),
    )


def run(task: SearchTask) -> SearchOutcome:
    """Run the method on a task."""
    load_subset_kernels()
    return rfe(task.objective, task.k)


METHOD = Method(
    "rfe",
    "Start from all columns and delete the one with the smallest coefficients.",
    run,
    requirements=whole_gram,
    every_size=True,
    no_groups="it compares the coefficients of single columns",
)

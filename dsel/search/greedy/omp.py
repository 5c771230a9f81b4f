"""Orthogonal matching pursuit: insert the column that correlates most with the residuals.

Sources: Pati, Rezaiifar, Krishnaprasad, "Orthogonal matching pursuit", Asilomar 1993; with several targets
SOMP of Tropp, Gilbert, Strauss, "Algorithms for simultaneous sparse approximation I", 2006, with the sum of
squares in place of the sum of absolute values.
"""

from __future__ import annotations

import numpy as np

from dsel._lib.types import Floats
from dsel.objective.base import Objective
from dsel.objective.subset_state import SubsetState, load_subset_kernels
from dsel.search.greedy.path import grow
from dsel.search.grouped import greedy
from dsel.search.grouped.objective import GroupedObjective
from dsel.search.method import Method, SearchTask, few_columns
from dsel.search.outcome import SearchOutcome


def correlation(solution: SubsetState) -> Floats:
    """Return (n,) the decrease of the squared residuals if only one column is fitted to them.

    It is 0 for members and for columns that depend on them.
    """
    free = solution.insertable() & (solution.objective.scale > 0.0)
    scale = np.where(free, solution.objective.scale, 1.0)
    return np.where(free, solution.residual_moments() / scale, 0.0)


def omp(objective: Objective, k: int) -> SearchOutcome:
    """Return the path of k insertions, or fewer if no gain is left. All coefficients are refitted. O(n k^2)."""
    return grow(objective, k, correlation)


def run(task: SearchTask) -> SearchOutcome:
    """Run the method on a task."""
    if task.groups is not None:
        return greedy.omp(GroupedObjective(task.objective, task.groups), task.k)
    load_subset_kernels()
    return omp(task.objective, task.k)


METHOD = Method(
    "omp",
    "Insert the column that correlates most with the residuals, k times.",
    run,
    requirements=few_columns,
    every_size=True,
    takes_groups=True,
)

"""Orthogonal matching pursuit: insert the column that correlates most with the residuals.

Sources: Pati, Rezaiifar, Krishnaprasad, "Orthogonal matching pursuit", Asilomar 1993; with several targets
SOMP of Tropp, Gilbert, Strauss, "Algorithms for simultaneous sparse approximation I", 2006, with the sum of
squares in place of the sum of absolute values; with groups Swirszcz, Abe, Lozano, "Grouped orthogonal matching pursuit
for variable selection and prediction", NIPS 2009.
"""

from __future__ import annotations

from dsel.objective.base import ItemObjective
from dsel.objective.subset_state import load_subset_kernels
from dsel.search.greedy.path import grow
from dsel.search.method import Method, SearchTask, few_columns
from dsel.search.outcome import SearchOutcome


def omp(objective: ItemObjective, k: int) -> SearchOutcome:
    """Return the path of k insertions, or fewer if no gain is left. All coefficients are refitted. O(n k^2)."""
    return grow(objective, k, lambda solution: solution.correlations())


def run(task: SearchTask) -> SearchOutcome:
    """Run the method on a task."""
    load_subset_kernels()
    return omp(task.subject, task.k)


METHOD = Method(
    "omp",
    "Insert the column that correlates most with the residuals, k times.",
    run,
    requirements=few_columns,
    every_size=True,
    takes_groups=True,
)

"""Forward selection: insert what lowers f most.

Sources: "forward regression", Algorithm 1 of Qian, Yu, Zhou, "Subset selection by Pareto optimization", NIPS
2015; on Y = X the greedy column subset selection of Farahat, Ghodsi, Kamel, "An efficient greedy method for
unsupervised feature selection", ICDM 2011.
"""

from __future__ import annotations

from dsel.objective.base import ItemObjective
from dsel.objective.subset_state import load_subset_kernels
from dsel.search.greedy.path import grow
from dsel.search.method import Method, SearchTask, few_columns
from dsel.search.outcome import SearchOutcome


def forward(objective: ItemObjective, k: int) -> SearchOutcome:
    """Return the path of k best insertions, or fewer if no column lowers f. O(n k^2) after the Gram matrix."""
    return grow(objective, k, lambda solution: solution.gains())


def run(task: SearchTask) -> SearchOutcome:
    """Run the method on a task."""
    load_subset_kernels()
    return forward(task.subject, task.k)


METHOD = Method(
    "forward",
    "Insert the column that lowers the error most, k times.",
    run,
    requirements=few_columns,
    every_size=True,
    takes_groups=True,
)

"""Backward elimination: delete what raises f least.

Source: the textbook method (Miller, "Subset selection in regression", 2002, section 3.3).
"""

from __future__ import annotations

from dsel.objective.base import ItemObjective
from dsel.objective.subset_state import load_subset_kernels
from dsel.search.greedy.path import Path, cheapest, rebuilt
from dsel.search.method import Method, SearchTask, whole_gram
from dsel.search.outcome import SearchOutcome, check_size


def backward(objective: ItemObjective, k: int) -> SearchOutcome:
    """Return the path of deletions from all columns to one, each of which raises f least.

    Columns that depend on columns before them are left out at the start. Points of at most k columns are kept. The cost
    is O(n^3), with three n x n matrices of memory. The solution is rebuilt each time its size has halved.
    """
    check_size(k, objective.n)
    path, taken = Path(objective), []
    solution = rebuilt(objective, objective.n, range(objective.n))
    fresh = solution.size
    if solution.size <= k:
        taken.append(solution.members)
    while solution.size > 1:
        path.evaluated += solution.size
        path.steps += 1
        solution.delete(cheapest(solution.members, solution.losses()))
        if solution.size <= k:
            taken.append(solution.members)
        if 2 * solution.size <= fresh:
            solution = rebuilt(objective, solution.size, solution.members)
            fresh = solution.size
    return ascending(path, taken)


def ascending(path: Path, taken: list[list[int]]) -> SearchOutcome:
    """Return the outcome of a path of deletions, whose last subset is the smallest."""
    for members in reversed(taken):
        path.add(sorted(members))
    return path.outcome()


def run(task: SearchTask) -> SearchOutcome:
    """Run the method on a task."""
    load_subset_kernels(deletes=True)
    return backward(task.subject, task.k)


METHOD = Method(
    "backward",
    "Start from all columns and delete the one that raises the error least.",
    run,
    requirements=whole_gram,
    every_size=True,
    takes_groups=True,
)

"""Random columns: what other methods are compared with, as in the figures of the greedy RLS paper.

Source: Pahikkala, Airola, Salakoski, "Speeding up greedy forward selection for regularized least-squares", ICMLA 2010.
"""

from __future__ import annotations

from pydantic import Field

from dsel._lib.rng import permutation
from dsel.config.types import Int
from dsel.objective.base import ItemObjective
from dsel.objective.subset_state import load_subset_kernels
from dsel.search.greedy.path import Path, rebuilt
from dsel.search.method import Method, Options, SearchTask
from dsel.search.outcome import SearchOutcome, check_size


def random_subset(objective: ItemObjective, k: int, seed: int = 0, draws: int = 1) -> SearchOutcome:
    """Return the best of some random subsets of k columns, and of their first 1 to k - 1 columns. O(n k^2) each.

    A column that depends on those drawn before it is replaced by the next one.
    """
    check_size(k, objective.n)
    path = Path(objective)
    for draw in range(draws):
        path.steps += 1
        members = rebuilt(objective, k, permutation(seed, draw, 0, objective.n).tolist()).members
        for size in range(1, len(members) + 1):
            path.add(members[:size])
            path.evaluated += 1
    return path.outcome()


class RandomOptions(Options):
    """Options of random columns.

    Parameters
    ----------
    draws : int
        How many random subsets there are. The best one is the answer.
    """

    draws: Int = Field(1, ge=1)


def run(task: SearchTask) -> SearchOutcome:
    """Run the method on a task."""
    load_subset_kernels()
    return random_subset(task.subject, task.k, task.seed, task.options.draws)


METHOD = Method(
    "random",
    "Choose columns at random, to compare other methods with.",
    run,
    options=RandomOptions,
    every_size=True,
    takes_groups=True,
)

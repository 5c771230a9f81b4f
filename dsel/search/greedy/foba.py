"""FoBa: forward steps as in OMP, and backward steps that cost little of what the forward steps gained.

Source: Zhang, "Adaptive forward-backward greedy algorithm for learning sparse representations", IEEE
Transactions on Information Theory 57(7), 2011, algorithm FoBa.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from dsel.config.types import Float, Int
from dsel.errors import OptionError
from dsel.objective.base import ItemObjective
from dsel.objective.subset_state import load_subset_kernels
from dsel.search.greedy.path import NO_GAIN, Path, cheapest, largest, rebuilt
from dsel.search.method import Method, Options, SearchTask, few_columns
from dsel.search.outcome import SearchOutcome, check_size

#: After this many deletions the solution is rebuilt, so that rounding errors do not accumulate.
_REBUILD_AFTER = 16


def foba(objective: ItemObjective, k: int, nu: float = 0.5, path_factor: int = 5) -> SearchOutcome:
    """Return the last subset of every size up to k on a path of `path_factor` times k steps, forward and backward.

    A member is deleted as soon as setting its coefficients to zero costs at most `nu` times what the insertion to the
    present size gained (0 < nu < 1). The cost is O(path_factor n k^2), and more for each deletion.
    """
    check_size(k, objective.n)
    if not 0.0 < nu < 1.0 or path_factor < 1:
        raise OptionError(f"nu is {nu}, path_factor {path_factor}.", "0 < nu < 1 <= path_factor.")
    length = path_factor * k
    solution = objective.subset(min(length, objective.n))
    gained: dict[int, float] = {}
    last: dict[int, list[int]] = {}
    steps = deleted = evaluated = 0
    while steps < length:
        size, before = solution.size, solution.value
        costs = solution.zeroing_costs() if size else np.empty(0)
        if size and costs.min() <= nu * gained[size]:
            solution.delete(cheapest(solution.members, costs))
            deleted += 1
            if deleted % _REBUILD_AFTER == 0:
                solution = rebuilt(objective, solution.limit, solution.members)
        else:
            scores = solution.correlations()
            j = largest(scores)
            if size == solution.limit or scores[j] <= NO_GAIN * objective.total:
                break
            solution.insert(j)
            gained[size + 1] = before - solution.value
        steps += 1
        evaluated += objective.n
        last[solution.size] = solution.members
    path = Path(objective)
    for size in sorted(s for s in last if 1 <= s <= k):
        path.add(last[size])
    path.steps, path.evaluated = steps, evaluated
    return path.outcome(deleted=deleted)


class FobaOptions(Options):
    """Options of FoBa.

    Parameters
    ----------
    nu : float
        A column is deleted where that costs at most `nu` times what the insertion to the present size gained.
    path_factor : int
        The search makes at most `path_factor` times k steps.
    """

    nu: Float = Field(0.5, gt=0, lt=1)
    path_factor: Int = Field(5, ge=1)


def run(task: SearchTask) -> SearchOutcome:
    """Run the method on a task."""
    load_subset_kernels(deletes=True)
    return foba(task.subject, task.k, nu=task.options.nu, path_factor=task.options.path_factor)


METHOD = Method(
    "foba",
    "Insert columns as omp does, and delete those that cost little (FoBa).",
    run,
    options=FobaOptions,
    requirements=few_columns,
    every_size=True,
    takes_groups=True,
)

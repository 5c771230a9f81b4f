"""Splicing: exchange the least important members of a subset for the most important other columns, several at a time.

Source: ABESS of Zhu, Wen, Zhu, Zhang, Wang, "A polynomial algorithm for best-subset selection problem", PNAS 117(52),
2020, with the exact loss of a deletion and the exact gain of an insertion as importance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from pydantic import Field

from dsel.config.types import Int
from dsel.objective.base import ItemObjective, ItemState
from dsel.objective.subset_state import load_subset_kernels
from dsel.search.anytime import Deadline
from dsel.search.greedy.path import NO_GAIN, Path, best_replacement, largest, rebuilt
from dsel.search.method import Method, Options, SearchTask, few_columns
from dsel.search.outcome import SearchOutcome, check_size

#: How many columns are exchanged at once at most, by default.
MAX_EXCHANGE = 10


def splicing(
    objective: ItemObjective, k: int, max_exchange: int = MAX_EXCHANGE, deadline: Deadline | None = None
) -> SearchOutcome:
    """Return a subset of each size up to k that splicing does not improve.

    Each size starts from the subset of the size before and the column that lowers f most.

    Parameters
    ----------
    objective : ItemObjective
        f(S) over n columns or groups.
    k : int
        The largest size.
    max_exchange : int
        How many columns are exchanged at once at most.
    deadline : Deadline, optional
        When the search ends with what it has.

    Returns
    -------
    SearchOutcome
        The trace counts subsets that were visited. A visit costs O(n k) for each column that enters or leaves, and one
        least-squares problem of k columns for each number of exchanged ones. Where the Gram matrix is not in memory,
        only new columns take a pass over the data, one for a batch of them.
    """
    check_size(k, objective.n)
    deadline = deadline or Deadline(None)
    path, exchanged = Path(objective), 0
    solution = objective.subset(k)
    while solution.size < k and not (solution.size and deadline.passed):
        gains = solution.gains()
        j = largest(gains)
        if gains[j] <= NO_GAIN * objective.total or not solution.insert(j):
            break
        solution, made = splice(solution, max_exchange, path, deadline)
        exchanged += made
        path.add(solution.members)
    return path.outcome(exchanges=exchanged)


def splice(
    solution: ItemState, max_exchange: int, path: Path, deadline: Deadline | None = None
) -> tuple[ItemState, int]:
    """Return a subset of the same size that splicing does not improve, and how many columns were exchanged.

    It is never worse than `solution`. Nor does any exchange of one column improve it. `path` counts the visited subsets
    and the evaluated ones.
    """
    deadline = deadline or Deadline(None)
    made = 0
    while True:
        path.steps += 1
        if deadline.passed:
            return solution, made
        found = _several(solution, max_exchange, path) or _single(solution, path)
        if found is None:
            return solution, made
        next_one = rebuilt(solution.objective, solution.limit, found)
        if next_one.size < solution.size or not next_one.value < solution.value:  # rounding near dependence
            return solution, made
        made += len(set(found) - set(solution.members))
        solution = next_one


def _several(solution: ItemState, max_exchange: int, path: Path) -> list[int] | None:
    """Return the best subset after an exchange of the c least important members, for any c, if it lowers f."""
    objective, members = solution.objective, np.asarray(solution.members)
    gains = solution.gains()
    most = min(max_exchange, members.size, int(np.count_nonzero(gains > NO_GAIN * objective.total)))
    if most == 0:
        return None
    out = members[np.argsort(solution.losses(), kind="stable")]
    entering = np.argpartition(-gains, most - 1)[:most]
    entering = entering[np.lexsort((entering, -gains[entering]))]
    value = _values_within(objective, [*members.tolist(), *entering.tolist()])
    found = [[*out[c:].tolist(), *entering[:c].tolist()] for c in range(1, most + 1)]
    values = [value(S) for S in found]
    path.evaluated += most
    best = int(np.argmin(values))
    if not values[best] < solution.value - NO_GAIN * objective.total:
        return None
    objective.columns_of.fetch_rows(objective.members(found[best]), lambda: entering)
    return found[best]


def _single(solution: ItemState, path: Path) -> list[int] | None:
    """Return the subset after the best exchange of the first member for which there is one that lowers f."""
    trial = rebuilt(solution.objective, solution.limit, solution.members)
    for i in solution.members:
        j = best_replacement(trial, i, solution.value, path)
        if j is not None:
            return [*trial.members, j]
        if not trial.insert(i):
            return None  # rounding near dependence
    return None


def _values_within(objective: ItemObjective, columns: Sequence[int]) -> Callable[[Iterable[int]], float]:
    """Return f of subsets of some columns. Where the Gram matrix is not in memory, the columns are fetched once."""
    if objective.has_gram or objective.included_size:
        return objective.value
    small, place = objective.columns_of.restrict(columns), {j: i for i, j in enumerate(columns)}
    return lambda S: small.value(place[j] for j in S)


class SplicingOptions(Options):
    """Options of splicing.

    Parameters
    ----------
    max_exchange : int
        How many columns are exchanged at once at most.
    """

    max_exchange: Int = Field(MAX_EXCHANGE, ge=1)


def run(task: SearchTask) -> SearchOutcome:
    """Run the method on a task."""
    load_subset_kernels(deletes=True)
    return splicing(task.subject, task.k, task.options.max_exchange)


METHOD = Method(
    "splicing",
    "Exchange several columns at once for better ones, for each size (ABESS).",
    run,
    options=SplicingOptions,
    requirements=few_columns,
    every_size=True,
    takes_groups=True,
)

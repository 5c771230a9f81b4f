"""Polish the answer of any method: exchange its columns until no single exchange lowers the error.

Source: IterFS of Ordozgoiti, Gomez Canaval, Mozo, "A fast iterative algorithm for improved unsupervised feature
selection", ICDM 2016, started from the answer in place of a random subset.
"""

from __future__ import annotations

from dataclasses import replace

from dsel._lib.types import Ints
from dsel.objective.base import Objective
from dsel.objective.subset_state import load_subset_kernels
from dsel.search.anytime import Deadline
from dsel.search.greedy.exchange import local_optimum
from dsel.search.greedy.path import Path
from dsel.search.grouped import greedy
from dsel.search.grouped.objective import GroupedObjective
from dsel.search.outcome import FrontPoint, Improvement, SearchOutcome, improving


def polish(
    objective: Objective, k: int, outcome: SearchOutcome, groups: tuple[Ints, ...] | None = None,
    deadline: Deadline | None = None,
) -> SearchOutcome:  # fmt: skip
    """Return an outcome with local optima under exchanges in place of its subsets. None of them gets worse.

    Parameters
    ----------
    objective : Objective
        f(S) over n columns.
    k : int
        The size limit. The best subset of at most k columns is filled up to k first. The subsets of other sizes keep
        their sizes. They are polished only where the Gram matrix is in memory.
    outcome : SearchOutcome
        What a method found.
    groups : tuple of arrays of int, optional
        The local columns of each group. Then sizes count groups.
    deadline : Deadline, optional
        When the polish ends with what it has, without groups.

    Returns
    -------
    SearchOutcome
        `counts` has the number of exchanges as "polished". A sweep over a subset costs O(n k^2).
    """
    best = outcome.best(k)
    asked = [(k, best)]
    if groups is None and objective.has_gram:
        asked += [(point.size, point) for point in outcome.front if 0 < point.size < k and point is not best]
    if groups is None:
        load_subset_kernels(deletes=True)
        path, exchanges = Path(objective), 0
        for limit, point in asked:
            if deadline is None or not deadline.passed:
                exchanges += local_optimum(objective, limit, point.members, path, deadline)
        found = path.points
    else:
        grouped = GroupedObjective(objective, groups)
        polished = greedy.polished(grouped, k, grouped.within(best.members))
        exchanges, found = polished.counts["exchanges"], list(polished.front)
    front = improving([*outcome.front, *found])
    result = replace(outcome, front=front, counts={**outcome.counts, "polished": exchanges})
    return _traced(result, best, result.best(k))


def _traced(outcome: SearchOutcome, before: FrontPoint, after: FrontPoint) -> SearchOutcome:
    """Return the outcome with the improvement of its best subset in its trace."""
    if not after.value < before.value:
        return outcome
    return replace(outcome, trace=(*outcome.trace, Improvement(outcome.iterations, after.size, after.value)))

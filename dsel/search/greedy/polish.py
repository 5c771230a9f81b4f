"""Polish the answer of any method: exchange its columns until no single exchange lowers the error.

Source: IterFS of Ordozgoiti, Gomez Canaval, Mozo, "A fast iterative algorithm for improved unsupervised feature
selection", ICDM 2016, started from the answer in place of a random subset.
"""

from __future__ import annotations

from dataclasses import replace

from dsel.objective.base import ItemObjective
from dsel.objective.subset_state import load_subset_kernels
from dsel.search.anytime import Deadline
from dsel.search.greedy.exchange import local_optimum
from dsel.search.greedy.path import Path
from dsel.search.outcome import FrontPoint, Improvement, SearchOutcome, improving


def polish(objective: ItemObjective, k: int, outcome: SearchOutcome, deadline: Deadline | None = None) -> SearchOutcome:
    """Return an outcome with local optima under exchanges in place of its subsets. None of them gets worse.

    Parameters
    ----------
    objective : ItemObjective
        f(S) over n columns or groups.
    k : int
        The size limit. The best subset of at most k items is filled up to k first. The subsets of other sizes keep
        their sizes. They are polished only where the Gram matrix is in memory.
    outcome : SearchOutcome
        What a method found.
    deadline : Deadline, optional
        When the polish ends with what it has.

    Returns
    -------
    SearchOutcome
        `counts` has the number of exchanges as "polished". A sweep over a subset costs O(n k^2).
    """
    best, path, exchanges = outcome.best(k), Path(objective), 0
    asked = [(k, best)]
    if objective.has_gram:
        asked += [(point.size, point) for point in outcome.front if 0 < point.size < k and point is not best]
    load_subset_kernels(deletes=True)
    for limit, point in asked:
        if deadline is None or not deadline.passed:
            exchanges += local_optimum(objective, limit, objective.within(point.members), path, deadline)
    front = improving([*outcome.front, *path.points])
    result = replace(outcome, front=front, counts={**outcome.counts, "polished": exchanges})
    return _traced(result, best, result.best(k))


def _traced(outcome: SearchOutcome, before: FrontPoint, after: FrontPoint) -> SearchOutcome:
    """Return the outcome with the improvement of its best subset in its trace."""
    if not after.value < before.value:
        return outcome
    return replace(outcome, trace=(*outcome.trace, Improvement(outcome.iterations, after.size, after.value)))

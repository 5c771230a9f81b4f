"""What a Pareto search starts from: the path of forward selection, or the best result of exchange search.

The archive is offered these subsets before the first iteration. They only add solutions, so the guarantee of the
published algorithm holds, and the result is never worse than the subsets offered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal, Protocol

from dsel.objective.base import Objective
from dsel.objective.subset_state import load_subset_kernels
from dsel.search.anytime import Deadline, Stop
from dsel.search.greedy.exchange import exchange
from dsel.search.greedy.forward import forward
from dsel.search.outcome import FrontPoint

WarmStart = Literal["forward", "exchange", "none"]


class Offerable(Protocol):
    """A search whose archive takes subsets from elsewhere."""

    objective: Objective
    k: int

    def offer(self, S: Iterable[int]) -> bool:
        """Offer the archive a subset, and return whether it was archived."""


def warm_start(search: Offerable, options: Any, seed: int, stop: Stop, start: Sequence[tuple[int, ...]] = ()) -> Stop:
    """Offer the archive the subsets `start` and what the option `warm_start` names; return the rules for the time left.

    Subsets of 2k columns and more are never archived, so they are not offered.
    """
    for members in start:
        if 1 <= len(members) < 2 * search.k:
            search.offer(members)
    if options.warm_start == "none":
        return stop
    load_subset_kernels(deletes=options.warm_start == "exchange")
    deadline = Deadline(stop.seconds)
    for point in _points(search.objective, search.k, options, seed, limited=stop.seconds is not None):
        if point.size:
            search.offer(point.members)
    return replace(stop, seconds=deadline.left)


def path_size(k: int, *, has_gram: bool, limited: bool) -> int:
    """Return how many columns the path of forward selection has: 2k - 1, as many as an archived subset at most.

    It has k in a search with a time limit if the Gram matrix is not in memory, since columns then take passes over the
    data.
    """
    return k if limited and not has_gram else 2 * k - 1


def _points(objective: Objective, k: int, options: Any, seed: int, limited: bool) -> tuple[FrontPoint, ...]:
    """Return the subsets to offer. limited: whether the search has a time limit."""
    if options.warm_start == "forward":
        size = path_size(k, has_gram=objective.has_gram, limited=limited)
        return forward(objective, min(size, objective.n)).front
    return exchange(objective, k, seed=seed, restarts=options.restarts).front

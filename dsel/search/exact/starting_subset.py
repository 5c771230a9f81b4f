"""The incumbent that exact searches start from."""

from __future__ import annotations

from dsel.objective.base import Objective
from dsel.objective.subset_state import DELETION_KERNELS
from dsel.search.greedy.exchange import exchange
from dsel.search.pareto.search import Poss, load_pareto_kernels, paper_iterations

#: Most iterations of the Pareto search, and how often it makes an exchange search.
_ITERATIONS, _EXCHANGE_EVERY = 100_000, 5000


def starting_subset(objective: Objective, k: int, seed: int = 0) -> tuple[int, ...]:
    """Return a good subset quickly: the best of exchange search from forward selection and a short Pareto search."""
    load_pareto_kernels(objective, _EXCHANGE_EVERY, others=DELETION_KERNELS)
    points = [exchange(objective, k, start="forward").best(k), exchange(objective, k, seed=seed, restarts=4).best(k)]
    search = Poss(objective, k, seed=seed, exchange_every=_EXCHANGE_EVERY)
    for point in points:
        if point.size:
            search.offer(point.members)
    search.advance(min(paper_iterations(k, objective.n), _ITERATIONS))
    points += search.front()
    return min((p for p in points if p.size <= k), key=lambda p: (p.value, p.size)).members

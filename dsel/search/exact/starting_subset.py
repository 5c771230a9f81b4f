"""The incumbent that exact searches start from."""

from __future__ import annotations

from dsel.objective.base import Objective
from dsel.objective.subset_state import DELETION_KERNELS
from dsel.search.anytime import Deadline, Stop, drive
from dsel.search.greedy.exchange import exchange
from dsel.search.pareto.search import Poss, load_pareto_kernels, paper_iterations

#: Most iterations of the Pareto search, and how often it makes an exchange search.
_ITERATIONS, _EXCHANGE_EVERY = 100_000, 5000
_RESTARTS = 4


def starting_subset(objective: Objective, k: int, seed: int = 0, deadline: Deadline | None = None) -> tuple[int, ...]:
    """Return a good subset quickly: the best of exchange search from forward selection and a short Pareto search.

    What the deadline leaves no time for is left out, but for forward selection. Compilation does not count.
    """
    deadline = deadline or Deadline(None)
    with deadline.paused():
        load_pareto_kernels(objective, _EXCHANGE_EVERY, others=DELETION_KERNELS)
    points = [exchange(objective, k, start="forward", deadline=deadline).best(k)]
    if not deadline.passed:
        points.append(exchange(objective, k, seed=seed, restarts=_RESTARTS, deadline=deadline).best(k))
    if not deadline.passed:
        search = Poss(objective, k, seed=seed, exchange_every=_EXCHANGE_EVERY)
        for point in points:
            if point.size:
                search.offer(point.members)
        iterations = min(paper_iterations(k, objective.n), _ITERATIONS)
        if deadline.seconds is None:
            search.advance(iterations)
        else:
            drive(search, Stop(iterations=iterations, seconds=deadline.left))
        points += search.front()
    return min((p for p in points if p.size <= k), key=lambda p: (p.value, p.size)).members

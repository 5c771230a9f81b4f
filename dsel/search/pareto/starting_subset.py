"""The incumbent that exact searches start from."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

from dsel._lib.tolerances import MARGIN
from dsel.objective.objective_interface import ItemObjective, Objective
from dsel.objective.subset_state import DELETION_KERNELS, load_subset_kernels
from dsel.search.anytime import NEVER, Deadline, Stop, drive
from dsel.search.greedy.exchange import exchange, local_optimum, splicing
from dsel.search.greedy.path import Path, forward
from dsel.search.outcome import FrontPoint
from dsel.search.pareto.compiled import Poss, load_pareto_kernels, paper_iterations, values_pay

#: Most iterations of the Pareto search, and how often it makes an exchange search.
_ITERATIONS, _EXCHANGE_EVERY = 100_000, 5000
_RESTARTS = 4
#: With at most this many subsets, a proof takes seconds to minutes, and the Pareto search's compilation about 8 s.
_SMALL = 10**10
#: With this many columns another tree may be used.
MANY_COLUMNS = 150


def starting_subset(
    objective: ItemObjective, k: int, seed: int = 0, deadline: Deadline = NEVER, known: Sequence[int] = ()
) -> tuple[int, ...]:  # fmt: skip
    """Return a good subset quickly: the best of exchange search from forward selection and a short Pareto search.

    What the deadline leaves no time for is left out, but for forward selection. Compilation does not count. In small
    problems the Pareto search is also left out if `known`, a subset of k columns, is as good as all that exchange
    search finds. The proof then finds better subsets itself. Where only rows of the Gram matrix are computed, splicing
    takes the place of all searches, because a new column costs a pass over the data there. Groups have
    no Pareto search.
    """
    columns = objective.columns_of
    if not objective.has_gram and columns.eigen_factor is None:
        with deadline.paused():
            load_subset_kernels(deletes=True)
        return splicing(objective, k, deadline=deadline).best(k).members
    full, single = len(known) == k and is_small(objective, k), objective is columns
    with deadline.paused():
        if full or not single:
            load_subset_kernels(deletes=True)
        else:
            values = values_pay(columns, k, _ITERATIONS)
            every = _EXCHANGE_EVERY if columns.has_gram else 0  # exchange searches need the whole Gram matrix
            load_pareto_kernels(columns, every, others=DELETION_KERNELS, values=values)
    points = _exchanged(objective, k, seed, deadline, known if full else ())
    confirmed = full and min(p.value for p in points) >= objective.value(known) - MARGIN * objective.total
    if single and not confirmed and not deadline.passed:
        points += _pareto_front(columns, k, seed, deadline, points)
    best = min((p for p in points if p.size <= k), key=lambda p: (p.value, p.size))
    return tuple(objective.within(best.members))


def forward_subset(objective: ItemObjective, k: int) -> tuple[int, ...]:
    """Return the local columns of the best subset of at most k items on the path of forward selection."""
    return forward(objective, k).best(k).members


def extended(objective: ItemObjective, members: Sequence[int], k: int) -> tuple[int, ...]:
    """Return a subset of k items: the members, and those that lower f most when added one by one. O(n k^4)."""
    found = tuple(members)
    while len(found) < k:
        values = {j: objective.value((*found, j)) for j in range(objective.n) if j not in found}
        best = min(values, key=values.__getitem__, default=-1)
        if best < 0 or not values[best] < objective.value(found):
            break
        found = (*found, best)
    return found


def is_small(objective: ItemObjective, k: int) -> bool:
    """Return whether there are so few subsets that a proof finds better ones itself."""
    return objective.n < MANY_COLUMNS and comb(objective.n, k) <= _SMALL


def _exchanged(
    objective: ItemObjective, k: int, seed: int, deadline: Deadline, known: Sequence[int]
) -> list[FrontPoint]:  # fmt: skip
    """Return local optima of exchange search from forward selection, random subsets, and a known subset."""
    points = [exchange(objective, k, start="forward", deadline=deadline).best(k)]
    if not deadline.passed:
        points.append(exchange(objective, k, seed=seed, restarts=_RESTARTS, deadline=deadline).best(k))
    if known and not deadline.passed:
        path = Path(objective)
        local_optimum(objective, k, known, path, deadline)
        points.append(path.outcome().best(k))
    return points


def _pareto_front(
    objective: Objective, k: int, seed: int, deadline: Deadline, points: Sequence[FrontPoint]
) -> list[FrontPoint]:  # fmt: skip
    """Return the front of a Pareto search that begins with these points."""
    search = Poss(objective, k, seed=seed, exchange_every=_EXCHANGE_EVERY if objective.has_gram else 0)
    with deadline.paused():
        search.warm_up(_ITERATIONS)
    for point in points:
        if point.size:
            search.offer(point.members)
    iterations = min(paper_iterations(k, objective.n), _ITERATIONS)
    if deadline.seconds is None:
        search.advance(iterations)
    else:
        drive(search, Stop(iterations=iterations, seconds=deadline.left))
    return list(search.front())

"""Greedy searches for groups of columns: forward selection, orthogonal matching pursuit, and exchange.

Sources: as for single columns; group OMP: Swirszcz, Abe, Lozano, "Grouped orthogonal matching pursuit for variable
selection and prediction", NIPS 2009.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dsel._lib.rng import permutation
from dsel._lib.types import Floats
from dsel.search.greedy.path import NO_GAIN, largest
from dsel.search.grouped.objective import GroupedObjective
from dsel.search.outcome import FrontPoint, Improvement, SearchOutcome, improving
from dsel.search.validation import check_size


class _Path:
    """The subsets on the path of a method, with their values."""

    def __init__(self, grouped: GroupedObjective) -> None:
        self.grouped = grouped
        self.points: list[FrontPoint] = [FrontPoint(0, grouped.c, ())]
        self.trace: list[Improvement] = []
        self.steps = self.evaluated = 0

    def add(self, S: Sequence[int]) -> float:
        point = self.grouped.point(S)
        if point.value < min(p.value for p in self.points):
            self.trace.append(Improvement(self.steps, point.size, point.value))
        self.points.append(point)
        return point.value

    def outcome(self, **counts: int) -> SearchOutcome:
        counts = {"evaluated": self.evaluated, **counts}
        return SearchOutcome(improving(self.points), tuple(self.trace), self.steps, counts=dict(counts))


def forward(grouped: GroupedObjective, k: int) -> SearchOutcome:
    """Return the path of k insertions of the group that lowers f most."""
    return _grown(grouped, k, grouped.gains)[0].outcome()


def omp(grouped: GroupedObjective, k: int) -> SearchOutcome:
    """Return the path of k insertions of the group that explains the residuals best by itself."""
    return _grown(grouped, k, grouped.correlations)[0].outcome()


def _grown(grouped: GroupedObjective, k: int, score: Callable[[Sequence[int]], Floats]) -> tuple[_Path, list[int]]:
    check_size(k, grouped.n)
    path, S = _Path(grouped), list[int]()
    while len(S) < k:
        scores = score(S)
        path.evaluated += grouped.n - len(S)
        g = largest(scores)
        if scores[g] <= NO_GAIN * grouped.total:
            break
        S.append(g)
        path.steps += 1
        path.add(S)
    return path, S


def exchange(
    grouped: GroupedObjective, k: int, seed: int = 0, restarts: int = 1, start: str = "random"
) -> SearchOutcome:
    """Return the best of some local optima of k groups: no exchange of one group lowers f."""
    check_size(k, grouped.n)
    path, exchanges = _Path(grouped), 0
    for restart in range(restarts if start == "random" else 1):
        if start == "random":
            first = [int(g) for g in permutation(seed, restart, 0, grouped.n)[:k]]
        else:
            first = _grown(grouped, k, grouped.gains)[1]
        exchanges += _local_optimum(grouped, k, first, path)
    return path.outcome(exchanges=exchanges)


def polished(grouped: GroupedObjective, k: int, S: Sequence[int]) -> SearchOutcome:
    """Return the local optimum that exchanges lead to from some groups."""
    path = _Path(grouped)
    return path.outcome(exchanges=_local_optimum(grouped, k, list(S), path))


def _local_optimum(grouped: GroupedObjective, k: int, first: list[int], path: _Path) -> int:
    """Sweep to a local optimum, and return the number of exchanges."""
    S, made, value = first, 0, grouped.value(first)
    while True:
        exchanged = _sweep(grouped, k, S, path)
        made += exchanged
        path.steps += 1
        now = path.add(sorted(S))
        if exchanged == 0 or not now < value:
            return made
        value = now


def _sweep(grouped: GroupedObjective, k: int, S: list[int], path: _Path) -> int:
    """Insert groups up to k, then exchange each member once for the best other group if that lowers f."""
    least, made = NO_GAIN * grouped.total, 0
    while len(S) < k and (gains := grouped.gains(S)).max() > least:
        S.append(largest(gains))
        made += 1
    for g in list(S):
        before, place = grouped.value(S), S.index(g)
        rest = [other for other in S if other != g]
        gains = grouped.gains(rest)
        path.evaluated += grouped.n - len(rest)
        best = largest(gains)
        if best != g and gains[best] > max(grouped.value(rest) - before + least, 0.0):
            S[place] = best
            made += 1
    return made


def in_order_of_gain(grouped: GroupedObjective) -> list[int]:
    """Return all groups: each next one gains most after those before it."""
    order: list[int] = []
    while len(order) < grouped.n:
        gains = grouped.gains(order)
        gains[order] = -1.0
        order.append(int(np.argmax(gains)))
    return order

"""The archive of POSS (Qian, Yu, Zhou 2015, Algorithm 2, lines 1 and 6 to 9), for any criterion and isolation."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Literal

from dsel.search.outcome import FrontPoint

#: Local column indices, ascending.
Subset = tuple[int, ...]
#: Subsets compete only where this function has the same value. It is not called for the empty set.
IsolationFunction = Callable[[Subset], Hashable]


def together(members: Subset) -> Hashable:
    """Return one value for all subsets, so that all compete (the paper's default, I = 0)."""
    return 0


def min_index(members: Subset) -> Hashable:
    """Return the least column, so that only subsets that share it compete (the paper's Theorem 2)."""
    return members[0]


#: Isolation functions that have a name.
Isolation = Literal["none", "min-index"]
ISOLATIONS: dict[str, IsolationFunction] = {"none": together, "min-index": min_index}


class ParetoArchive:
    """Subsets that do not dominate each other in (o1, o2) = (f(S), |S|), oldest first.

    The empty set is always first. o1 is +inf for the empty set and for subsets of 2k columns and more. Other subsets
    with o1 = +inf are never archived: the empty set dominates them, or, alone in their class, they are no answer.

    Parameters
    ----------
    k : int
        The size limit.
    isolation : callable
        Subsets compete only where it has the same value.
    """

    def __init__(self, k: int, isolation: IsolationFunction = together) -> None:
        self.k = k
        self.isolation = isolation
        self._points = [FrontPoint(0, math.inf, ())]
        self._classes: dict[Hashable, list[FrontPoint]] = {}

    def __len__(self) -> int:
        return len(self._points)

    def __getitem__(self, place: int) -> FrontPoint:
        return self._points[place]

    @property
    def points(self) -> list[FrontPoint]:
        """The solutions, oldest first."""
        return list(self._points)

    def offer(self, members: Iterable[int], value: float) -> bool:
        """Offer a subset to the archive (lines 6 to 9), and return whether it was archived.

        It is refused if a solution strictly dominates it. Solutions that it weakly dominates are removed, so that of
        two subsets with equal objectives the later one stays. The same subset keeps its place.
        """
        S = tuple(sorted(set(members)))
        if not self.admits(S, value):
            return False
        new = FrontPoint(len(S), value, S)
        isolated = self.isolation(S)
        rivals = self._classes.get(isolated, [])
        if any(z.members == S for z in rivals):
            return False
        dropped = {z.members for z in rivals if _weakly_dominates(new, z)}
        self._classes[isolated] = [z for z in rivals if z.members not in dropped] + [new]
        if dropped:
            self._points = [z for z in self._points if z.members not in dropped]
        self._points.append(new)
        return True

    def admits(self, members: Subset, value: float) -> bool:
        """Return whether no solution strictly dominates a subset of ascending columns (line 7)."""
        if not 0 < len(members) < 2 * self.k or not value < math.inf:
            return False
        new = FrontPoint(len(members), value, members)
        rivals = self._classes.get(self.isolation(members), [])
        return not any(_strictly_dominates(z, new) for z in rivals)

    def best(self, k: int | None = None) -> FrontPoint:
        """Return the solution of least f with at most k columns (line 12), the smallest of equal ones."""
        limit = self.k if k is None else k
        return min((z for z in self._points if z.size <= limit), key=lambda z: (z.value, z.size))

    def state(self) -> list[list[Any]]:
        """Return the solutions except the empty set, oldest first, as JSON holds them."""
        return [[list(z.members), z.value] for z in self._points[1:]]

    @classmethod
    def restore(cls, k: int, state: list[list[Any]], isolation: IsolationFunction = together) -> ParetoArchive:
        """Return the archive as it was when `state` was saved."""
        archive = cls(k, isolation)
        for members, value in state:
            archive.offer(members, value)
        return archive


def _strictly_dominates(z: FrontPoint, s: FrontPoint) -> bool:
    return (z.value < s.value and z.size <= s.size) or (z.value <= s.value and z.size < s.size)


def _weakly_dominates(s: FrontPoint, z: FrontPoint) -> bool:
    return s.value <= z.value and s.size <= z.size

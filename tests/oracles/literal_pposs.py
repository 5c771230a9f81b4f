"""PPOSS (Qian, Shi, Yu, Tang, Zhou, IJCAI 2016): Algorithm 2 line by line, and the merging of section 3.4. Independent
of dsel.

A solution is the frozenset of the columns whose bit is 1, with (f1, f2) = (f, size), f1 = +inf for no column and for 2k
and more. P is a list of (s, f1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

Bits = frozenset[int]
Solution = tuple[Bits, float]


def dominates(z: Solution, s: Solution) -> bool:
    """z is strictly better."""
    weakly = z[1] <= s[1] and len(z[0]) <= len(s[0])
    return weakly and (z[1] < s[1] or len(z[0]) < len(s[0]))


def weakly_dominates(z: Solution, s: Solution) -> bool:
    return z[1] <= s[1] and len(z[0]) <= len(s[0])


def merged_one_by_one(P: Sequence[Solution], offspring: Sequence[Solution]) -> list[Solution]:
    """Lines 9 to 14."""
    P = list(P)
    for s in offspring:
        if not any(dominates(z, s) for z in P):
            Q = [z for z in P if weakly_dominates(s, z)]
            P = [z for z in P if z not in Q] + [s]
    return P


def merged_in_parallel(P: Sequence[Solution], offspring: Sequence[Solution]) -> list[Solution]:
    """Section 3.4: the intersection of the P_i, and the largest non-dominated subset of R."""
    kept = [[z for z in P if not weakly_dominates(s, z)] for s in offspring if not any(dominates(z, s) for z in P)]
    R = [s for s in offspring if not any(dominates(z, s) for z in P)]
    intersection = [z for z in P if all(z in P_i for P_i in kept)]
    return intersection + [s for s in R if not any(dominates(r, s) for r in R)]


class LiteralPposs:
    """Algorithm 2 with given randomness."""

    def __init__(self, f: Callable[[Bits], float], k: int) -> None:
        self.f, self.k = f, k
        self.P: list[Solution] = [(frozenset(), np.inf)]

    def round(self, parent: Iterable[int], flips: Sequence[Iterable[int]]) -> None:
        """Lines 4 to 15: a parent in P, and the bits that flip on each processor."""
        s = frozenset(parent)
        assert s in [z for z, _ in self.P]
        offspring = []
        for flip in flips:
            new = s ^ frozenset(flip)
            offspring.append((new, np.inf if not 0 < len(new) < 2 * self.k else self.f(new)))
        self.P = merged_one_by_one(self.P, offspring)

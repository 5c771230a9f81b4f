"""Which subsets on the way of branch and bound are dependent, and what they are worth, by the objective's own rule.

A subset is dependent when a pivot is at or below its floor with the columns in the order of their indices, as
`Objective.value` has it, in whatever order the search came to them; what is dependent stays so with more
columns. The running factor decides where its pivots are far above the floor. Where they are not ("steep"), and for
every subset that seems better than the incumbent, those pivots and f are computed from the root (`eliminated`).
"""

from __future__ import annotations

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.types import Ints
from dsel.objective.kernels.elimination import eliminated
from dsel.objective.kernels.layout import int_matrix, int_vector, matrix, vector
from dsel.search.exact.bb_layout import (
    ALLOWED,
    BASE,
    BASE_SIZE,
    BEST,
    BEST_SIZE,
    CHECK,
    CHOSEN,
    COUNT,
    FLOOR,
    FRAME,
    INCUMBENT,
    MEMBERS,
    NUMBERS,
    ROOT_CROSS,
    ROOT_GRAM,
    TOTAL,
)

#: No place in R; and no targets, for the pivots alone.
NO_PLACE, PIVOTS_ALONE = np.int64(-1), np.int64(0)


@compiled(fast=True)
def gather(P: Ints, d: int, i: int, l: int) -> int:
    """S at depth d with the places i and l of its R (-1: none) in MEMBERS, ascending; how many they are."""
    members, base, count = int_vector(P, MEMBERS), int_vector(P, BASE), int_vector(P, COUNT)
    frame, allowed = int_matrix(P, FRAME), int_matrix(P, ALLOWED)
    size = 0
    for a in range(count[BASE_SIZE] + d + 2):
        if a < count[BASE_SIZE]:
            j = base[a]
        elif a < count[BASE_SIZE] + d:
            j = frame[a - count[BASE_SIZE] + 1, CHOSEN]
        else:
            place = i if a == count[BASE_SIZE] + d else l
            if place < 0:
                continue
            j = allowed[d, place]
        p = size
        while p > 0 and members[p - 1] > j:
            members[p] = members[p - 1]
            p -= 1
        members[p] = j
        size += 1
    return size


@compiled(fast=True)
def checked(P: Ints, d: int, i: int, l: int, targets: int) -> float:
    """f(S with i and l) as the objective values it, NaN where its columns depend on each other; see `eliminated`."""
    size = gather(P, d, i, l)
    return eliminated(
        matrix(P, ROOT_GRAM), matrix(P, ROOT_CROSS), targets, vector(P, NUMBERS)[TOTAL], vector(P, FLOOR),
        int_vector(P, MEMBERS), size, matrix(P, CHECK),
    )  # fmt: skip


@compiled(fast=True)
def dependent(P: Ints, d: int, i: int) -> bool:
    """Whether the columns of S and i depend on each other in the order of their indices: with more they do, too."""
    return not checked(P, d, i, NO_PLACE, PIVOTS_ALONE) < np.inf


@compiled(fast=True)
def record(P: Ints, d: int, i: int, l: int) -> None:
    """Note S with the places i and l of its R (-1: none), if it is independent and better than the incumbent."""
    frame, best, allowed = int_matrix(P, FRAME), int_vector(P, BEST), int_matrix(P, ALLOWED)
    count = int_vector(P, COUNT)
    f = checked(P, d, i, l, matrix(P, ROOT_CROSS).shape[1])
    if not f < vector(P, NUMBERS)[INCUMBENT]:
        return
    vector(P, NUMBERS)[INCUMBENT] = f
    size = d
    for a in range(d):
        best[a] = frame[a + 1, CHOSEN]
    if i >= 0:
        best[size] = allowed[d, i]
        size += 1
    if l >= 0:
        best[size] = allowed[d, l]
        size += 1
    count[BEST_SIZE] = size

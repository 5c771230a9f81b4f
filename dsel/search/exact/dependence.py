"""Which subsets on the way of branch and bound are dependent, and what they are worth, by the objective's own rule.

A subset is dependent when a pivot is at or below its floor with the columns in the order of their indices, as
`Objective.value` has it, in whatever order the search came to them; what is dependent stays so with more
columns. The running factor decides where its pivots are far above the floor. Where they are not ("steep"), and for
every subset that seems better than the incumbent, those pivots and f are computed from the root (`eliminated`).
"""

from __future__ import annotations

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.kernel_arrays import int_matrix, int_vector, matrix, vector
from dsel._lib.types import Int
from dsel.objective.kernels.elimination import eliminated
from dsel.search.exact import bb_layout as layout
from dsel.search.exact.bb_layout import BranchState

#: No place in R; and no targets, for the pivots alone.
NO_PLACE, PIVOTS_ALONE = np.int64(-1), np.int64(0)


@compiled(fast=True)
def gather(P: BranchState, d: Int, i: Int, l: Int) -> int:
    """S at depth d with the places i and l of its R (-1: none) in MEMBERS, ascending; how many they are."""
    members, base, count = int_vector(P, layout.MEMBERS), int_vector(P, layout.BASE), int_vector(P, layout.COUNT)
    frame, allowed = int_matrix(P, layout.FRAME), int_matrix(P, layout.ALLOWED)
    size = 0
    for a in range(count[layout.BASE_SIZE] + d + 2):
        if a < count[layout.BASE_SIZE]:
            j = base[a]
        elif a < count[layout.BASE_SIZE] + d:
            j = frame[a - count[layout.BASE_SIZE] + 1, layout.CHOSEN]
        else:
            place = i if a == count[layout.BASE_SIZE] + d else l
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
def checked(P: BranchState, d: Int, i: Int, l: Int, targets: Int) -> float:
    """f(S with i and l) as the objective values it, NaN where its columns depend on each other; see `eliminated`."""
    size = gather(P, d, i, l)
    total = vector(P, layout.NUMBERS)[layout.TOTAL]
    return eliminated(
        matrix(P, layout.ROOT_GRAM), matrix(P, layout.ROOT_CROSS), targets, total, vector(P, layout.FLOOR),
        int_vector(P, layout.MEMBERS), size, matrix(P, layout.CHECK),
    )  # fmt: skip


@compiled(fast=True)
def dependent(P: BranchState, d: Int, i: Int) -> bool:
    """Whether the columns of S and i depend on each other in the order of their indices: with more they do, too."""
    return not checked(P, d, i, NO_PLACE, PIVOTS_ALONE) < np.inf


@compiled(fast=True)
def record(P: BranchState, d: Int, i: Int, l: Int) -> None:
    """Note S with the places i and l of its R (-1: none), if it is independent and better than the incumbent."""
    frame, best, allowed = int_matrix(P, layout.FRAME), int_vector(P, layout.BEST), int_matrix(P, layout.ALLOWED)
    count = int_vector(P, layout.COUNT)
    f = checked(P, d, i, l, matrix(P, layout.ROOT_CROSS).shape[1])
    if not f < vector(P, layout.NUMBERS)[layout.INCUMBENT]:
        return
    vector(P, layout.NUMBERS)[layout.INCUMBENT] = f
    size = d
    for a in range(d):
        best[a] = frame[a + 1, layout.CHOSEN]
    if i >= 0:
        best[size] = allowed[d, i]
        size += 1
    if l >= 0:
        best[size] = allowed[d, l]
        size += 1
    count[layout.BEST_SIZE] = size

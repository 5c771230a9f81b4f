"""Which subsets are dependent, and their f, by the rule of the objective; the best subset, and near-best ones.

A subset is dependent if a pivot is at or below its floor, with the columns in the order of their indices. This is the
rule of `Objective.value`, whatever the order in which the search adds columns. Supersets of a dependent subset are
dependent. The running factor decides if its pivots are far above the floor. If they are borderline, and for each subset
that seems better than the incumbent, pivots and f are computed from the root (`eliminated`).
"""

from __future__ import annotations

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.kernel_arrays import int_matrix, int_vector, matrix, vector
from dsel._lib.types import Int
from dsel.objective.kernels.elimination import eliminated
from dsel.search.exact.branch_and_bound import layout
from dsel.search.exact.branch_and_bound.layout import BranchState

#: No place in R. No targets, if only the pivots matter.
NO_PLACE, PIVOTS_ALONE = np.int64(-1), np.int64(0)


@compiled("i8(i8[::1], i8, i8, i8)", fast=True)
def collect_members(P: BranchState, d: Int, i: Int, l: Int) -> int:
    """Write S at depth d with places i and l of its R (-1: none) to MEMBERS, ascending, and return its size."""
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


@compiled("f8(i8[::1], i8, i8, i8, i8)", fast=True)
def value_by_rule(P: BranchState, d: Int, i: Int, l: Int, targets: Int) -> float:
    """Return f of S with i and l by the objective's rule, NaN if it is dependent; see `eliminated`."""
    size = collect_members(P, d, i, l)
    total = vector(P, layout.NUMBERS)[layout.TOTAL]
    return eliminated(
        matrix(P, layout.ROOT_GRAM), matrix(P, layout.ROOT_CROSS), targets, total, vector(P, layout.FLOOR),
        int_vector(P, layout.MEMBERS), size, matrix(P, layout.CHECK),
    )  # fmt: skip


@compiled("b1(i8[::1], i8, i8)", fast=True)
def is_dependent(P: BranchState, d: Int, i: Int) -> bool:
    """Return whether S with i is dependent by the objective's rule."""
    return not value_by_rule(P, d, i, NO_PLACE, PIVOTS_ALONE) < np.inf


@compiled("void(i8[::1], f8)", fast=True)
def list_members(P: BranchState, f: float) -> None:
    """Add MEMBERS with their f to LIST, unless the subset is worse than the listed ones and decides nothing."""
    members, count, listed = int_vector(P, layout.MEMBERS), int_vector(P, layout.COUNT), int_matrix(P, layout.LIST)
    wanted, lacked = int_vector(P, layout.WANTED), int_vector(P, layout.LACKED)
    size = count[layout.BASE_SIZE] + count[layout.Q]
    has, decides = np.int64(0), False
    for a in range(size):
        has += lacked[members[a]]
        decides = decides or wanted[members[a]] > 0
    if not (f < vector(P, layout.NUMBERS)[layout.LISTED_BELOW] or decides or has < count[layout.LACKING]):
        return
    row = count[layout.LISTED]
    if row == listed.shape[0]:
        count[layout.OVERFLOW] = 1
        return
    for a in range(size):
        listed[row, a] = members[a]
    vector(P, layout.LIST_VALUES)[row] = f
    count[layout.LISTED] = row + 1


@compiled("b1(i8[::1], i8, i8)", fast=True)
def decides(P: BranchState, d: Int, i: Int) -> bool:
    """Return whether a subset of child i of the node at depth d may decide about a column, see `list_members`."""
    count, base, frame = int_vector(P, layout.COUNT), int_vector(P, layout.BASE), int_matrix(P, layout.FRAME)
    allowed, wanted = int_matrix(P, layout.ALLOWED), int_vector(P, layout.WANTED)
    lacked = int_vector(P, layout.LACKED)
    for a in range(i, frame[d, layout.T]):
        if wanted[allowed[d, a]] > 0:
            return True
    has = lacked[allowed[d, i]]
    for a in range(count[layout.BASE_SIZE]):
        has += lacked[base[a]]
        if wanted[base[a]] > 0:
            return True
    for a in range(1, d + 1):
        has += lacked[frame[a, layout.CHOSEN]]
        if wanted[frame[a, layout.CHOSEN]] > 0:
            return True
    return bool(has < count[layout.LACKING])


@compiled("void(i8[::1], i8, i8, i8)", fast=True)
def record_if_better(P: BranchState, d: Int, i: Int, l: Int) -> None:
    """Record S with places i and l of its R (-1: none) if it is independent and better than the incumbent."""
    frame, best, allowed = int_matrix(P, layout.FRAME), int_vector(P, layout.BEST), int_matrix(P, layout.ALLOWED)
    count = int_vector(P, layout.COUNT)
    if count[layout.LISTING] > 0 and d + (1 if i >= 0 else 0) + (1 if l >= 0 else 0) < count[layout.Q]:
        return
    f = value_by_rule(P, d, i, l, matrix(P, layout.ROOT_CROSS).shape[1])
    if not f < vector(P, layout.NUMBERS)[layout.INCUMBENT]:
        return
    if count[layout.LISTING] > 0:
        list_members(P, f)
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

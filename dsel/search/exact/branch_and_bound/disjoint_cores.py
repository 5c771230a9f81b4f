"""Disjoint cores, which strengthen the combined bound of branch and bound.

A core is a set of columns without which R is pruned, so that every better subset holds at least one of them. With
q + 1 disjoint cores there is no better subset, however much all columns explain together. So q matters even if a single
direction holds nearly everything and the eigenvalues say little. With q disjoint cores, all columns outside of them are
dropped. Children are made for the smallest core only.
"""

from __future__ import annotations

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.kernel_arrays import int_vector, matrix, vector
from dsel._lib.types import Int, Ints
from dsel.search.exact.branch_and_bound import layout
from dsel.search.exact.branch_and_bound.layout import BranchState
from dsel.search.exact.branch_and_bound.suffix_bounds import add_least, copy_to_scratch, list_children, suffix_bound


@compiled("i8(i8[::1], i8, i8, i8[::1], i8)", fast=True)
def _next_core(P: BranchState, d: Int, q: Int, order: Ints, split: Int) -> Int:
    """Order the columns before `split`, and return the place up to which they are the next core.

    The bound prunes the columns after that place. Columns from `split` on are in earlier cores. The place is -1 if the
    bound prunes all of R, and `split` or more if there is no further core. It ends early if the kernel is to stop.
    """
    count, numbers = int_vector(P, layout.COUNT), vector(P, layout.NUMBERS)
    f = matrix(P, layout.ERROR)[layout.F_OF_S, d]
    slack = f - numbers[layout.INCUMBENT] + numbers[layout.MARGIN]
    copy_to_scratch(P, d, order)
    trace = 0.0
    top = 0.0
    reached = 0.0
    place = np.int64(-1)
    for a in range(order.size - 1, -1, -1):
        if count[layout.STOP] != 0:
            break
        z = add_least(P, d, a if a >= split else np.int64(0), a, order)
        trace += z
        top += z
        if a > split:
            continue
        top = suffix_bound(P, q, a, order.size, top, trace, slack, np.bool_(False))
        if not top <= slack:  # a bound that is not a number prunes nothing
            place = np.int64(a)
            break
        reached = top
    numbers[layout.REST] = f - reached
    numbers[layout.PRUNED] = min(numbers[layout.PRUNED], f - reached)
    return place


@compiled("i8(i8[::1], i8, i8, i8[::1], i8)", fast=True)
def find_cores(P: BranchState, d: Int, q: Int, order: Ints, crossing: Int) -> Int:
    """Write the core of each column of R to CORE, and return the number of cores; q + 1: there is no better subset.

    The first core is that of the children, `order` up to `crossing`. The next one is searched among the columns that
    are in no core.
    """
    core, bounds, numbers = int_vector(P, layout.CORE), vector(P, layout.CORE_BOUND), vector(P, layout.NUMBERS)
    t = order.size
    for a in range(t):
        core[order[a]] = 1 if a <= crossing else 0
    bounds[1] = numbers[layout.REST]
    found = 1
    trial = int_vector(P, layout.PLACES)[:t]
    while found <= q:
        split = np.int64(0)
        for a in range(t):
            if core[a] == 0:
                trial[split] = a
                split += 1
        end = split
        for a in range(t):
            if core[a] > 0:
                trial[end] = a
                end += 1
        place = _next_core(P, d, q, trial, split)
        if place >= split:
            return found
        found += 1
        bounds[found] = numbers[layout.REST]
        for a in range(place + 1):
            core[trial[a]] = found
        if place < 0:
            return q + 1
    return found


@compiled("UniTuple(i8, 2)(i8[::1], i8, i8, i8[::1], i8, i8)", fast=True)
def branch_on_smallest_core(
    P: BranchState, d: Int, q: Int, order: Ints, found: Int, crossing: Int
) -> tuple[Int, Int]:  # fmt: skip
    """List the children of the smallest core only; with q cores, also drop the columns that are in no core.

    A better subset then has one column of each core and no others. Returns the first place that is not dropped, and the
    last one that is not pruned.
    """
    core = int_vector(P, layout.CORE)
    t = order.size
    sizes = int_vector(P, layout.PLACES)
    for x in range(found + 1):
        sizes[x] = 0
    for a in range(t):
        sizes[core[a]] += 1
    least = 1
    for x in range(2, found + 1):
        if sizes[x] < sizes[least]:
            least = x
    dropped = sizes[0] if found == q else 0
    if least == 1 and dropped == 0:
        vector(P, layout.NUMBERS)[layout.REST] = vector(P, layout.CORE_BOUND)[1]
        return np.int64(0), crossing
    place = 0
    for part in range(3):  # the dropped columns, the core, the others
        for a in range(t):
            out = dropped > 0 and core[a] == 0
            if (part == 0 and out) or (part == 1 and core[a] == least) or (part == 2 and not out and core[a] != least):
                order[place] = a
                place += 1
    return dropped, list_children(P, d, q, order, dropped, dropped + sizes[least])

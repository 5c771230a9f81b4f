"""Disjoint cores, which the combined bound of branch and bound adds to that of the children.

A core is a set of columns without which R is pruned, so that every better subset holds one column of it. q + 1 disjoint
cores leave no better subset, however much all columns explain together; that is how q tells where a single direction
holds nearly everything and the eigenvalues say nothing. With q disjoint cores all columns outside of them are dropped;
the children are those of the smallest core.
"""

from __future__ import annotations

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.kernel_arrays import int_vector, matrix, vector
from dsel._lib.types import Int, Ints
from dsel.search.exact import bb_layout as layout
from dsel.search.exact.bb_layout import BranchState
from dsel.search.exact.suffix_bounds import absorb, list_children, prepare, suffix_bound


@compiled(fast=True)
def _next_core(P: BranchState, d: Int, q: Int, order: Ints, split: Int) -> int:
    """Order R so that the columns before split come last, and find how many of those from split on explain too little
    together with q columns of the others left out of count: the place below which a core lies, see `cores`."""
    numbers = vector(P, layout.NUMBERS)
    f = matrix(P, layout.ERROR)[layout.F_OF_S, d]
    slack = f - numbers[layout.INCUMBENT] + numbers[layout.MARGIN]
    prepare(P, d, order)
    trace = 0.0
    top = 0.0
    reached = 0.0
    for a in range(order.size - 1, -1, -1):
        z = absorb(P, d, a if a >= split else np.int64(0), a, order)
        trace += z
        top += z
        if a > split:
            continue
        top = suffix_bound(P, q, a, order.size, top, trace, slack, np.bool_(False))
        if not top <= slack:  # what is not a number prunes nothing
            numbers[layout.PRUNED] = min(numbers[layout.PRUNED], f - reached)
            return a
        reached = top
    numbers[layout.PRUNED] = min(numbers[layout.PRUNED], f - reached)
    return -1


@compiled(fast=True)
def cores(P: BranchState, d: Int, q: Int, order: Ints, crossing: Int) -> Int:
    """Disjoint sets of columns of which every better subset holds one; how many; q + 1: there is no better subset.

    Without the columns of such a set, a core, the bound prunes. The first is that of the children, `order` up to
    `crossing`; the next one is looked for among the columns that are in none.
    """
    core = int_vector(P, layout.CORE)
    t = order.size
    for a in range(t):
        core[order[a]] = 1 if a <= crossing else 0
    found = 1
    trial = np.empty(t, np.int64)
    while found <= q:
        split = np.int64(0)
        for a in range(t):
            if core[a] == 0:
                trial[split] = a
                split += 1
        held = split
        for a in range(t):
            if core[a] > 0:
                trial[held] = a
                held += 1
        place = _next_core(P, d, q, trial, split)
        if place >= split:
            return found
        found += 1
        for a in range(place + 1):
            core[trial[a]] = found
        if place < 0:
            return q + 1
    return found


@compiled(fast=True)
def narrow(P: BranchState, d: Int, q: Int, order: Ints, found: Int) -> None:
    """List the children of the smallest core instead; with q cores a better subset has one of each and nothing else."""
    core = int_vector(P, layout.CORE)
    t = order.size
    sizes = np.zeros(found + 1, np.int64)
    for a in range(t):
        sizes[core[a]] += 1
    least = 1
    for x in range(2, found + 1):
        if sizes[x] < sizes[least]:
            least = x
    dropped = sizes[0] if found == q else 0
    if least == 1 and dropped == 0:
        return
    place = 0
    for turn in range(3):  # what is dropped, the core, the others
        for a in range(t):
            out = dropped > 0 and core[a] == 0
            if (turn == 0 and out) or (turn == 1 and core[a] == least) or (turn == 2 and not out and core[a] != least):
                order[place] = a
                place += 1
    list_children(P, d, q, order, dropped, dropped + sizes[least])

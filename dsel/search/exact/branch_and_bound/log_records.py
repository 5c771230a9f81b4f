"""The records of the proof log, which the kernel of branch and bound writes while it visits nodes.

deploy/docs/explanation/proof-logs.md describes the format. A segment begins with its open nodes
(`dsel.search.exact.proof_log`). Then it has one record for each event, in the order of the search: the last open node
comes first. The children of a node follow in the order of its record.
"""

from __future__ import annotations

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.kernel_arrays import int_matrix, int_vector, vector
from dsel._lib.types import Int, Ints
from dsel.search.exact.branch_and_bound import layout
from dsel.search.exact.branch_and_bound.layout import BranchState

#: The rest of the segment is open.
END = np.int64(0)
#: The node is closed by its bound.
PRUNED = np.int64(1)
#: The node is closed: S and all its supersets with one or two more columns were compared.
COMPARED = np.int64(2)
#: The node has children: their columns, then which of them are closed by their bound. The rest of R is closed, too.
BRANCHED = np.int64(3)
#: The node is closed: S is dependent.
DEPENDENT = np.int64(4)
#: These columns leave R: S is dependent with each of them.
DROPPED = np.int64(5)
#: Disjoint cores. The node is closed if there are more than q of them. With q, all other columns leave R.
CORES = np.int64(6)


@compiled("void(i8[::1], i8)", fast=True)
def log_number(P: BranchState, number: Int) -> None:
    """Append a number to the log."""
    count = int_vector(P, layout.COUNT)
    int_vector(P, layout.LOG)[count[layout.LOGGED]] = number
    count[layout.LOGGED] += 1


@compiled("void(i8[::1], f8)", fast=True)
def log_bound(P: BranchState, bound: float) -> None:
    """Append the bound of a record."""
    count = int_vector(P, layout.COUNT)
    vector(P, layout.LOG_BOUNDS)[count[layout.LOGGED_BOUNDS]] = bound
    count[layout.LOGGED_BOUNDS] += 1


@compiled("void(i8[::1], i8, i8[::1], i8)", fast=True)
def log_dropped(P: BranchState, d: Int, order: Ints, size: Int) -> None:
    """Append that the first `size` columns of this order leave R of depth d."""
    allowed = int_matrix(P, layout.ALLOWED)
    log_number(P, DROPPED)
    log_number(P, size)
    for a in range(size):
        log_number(P, allowed[d, order[a]])


@compiled("void(i8[::1], i8, i8, i8)", fast=True)
def _log_cores(P: BranchState, d: Int, t: Int, found: Int) -> None:
    core, bounds, allowed = int_vector(P, layout.CORE), vector(P, layout.CORE_BOUND), int_matrix(P, layout.ALLOWED)
    log_number(P, CORES)
    log_number(P, found)
    for x in range(1, found + 1):
        size = np.int64(0)
        for a in range(t):
            size += 1 if core[a] == x else 0
        log_number(P, size)
        for a in range(t):
            if core[a] == x:
                log_number(P, allowed[d, a])
        log_bound(P, bounds[x])


@compiled("void(i8[::1], i8, i8, i8[::1], i8, i8, i8, i8)", fast=True)
def log_branching(
    P: BranchState, d: Int, q: Int, order: Ints, first: Int, begin: Int, crossing: Int, found: Int
) -> None:  # fmt: skip
    """Append what was decided about the node at depth d: dropped columns, cores, children.

    Places before `first` are those of dependent columns, then from `begin` on of borderline ones. Without any, places
    before `begin` are those that the cores drop. The children are among the places up to `crossing`. found: the number
    of cores.
    """
    allowed, children = int_matrix(P, layout.ALLOWED), int_matrix(P, layout.CHILDREN)
    if first > 0 and begin > 0:
        log_dropped(P, d, order, begin)
    if found > 0 and found >= q:
        _log_cores(P, d, order.size, found)
        if found > q:
            return
    regular = int_matrix(P, layout.FRAME)[d, layout.LEFT] - max(first - begin, 0)
    start = max(first, begin)
    log_number(P, BRANCHED)
    log_number(P, crossing - begin + 1)
    for a in range(begin, crossing + 1):
        log_number(P, allowed[d, order[a]])
    log_number(P, crossing - start + 1 - regular)
    log_bound(P, vector(P, layout.NUMBERS)[layout.REST])
    listed = regular - 1  # children descend by place
    for a in range(start, crossing + 1):
        if listed >= 0 and children[d, listed] == a:
            listed -= 1
            continue
        log_number(P, a - begin)
        log_bound(P, vector(P, layout.CHILD_BOUND)[a])

"""The compiled loop of the traversal of all sizes (dsel.search.exact.all_sizes)."""

from __future__ import annotations

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.types import Floats, Int, Ints

#: Of each depth: how many columns are fixed, how many may be dropped, the next one to drop, the largest size that
#: matters, and whether the node was looked at.
FIXED, LEFT, NEXT, HIGHEST, OPENED = range(5)
#: Why the kernel returns.
DONE, PAUSED, BETTER = range(3)


@compiled(
    "i8(f8[:,:,::1], f8[:,:,::1], f8[::1], f8[:,:,::1], f8[::1], i8[:,:,::1], i8[:,::1], i8[::1], i8[::1], f8[::1],"
    "i8)",
    nogil=True,
)  # fmt: skip
def traverse(
    A: Floats, B: Floats, d: Floats, terms: Floats, f: Floats, columns: Ints, frame: Ints, fixed: Ints, state: Ints,
    thresholds: Floats, until: Int,
) -> int:  # fmt: skip
    """Continue the traversal until a subset is below the threshold of its size, or `until` nodes are visited.

    A (n + 1, n, n), B (n + 1, n, N): of each depth, for the columns that may be dropped. terms (n + 1, 3, n):
    |beta_j|^2 / A_jj and d_j |beta_j|^2 of each place, and scratch. f (n + 1,). columns (n + 1, 2, n): the column of
    each place, and the places by their first term, the largest first. fixed (n,): the fixed columns. state: the depth
    and the nodes so far.
    """
    keys = terms[0, 2]
    while state[0] >= 0:
        e = state[0]
        order, D, F = columns[e, 1], frame[e, LEFT], frame[e, FIXED]
        size = F + D
        if frame[e, OPENED] == 0:
            if state[1] >= until:
                return PAUSED
            frame[e, OPENED] = 1
            state[1] += 1
            _look_at(A, B, d, terms, f[e], columns[e], frame[e], thresholds, e, keys)
            if size > 0 and f[e] < thresholds[size]:
                return BETTER
        i = frame[e, NEXT]
        if i >= D or frame[e, HIGHEST] < 0 or D - i < size - frame[e, HIGHEST]:
            state[0] -= 1
            continue
        frame[e, NEXT] += 1
        p = order[i]
        value = f[e] + terms[e, 0, p]
        if not value < thresholds[max(F + i, 1)]:  # thresholds are smaller for larger sizes
            continue
        left = D - i - 1
        _smallest_first(terms, order, e, i + 1, D, keys)
        total = terms[e, 1, p]
        matters = False
        for t in range(1, left + 2):
            if size - t < 1 or matters:
                break
            if t > 1:
                total += keys[t - 2]
            if size - t <= frame[e, HIGHEST]:
                matters = f[e] + max(terms[e, 0, p], total) < thresholds[size - t]
        if not matters:
            continue
        for x in range(i):
            fixed[F + x] = columns[e, 0, order[x]]
        _drop(A, B, columns, e, i, left)
        f[e + 1] = value
        frame[e + 1, FIXED], frame[e + 1, LEFT], frame[e + 1, OPENED] = F + i, left, 0
        state[0] = e + 1
    return DONE


@compiled("void(f8[:,:,::1], f8[:,:,::1], f8[::1], f8[:,:,::1], f8, i8[:,::1], i8[::1], f8[::1], i8, f8[::1])",
          inner=True)  # fmt: skip
def _look_at(
    A: Floats, B: Floats, d: Floats, terms: Floats, value: float, columns: Ints, frame: Ints, thresholds: Floats,
    e: Int, keys: Floats,
) -> None:  # fmt: skip
    """Write the terms of a node at depth e, the order of its columns, and the largest size that matters below it."""
    own, order, D = columns[0], columns[1], frame[LEFT]
    size = frame[FIXED] + D
    frame[NEXT] = 0
    frame[HIGHEST] = -1
    for a in range(D):
        square = 0.0
        for x in range(B.shape[2]):
            square += B[e, a, x] * B[e, a, x]
        terms[e, 0, a] = square / A[e, a, a]
        terms[e, 1, a] = square * d[own[a]]
        b = a
        while b > 0 and terms[e, 0, order[b - 1]] < terms[e, 0, a]:
            order[b] = order[b - 1]
            b -= 1
        order[b] = a
    _smallest_first(terms, order, e, np.int64(0), D, keys)
    total = 0.0
    for t in range(1, D + 1):
        total += keys[t - 1]
        if size - t < 1:
            break
        if value + max(terms[e, 0, order[D - t]], total) < thresholds[size - t]:
            frame[HIGHEST] = size - t
            break


@compiled("void(f8[:,:,::1], f8[:,:,::1], i8[:,:,::1], i8, i8, i8)", inner=True)
def _drop(A: Floats, B: Floats, columns: Ints, e: Int, i: Int, left: Int) -> None:
    """Write the `left` columns of depth e + 1, and their A and B without the column at place i in the order."""
    order = columns[e, 1]
    p = order[i]
    for x in range(left):
        row = order[i + 1 + x]
        u = A[e, row, p] / A[e, p, p]
        columns[e + 1, 0, x] = columns[e, 0, row]
        for y in range(left):
            A[e + 1, x, y] = A[e, row, order[i + 1 + y]] - u * A[e, p, order[i + 1 + y]]
        for y in range(B.shape[2]):
            B[e + 1, x, y] = B[e, row, y] - u * B[e, p, y]


@compiled("void(f8[:,:,::1], i8[::1], i8, i8, i8, f8[::1])", inner=True)
def _smallest_first(terms: Floats, order: Ints, e: Int, first: Int, end: Int, keys: Floats) -> None:
    """Write the second terms of the places order[first:end] to `keys`, the smallest first."""
    for count in range(end - first):
        value = terms[e, 1, order[end - 1 - count]]  # nearly in this order
        b = count
        while b > 0 and keys[b - 1] > value:
            keys[b] = keys[b - 1]
            b -= 1
        keys[b] = value

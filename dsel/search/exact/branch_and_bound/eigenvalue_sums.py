"""Sums of the largest eigenvalues of a symmetric matrix, and cheaper bounds on them, for branch and bound."""

from __future__ import annotations

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.types import Floats, Int


@compiled("f8(f8[:, ::1], i8)", fast=True, allocates=True)
def sum_of_largest(H: Floats, q: Int) -> float:
    """Return the sum of the q largest eigenvalues of a symmetric matrix, infinity if an element is not finite."""
    N = H.shape[0]
    if q <= 0:
        return 0.0
    total = 0.0
    if q >= N:
        for a in range(N):
            total += H[a, a]
        return total
    for a in range(N):
        for b in range(N):
            if not abs(H[a, b]) < np.inf:
                return np.inf
    values = np.linalg.eigvalsh(H)
    for a in range(q):
        total += max(values[N - 1 - a], 0.0)
    return total


@compiled("f8(f8[:, ::1], f8[::1], i8)", fast=True)
def sum_of_largest_diagonal(H: Floats, w: Floats, q: Int) -> float:
    """Return the sum of the q largest diagonal elements of H - w w', at most that of the eigenvalues (Schur)."""
    N = H.shape[0]
    total = 0.0
    last = np.inf
    taken = 0
    while taken < q:
        largest = -np.inf
        for x in range(N):
            h = H[x, x] - w[x] * w[x]
            if largest < h < last:
                largest = h
        if largest <= 0.0:
            break
        for x in range(N):
            if taken < q and H[x, x] - w[x] * w[x] == largest:
                total += largest
                taken += 1
        last = largest
    return total


@compiled("f8(f8[:, ::1], i8, f8, f8)", fast=True)
def block_upper_bound(leading: Floats, q: Int, trace: float, slack: float) -> float:
    """Return an upper bound on the sum of the q largest eigenvalues of a positive semidefinite matrix of this trace.

    The bound is the sum of the diagonal block `leading` plus the rest of the trace, because the sum of a matrix is at
    most that of two diagonal blocks. The sum of the block itself is a lower bound (Cauchy). Returns infinity if the two
    do not decide whether the sum is within the slack.
    """
    rest = trace
    for x in range(leading.shape[0]):
        rest -= leading[x, x]
    part = sum_of_largest(leading, q)
    bound = min(part + max(rest, 0.0), trace)
    return bound if part > slack or bound <= slack else np.inf


@compiled(fast=True)
def add_outer(A: Floats, b: Floats, d: float) -> None:
    """Add b b' / d to A, for the targets of A."""
    for x in range(A.shape[0]):
        u = b[x] / d
        for y in range(A.shape[0]):
            A[x, y] += u * b[y]


@compiled(fast=True)
def subtract_outer(H: Floats, A: Floats, w: Floats) -> None:
    """Write A - w w' to H, for the targets of A."""
    for x in range(A.shape[0]):
        for y in range(A.shape[0]):
            H[x, y] = A[x, y] - w[x] * w[y]

"""Sums of the largest eigenvalues of a symmetric matrix, and what is known of them for less, in branch and bound."""

from __future__ import annotations

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.types import Floats, Int


@compiled(fast=True)
def top_of(H: Floats, q: Int) -> float:
    """Sum of the q largest eigenvalues of a symmetric matrix; infinity where an element is not finite."""
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


@compiled(fast=True)
def spread(H: Floats, w: Floats, q: Int) -> float:
    """Sum of the q largest diagonal elements of H - w w': no more than that of the q largest eigenvalues (Schur)."""
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


@compiled(fast=True)
def at_most(leading: Floats, q: Int, trace: float, slack: float) -> float:
    """At least the sum of the q largest eigenvalues of a positive semidefinite matrix of that trace: that of its part
    `leading`, and all of the rest (no sum of the largest is above that of two diagonal blocks). Infinity where this
    cannot tell whether it is within the slack; it is not where that of the part is not (Cauchy)."""
    rest = trace
    for x in range(leading.shape[0]):
        rest -= leading[x, x]
    part = top_of(leading, q)
    bound = min(part + max(rest, 0.0), trace)
    return bound if part > slack or bound <= slack else np.inf


@compiled(fast=True)
def add_outer(A: Floats, b: Floats, d: float) -> None:
    """A + b b' / d, of as many targets as A has."""
    for x in range(A.shape[0]):
        u = b[x] / d
        for y in range(A.shape[0]):
            A[x, y] += u * b[y]


@compiled(fast=True)
def without_outer(H: Floats, A: Floats, w: Floats) -> None:
    """H = A - w w', of as many targets as A has."""
    for x in range(A.shape[0]):
        for y in range(A.shape[0]):
            H[x, y] = A[x, y] - w[x] * w[y]

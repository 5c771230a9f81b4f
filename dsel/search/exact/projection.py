"""What a selection leaves of columns, and of the targets' part in them, in the eigen-reduced problem; compiled."""

from __future__ import annotations

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.types import Floats, Ints

#: Below this share of a squared norm a difference of squares is made again, as the square of a difference.
_CANCELLED = 1e-6
#: A member with at most this squared norm beside those before it is in their span, but for rounding.
_NOTHING = 1e-26


@compiled()
def beside(W: Floats, P: Floats, seen: Floats, S: Ints, own: Floats, squares: Floats, Z: Floats, Z_S: Floats) -> float:
    """Given the columns S (s,) of W (r_x, n): into squares (n,) the squared norm of what is left of each column, into
    Z (r_y, n) what is left of seen = P W, into Z_S (s, r_y) P Q of an orthonormal basis Q of S; the determinant of
    the columns S, which are of norm at most 1. own: (n,) squared norms. O(s n (r_x + r_y))."""
    r, n = W.shape
    N = Z.shape[0]
    s = S.size
    Q = np.empty((s, r))
    c = np.empty(n)
    v = np.empty(r)
    determinant = 1.0
    for j in range(n):
        squares[j] = own[j]
        for x in range(N):
            Z[x, j] = seen[x, j]
    for a in range(s):
        for i in range(r):
            v[i] = W[i, S[a]]
        for _ in range(2):  # twice is enough to be orthogonal to rounding
            for b in range(a):
                _take_out(Q, b, v)
        norm = 0.0
        for i in range(r):
            norm += v[i] * v[i]
        determinant *= norm
        scale = 1.0 / np.sqrt(norm) if norm > _NOTHING else 0.0
        for j in range(n):
            c[j] = 0.0
        for i in range(r):
            Q[a, i] = v[i] * scale
            for j in range(n):
                c[j] += Q[a, i] * W[i, j]
        for x in range(N):
            Z_S[a, x] = 0.0
            for i in range(r):
                Z_S[a, x] += P[x, i] * Q[a, i]
        for j in range(n):
            squares[j] -= c[j] * c[j]
        for x in range(N):
            for j in range(n):
                Z[x, j] -= Z_S[a, x] * c[j]
    for j in range(n):
        if squares[j] < _CANCELLED * own[j]:
            squares[j] = 0.0
            for i in range(r):
                v[i] = W[i, j]
            for b in range(s):
                _take_out(Q, b, v)
            for i in range(r):
                squares[j] += v[i] * v[i]
    return determinant


@compiled()
def _take_out(Q: Floats, b: int, v: Floats) -> None:
    """Take the direction of row b of Q out of v."""
    share = 0.0
    for i in range(v.size):
        share += Q[b, i] * v[i]
    for i in range(v.size):
        v[i] -= share * Q[b, i]

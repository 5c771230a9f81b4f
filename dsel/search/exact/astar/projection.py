"""Compute what a selection leaves of columns, and of the targets' part in them, in the eigen-reduced problem; compiled.

W (r_x, n), P (r_y, r_x): the eigen-reduced problem, see dsel.search.exact.astar.reduced_problem. S (s,): the selection.
"""

from __future__ import annotations

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.types import Floats, Ints

#: Below this share of a squared norm, a difference of squares is recomputed as the square of a difference.
_CANCELLED = 1e-6
#: A member whose residual has at most this squared norm is in the span of the members before it, up to rounding.
_NOTHING = 1e-26


@compiled(allocates=True)
def project_out(
    W: Floats, P: Floats, PW: Floats, S: Ints, norms: Floats, squares: Floats, Z: Floats, Z_S: Floats
) -> float:
    """Project the columns S (s,) out of W (r_x, n) and of PW = P W, and return the determinant of the columns S.

    The columns S have norm at most 1. norms: (n,) squared norms of the columns. Writes squares (n,), the squared norms
    of the residual columns; Z (r_y, n), the residual of PW; Z_S (s, r_y), P Q of an orthonormal basis Q of S.
    O(s n (r_x + r_y)).
    """
    r, n = W.shape
    N = Z.shape[0]
    s = S.size
    Q = np.empty((s, r))
    c = np.empty(n)
    v = np.empty(r)
    determinant = 1.0
    for j in range(n):
        squares[j] = norms[j]
        for x in range(N):
            Z[x, j] = PW[x, j]
    for a in range(s):
        for i in range(r):
            v[i] = W[i, S[a]]
        for _ in range(2):  # twice is enough to be orthogonal to rounding
            for b in range(a):
                _orthogonalise(Q, b, v)
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
        if squares[j] < _CANCELLED * norms[j]:
            squares[j] = 0.0
            for i in range(r):
                v[i] = W[i, j]
            for b in range(s):
                _orthogonalise(Q, b, v)
            for i in range(r):
                squares[j] += v[i] * v[i]
    return determinant


@compiled()
def _orthogonalise(Q: Floats, b: int, v: Floats) -> None:
    """Subtract from v its component along row b of Q."""
    share = 0.0
    for i in range(v.size):
        share += Q[b, i] * v[i]
    for i in range(v.size):
        v[i] -= share * Q[b, i]

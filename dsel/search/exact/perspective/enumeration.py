"""Enumerate the subsets of a node that may be better, where its bound leaves few.

For any coefficients b, no set T of columns explains more than

    b'(K - D)b + sum over T of g_j

(dsel.search.exact.perspective.relaxation). So a node whose columns F are in, with q more to choose, holds a better
subset only among those whose q largest g suffice. With the columns in the order of g they are found without a look at
the others. This takes less time than further relaxations if q is small, or g falls quickly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from dsel._lib.jit import compiled
from dsel._lib.types import Floats, Ints
from dsel.search.exact.perspective.coordinate_descent import squares

#: No pivot of a column of norm 1 is smaller, but for rounding: the diagonal D is larger.
_LEAST_PIVOT = 1e-8
#: Seconds of an element of a row, and to begin, about.
_SECONDS, _START_SECONDS = 1e-9, 1e-4
#: If all pairs take this many times too long, the order of g is not looked at, which takes a while.
_HOPELESS = 4.0


@dataclass(frozen=True)
class Visited:
    """What was found below a node.

    closed: whether all of it was visited. subsets: a better subset, or all that are listed. seconds: about how long it
    took, which does not depend on the machine, where that is not counted elsewhere.
    """

    closed: bool
    subsets: Sequence[Ints] = ()
    seconds: float = 0.0


def enumerated(
    K: Floats, B: Floats, fixed: Ints, free: Ints, q: int, base: float, g: Floats, enough: float, most: float,
    rows: int = 1,
) -> Visited:  # fmt: skip
    """Return the best subset of a node that explains more than `enough`, and whether all were tried.

    rows: if it is above 1, return all such subsets. If there are more than `rows`, it is not finished.

    K (n, n), B (n,) or (n, N): the columns, of norm 1. fixed: those that are in. free: those that may be added, q > 0
    of them. base: what a subset explains at most, less the sum of g (n,) over the added columns. most: seconds, about.
    """
    s, t = fixed.size, free.size
    if q > 1 and (s + q + 4) * t**2 * _SECONDS > _HOPELESS * most:
        return Visited(False)
    J = free[np.argsort(-g[free], kind="stable")]
    if _expected_elements(g[J], q, s, enough - base) * _SECONDS > most:
        return Visited(False)
    B = B[:, None] if B.ndim == 1 else B
    V, R, P = np.empty((s + q, t)), np.empty((q, B.shape[1], t)), np.empty((q, t))
    explained, R[0], P[0] = 0.0, B[J].T, np.diag(K)[J]
    if s:
        L = np.linalg.cholesky(K[np.ix_(fixed, fixed)])  # positive definite, because K - D is not negative
        V[:s] = scipy.linalg.solve_triangular(L, K[np.ix_(fixed, J)], lower=True, check_finite=False)
        W = scipy.linalg.solve_triangular(L, B[fixed], lower=True, check_finite=False)
        explained = float(squares(W).sum())
        R[0] -= W.T @ V[:s]
        P[0] -= np.square(V[:s]).sum(axis=0)
    sums, places = np.concatenate([[0.0], np.cumsum(g[J])]), np.full((rows, q), -1)
    elements = _enumerate(K, J, sums, s, V, R, P, explained, base, enough, int(most / _SECONDS), places)
    if elements < 0:
        return Visited(False, (), _START_SECONDS + most)
    subsets = [np.concatenate([fixed, J[S]]) for S in places if S[0] >= 0]
    return Visited(True, subsets, _START_SECONDS + elements * _SECONDS)


def _expected_elements(g: Floats, q: int, s: int, needed: float) -> float:
    """Return about how many elements are computed at most, if q of the columns with these g, which descend, are added.

    They need a sum of g above `needed`.
    """
    if q == 1:
        return float(g.size)
    sums = np.concatenate([[0.0], np.cumsum(g), np.full(q, np.nan)])
    first = np.arange(g.size)
    others = g + sums[first + q - 1] - sums[first + 1]
    last = np.searchsorted(-g, others - needed, side="left")  # with this first column
    return (s + q + 4.0) * float((np.maximum(last - first, 0.0) ** (q - 1)).sum()) / math.factorial(q - 1)


@compiled(
    "i8(f8[:,::1], i8[::1], f8[::1], i8, f8[:,::1], f8[:,:,::1], f8[:,::1], f8, f8, f8, i8, i8[:,::1])",
    nogil=True, allocates=True,
)  # fmt: skip
def _enumerate(
    K: Floats, J: Ints, sums: Floats, s: int, V: Floats, R: Floats, P: Floats, explained: float, base: float,
    enough: float, most: int, subsets: Ints,
) -> int:  # fmt: skip
    """Write the best q columns to `subsets` (rows, q), and return how many elements were computed.

    With several rows, all that are good enough are written. Return -1 if there are more than rows, or more than `most`
    elements.

    At depth d, d columns are added. V (s + q, t): rows of a Cholesky factor of K, for the columns J (t,). R (q, N, t),
    P (q, t): what the columns so far leave of the inner products with the targets, and of the columns' squares. sums
    (t + 1,): of g, which descends.
    """
    q, t, N, rows, written = subsets.shape[1], J.size, R.shape[1], subsets.shape[0], np.int64(0)
    place, ends, total, value = np.zeros(q, np.int64), np.zeros(q, np.int64), np.zeros(q), np.zeros(q)
    value[0], ends[0] = explained, t
    elements, d, last = 0, 0, q - 1
    while d >= 0:
        i, rest = place[d], q - d
        if i + rest > ends[d] or base + total[d] + sums[i + rest] - sums[i] <= enough:
            d -= 1
            continue
        if d == last:  # compare all columns that come last
            while i < ends[d] and base + total[d] + sums[i + 1] - sums[i] > enough:
                m = 0.0
                for a in range(N):
                    m += R[d, a, i] * R[d, a, i]
                found = value[d] + m / max(P[d, i], _LEAST_PIVOT)
                if found > enough:
                    if written == rows:
                        return -1
                    for x in range(d):
                        subsets[written, x] = place[x] - 1
                    subsets[written, d] = i
                    if rows == 1:
                        enough = found
                    else:
                        written += 1
                i += 1
            elements += N * (i - place[d])
            d -= 1
            continue
        place[d] += 1
        own = sums[i + 1] - sums[i]
        others = base + total[d] + own + sums[i + rest - 1] - sums[i + 1]  # with the first of those after i
        pivot = max(P[d, i], _LEAST_PIVOT) ** 0.5
        end, row = i + 1, K[J[i]]
        while end < ends[d] and others + sums[end + 1] - sums[end] > enough:
            end += 1
        new, columns = V[s + d, i + 1 : end], J[i + 1 : end]  # views: their indices are plainly not negative
        for l in range(new.size):
            new[l] = row[columns[l]]
        for x in range(s + d):
            u, before = V[x, i], V[x, i + 1 : end]
            for l in range(new.size):
                new[l] -= u * before[l]
        left, next_left = P[d, i + 1 : end], P[d + 1, i + 1 : end]
        for l in range(new.size):
            new[l] /= pivot
            next_left[l] = left[l] - new[l] * new[l]
        gain = 0.0
        for a in range(N):
            u = R[d, a, i] / pivot
            gain += u * u
            inner, next_inner = R[d, a, i + 1 : end], R[d + 1, a, i + 1 : end]
            for l in range(new.size):
                next_inner[l] = inner[l] - u * new[l]
        elements += (end - i) * (s + d + N + 4)
        if elements > most:
            return -1
        d += 1
        place[d], ends[d], total[d], value[d] = i + 1, end, total[d - 1] + own, value[d - 1] + gain
    return elements


#: What `enumerated` calls.
ENUMERATION_KERNELS = (_enumerate,)

"""Close nodes with few columns left to choose by the least eigenvalue that few columns of K can have.

Columns T that are added to the columns F explain r_T' (K_TT - W_T' W_T)^-1 r_T more, where r (n,) are the inner
products of the columns with what F leaves of the target, and W = L^-1 K_F with the Cholesky factor L of K_FF. With
q columns in T, no eigenvalue of K_TT is below l_q, so that T explains at most

    sum over T of r_j^2 / (l_q - sum over T of |w_j|^2)

more. Where the columns of F and their neighbours explain little of the others, this needs no relaxation. It stays
useful with more columns than rows, where K - D leaves only the penalty for D. The bound of the columns that are left
improves when a column with a large r_j or |w_j| is tried alone, and then left out.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from dsel._lib.jit import compiled
from dsel._lib.types import Bools, Floats, Int, Ints

#: Most columns to add.
MOST_ADDED = 3
#: Seconds of `least_eigenvalues`, about, over n^2.
EIGENVALUE_SECONDS = 3.5e-8
#: Rounding of an eigenvalue.
_ROUNDING = 1e-9
#: Of the least eigenvalue of two columns, the share that is tried for three.
_OF_TWO = 0.8
#: With more pairs of close columns than this many times n, the least eigenvalues are small anyway.
_MOST_CLOSE = 4
#: Elements of K that are looked at together.
_BLOCK = 1 << 22
#: No pivot of a column of norm 1 is smaller, but for rounding: the penalty and the diagonal D are larger.
_LEAST_PIVOT = 1e-8


def least_eigenvalues(K: Floats) -> Floats:
    """Return l (MOST_ADDED + 1,): no eigenvalue of q columns of K (n, n), with a diagonal of 1, is below l_q.

    It is 0 where it is not known. O(n^2).
    """
    found = np.zeros(MOST_ADDED + 1)
    found[0] = found[1] = 1.0
    n = K.shape[0]
    largest = np.concatenate([_off_diagonal(K, first).max(axis=1) for first in range(0, n, _step(n))])
    found[2] = max(1.0 - float(largest.max(initial=0.0)) - _ROUNDING, 0.0)
    aim = _OF_TWO * found[2]
    close = 0.5 * (1.0 - aim)  # three columns that are not close have no eigenvalue below 1 - 2 times their correlation
    pairs = [np.nonzero(_off_diagonal(K, first) >= close) for first in range(0, n, _step(n))]
    i = np.concatenate([rows + first for first, (rows, _) in zip(range(0, n, _step(n)), pairs, strict=True)])
    j = np.concatenate([columns for _, columns in pairs])
    if np.count_nonzero(i < j) <= _MOST_CLOSE * n:
        found[3] = max(_least_of_three(K, i[i < j], j[i < j], aim) - _ROUNDING, 0.0)
    return found


def _step(n: int) -> int:
    """Return how many rows of K are looked at together."""
    return max(_BLOCK // n, 1)


def _off_diagonal(K: Floats, first: int) -> Floats:
    """Return the absolute values of some rows of K, with a diagonal of 0."""
    A = np.abs(K[first : first + _step(K.shape[0])])
    A[np.arange(A.shape[0]), np.arange(first, first + A.shape[0])] = 0.0
    return A


def _least_of_three(K: Floats, i: Ints, j: Ints, aim: float) -> float:
    """Return what no eigenvalue of three columns is below, at most `aim`. i, j (pairs,): the close columns."""
    least, step = aim, _step(K.shape[0])
    for first in range(0, i.size, step):
        a, b = i[first : first + step], j[first : first + step]
        of_pair = 1.0 - np.abs(K[a, b])  # the least eigenvalue x of all three has (of_pair - x) (1 - x) <= squares
        pair, third = np.nonzero(np.square(K[a]) + np.square(K[b]) > ((of_pair - least) * (1.0 - least))[:, None])
        apart = (third != a[pair]) & (third != b[pair])
        S = np.stack([a[pair], b[pair], third], axis=1)[apart]
        if S.size:
            least = min(least, float(np.linalg.eigvalsh(K[S[:, :, None], S[:, None, :]])[:, 0].min()))
    return least


def none_better(
    K: Floats, c: Floats, fixed: Ints, free: Ints, q: int, enough: float, eigenvalues: Floats, most: int
) -> tuple[bool, int]:  # fmt: skip
    """Return whether no q of the free columns, with the fixed ones, explain more than `enough`, and the work.

    False: it is not known. K (n, n), c (n,): the columns, of norm 1, and their products with the target. eigenvalues:
    see `least_eigenvalues`. most: elements that may be computed; the work is how many were.
    """
    s, t = fixed.size, free.size
    W, r, h = np.empty((s + q, t)), np.empty((q, t)), np.empty((q, t))
    explained, r[0], h[0] = 0.0, c[free], 0.0
    if s:
        L = np.linalg.cholesky(K[np.ix_(fixed, fixed)])
        W[:s] = scipy.linalg.solve_triangular(L, K[np.ix_(fixed, free)], lower=True, check_finite=False)
        w = scipy.linalg.solve_triangular(L, c[fixed], lower=True, check_finite=False)
        explained = float(w @ w)
        r[0] -= w @ W[:s]
        h[0] = np.square(W[:s]).sum(axis=0)
    work = _none_better(K, free, s, W, r, h, np.zeros((q, t), np.bool_), enough - explained, eigenvalues, most)
    return work >= 0, abs(work)


@compiled(
    "i8(f8[:,::1], i8[::1], i8, f8[:,::1], f8[:,::1], f8[:,::1], b1[:,::1], f8, f8[::1], i8)", nogil=True,
    allocates=True,
)  # fmt: skip
def _none_better(
    K: Floats, J: Ints, s: Int, W: Floats, r: Floats, h: Floats, tried: Bools, needed: float, eigenvalues: Floats,
    most: Int,
) -> int:  # fmt: skip
    """Return how many elements were computed, negative if a subset may explain more than `needed`.

    At depth d, d columns are added. W (s + q, t): rows of a Cholesky factor of K, for the columns J (t,). r, h (q, t):
    what the columns so far leave of the inner products, and explain of each column's square. tried (q, t): columns that
    are added no more.
    """
    q, t = r.shape
    left, squares, shares = np.zeros(q), np.zeros(q), np.zeros(q)
    left[0] = needed
    work: int = 0
    d: int = 0
    while d >= 0:
        rest = q - d
        work += t
        if work > most or left[d] < 0.0:
            return -work - 1
        if rest == 1:
            for j in range(t):
                if not tried[d, j] and r[d, j] * r[d, j] > left[d] * max(1.0 - h[d, j], _LEAST_PIVOT):
                    return -work - 1
            d -= 1
            continue
        squares[:rest] = 0.0
        shares[:rest] = 0.0
        least = eigenvalues[rest]
        by_square, by_share, columns, large = -1, -1, 0, 0
        for j in range(t):
            if tried[d, j]:
                continue
            columns += 1
            square, share = r[d, j] * r[d, j], h[d, j]
            large += rest * square > left[d] * least
            if _insert(squares, rest, square) or by_square < 0:
                by_square = j
            if _insert(shares, rest, share) or by_share < 0:
                by_share = j
        total, explained = 0.0, 0.0
        for i in range(rest):
            total += squares[i]
            explained += shares[i]
        if columns < rest or total <= left[d] * (least - explained):
            d -= 1
            continue
        if work + (large - rest) * (s + d + 4) * t > most:  # too many columns must be tried
            return -work - 1
        j = by_square if total > 0.8 * left[d] * least else by_share
        tried[d, j] = True
        gain = _add(K, J, W, r, h, s + d, d, j)
        tried[d + 1] = tried[d]
        work += (s + d + 4) * t
        left[d + 1] = left[d] - gain * gain
        d += 1
    return work


@compiled(inner=True)
def _insert(largest: Floats, count: Int, value: float) -> bool:
    """Put a value among the `count` largest ones, the largest first, and return whether it is the largest."""
    if not value > largest[count - 1]:
        return False
    is_first = value > largest[0]
    i = count - 1
    while i > 0 and largest[i - 1] < value:
        largest[i] = largest[i - 1]
        i -= 1
    largest[i] = value
    return bool(is_first)


@compiled("f8(f8[:,::1], i8[::1], f8[:,::1], f8[:,::1], f8[:,::1], i8, i8, i8)", inner=True)
def _add(K: Floats, J: Ints, W: Floats, r: Floats, h: Floats, rows: Int, d: Int, j: Int) -> float:
    """Write the next row of W, which has `rows` rows, and r and h for the column at place j; return its product."""
    pivot = max(1.0 - h[d, j], _LEAST_PIVOT) ** 0.5
    gain = r[d, j] / pivot
    row, new = K[J[j]], W[rows]
    for l in range(J.size):
        new[l] = row[J[l]]
    for x in range(rows):
        u = W[x, j]
        before = W[x]
        for l in range(J.size):
            new[l] -= u * before[l]
    for l in range(J.size):
        new[l] /= pivot
        r[d + 1, l] = r[d, l] - gain * new[l]
        h[d + 1, l] = h[d, l] + new[l] * new[l]
    return float(gain)


#: What `none_better` calls.
SPARSE_KERNELS = (_none_better,)

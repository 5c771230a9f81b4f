"""Eigendecomposition of X X' out of core, and the reduced problem of Wan and Schweitzer (AAAI 2021, eq. 8).

Z (m x n) is the preprocessed X. With Z Z' = U D U', zero eigenvalues dropped, W = U'Z (r x n) has W'W = Z'Z = K. Every
search runs on W as it does on K. There are two algorithms:

    exact    Z Z' (m x m) summed over column blocks, then W = U'Z block by block. Two passes, for wide data.
    sketch   randomized subspace iteration (Halko, Martinsson and Tropp, SIAM Review 2011, algorithm 4.4): Y = Z Omega,
             then q times Q = orth(Y), B = Z'Q, R = orth(B), Y = Z R; then U = orth(Y) and W = U'Z. 2 + 2q passes.
             Nothing is larger than (m + n) x (rank + 30).

What U leaves, E = Z - U W, is orthogonal to U. Therefore, for all columns S and coefficients A,

    ||Z - Z_S A||^2 = ||W - W_S A||^2 + ||E - E_S A||^2 >= ||W - W_S A||^2 + ||E||^2 - the k largest eigenvalues of E'E

so that a lower bound on W is one on the data (`dsel.planning.representations.reduced`). Test vectors g (m numbers, from
independent normal ones) that take part in all passes bound E: its norm to the power 2q + 1 is at most that of
(I - UU')(ZZ')^q Z (Halko, Martinsson and Tropp, proposition 8.6), which is at most the norm of its product with t test
vectors over the root of a chi-square number of t degrees of freedom.

The test matrix Omega is a hash of (seed, feature, column), so it depends neither on the chunks nor on the workers. Sums
over the data follow the order of the blocks: the same chunks give the same bits, other chunks the same up to rounding.

QR of a tall matrix is computed in place, one block of rows after the other.

Source: Demmel, Grigori, Hoemmen, Langou, "Communication-optimal parallel and sequential QR and LU factorizations", SIAM
Journal on Scientific Computing 2012 (sequential TSQR, one level of blocks at a time). It is as stable as Householder's
QR of the whole matrix, whatever its condition.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import scipy.linalg

from dsel._lib.splitmix import GOLDEN, mix, to_unit
from dsel._lib.types import Floats
from dsel.config.request import SketchRule
from dsel.errors import OptionError
from dsel.passes.columns.column_factor import ColumnFactor
from dsel.passes.execution.pass_checkpoints import storable

#: Rows of a block per column.
_ROWS_PER_COLUMN = 16


def orthonormalise(Y: Floats) -> Floats:
    """Overwrite Y (m, l), m >= l, by Q of Y = QR and return R (l, l).

    Y may be in any memory order. Cost: O(m l^2) operations, and memory for a block of 16 l rows and a sixteenth of Y.
    """
    m, l = Y.shape
    edges = [*range(0, max(m - l, 1), _ROWS_PER_COLUMN * max(l, 1)), m]
    if len(edges) == 2:
        Y[...], R = scipy.linalg.qr(Y, mode="economic", check_finite=False)
        return np.asarray(R)
    stack = np.empty((l * (len(edges) - 1), l))
    for i, (a, b) in enumerate(pairwise(edges)):
        Y[a:b], stack[i * l : (i + 1) * l] = scipy.linalg.qr(Y[a:b], mode="economic", check_finite=False)
    R = orthonormalise(stack)
    for i, (a, b) in enumerate(pairwise(edges)):
        Y[a:b] = Y[a:b] @ stack[i * l : (i + 1) * l]
    return R


#: Eigenvalues below this share of the largest count as zero.
ROUNDING = 1e-13
#: Columns of a sketch beyond its rank, and test vectors of its error bound, which fails with this probability.
OVERSAMPLING, TESTS, ERROR_CHANCE = 10, 20, 1e-10
#: The first rank that is tried for an accuracy.
FIRST_RANK = 50
#: Entries of the test matrix that are made at once.
_TEST_NUMBERS = 1 << 20


@storable
@dataclass(frozen=True)
class Eigen:
    """The reduced data W = U'Z with its eigenvalues.

    W: (r, n) orthogonal rows of descending norm; the largest entry of each row is positive. values: (r,) the diagonal
    of D, the squared row norms of W. U: (m, r) orthonormal columns. total: ||Z||_F^2. passes: over the data.
    error_bound: ||Z - U W|| is at most this, except with probability error_chance; (0, 0) where W is exact.
    """

    W: Floats
    values: Floats
    U: Floats
    total: float
    passes: int
    error_bound: float = 0.0
    error_chance: float = 0.0

    @property
    def consistent(self) -> bool:
        """Return whether the shapes of the arrays fit together."""
        return bool(self.W.shape[0] == self.values.size)

    @property
    def rank(self) -> int:
        """Return r."""
        return int(self.values.size)

    @property
    def captured(self) -> float:
        """Return the share of ||Z||_F^2 that U W, a projection of Z, holds."""
        return min(float(self.values.sum()) / self.total, 1.0) if self.total > 0.0 else 1.0

    def left_out(self, k: int) -> float:
        """Return an upper limit of what any k directions hold of Z - U W, except with probability error_chance."""
        missed = max(self.total - float(self.values.sum()), 0.0)
        return min(missed, k * self.error_bound**2)


def exact_eigendecomposition(factor: ColumnFactor) -> Eigen:
    """Decompose through Z Z' (m, m) in two passes.

    A worker holds a few m x m sums and a column block. Errors: DataError for a store of full-row chunks.
    """
    G = factor.row_gram()
    values, U = scipy.linalg.eigh(G)
    kept = _rank(values[::-1])
    D, U = values[::-1][:kept], np.ascontiguousarray(U[:, ::-1][:, :kept])
    W, signs = signed(factor.products(U))
    return Eigen(W, D, U * signs, float(np.trace(G)), passes=2)


def sketch_passes(powers: int) -> int:
    """Return the number of passes of a sketch with `powers` power iterations."""
    return 2 + 2 * powers


def randomized_eigendecomposition(
    factor: ColumnFactor, total: float, rank: int, *, accuracy: float | None = None, powers: int = 2, seed: int = 0,
    oversampling: int = OVERSAMPLING, held: Floats | None = None,
) -> Eigen:  # fmt: skip
    """Decompose up to a rank by a randomized sketch.

    total: ||Z||_F^2. accuracy: take the least rank that captures this share. powers: q >= 1. held: (m, t) columns in
    whose span U is complete, beyond the rank. A worker holds a few m x (rank + 30) arrays and its columns; this process
    holds a few (m + n) x (rank + 30) arrays. The QR of either factor is made in
    place.

    Errors: OptionError for a rank below 1.
    """
    m, n = factor.shape
    if rank < 1:
        raise OptionError(f"rank is {rank}.", "It must be at least 1.")
    width, scale = min(rank + oversampling, m, n), float(np.sqrt(total))
    Y, tested = _powers(factor, width, scale, powers, seed)
    t = 0 if held is None else min(held.shape[1], m)
    U = Y if held is None else np.hstack([held, Y])[:, : min(t + width, m)]
    del Y
    orthonormalise(U)
    W = factor.products(U)
    U, W = _cut(U, W, t, rank, None if accuracy is None else accuracy * total)
    V, s, Wt = scipy.linalg.svd(W, full_matrices=W.shape[0] > W.shape[1])
    r = W.shape[0] if t else _rank(s**2)  # held directions stay, also those that are orthogonal to Z
    values, W = np.zeros(r), np.zeros((r, n))
    values[: s.size], W[: s.size] = s[:r] ** 2, s[:r, None] * Wt[: min(r, s.size)]
    W, signs = signed(W)
    U = U @ (V[:, :r] * signs)
    found = Eigen(W, values, U, total, sketch_passes(powers))
    missed_norm = float(np.sqrt(max(total * (1.0 - found.captured), 0.0)))  # in the Frobenius norm: always a bound
    bound = _norm_bound(U, tested, scale, powers)
    if missed_norm <= bound:
        return replace(found, error_bound=missed_norm)
    return replace(found, error_bound=bound, error_chance=ERROR_CHANCE)


def _powers(factor: ColumnFactor, width: int, scale: float, powers: int, seed: int) -> tuple[Floats, Floats]:
    """Return (m, width) Y of the last power iteration, and (m, TESTS) test vectors after all of them, over `scale`."""
    n = factor.shape[1]
    Y = factor.right_products(np.vstack([_test_matrix(seed, n, width), normals(seed + 1, 0, n, TESTS).T]))
    for _ in range(powers):
        orthonormalise(Y[:, :width])
        Y[:, width:] /= scale
        both = factor.products(Y)
        del Y
        orthonormalise(both[:width].T)
        both[width:] /= scale
        Y = factor.right_products(both)
    return np.array(Y[:, :width]), Y[:, width:] / scale


def _cut(U: Floats, W: Floats, t: int, rank: int, enough: float | None) -> tuple[Floats, Floats]:
    """Return U and W = U'Z with all of the first t directions, and of the others as many as are asked for.

    enough: the least ||W||^2 to keep.
    """
    V, s, Wt = scipy.linalg.svd(W[t:], full_matrices=False)
    kept = min(_rank(s**2), rank) if s.size else 0
    if enough is not None and s.size:
        reached = np.flatnonzero(float(np.square(W[:t]).sum()) + np.cumsum(s[:kept] ** 2) >= enough)
        kept = int(reached[0]) + 1 if reached.size else kept
    return np.hstack([U[:, :t], U[:, t:] @ V[:, :kept]]), np.vstack([W[:t], s[:kept, None] * Wt[:kept]])


def _norm_bound(U: Floats, tested: Floats, scale: float, powers: int) -> float:
    """Return what ||Z - UU'Z|| is at most, except with probability ERROR_CHANCE."""
    missed = tested - U @ (U.T @ tested)
    least = np.sqrt(2.0 * scipy.special.gammaincinv(TESTS / 2, ERROR_CHANCE))  # of the norm of TESTS normal numbers
    return float(scale * (scipy.linalg.norm(missed, 2) / least) ** (1.0 / (2 * powers + 1)))


def sketched_eigendecomposition(
    factor: ColumnFactor, total: float, rule: SketchRule, most: int, seed: int, held: Floats | None = None
) -> Eigen:  # fmt: skip
    """Decompose as a rule asks for: up to the rank `most`, or to the least rank that captures its accuracy.

    The rank is doubled from FIRST_RANK until that share of ||Z||_F^2 is reached. Each try takes 2 + 2q passes. total,
    held: as for `randomized_eigendecomposition`.
    """
    rank, passes = most if rule.accuracy is None else min(FIRST_RANK, most), 0
    t = 0 if held is None else held.shape[1]
    while True:
        found = randomized_eigendecomposition(
            factor, total, rank, accuracy=rule.accuracy, powers=rule.power_iterations, seed=seed,
            oversampling=rule.oversampling, held=held,
        )  # fmt: skip
        passes += found.passes
        if rule.accuracy is None or found.captured >= rule.accuracy or rank >= most or found.rank < rank + t:
            return replace(found, passes=passes)
        rank = min(2 * rank, most)


def signed(W: Floats) -> tuple[Floats, Floats]:
    """Flip the rows of W in place so that the first entry of largest size is positive; return W and the signs."""
    signs = np.sign(W[np.arange(W.shape[0]), np.abs(W).argmax(axis=1)])
    signs[signs == 0.0] = 1.0
    W *= signs[:, None]
    return W, signs


def normals(seed: int, start: int, stop: int, count: int) -> Floats:
    """Return (stop - start, count) standard normal numbers; row i is a function of (seed, i) (Box and Muller)."""
    rows = np.arange(start, stop, dtype=np.uint64)[:, None]
    with np.errstate(over="ignore"):
        key = mix(mix(rows + GOLDEN) ^ np.uint64(seed) * np.uint64(0xD1342543DE82EF95))
        even = np.arange((count + 1) // 2, dtype=np.uint64)[None, :]
        u = 1.0 - to_unit(mix(key + (2 * even + np.uint64(1)) * GOLDEN))
        v = to_unit(mix(key + (2 * even + np.uint64(2)) * GOLDEN))
    radius = np.sqrt(-2.0 * np.log(u))
    both = np.stack([radius * np.cos(2.0 * np.pi * v), radius * np.sin(2.0 * np.pi * v)], axis=2)
    return np.ascontiguousarray(both.reshape(stop - start, -1)[:, :count])


def _test_matrix(seed: int, n: int, width: int) -> Floats:
    """Return (width, n) Omega'."""
    out = np.empty((width, n))
    step = max(1, _TEST_NUMBERS // width)
    for start in range(0, n, step):
        stop = min(start + step, n)
        out[:, start:stop] = normals(seed, start, stop, width).T
    return out


def _rank(values: Floats) -> int:
    """Return how many of the descending eigenvalues are not zero, at least 1."""
    return max(1, int((values > ROUNDING * max(float(values[0]), 0.0)).sum()))

"""Eigendecomposition of X X' out of core, and the reduced problem of Wan and Schweitzer (AAAI 2021, eq. 8).

Z (m x n) is the preprocessed X. With Z Z' = U D U', zero eigenvalues dropped, W = U'Z (r x n) has W'W = Z'Z = K. Every
search runs on W as it does on K. There are two algorithms:

    exact    Z Z' (m x m) summed over column blocks, then W = U'Z block by block. Two passes, for wide data.
    sketch   randomized subspace iteration (Halko, Martinsson and Tropp, SIAM Review 2011, algorithm 4.4): Y = Z Omega,
             then q times Q = orth(Y), B = Z'Q, R = orth(B), Y = Z R; from Y = U S V' follows W = S (R V)'. 1 + 2q
             passes. Nothing is larger than (m + n) x (rank + 10).

The test matrix Omega is a hash of (seed, feature, column), so it depends neither on the chunks nor on the workers. Sums
over the data follow the order of the blocks: the same chunks give the same bits, other chunks the same up to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

from dsel._lib.splitmix import GOLDEN, mix, to_unit
from dsel._lib.types import Floats
from dsel.errors import OptionError
from dsel.passes.columns.column_factor import ColumnFactor
from dsel.passes.columns.tsqr import orthonormalise

#: Eigenvalues below this share of the largest count as zero.
ROUNDING = 1e-13
#: Columns of a sketch beyond its rank, and test vectors of its error estimate, which fails with probability 10^-TESTS.
OVERSAMPLING, TESTS = 10, 10
#: The first rank that is tried for an accuracy.
FIRST_RANK = 50
#: Entries of the test matrix that are made at once.
_TEST_NUMBERS = 1 << 20


@dataclass(frozen=True)
class Eigen:
    """The reduced data W = U'Z with its eigenvalues.

    W: (r, n) orthogonal rows of descending norm; the largest entry of each row is positive. values: (r,) the diagonal
    of D, the squared row norms of W. U: (m, r). total: ||Z||_F^2. powers: power iterations made; passes: over the data.
    error_bound: ||Z - U W|| is at most this, except with probability error_chance; (0, 0) where W is exact.
    """

    W: Floats
    values: Floats
    U: Floats
    total: float
    passes: int
    powers: int = 0
    error_bound: float = 0.0
    error_chance: float = 0.0

    @property
    def rank(self) -> int:
        """Return r."""
        return int(self.values.size)

    @property
    def captured(self) -> float:
        """Return the share of ||Z||_F^2 that U W, a projection of Z, holds."""
        return min(float(self.values.sum()) / self.total, 1.0) if self.total > 0.0 else 1.0

    def cut(self, rank: int) -> Eigen:
        """Return the leading part of this rank."""
        bound = self.error_bound + (float(np.sqrt(self.values[rank])) if rank < self.rank else 0.0)
        return replace(self, W=self.W[:rank], values=self.values[:rank], U=self.U[:, :rank], error_bound=bound)


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
    return 1 + 2 * powers


def randomized_eigendecomposition(
    factor: ColumnFactor, total: float, rank: int, *, powers: int = 2, seed: int = 0, oversampling: int = OVERSAMPLING
) -> Eigen:
    """Decompose up to a rank by a randomized sketch.

    total: ||Z||_F^2. powers: q >= 1. A worker holds a few m x (rank + 20) arrays and its columns; this process holds a
    few (m + n) x (rank + 20) arrays. `dsel.passes.columns.tsqr` makes the QR of either factor in place, block by block.

    Errors: OptionError for a rank below 1.
    """
    m, n = factor.shape
    if rank < 1:
        raise OptionError(f"rank is {rank}.", "It must be at least 1.")
    width = min(rank + oversampling, m, n)
    Y = factor.right_products(_test_matrix(seed, n, width))
    tests = normals(seed + 1, 0, m, TESTS)
    bound = np.inf
    for _ in range(powers):
        orthonormalise(Y)
        both = factor.products(np.hstack([Y, tests]))
        Rt, tested = both[:width], both[width:].T
        orthonormalise(Rt.T)
        missed = tested - Rt.T @ (Rt @ tested)
        bound = float(10.0 * np.sqrt(2.0 / np.pi) * np.sqrt(np.square(missed).sum(axis=0).max()))
        del Y
        Y = factor.right_products(Rt)
    U, s, Vt = scipy.linalg.svd(orthonormalise(Y))
    kept = min(_rank(s**2), rank, s.size)
    W, signs = signed(s[:kept, None] * Vt[:kept] @ Rt)
    cut = float(s[kept]) if kept < s.size else 0.0
    found = Eigen(W, s[:kept] ** 2, Y @ (U[:, :kept] * signs), total, sketch_passes(powers), powers)
    missed_norm = float(np.sqrt(max(total * (1.0 - found.captured), 0.0)))  # in the Frobenius norm: always a bound
    if missed_norm <= bound + cut:
        return replace(found, error_bound=missed_norm)
    return replace(found, error_bound=bound + cut, error_chance=10.0**-TESTS)


def eigendecomposition_to_accuracy(
    factor: ColumnFactor, total: float, accuracy: float, most: int, *, powers: int = 2, seed: int = 0,
    oversampling: int = OVERSAMPLING,
) -> Eigen:  # fmt: skip
    """Decompose up to the least rank that captures a share `accuracy` of ||Z||_F^2, or up to the rank `most`.

    The rank is doubled from FIRST_RANK until the share is reached. Each try takes 1 + 2q passes.
    """
    rank, passes = min(FIRST_RANK, most), 0
    while True:
        found = randomized_eigendecomposition(
            factor, total, rank, powers=powers, seed=seed, oversampling=oversampling
        )  # fmt: skip
        passes += found.passes
        if found.captured >= accuracy or rank >= most or found.rank < rank:
            break
        rank = min(2 * rank, most)
    enough = np.flatnonzero(np.cumsum(found.values) >= accuracy * total)
    return replace(found.cut(int(enough[0]) + 1) if enough.size else found, passes=passes)


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

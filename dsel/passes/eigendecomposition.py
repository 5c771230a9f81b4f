"""Eigendecomposition of X X' out of core, and the reduced problem of Wan and Schweitzer (AAAI 2021, eq. 8).

With Z the preprocessed X (m x n) and Z Z' = U D U', zero eigenvalues dropped, W = U'Z (r x n) has W'W = Z'Z = K: every
search runs on W as it does on K. Three ways, by what fits:

    gram    K = V D V' from the Gram pass, W = D^(1/2) V'. One pass. Tall data.
    rows    Z Z' (m x m) summed over column blocks, then W = U'Z block by block. Two passes. Wide data.
    sketch  randomized subspace iteration (Halko, Martinsson and Tropp, SIAM Review 2011, algorithm 4.4): Y = Z Omega,
            then q times Q = orth(Y), B = Z'Q, R = orth(B), Y = Z R; from Y = U S V' follows W = S (R V)'. 1 + 2q passes
            (2 for q = 0). Nothing larger than (m + n) x (rank + 10).

The test matrix Omega is a hash of (seed, feature, column), so that neither chunks nor workers change it; sums over the
data are in the order of the blocks, so that the same chunks give the same bits, and others the same to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dsel._lib.types import Floats
from dsel.errors import OptionError
from dsel.passes.column_factor import ColumnFactor
from dsel.passes.tsqr import orthonormalise

Way = Literal["gram", "rows", "sketch"]

#: Eigenvalues below this share of the largest are zero.
ROUNDING = 1e-13
#: Columns of a sketch beyond its rank, and test vectors of its error estimate, which fails with chance 10^-TESTS.
OVERSAMPLING, TESTS = 10, 10
#: Numbers of the test matrix that are made at once.
_TEST_NUMBERS = 1 << 20
#: Power iterations at most, where an error target asks for them.
MOST_POWERS = 8


@dataclass(frozen=True)
class Eigen:
    """W (r, n) = U'Z, orthogonal rows of descending norm, the largest entry of each positive; values (r,) D, its
    squared row norms; U (m, r), or None where only K was there.

    total: ||Z||_F^2. left_out: total less the sum of D, exactly what W misses of it. error_bound: ||Z'Z - W'W|| is at
    most its square, that is ||Z - U W|| at most error_bound, but with probability error_chance; (0, 0) where W is
    exact. powers: power iterations made; passes: over the data.
    """

    W: Floats
    values: Floats
    U: Floats | None
    total: float
    way: Way
    passes: int
    powers: int = 0
    error_bound: float = 0.0
    error_chance: float = 0.0

    @property
    def rank(self) -> int:
        """r."""
        return int(self.values.size)

    @property
    def left_out(self) -> float:
        """Squared Frobenius norm of what W does not hold."""
        return max(self.total - float(self.values.sum()), 0.0)

    def reduced_targets(self, Y: Floats) -> tuple[Floats, Floats]:
        """D_y (r_y,) descending and P (r_y, r) of eq. (8), of the part of preprocessed targets Y (m, N) in the span of
        U. Errors: OptionError where U is not there."""
        if self.U is None:
            raise OptionError("The targets need U, which the way by the Gram matrix does not give.")
        return reduced_targets(self.U.T @ Y)


def reduced_targets(seen: Floats) -> tuple[Floats, Floats]:
    """D_y and P from U'Y (r, N): with Y'UU'Y = V D_y V', P = V'Y'U = D_y^(1/2) U_y'U."""
    values, V = scipy.linalg.eigh(seen.T @ seen)
    kept = values > ROUNDING * max(float(values[-1]), 0.0)
    return values[kept][::-1], np.ascontiguousarray((seen @ V[:, kept][:, ::-1]).T)


def from_gram(K: Floats, rank: int | None = None, energy: float | None = None, passes: int = 1) -> Eigen:
    """From K = Z'Z (n, n). rank: at most so many dimensions; energy: as many as hold this share of the total."""
    values, V = scipy.linalg.eigh(K)
    kept = _kept(values[::-1], rank, energy)
    D, V = values[::-1][:kept], V[:, ::-1][:, :kept]
    W = np.sqrt(D)[:, None] * V.T
    return Eigen(signed(W)[0], D, None, float(np.trace(K)), "gram", passes)


def from_rows(factor: ColumnFactor, rank: int | None = None, energy: float | None = None) -> Eigen:
    """Through Z Z' (m, m). A worker holds a few m x m sums and a column block. Errors: DataError for a store of
    full-row chunks."""
    G = factor.row_gram()
    values, U = scipy.linalg.eigh(G)
    kept = _kept(values[::-1], rank, energy)
    D, U = values[::-1][:kept], np.ascontiguousarray(U[:, ::-1][:, :kept])
    W, signs = signed(factor.products(U))
    return Eigen(W, D, U * signs, float(np.trace(G)), "rows", 2)


def from_sketch(
    factor: ColumnFactor, total: float, rank: int, *, powers: int = 2, target: float | None = None, seed: int = 0
) -> Eigen:
    """Randomized. total: ||Z||_F^2. powers: q, or with an error target as many (at most 8) as bring the bound on
    ||Z - U W|| to that share of ||Z||_F. A worker holds a few m x (rank + 20) and its columns, this process some
    (m + n) x (rank + 20); the QR of either factor is made in place, block by block (dsel.passes.tsqr).

    Errors: OptionError for a rank below 1.
    """
    m, n = factor.shape
    if rank < 1:
        raise OptionError(f"rank is {rank}.", "It is 1 at least.")
    width = min(rank + OVERSAMPLING, m, n)
    Y = factor.right_products(_test_matrix(seed, n, width))
    tests = normals(seed + 1, 0, m, TESTS)
    passes, done, bound = 1, 0, np.inf
    while True:
        orthonormalise(Y)
        both = factor.products(np.hstack([Y, tests]))
        passes += 1
        if powers == 0 and target is None:
            return _from_one_side(Y, both[:width], total, rank, passes)
        Rt, seen = both[:width], both[width:].T
        orthonormalise(Rt.T)
        missed = seen - Rt.T @ (Rt @ seen)
        bound = float(10.0 * np.sqrt(2.0 / np.pi) * np.sqrt(np.square(missed).sum(axis=0).max()))
        del Y
        Y = factor.right_products(Rt)
        passes, done = passes + 1, done + 1
        if done >= (powers if target is None else MOST_POWERS):
            break
        if target is not None and bound <= target * np.sqrt(total):
            break
    U, s, Vt = scipy.linalg.svd(orthonormalise(Y))
    kept = min(_kept(s**2, rank, None), s.size)
    W, signs = signed(s[:kept, None] * Vt[:kept] @ Rt)
    cut = float(s[kept]) if kept < s.size else 0.0
    return Eigen(
        W, s[:kept] ** 2, Y @ (U[:, :kept] * signs), total, "sketch", passes, done, bound + cut, 10.0**-TESTS
    )  # fmt: skip


def _from_one_side(Q: Floats, B: Floats, total: float, rank: int, passes: int) -> Eigen:
    """Without power iterations: from B = Q'Z (l, n), which is overwritten."""
    U, s, Vt = scipy.linalg.svd(orthonormalise(B.T).T)
    kept = _kept(s**2, rank, None)
    W, signs = signed(s[:kept, None] * Vt[:kept] @ B)
    missed = float(np.sqrt(max(total - float(np.square(s[:kept]).sum()), 0.0)))
    return Eigen(W, s[:kept] ** 2, (Q @ U[:, :kept]) * signs, total, "sketch", passes, 0, missed, 0.0)


def signed(W: Floats) -> tuple[Floats, Floats]:
    """W, in place, with the first entry of largest size in each row positive, and the signs that were put to it."""
    signs = np.sign(W[np.arange(W.shape[0]), np.abs(W).argmax(axis=1)])
    signs[signs == 0.0] = 1.0
    W *= signs[:, None]
    return W, signs


def normals(seed: int, start: int, stop: int, count: int) -> Floats:
    """(stop - start, count) standard normal numbers, row i a function of (seed, i): SplitMix64, Box and Muller."""
    rows = np.arange(start, stop, dtype=np.uint64)[:, None]
    with np.errstate(over="ignore"):
        key = _mixed(_mixed(rows + _GOLDEN) ^ np.uint64(seed) * np.uint64(0xD1342543DE82EF95))
        even = np.arange((count + 1) // 2, dtype=np.uint64)[None, :]
        u = 1.0 - _uniform(_mixed(key + (2 * even + np.uint64(1)) * _GOLDEN))
        v = _uniform(_mixed(key + (2 * even + np.uint64(2)) * _GOLDEN))
    radius = np.sqrt(-2.0 * np.log(u))
    both = np.stack([radius * np.cos(2.0 * np.pi * v), radius * np.sin(2.0 * np.pi * v)], axis=2)
    return np.ascontiguousarray(both.reshape(stop - start, -1)[:, :count])


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mixed(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _uniform(z: NDArray[np.uint64]) -> Floats:
    return np.asarray((z >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def _test_matrix(seed: int, n: int, width: int) -> Floats:
    """(width, n) Omega'."""
    out = np.empty((width, n))
    step = max(1, _TEST_NUMBERS // width)
    for start in range(0, n, step):
        stop = min(start + step, n)
        out[:, start:stop] = normals(seed, start, stop, width).T
    return out


def _kept(values: Floats, rank: int | None, energy: float | None) -> int:
    """How many of the descending eigenvalues to keep: those that are not zero, up to a rank or a share of energy."""
    if energy is not None and not 0.0 < energy <= 1.0:
        raise OptionError(f"energy is {energy}.", "It is a share of ||X||^2 between 0 and 1.")
    kept = max(1, int((values > ROUNDING * max(float(values[0]), 0.0)).sum()))
    if energy is not None:
        sums = np.cumsum(np.maximum(values, 0.0))
        kept = min(kept, 1 + int(np.searchsorted(sums, energy * sums[-1] * (1.0 - 1e-12))))
    return kept if rank is None else min(kept, rank)

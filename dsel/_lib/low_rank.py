"""Factor positive semidefinite matrices of low rank from few of their rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from scipy.linalg.lapack import dpstrf

from dsel._lib.types import Floats, Ints

#: From this size on, a factorization from single rows is tried first, up to this share of the size.
MANY, _SHARE = 1000, 1 / 16
#: The directions that `column_space` leaves out hold at most this share of the trace, and a multiple of eps per column.
_NEGLIGIBLE, _PER_COLUMN = 1e-14, 8.0 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class PivotedFactor:
    """C = W'W but for pivots that are at most a tolerance.

    W: (r, n) in the order of the columns. pivots: (r,) the columns that were eliminated. left: (n,) what remains of the
    diagonal.
    """

    W: Floats
    pivots: Ints
    left: Floats

    @property
    def rank(self) -> int:
        """r, the number of columns that are independent to the tolerance."""
        return int(self.W.shape[0])

    @property
    def triangle(self) -> Floats:
        """The Cholesky factor (r, r) of the eliminated columns, in their order."""
        return np.tril(self.W[:, self.pivots].T)


@dataclass(frozen=True, eq=False)
class ScaledMatrix:
    """diag(1 / scale) K diag(1 / scale), with a new diagonal, of which rows are computed when they are needed.

    K: (n, n). scale, diagonal: (n,).
    """

    K: Floats
    scale: Floats
    diagonal: Floats

    @classmethod
    def of(cls, K: Floats, scale: Floats, added: float | Floats = 0.0) -> ScaledMatrix:
        """Return the scaled K with `added` on its diagonal."""
        return cls(K, scale, np.diag(K) / scale / scale + added)

    @property
    def n(self) -> int:
        """The number of rows."""
        return int(self.scale.size)

    def row(self, j: int) -> Floats:
        """Return row j (n,) but for its diagonal element."""
        return np.asarray(self.K[j] / (self.scale * self.scale[j]))

    def whole(self) -> Floats:
        """Return the matrix (n, n)."""
        C = self.K / self.scale
        C /= self.scale[:, None]
        C[np.diag_indices_from(C)] = self.diagonal
        return np.asarray(C)

    def part(self, columns: Ints) -> ScaledMatrix:
        """Return the matrix of some rows and columns."""
        return ScaledMatrix(self.K[np.ix_(columns, columns)], self.scale[columns], self.diagonal[columns])


def pivoted_cholesky(
    C: ScaledMatrix, tolerance: float, before_all: Callable[[int], None] | None = None
) -> PivotedFactor:  # fmt: skip
    """Factor C in the order of the largest pivot, until all pivots are at most the tolerance.

    O(n r^2) from r rows if the rank r is low, otherwise O(n^2 r). before_all: called with n before the whole matrix is
    factored; it may raise.
    """
    found = from_rows(C, tolerance) if C.n >= MANY else None
    if found is not None:
        return found
    if before_all is not None:
        before_all(C.n)
    whole = C.whole()
    L, pivots, rank, _ = dpstrf(whole.T, tol=tolerance, lower=1, overwrite_a=1)  # whole.T is whole in Fortran's order
    L = np.tril(L)[:, :rank]
    W = np.empty((rank, C.n))
    W[:, pivots - 1] = L.T
    return PivotedFactor(W, pivots[:rank].astype(np.int64) - 1, C.diagonal - np.einsum("rn,rn->n", W, W))


def from_rows(C: ScaledMatrix, tolerance: float, per_column: float = 0.0) -> PivotedFactor | None:
    """Factor C as `pivoted_cholesky`, from single rows; None if its rank is above a share of n.

    per_column: is added to the tolerance for each eliminated column.
    """
    most = int(_SHARE * C.n)
    W, pivots, left = np.empty((min(64, most + 1), C.n)), np.empty(most + 1, np.int64), C.diagonal.copy()
    for r in range(most + 1):
        p = int(left.argmax())
        if not left[p] > tolerance + per_column * r:
            return PivotedFactor(W[:r].copy(), pivots[:r].copy(), left)
        if r == most:
            break
        if r == W.shape[0]:
            W = np.vstack([W, np.empty((min(r, most + 1 - r), C.n))])
        root = float(np.sqrt(left[p]))
        W[r] = (C.row(p) - W[:r, p] @ W[:r]) / root
        W[r, pivots[:r]] = 0.0
        W[r, p] = root
        pivots[r] = p
        left -= np.square(W[r])
        left[pivots[: r + 1]] = 0.0
    return None


def column_space(K: Floats) -> Floats | None:
    """Return an orthonormal basis (n, r) of the columns of a large K of low rank, None for other matrices.

    What is outside of it holds a negligible share of the trace of K. O(n r^2).
    """
    if K.shape[0] < MANY:
        return None
    norms = np.sqrt(np.maximum(np.diag(K), 0.0))
    found = from_rows(ScaledMatrix.of(K, np.where(norms > 0.0, norms, 1.0)), _NEGLIGIBLE, _PER_COLUMN)
    if found is None:
        return None
    return np.asarray(scipy.linalg.qr((found.W * norms).T, mode="economic")[0])


def square_of(B: Floats, K: Floats | None = None) -> Floats:
    """Return B B' for a B (q, n) whose rows are in the space of a positive semidefinite K (n, n), by default B itself.

    O(q n r) for a large K of low rank r, otherwise O(q^2 n).
    """
    Q = column_space(B if K is None else K)
    if Q is not None:
        B = B @ Q
    return np.ascontiguousarray(B @ B.T)


def eigenvectors_of(K: Floats) -> tuple[Floats, Floats] | None:
    """Return the eigenvalues, ascending, and the eigenvectors (n, r) of a large K of low rank, None for others.

    O(n^2 r).
    """
    Q = column_space(K)
    if Q is None:
        return None
    values, V = scipy.linalg.eigh(Q.T @ (K @ Q))
    return values, np.asarray(Q @ V)

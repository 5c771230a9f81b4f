"""Leave-one-out errors of ridge regression on S, on S + j for every j, and on S - i for every i in S, row by row.

Source: Pahikkala, Airola, Salakoski, "Linear time feature selection for regularized least-squares", 2010 (greedy RLS).
The paper keeps a = G y, d = diag(G) and C = G X', G = (X_S X_S' + lam I)^-1; C is as large as the data. Let F be the
inverse of the Cholesky factor of K_SS + lam I, Q = F K_S: and q = F B_S. Then the same numbers, times lam, follow from
a row z alone, by its coordinates h = z_S F' in an orthonormal basis of S:

    e = y - h q            (lam a)          delta_j = K_jj + lam - Q_j' Q_j     (lam (1 + v' C_j))
    g = g0 - h h'          (lam d)          T_j = B_j - Q_j' q                  (lam v' a)
    R_j = z_j - h Q_j      (lam C_j)

and the residual of the row under the model fitted without it is

    S      e / g
    S + j  (e - R_j T_j / delta_j) / (g - R_j^2 / delta_j)
    S - i  (e + v_i w_i / A_ii) / (g + v_i^2 / A_ii)       with v = h F, w = F' q, A = F' F

The error is a sum over rows, and each term needs only the row and a few small arrays. Nothing is divided by lam, so
lam may be 0.

Accuracy. Let lam be small compared with K, and let S nearly determine a row: g is near 0, as with more columns than
rows, or with a column that is nonzero in that row alone. Then e / g is a ratio of two differences. Its relative error
is about 1e-16 (K_jj / lam)^1.5 at worst. With more columns than rows and lam below 1e-9 K_jj, rounding decides the
order of choice. With lam = 0 the ratio is 0/0 there, since the other rows do not determine a model. Such a row (see
`UNDETERMINED` of dsel.objective.cross_validation.losses) has an infinite squared error, and counts as wrong for the
zero-one loss.

Linear in n. S grows column by column, and the next row of Q needs one row of K only: that of the new column. So k
rounds need k rows of K (`GramRows`), O(k m n) operations in all, and never an n x n matrix.

The cache. Once a set C of columns is chosen for good, the remaining problem has the same form. Rows R replace z, and e
and g replace y and g0. As F is triangular, its last rows and those of Q and q are the arrays of that problem
(`LooRound.after`). With stored rows (R, e, g), a round costs 2 (s - c) multiplications per element instead of 2 s.

The intercept. "none": g0 = 1. "column": S has a column of ones, penalized like all others. "center": an intercept
without a penalty. On centered data its part of the hat matrix is 1/m, so that g0 = 1 - 1/m, and the errors are those of
models fitted again without the row, intercept included. (Standardized columns keep the scales of all rows; the scales
only determine how strongly lam acts on each column.)

Weights. A row of weight v enters as sqrt(v) z, sqrt(v) y, and the intercept's part of its leverage is v / (sum of the
weights). Then e / g is sqrt(v) times the residual of the row under the weighted model fitted without the row, so that
squares add up to the weighted error. Rows of weight 0 are dropped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dsel._lib.tolerances import DEPENDENCE_TOLERANCE
from dsel._lib.types import Floats, Ints

Intercept = Literal["center", "column", "none"]
#: Whether rounds insert columns, delete them, or delete after each insertion.
Direction = Literal["forward", "backward", "floating"]

#: With a penalty, delta_j >= lam > 0 always: below this share of K_jj it is a rounding error.
_ROUNDING = 1e-13


class GramRows(Protocol):
    """The rows of K that rounds ask for."""

    @property
    def diagonal(self) -> Floats:
        """(n,) the diagonal of K."""

    def rows(self, S: Ints) -> Floats:
        """Return (s, n) the rows S of K."""

    def block(self, S: Ints) -> Floats:
        """Return (s, s) the rows and columns S of K."""


@dataclass(frozen=True, eq=False)
class WholeGram:
    """All of K (n, n) in memory."""

    K: Floats

    @property
    def diagonal(self) -> Floats:
        """(n,) the diagonal of K."""
        return np.diag(self.K)

    def rows(self, S: Ints) -> Floats:
        """Return (s, n) the rows S of K."""
        return self.K[S]

    def block(self, S: Ints) -> Floats:
        """Return (s, s) the rows and columns S of K."""
        return self.K[np.ix_(S, S)]


@dataclass(frozen=True, eq=False)
class LooProblem:
    """The data that all rounds share, in preprocessed units and weighted.

    Rows of K, B (n, N), the sums over rows of X (n,) and Y (N,), and the m rows with their total weight (m without
    weights).
    """

    gram: GramRows
    B: Floats
    sum_x: Floats
    sum_y: Floats
    m: int
    weight: float
    lam: float
    intercept: Intercept

    @property
    def constant(self) -> bool:
        """Whether S always has a column of ones."""
        return self.intercept == "column"

    @property
    def base_leverage(self) -> float:
        """The leverage of a row of weight 1 before any column is chosen."""
        return 1.0 / self.weight if self.intercept == "center" else 0.0


@dataclass(frozen=True, eq=False)
class LooRound:
    """The small arrays for one S of s columns, which are all that a block of rows needs.

    F (s, s), Q (s, n), q (s, N), delta (n,), T (n, N). A column of ones, if any, comes first. insert, remove: whether
    the errors of insertions and of removals are wanted.
    """

    members: Ints
    constant: bool
    F: Floats
    Q: Floats
    q: Floats
    delta: Floats
    T: Floats
    base_leverage: float
    insert: bool = True
    remove: bool = False

    @property
    def n(self) -> int:
        """Number of columns of the data."""
        return int(self.delta.size)

    @property
    def A(self) -> Floats:
        """(s, s) (K_SS + lam I)^-1."""
        return self.F.T @ self.F

    @property
    def P(self) -> Floats:
        """(s, n) coefficients of all columns on S: A K_S:."""
        return self.F.T @ self.Q

    @property
    def w(self) -> Floats:
        """(s, N) coefficients of Y on S."""
        return self.F.T @ self.q

    @property
    def offset(self) -> int:
        """Number of columns before those of the data: 1 with the column of ones."""
        return int(self.constant)

    def first(self, size: int) -> LooRound:
        """Return the arrays F, Q and q of the first `size` columns of S. delta and T stay those of S."""
        c = size + self.offset
        return replace(self, members=self.members[:size], F=self.F[:c, :c], Q=self.Q[:c], q=self.q[:c])

    def after(self, size: int) -> LooRound:
        """Return the same round on rows R, e and g that remain of the data once the first `size` columns are chosen."""
        c = size + self.offset
        return replace(
            self, members=self.members[size:], constant=False, F=self.F[c:, c:], Q=self.Q[c:], q=self.q[c:]
        )  # fmt: skip


class RowErrors(Protocol):
    """Errors on left-out rows, summed over all rows. `passes` counts the passes over the data so far."""

    passes: int

    def problem(self, lam: float) -> LooProblem:
        """Return what all rounds with this penalty share."""

    def errors(self, round: LooRound) -> Floats:
        """Return the errors of S, S + j and S - i in the layout of `split_errors`, from one pass over the rows."""

    def lam_errors(self, lams: Floats, members: Ints) -> Floats:
        """Return (lams,) the errors with the columns `members` for each penalty, from one pass over the rows."""

    def counts(self) -> dict[str, Any]:
        """Return counts for the result."""


def prepare(problem: LooProblem, members: Ints, *, insert: bool = True, remove: bool = False) -> LooRound:
    """Compute the small arrays for S. O(n s^2) by BLAS-3."""
    S = np.asarray(members, np.int64)
    K_S, B_S = problem.gram.rows(S), member_cross(problem, S)
    K_SS = K_S[:, S]
    if problem.constant:
        K_S = np.vstack([problem.sum_x, K_S])
        K_SS = np.block([[np.array([[problem.weight]]), problem.sum_x[None, S]], [problem.sum_x[S, None], K_SS]])
    s = K_SS.shape[0]
    diagonal = problem.gram.diagonal
    if not s:
        N = problem.B.shape[1]
        return LooRound(
            S, False, np.zeros((0, 0)), np.zeros((0, diagonal.size)), np.zeros((0, N)), diagonal + problem.lam,
            problem.B, problem.base_leverage, insert, remove,
        )  # fmt: skip
    L = np.linalg.cholesky(K_SS + problem.lam * np.eye(s))
    F, Q, q = (scipy.linalg.solve_triangular(L, right, lower=True) for right in (np.eye(s), K_S, B_S))
    delta = diagonal + problem.lam - np.einsum("sn,sn->n", Q, Q)
    return LooRound(S, problem.constant, F, Q, q, delta, problem.B - Q.T @ q, problem.base_leverage, insert, remove)


def extend_round(problem: LooProblem, round: LooRound, b: int) -> LooRound:
    """Compute the arrays for S + b from those for S: the next row of the Cholesky factor. O(n s). b is independent."""
    v, root = round.Q[:, b], np.sqrt(round.delta[b])
    Q_b, q_b = (problem.gram.rows(np.array([b]))[0] - v @ round.Q) / root, round.T[b] / root
    s = v.size
    F = np.zeros((s + 1, s + 1))
    F[:s, :s] = round.F
    F[s] = np.append(-(v @ round.F), 1.0) / root
    return LooRound(
        np.append(round.members, b), round.constant, F, np.vstack([round.Q, Q_b]), np.vstack([round.q, q_b]),
        round.delta - np.square(Q_b), round.T - np.outer(Q_b, q_b), round.base_leverage, round.insert, round.remove,
    )  # fmt: skip


def coefficients(problem: LooProblem, members: Ints) -> Floats:
    """Return (s, N) ridge coefficients on the columns S, that of the column of ones first. O(s^3)."""
    K_SS = member_gram(problem, members)
    penalized = K_SS + problem.lam * np.eye(K_SS.shape[0])
    return np.asarray(scipy.linalg.solve(penalized, member_cross(problem, members), assume_a="pos"))


def insertable(problem: LooProblem, delta: Floats) -> NDArray[np.bool_]:
    """Return (n,) whether each column may be inserted: without a penalty it must not depend on S."""
    diagonal = problem.gram.diagonal
    tolerance = _ROUNDING if problem.lam > 0.0 else DEPENDENCE_TOLERANCE
    return np.asarray(delta > tolerance * (diagonal + problem.lam))


def rank_deficient(problem: LooProblem, members: Ints) -> bool:
    """Return whether columns S depend on each other by the rule of `insertable`. O(s^3).

    The column of ones counts, if there is one.
    """
    K = member_gram(problem, members) + problem.lam * np.eye(len(members) + problem.constant)
    norms = np.sqrt(np.diag(K))
    if not (norms > 0.0).all():
        return True
    try:
        pivots = np.square(np.diag(np.linalg.cholesky(K / np.outer(norms, norms))))
    except np.linalg.LinAlgError:
        return True
    return bool(pivots.min(initial=1.0) <= (_ROUNDING if problem.lam > 0.0 else DEPENDENCE_TOLERANCE))


def member_gram(problem: LooProblem, members: Ints) -> Floats:
    """Return K of some columns, with the column of ones first if there is one."""
    S = np.asarray(members, np.int64)
    K = problem.gram.block(S)
    if problem.constant:
        K = np.block([[np.array([[problem.weight]]), problem.sum_x[None, S]], [problem.sum_x[S, None], K]])
    return K


def member_cross(problem: LooProblem, members: Ints) -> Floats:
    """Return B of some columns, with that of the column of ones first if there is one."""
    B = problem.B[members]
    return np.vstack([problem.sum_y, B]) if problem.constant else B


def n_errors(round: LooRound) -> int:
    """Return the length of a vector of errors: of S, of S + j for all j, of S - i for the members i."""
    return 1 + round.n + round.members.size


def split_errors(round: LooRound, flat: Floats) -> tuple[float, Floats, Floats]:
    """Return the errors of S, of S + j (n,) and of S - i (s,); inf where they were not wanted or are not finite."""
    flat = np.where(np.isnan(flat), np.inf, flat)
    insert, remove = flat[1 : 1 + round.n], flat[1 + round.n :]
    return (
        float(flat[0]),
        insert if round.insert else np.full(insert.size, np.inf),
        remove if round.remove else np.full(remove.size, np.inf),
    )

"""Leave-one-out errors of ridge regression on S, on S + j for every j, and on S - i for every i in S, row by row.

Source: Pahikkala, Airola, Salakoski, "Linear time feature selection for regularized least-squares", 2010 (greedy RLS).
The paper keeps a = G y, d = diag(G) and C = G X', G = (X_S X_S' + lam I)^-1, an array as large as the data. But with
F the inverse of the Cholesky factor of K_SS + lam I, Q = F K_S: and q = F B_S the same numbers, times lam, can be had
from a row z alone, by its place h = z_S F' in an orthonormal basis of S:

    e = y - h q            (lam a)          delta_j = K_jj + lam - Q_j' Q_j     (lam (1 + v' C_j))
    g = g0 - h h'          (lam d)          T_j = B_j - Q_j' q                  (lam v' a)
    R_j = z_j - h Q_j      (lam C_j)

and the residual of the row under the model fitted without it is

    S      e / g
    S + j  (e - R_j T_j / delta_j) / (g - R_j^2 / delta_j)
    S - i  (e + v_i w_i / A_ii) / (g + v_i^2 / A_ii)       with v = h F, w = F' q, A = F' F

so that errors are sums over rows of what a row and a few small arrays give. Nothing is divided by lam: it may be 0.
Where lam is small beside K and S nearly determines a row (g near 0: more columns than rows, or a column that is nonzero
in that row alone), e / g is of two differences, and its relative error is about 1e-16 (K_jj / lam)^1.5 at worst: with
more columns than rows and lam below 1e-9 K_jj the order of choice is that of rounding. Without lam it is 0/0
there: the other rows do not determine a model. Such a row (see `UNDETERMINED`) has an infinite squared error, and
counts as wrong for the zero-one loss.

The cache. With a set C in S for good, what is left of the problem has the same form: rows R in place of z, e and g in
place of y and g0, and the Schur complement K - Q'Q (B - Q'q) in place of K (B), so that a row of (R, e, g), once
written down, makes a round cost 2 (s - c) multiplications an element instead of 2 s (`problem_after`, `cached_rows`).

The intercept. "none": g0 = 1. "column": S holds a column of ones, penalised as all others are. "center": an intercept
that is not penalised; on centred data its part of the hat matrix is 1/m, g0 = 1 - 1/m, and the errors are just those of
models that were fitted anew, intercept included, without the row. (The scales of standardised columns are those of all
rows: they only say how strongly lam weighs on each column.)

Weights. A row of weight v enters as sqrt(v) z, sqrt(v) y, and the intercept's part of its hat value is v / (sum of the
weights); e / g is then sqrt(v) times the residual of the row under the weighted model fitted without it, all of its
weight left out, so that squares add up to the weighted error. Rows of weight 0 are left away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dsel.compiled import compiled
from dsel.errors import DataError
from dsel.objective.memory import Floats, Ints
from dsel.objective.quadratic import DEPENDENCE_TOLERANCE

Loss = Literal["squared", "zero-one"]
Intercept = Literal["center", "column", "none"]

#: Rows are worked through in pieces of about this many bytes of float64, large enough for BLAS and near
#: enough to the processor's cache.
PIECE_BYTES = 4 << 20

#: With a penalty, delta_j >= lam > 0 always: below this share of K_jj it cannot be told from rounding.
_ROUNDING = 1e-13

#: The divisor of a row is 1 less its leverage, off by some 1e-16 s whatever its size, as both are near 1: at this limit
#: three or four digits of the error are left, below it soon none. A column nonzero in one row only has lam / K_jj.
UNDETERMINED = 1e-11

#: A label times a prediction of at most this less 1 is wrong. As it is printed the loss counts 0 as wrong; models on
#: few values (one-hot columns, say) often predict exactly that, and rounding must not decide.
THRESHOLD = 1.0 + 1e-9


@dataclass(frozen=True, eq=False)
class LooProblem:
    """What all rounds share, in preprocessed units: K (n, n), B (n, N), sums over rows of X (n,) and Y (N,), m rows of
    this weight in all (m without weights); everything is weighted."""

    K: Floats
    B: Floats
    sum_x: Floats
    sum_y: Floats
    m: int
    weight: float
    lam: float
    intercept: Intercept

    @property
    def constant(self) -> bool:
        """Whether a column of ones is always in."""
        return self.intercept == "column"

    @property
    def share(self) -> float:
        """The hat value of a row of weight 1 before any column is chosen."""
        return 1.0 / self.weight if self.intercept == "center" else 0.0


@dataclass(frozen=True, eq=False)
class LooRound:
    """The small arrays for one S (s columns; the column of ones, if any, stands before them): all that a block needs.

    F (s, s), Q (s, n), q (s, N), delta (n,), T (n, N); `insert`, `remove`: what is asked for.
    """

    members: Ints
    constant: bool
    F: Floats
    Q: Floats
    q: Floats
    delta: Floats
    T: Floats
    share: float
    insert: bool = True
    remove: bool = False

    @property
    def n(self) -> int:
        """Columns of the data."""
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
    def lead(self) -> int:
        """Places before the columns of the data in S: 1 with the column of ones."""
        return int(self.constant)


@dataclass(frozen=True, eq=False)
class RowView:
    """How rows of the data become z and y: (value - center) / scale; `fill` stands for NaN in X.

    zero_coded: (N,) targets with labels 0 and 1, which count as -1 and +1 (their center and scale are those of that).
    """

    center_x: Floats
    scale_x: Floats
    center_y: Floats
    scale_y: Floats
    loss: Loss
    zero_coded: NDArray[np.bool_]
    fill: Floats | None = None

    def targets(self, y: Any, where: str = "Y") -> tuple[Floats, Floats]:
        """Preprocessed targets (r, N), and the labels (zero-one loss; else all 1). Errors: DataError."""
        raw = np.asarray(y, np.float64)
        if self.loss == "squared":
            return (raw - self.center_y) / self.scale_y, np.ones((1, 1))
        raw = np.where(self.zero_coded, 2.0 * raw - 1.0, raw)
        if not np.isin(raw, (-1.0, 1.0)).all():
            row, column = np.argwhere(~np.isin(raw, (-1.0, 1.0)))[0]
            raise not_labels(f"{where}: {np.asarray(y)[row, column]} in row {row}, column {column}")
        return (raw - self.center_y) / self.scale_y, raw


def not_labels(what: str) -> DataError:
    """The error for targets that are not labels."""
    return DataError(f"The zero-one loss needs labels -1 and +1, or 0 and 1 ({what}).", "Recode Y, or loss: squared.")


def prepare(problem: LooProblem, members: Ints, *, insert: bool = True, remove: bool = False) -> LooRound:
    """The small arrays for S. O(n s^2) by BLAS-3."""
    S = np.asarray(members, np.int64)
    K_S, K_SS, B_S = problem.K[S], problem.K[np.ix_(S, S)], problem.B[S]
    if problem.constant:
        K_S = np.vstack([problem.sum_x, K_S])
        K_SS = np.block([[np.array([[problem.weight]]), problem.sum_x[None, S]], [problem.sum_x[S, None], K_SS]])
        B_S = np.vstack([problem.sum_y, B_S])
    s = K_SS.shape[0]
    diagonal = np.diag(problem.K)
    if not s:
        N = problem.B.shape[1]
        return LooRound(
            S, False, np.zeros((0, 0)), np.zeros((0, diagonal.size)), np.zeros((0, N)), diagonal + problem.lam,
            problem.B, problem.share, insert, remove,
        )  # fmt: skip
    L = np.linalg.cholesky(K_SS + problem.lam * np.eye(s))
    F, Q, q = (scipy.linalg.solve_triangular(L, right, lower=True) for right in (np.eye(s), K_S, B_S))
    delta = diagonal + problem.lam - np.einsum("sn,sn->n", Q, Q)
    return LooRound(S, problem.constant, F, Q, q, delta, problem.B - Q.T @ q, problem.share, insert, remove)


def extended(problem: LooProblem, round: LooRound, b: int) -> LooRound:
    """The arrays for S + b from those for S: the next row of the Cholesky factor, O(n s). b does not depend on S."""
    v, root = round.Q[:, b], np.sqrt(round.delta[b])
    Q_b, q_b = (problem.K[b] - v @ round.Q) / root, round.T[b] / root
    s = v.size
    F = np.zeros((s + 1, s + 1))
    F[:s, :s] = round.F
    F[s] = np.append(-(v @ round.F), 1.0) / root
    return LooRound(
        np.append(round.members, b), round.constant, F, np.vstack([round.Q, Q_b]), np.vstack([round.q, q_b]),
        round.delta - np.square(Q_b), round.T - np.outer(Q_b, q_b), round.share, round.insert, round.remove,
    )  # fmt: skip


def problem_after(problem: LooProblem, base: LooRound) -> LooProblem:
    """What is left to choose once the columns of `base` are in for good, on the rows that `cached_rows` gives.

    Its g0 is that of each row. O(n^2 s).
    """
    K = problem.K - base.Q.T @ base.Q
    none = np.zeros(0)
    return LooProblem((K + K.T) / 2.0, base.T, none, none, problem.m, problem.weight, problem.lam, "none")


def coefficients(problem: LooProblem, members: Ints) -> Floats:
    """(s, N) ridge coefficients on the columns S, the column of ones first. O(s^3)."""
    K_SS = prepare_gram(problem, members)
    B_S = problem.B[members]
    if problem.constant:
        B_S = np.vstack([problem.sum_y, B_S])
    return np.asarray(scipy.linalg.solve(K_SS + problem.lam * np.eye(K_SS.shape[0]), B_S, assume_a="pos"))


def independent(problem: LooProblem, delta: Floats) -> NDArray[np.bool_]:
    """(n,) columns that may be inserted: without a penalty those that do not depend on S."""
    diagonal = np.diag(problem.K)
    tolerance = _ROUNDING if problem.lam > 0.0 else DEPENDENCE_TOLERANCE
    return np.asarray(delta > tolerance * (diagonal + problem.lam))


def rank_deficient(problem: LooProblem, members: Ints) -> bool:
    """Whether columns S, the column of ones among them if there is one, depend on each other as `independent` sees it.
    O(s^3)."""
    K = prepare_gram(problem, members) + problem.lam * np.eye(len(members) + problem.constant)
    norms = np.sqrt(np.diag(K))
    if not (norms > 0.0).all():
        return True
    try:
        pivots = np.square(np.diag(np.linalg.cholesky(K / np.outer(norms, norms))))
    except np.linalg.LinAlgError:
        return True
    return bool(pivots.min(initial=1.0) <= (_ROUNDING if problem.lam > 0.0 else DEPENDENCE_TOLERANCE))


@compiled(nogil=True)
def _add_squared(
    x: Any, a: Floats, D: Floats, e: Floats, g: Floats, tau: Floats, errors: Floats
) -> None:  # pragma: no cover
    """errors_j += sum over rows and targets of ((e - u tau_j) / (g - u^2))^2 with u = x a_j + D; a divisor
    <= UNDETERMINED counts as 0, so that the error is inf (or NaN)."""
    r, n = x.shape
    for i in range(r):
        x_i, D_i, g_i = x[i], D[i], g[i]
        for t in range(e.shape[1]):
            e_it, tau_t = e[i, t], tau[t]
            for j in range(n):
                u = x_i[j] * a[j] + D_i[j]
                d = g_i - u * u
                q = (e_it - u * tau_t[j]) / (d if d > UNDETERMINED else 0.0)
                errors[j] += q * q


@compiled(nogil=True)
def _add_zero_one(
    x: Any,
    a: Floats,
    D: Floats,
    e: Floats,
    g: Floats,
    tau: Floats,
    flip: Floats,
    count: Floats,
    errors: Floats,
) -> None:  # pragma: no cover
    """errors_j += count over rows and targets where flip (e - u tau_j) >= g - u^2: the label times the prediction
    is <= 0; or where that divisor is <= UNDETERMINED."""
    r, n = x.shape
    for i in range(r):
        x_i, D_i, g_i, w = x[i], D[i], g[i], count[i]
        for t in range(e.shape[1]):
            e_it, tau_t, c = e[i, t], tau[t], flip[i, t]
            for j in range(n):
                u = x_i[j] * a[j] + D_i[j]
                d = g_i - u * u
                errors[j] += w if c * (e_it - u * tau_t[j]) >= (d if d > UNDETERMINED else -np.inf) else 0.0


@dataclass(frozen=True, eq=False)
class _Scaled:
    """A round's arrays in the form that the kernels take: u = x a + [h 1] M has unit delta."""

    a: Floats
    M: Floats
    tau: Floats  # (N, n)


def _scaled(round: LooRound, view: RowView) -> _Scaled:
    root = 1.0 / np.sqrt(np.where(round.delta > 0.0, round.delta, np.inf))
    M = np.vstack([round.Q, view.center_x / view.scale_x])
    return _Scaled(root / view.scale_x, -M * root, np.ascontiguousarray((round.T * root[:, None]).T))


def flat_size(round: LooRound) -> int:
    """Length of a vector of errors: of S, of S + j for all j, of S - i for the members i."""
    return 1 + round.n + round.members.size


def split_errors(round: LooRound, flat: Floats) -> tuple[float, Floats, Floats]:
    """Errors of S, of S + j (n,), and of S - i (s,); what was not asked for, or is not finite, is inf."""
    flat = np.where(np.isnan(flat), np.inf, flat)
    insert, remove = flat[1 : 1 + round.n], flat[1 + round.n :]
    return (
        float(flat[0]),
        insert if round.insert else np.full(insert.size, np.inf),
        remove if round.remove else np.full(remove.size, np.inf),
    )


def rows_of(x: Any, view: RowView) -> NDArray[Any]:
    """Rows as a C-ordered float32 or float64 array, NaN filled, not yet preprocessed."""
    if hasattr(x, "toarray"):
        x = x.toarray()
    if x.dtype not in (np.float32, np.float64):
        x = x.astype(np.float64)
    if view.fill is not None and np.isnan(x).any():
        x = np.where(np.isnan(x), view.fill, x)
    return np.ascontiguousarray(x)


def member_rows(x: NDArray[Any], members: Ints, constant: bool, view: RowView) -> Floats:
    """z_S (r, s) of preprocessed values, the column of ones first."""
    z = (x[:, members].astype(np.float64) - view.center_x[members]) / view.scale_x[members]
    return np.hstack([np.ones((x.shape[0], 1)), z]) if constant else z


def residuals(z_S: Floats, targets: Floats, g0: float | Floats, round: LooRound) -> tuple[Floats, Floats, Floats]:
    """e (r, N), g (r,) and h (r, s). g0: of all rows, or (r,) of each."""
    h = z_S @ round.F.T
    return targets - h @ round.q, g0 - np.einsum("rs,rs->r", h, h), h


@dataclass(frozen=True, eq=False)
class Weighing:
    """How rows of weights w (r,), all > 0, enter: their roots, and 1 - h before any column is chosen."""

    w: Floats
    root: Floats
    g0: Floats

    @classmethod
    def of(cls, w: Floats | None, rows: int, share: float) -> Weighing:
        """Weights, 1 where there are none."""
        w = np.ones(rows) if w is None else w
        return cls(w, np.sqrt(w), 1.0 - share * w)

    def rows(self, start: int, stop: int) -> Weighing:
        """Some of the rows."""
        return Weighing(self.w[start:stop], self.root[start:stop], self.g0[start:stop])

    def flip(self, labels: Floats, view: RowView) -> Floats | None:
        """Label times scale for rows times their root, for the zero-one loss; see `THRESHOLD`."""
        return labels * view.scale_y * THRESHOLD / self.root[:, None] if view.loss == "zero-one" else None


def with_weight(x: Any, y: Any, w: Floats | None) -> tuple[Any, Any, Floats | None]:
    """Rows of weight > 0 alone."""
    if w is None or (w > 0.0).all():
        return x, y, w
    there = np.flatnonzero(w > 0.0)
    return x[there], y[there], w[there]


def block_errors(x: Any, y: Any, round: LooRound, view: RowView, where: str = "Y", w: Floats | None = None) -> Floats:
    """Errors of S, S + j and S - i summed over the rows of one block: x (r, n) dense or sparse, y (r, N), unscaled; w
    (r,) weights.

    2 s r n multiplications by BLAS-3 and one division an element (none for the zero-one loss); a piece of PIECE_BYTES
    beside the block. Errors: DataError where the zero-one loss meets what is not a label.
    """
    x, y, w = with_weight(x, y, w)
    targets, labels = view.targets(y, where)
    weighing = Weighing.of(w, x.shape[0], round.share)
    flip = weighing.flip(labels, view)
    return _errors(x, targets, weighing.g0, flip, round, view, None if w is None else weighing)


def cached_rows(x: Any, y: Any, base: LooRound, view: RowView, where: str = "Y") -> tuple[Floats, Floats]:
    """R (r, n), and a row of e (N), g and, for the zero-one loss, label times scale (N), for rows as in `block_errors`,
    without weights.

    Written down, they are rows of the problem that `problem_after` gives. 2 s r n multiplications.
    """
    targets, labels = view.targets(y, where)
    rows = rows_of(x, view)
    z_C = member_rows(rows, base.members, base.constant, view)
    R = np.subtract(rows, view.center_x, dtype=np.float64)
    R /= view.scale_x
    e, g, h = residuals(z_C, targets, 1.0 - base.share, base)
    flip = [labels * view.scale_y * THRESHOLD] if view.loss == "zero-one" else []
    return _less(R, h, base), np.hstack([e, g[:, None], *flip])


def cached_rows_after(R: Floats, aside: Floats, base: LooRound) -> tuple[Floats, Floats]:
    """The same from such rows: `base` is a round of the problem that they belong to. R is used up."""
    N = base.q.shape[1]
    z_C = R[:, base.members]
    e, g, h = residuals(z_C, aside[:, :N], aside[:, N], base)
    return _less(R, h, base), np.hstack([e, g[:, None], aside[:, N + 1 :]])


def _less(R: Floats, h: Floats, base: LooRound) -> Floats:
    if h.shape[1]:
        R -= h @ base.Q
    return R


def cached_errors(R: Floats, aside: Floats, round: LooRound) -> Floats:
    """As `block_errors`, from rows (R, aside) that `cached_rows` gave, for a round of the problem they belong to."""
    N = round.q.shape[1]
    flip = aside[:, N + 1 :] if aside.shape[1] > N + 1 else None
    return _errors(R, aside[:, :N], aside[:, N], flip, round, plain_view(round.n, N))


def plain_view(n: int, N: int) -> RowView:
    """Rows that are preprocessed already."""
    return RowView(np.zeros(n), np.ones(n), np.zeros(N), np.ones(N), "squared", np.zeros(N, bool))


def _errors(
    x: Any, targets: Floats, g0: Floats, flip: Floats | None, round: LooRound, view: RowView,
    weighing: Weighing | None = None,
) -> Floats:  # fmt: skip
    flat = np.zeros(flat_size(round))
    count = np.ones(x.shape[0]) if weighing is None else weighing.w
    scaled = _scaled(round, view)
    step = max(16, PIECE_BYTES // (8 * round.n))
    room = np.empty((min(step, x.shape[0]), round.n))  # made once: fresh pages cost more than the arithmetic
    for start in range(0, x.shape[0], step):
        piece = slice(start, start + step)
        rows = rows_of(x[piece], view)
        z_S = member_rows(rows, round.members, round.constant, view)
        t = targets[piece]
        one = np.ones((rows.shape[0], 1))
        if weighing is not None:
            one = weighing.root[piece, None]
            rows, t, z_S = rows * one, t * one, z_S * one
        e, g, h = residuals(z_S, t, g0[piece], round)
        wrong = None if flip is None else flip[piece]
        flat[0] += plain_errors(e, g, wrong, count[piece])
        if round.insert:
            D = room[: rows.shape[0]]
            if h.shape[1]:
                np.matmul(np.hstack([h, one]), scaled.M, out=D)
            else:
                D[:] = scaled.M[0]
                if weighing is not None:
                    D *= one
            _add(rows, scaled.a, D, e, g, scaled.tau, wrong, count[piece], flat[1 : 1 + round.n])
        if round.remove:
            flat[1 + round.n :] += removal_errors(round, e, g, h, wrong, count[piece])
    return flat


def removal_errors(round: LooRound, e: Floats, g: Floats, h: Floats, flip: Floats | None, count: Floats) -> Floats:
    """(s,) errors of S - i over some rows."""
    lead = round.lead
    root = 1.0 / np.sqrt(np.square(round.F).sum(axis=0)[lead:])
    u = (h @ round.F)[:, lead:] * root
    tau = round.w[lead:] * root[:, None]
    d = g[:, None] + np.square(u)
    d[d <= UNDETERMINED] = 0.0
    errors = np.zeros(root.size)
    for t in range(e.shape[1]):
        left = e[:, t, None] + u * tau[:, t]
        if flip is None:
            with np.errstate(divide="ignore", invalid="ignore"):
                errors += np.square(left / d).sum(axis=0)
        else:
            errors += count @ ((flip[:, t, None] * left >= d) | (d == 0.0))
    return errors


def _add(
    x: Any, a: Floats, D: Floats, e: Floats, g: Floats, tau: Floats, flip: Floats | None, count: Floats,
    errors: Floats,
) -> None:  # fmt: skip
    e, tau = np.ascontiguousarray(e), np.ascontiguousarray(tau)
    if flip is None:
        _add_squared(x, a, D, e, g, tau, errors)
    else:
        _add_zero_one(x, a, D, e, g, tau, np.ascontiguousarray(flip), count, errors)


def plain_errors(e: Floats, g: Floats, flip: Floats | None, count: Floats) -> float:
    """Error of S itself over some rows; flip (r, N) is label times scale for the zero-one loss, count (r,) weights."""
    g = g[:, None]
    open_ = g <= UNDETERMINED
    if flip is None:
        return float("inf") if open_.any() else float(np.square(e / g).sum())
    return float(count @ np.count_nonzero((flip * e >= g) | open_, axis=1))


# -- the ridge penalty, as in section 4.2 of the paper: by leave-one-out with all columns ------------------------------


@dataclass(frozen=True, eq=False)
class LamSpectrum:
    """K = V diag(values) V' of the columns (data columns, ones first if `constant`), and V' B; for a grid of lam."""

    members: Ints
    constant: bool
    V: Floats
    shrink: Floats  # (n, lams) 1 / (value + lam)
    VB: Floats
    share: float


def lam_spectrum(problem: LooProblem, members: Ints, lams: Floats) -> LamSpectrum:
    """What a block needs to value every lam > 0 with the columns `members`. O(n^3)."""
    whole = prepare_gram(problem, members)
    values, V = scipy.linalg.eigh(whole)
    B = problem.B[members]
    if problem.constant:
        B = np.vstack([problem.sum_y, B])
    shrink = 1.0 / (np.maximum(values, 0.0)[:, None] + lams)
    return LamSpectrum(np.asarray(members, np.int64), problem.constant, V, shrink, V.T @ B, problem.share)


def prepare_gram(problem: LooProblem, members: Ints) -> Floats:
    """K of some columns, the column of ones before them if there is one."""
    S = np.asarray(members, np.int64)
    K = problem.K[np.ix_(S, S)]
    if problem.constant:
        K = np.block([[np.array([[problem.weight]]), problem.sum_x[None, S]], [problem.sum_x[S, None], K]])
    return K


def block_lam_errors(
    x: Any, y: Any, spectrum: LamSpectrum, view: RowView, where: str = "Y", w: Floats | None = None
) -> Floats:
    """(lams,) errors with all columns over one block, for every lam of the grid. 2 r n^2 multiplications."""
    lams = spectrum.shrink.shape[1]
    errors = np.zeros(lams)
    x, y, w = with_weight(x, y, w)
    targets, labels = view.targets(y, where)
    weighing = Weighing.of(w, x.shape[0], spectrum.share)
    step = max(16, PIECE_BYTES // (8 * spectrum.V.shape[0]))
    for start in range(0, x.shape[0], step):
        rows = rows_of(x[start : start + step], view)
        z, t = member_rows(rows, spectrum.members, spectrum.constant, view), targets[start : start + step]
        part = weighing.rows(start, start + step)
        if w is not None:
            z, t = z * part.root[:, None], t * part.root[:, None]
        z = z @ spectrum.V
        g = part.g0[:, None] - np.square(z) @ spectrum.shrink
        flip = part.flip(labels[start : start + step], view)
        for l in range(lams):
            e = t - z @ (spectrum.VB * spectrum.shrink[:, l, None])
            errors[l] += plain_errors(e, g[:, l], flip, part.w)
    return errors

"""Leave-one-out errors summed over the rows of a block, from the small arrays of a round.

The formulas are those of dsel.objective.cross_validation.leave_one_out.

The same for a whole grid of ridge penalties with all columns, as in section 4.2 of the greedy RLS paper: one
eigendecomposition of K, and one pass over the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dsel._lib.jit import compiled
from dsel._lib.types import Floats, Ints
from dsel.errors import DataError
from dsel.objective.cross_validation.leave_one_out import LooProblem, LooRound, member_cross, member_gram, n_errors

if TYPE_CHECKING:  # kernels are compiled again where a module that they import changes
    from dsel.data.blocks import Block

Loss = Literal["squared", "zero-one"]

#: Rows are processed in pieces of about this many bytes of float64: large enough for BLAS, small enough for the
#: processor's cache.
PIECE_BYTES = 4 << 20

#: The divisor of a row is 1 minus its leverage. Its rounding error is about 1e-16 s, whatever its size, for both are
#: near 1. At this limit three or four digits of the row's error are right. A column that is nonzero in one row only has
#: the divisor lam / K_jj.
UNDETERMINED = 1e-11

#: A prediction is wrong if its product with the label is at most THRESHOLD - 1. The loss of the paper counts 0 as
#: wrong. Models on few distinct values, such as one-hot columns, often predict exactly 0, and rounding must not decide.
THRESHOLD = 1.0 + 1e-9


@dataclass(frozen=True, eq=False)
class RowTransform:
    """The preprocessing of rows: z and y are (value - center) / scale; `fill` replaces NaN in X.

    zero_coded: (N,) whether a target has labels 0 and 1. They are mapped to -1 and +1 first.
    """

    center_x: Floats
    scale_x: Floats
    center_y: Floats
    scale_y: Floats
    loss: Loss
    zero_coded: NDArray[np.bool_]
    fill: Floats | None = None

    def targets(self, y: Any, where: str = "Y") -> tuple[Floats, Floats]:
        """Return preprocessed targets (r, N), and the labels (zero-one loss; else all 1). Errors: DataError."""
        raw = np.asarray(y, np.float64)
        if self.loss == "squared":
            return (raw - self.center_y) / self.scale_y, np.ones((1, 1))
        raw = np.where(self.zero_coded, 2.0 * raw - 1.0, raw)
        if not np.isin(raw, (-1.0, 1.0)).all():
            row, column = np.argwhere(~np.isin(raw, (-1.0, 1.0)))[0]
            raise label_error(f"{where}: {np.asarray(y)[row, column]} in row {row}, column {column}")
        return (raw - self.center_y) / self.scale_y, raw


def label_error(what: str) -> DataError:
    """Return the error for targets that are not labels."""
    return DataError(f"The zero-one loss needs labels -1 and +1, or 0 and 1 ({what}).", "Recode Y, or loss: squared.")


@compiled(nogil=True)
def _add_squared(
    x: Any, a: Floats, D: Floats, e: Floats, g: Floats, tau: Floats, errors: Floats
) -> None:  # pragma: no cover
    """Add to errors_j the sum over rows and targets of ((e - u tau_j) / (g - u^2))^2 with u = x a_j + D.

    A divisor <= UNDETERMINED counts as 0, so that the error is inf (or NaN).
    """
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
    x: Any, a: Floats, D: Floats, e: Floats, g: Floats, tau: Floats, flip: Floats, count: Floats, errors: Floats
) -> None:  # pragma: no cover
    """Add to errors_j the number of rows and targets where flip (e - u tau_j) >= g - u^2.

    There the label times the prediction is <= 0. A divisor <= UNDETERMINED counts as an error, too.
    """
    r, n = x.shape
    for i in range(r):
        x_i, D_i, g_i, w = x[i], D[i], g[i], count[i]
        for t in range(e.shape[1]):
            e_it, tau_t, c = e[i, t], tau[t], flip[i, t]
            for j in range(n):
                u = x_i[j] * a[j] + D_i[j]
                d = g_i - u * u
                errors[j] += w if c * (e_it - u * tau_t[j]) >= (d if d > UNDETERMINED else -np.inf) else 0.0


def _scaled(round: LooRound, transform: RowTransform) -> tuple[Floats, Floats, Floats]:
    """Return a, M and tau (N, n) of a round, scaled for the kernels: u = x a + [h 1] M has unit delta."""
    root = 1.0 / np.sqrt(np.where(round.delta > 0.0, round.delta, np.inf))
    M = np.vstack([round.Q, transform.center_x / transform.scale_x])
    return root / transform.scale_x, -M * root, np.ascontiguousarray((round.T * root[:, None]).T)


def rows_of(x: Any, transform: RowTransform) -> NDArray[Any]:
    """Return rows as a C-ordered float32 or float64 array, with NaN filled, not yet preprocessed."""
    if hasattr(x, "toarray"):
        x = x.toarray()
    if x.dtype not in (np.float32, np.float64):
        x = x.astype(np.float64)
    if transform.fill is not None and np.isnan(x).any():
        x = np.where(np.isnan(x), transform.fill, x)
    return np.ascontiguousarray(x)


def member_rows(x: NDArray[Any], members: Ints, constant: bool, transform: RowTransform) -> Floats:
    """Return z_S (r, s), the preprocessed values of the members, with the column of ones first."""
    z = (x[:, members].astype(np.float64) - transform.center_x[members]) / transform.scale_x[members]
    return np.hstack([np.ones((x.shape[0], 1)), z]) if constant else z


def residuals(z_S: Floats, targets: Floats, g0: Floats, round: LooRound) -> tuple[Floats, Floats, Floats]:
    """Return e (r, N), g (r,) and h (r, s)."""
    h = z_S @ round.F.T
    return targets - h @ round.q, g0 - np.einsum("rs,rs->r", h, h), h


@dataclass(frozen=True, eq=False)
class RowWeights:
    """Weights w (r,) of rows, all > 0, with their roots, and g0, the divisors before any column is chosen."""

    w: Floats
    root: Floats
    g0: Floats

    @classmethod
    def of(cls, w: Floats | None, rows: int, base_leverage: float) -> RowWeights:
        """Return the weights, 1 where there are none."""
        w = np.ones(rows) if w is None else w
        return cls(w, np.sqrt(w), 1.0 - base_leverage * w)

    def rows(self, start: int, stop: int) -> RowWeights:
        """Return the weights of some of the rows."""
        return RowWeights(self.w[start:stop], self.root[start:stop], self.g0[start:stop])

    def flip(self, labels: Floats, transform: RowTransform) -> Floats | None:
        """Return label times scale, divided by the root of the weights, for the zero-one loss; see `THRESHOLD`."""
        return labels * transform.scale_y * THRESHOLD / self.root[:, None] if transform.loss == "zero-one" else None


def drop_zero_weights(x: Any, y: Any, w: Floats | None) -> tuple[Any, Any, Floats | None]:
    """Return the rows of weight > 0."""
    if w is None or (w > 0.0).all():
        return x, y, w
    there = np.flatnonzero(w > 0.0)
    return x[there], y[there], w[there]


def block_errors(x: Any, y: Any, block: Block, round: LooRound, transform: RowTransform, where: str) -> Floats:
    """Sum the errors of S, S + j and S - i over the rows of one block.

    x (r, n), dense or sparse, and y (r, N) are unscaled; where: the name of the data.

    2 s r n multiplications by BLAS-3 and one division per element (none for the zero-one loss). Memory: PIECE_BYTES.
    Errors: DataError if a target is not a label of the zero-one loss.
    """
    x, y, w = drop_zero_weights(x, y, block.w)
    targets, labels = transform.targets(y, f"{where}, rows {block.start} to {block.stop - 1}")
    weights = RowWeights.of(w, x.shape[0], round.base_leverage)
    flip = weights.flip(labels, transform)
    return _errors(x, targets, weights.g0, flip, round, transform, None if w is None else weights)


def residual_rows(x: Any, y: Any, base: LooRound, transform: RowTransform, where: str) -> tuple[Floats, Floats]:
    """Return R (r, n), and (r, N + 1 or 2 N + 1) e, g and, for the zero-one loss, label times scale.

    The rows are as in `block_errors`, without weights. base: a round, or the first columns of one (`LooRound.first`).
    2 s r n multiplications.
    """
    targets, labels = transform.targets(y, where)
    R, e, g = fitted_rows(x, targets, RowWeights.of(None, x.shape[0], base.base_leverage), base, transform)
    flip = [labels * transform.scale_y * THRESHOLD] if transform.loss == "zero-one" else []
    return R, np.hstack([e, g[:, None], *flip])


def fitted_rows(
    x: Any, targets: Floats, weights: RowWeights, base: LooRound, transform: RowTransform
) -> tuple[Floats, Floats, Floats]:
    """Return R (r, n), e (r, N) and g (r,) of rows. targets: preprocessed, times the roots of the weights."""
    rows, root = rows_of(x, transform), weights.root[:, None]
    z_C = member_rows(rows, base.members, base.constant, transform) * root
    R = np.subtract(rows, transform.center_x, dtype=np.float64)
    R /= transform.scale_x
    R *= root
    e, g, h = residuals(z_C, targets, weights.g0, base)
    return _subtract_fit(R, h, base), e, g


def advance_rows(R: Floats, vectors: Floats, base: LooRound) -> tuple[Floats, Floats]:
    """Return `residual_rows` for the columns of `base` as well, a round on such rows. R is overwritten."""
    N = base.q.shape[1]
    z_C = R[:, base.members]
    e, g, h = residuals(z_C, vectors[:, :N], vectors[:, N], base)
    return _subtract_fit(R, h, base), np.hstack([e, g[:, None], vectors[:, N + 1 :]])


def _subtract_fit(R: Floats, h: Floats, base: LooRound) -> Floats:
    if h.shape[1]:
        R -= h @ base.Q
    return R


def residual_row_errors(R: Floats, vectors: Floats, round: LooRound) -> Floats:
    """Return `block_errors` from rows (R, vectors) of `residual_rows`, for a round on them (`LooRound.after`)."""
    N = round.q.shape[1]
    flip = vectors[:, N + 1 :] if vectors.shape[1] > N + 1 else None
    n = round.n
    preprocessed = RowTransform(np.zeros(n), np.ones(n), np.zeros(N), np.ones(N), "squared", np.zeros(N, bool))
    return _errors(R, vectors[:, :N], vectors[:, N], flip, round, preprocessed)


def _errors(
    x: Any, targets: Floats, g0: Floats, flip: Floats | None, round: LooRound, transform: RowTransform,
    weights: RowWeights | None = None,
) -> Floats:  # fmt: skip
    flat = np.zeros(n_errors(round))
    count = np.ones(x.shape[0]) if weights is None else weights.w
    a, M, tau = _scaled(round, transform)
    step = max(16, PIECE_BYTES // (8 * round.n))
    buffer = np.empty((min(step, x.shape[0]), round.n))  # allocated once: new pages cost more than the arithmetic
    for start in range(0, x.shape[0], step):
        piece = slice(start, start + step)
        rows = rows_of(x[piece], transform)
        z_S = member_rows(rows, round.members, round.constant, transform)
        t = targets[piece]
        one = np.ones((rows.shape[0], 1))
        if weights is not None:
            one = weights.root[piece, None]
            rows, t, z_S = rows * one, t * one, z_S * one
        e, g, h = residuals(z_S, t, g0[piece], round)
        wrong = None if flip is None else flip[piece]
        flat[0] += subset_errors(e, g, wrong, count[piece])
        if round.insert:
            D = buffer[: rows.shape[0]]
            np.matmul(np.hstack([h, one]), M, out=D)
            add_errors(rows, a, D, e, g, tau, wrong, count[piece], flat[1 : 1 + round.n])
        if round.remove:
            flat[1 + round.n :] += removal_errors(round, e, g, h, wrong, count[piece])
    return flat


def removal_errors(round: LooRound, e: Floats, g: Floats, h: Floats, flip: Floats | None, count: Floats) -> Floats:
    """Return (s,) the errors of S - i over some rows."""
    offset = round.offset
    root = 1.0 / np.sqrt(np.square(round.F).sum(axis=0)[offset:])
    u = (h @ round.F)[:, offset:] * root
    tau = round.w[offset:] * root[:, None]
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


def add_errors(
    x: Any, a: Floats, D: Floats, e: Floats, g: Floats, tau: Floats, flip: Floats | None, count: Floats,
    errors: Floats,
) -> None:  # fmt: skip
    """Add to errors_j those of S + j over some rows, where u = x a_j + D has unit delta. flip: of the zero-one loss."""
    e, tau = np.ascontiguousarray(e), np.ascontiguousarray(tau)
    if flip is None:
        _add_squared(x, a, D, e, g, tau, errors)
    else:
        _add_zero_one(x, a, D, e, g, tau, np.ascontiguousarray(flip), count, errors)


def subset_errors(e: Floats, g: Floats, flip: Floats | None, count: Floats) -> float:
    """Return the error of S over some rows.

    flip: (r, N) label times scale for the zero-one loss. count: (r,) weights.
    """
    g = g[:, None]
    open_ = g <= UNDETERMINED
    if flip is None:
        return float("inf") if open_.any() else float(np.square(e / g).sum())
    return float(count @ np.count_nonzero((flip * e >= g) | open_, axis=1))


@dataclass(frozen=True, eq=False)
class RidgeSpectrum:
    """K = V diag(values) V' of the columns (with a column of ones first if `constant`), and V' B, for a grid of lam."""

    members: Ints
    constant: bool
    V: Floats
    shrink: Floats  # (n, lams) 1 / (value + lam)
    VB: Floats
    base_leverage: float


def ridge_spectrum(problem: LooProblem, members: Ints, lams: Floats) -> RidgeSpectrum:
    """Compute what a block needs to score every lam > 0 with the columns `members`. O(n^3)."""
    values, V = scipy.linalg.eigh(member_gram(problem, members))
    shrink = 1.0 / (np.maximum(values, 0.0)[:, None] + lams)
    VB = V.T @ member_cross(problem, members)
    return RidgeSpectrum(np.asarray(members, np.int64), problem.constant, V, shrink, VB, problem.base_leverage)


def block_ridge_errors(
    x: Any, y: Any, block: Block, spectrum: RidgeSpectrum, transform: RowTransform, where: str
) -> Floats:
    """Return (lams,) the errors with all columns over one block, for every lam of the grid.

    where: the name of the data. 2 r n^2 multiplications.
    """
    lams = spectrum.shrink.shape[1]
    errors = np.zeros(lams)
    x, y, w = drop_zero_weights(x, y, block.w)
    targets, labels = transform.targets(y, f"{where}, rows {block.start} to {block.stop - 1}")
    weights = RowWeights.of(w, x.shape[0], spectrum.base_leverage)
    step = max(16, PIECE_BYTES // (8 * spectrum.V.shape[0]))
    for start in range(0, x.shape[0], step):
        rows = rows_of(x[start : start + step], transform)
        z, t = member_rows(rows, spectrum.members, spectrum.constant, transform), targets[start : start + step]
        part = weights.rows(start, start + step)
        if w is not None:
            z, t = z * part.root[:, None], t * part.root[:, None]
        z = z @ spectrum.V
        g = part.g0[:, None] - np.square(z) @ spectrum.shrink
        flip = part.flip(labels[start : start + step], transform)
        for l in range(lams):
            e = t - z @ (spectrum.VB * spectrum.shrink[:, l, None])
            errors[l] += subset_errors(e, g[:, l], flip, part.w)
    return errors

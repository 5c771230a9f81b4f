"""Leave-one-out errors summed over rows of the data: what a block gives, from the small arrays of a round.

The formulas are those of dsel.objective.cross_validation.leave_one_out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dsel._lib.jit import compiled
from dsel._lib.types import Floats, Ints
from dsel.errors import DataError
from dsel.objective.cross_validation.leave_one_out import LooRound, flat_size

Loss = Literal["squared", "zero-one"]

#: Rows are worked through in pieces of about this many bytes of float64, large enough for BLAS and near
#: enough to the processor's cache.
PIECE_BYTES = 4 << 20

#: The divisor of a row is 1 less its leverage, off by some 1e-16 s whatever its size, as both are near 1: at this limit
#: three or four digits of the error are left, below it soon none. A column nonzero in one row only has lam / K_jj.
UNDETERMINED = 1e-11

#: A label times a prediction of at most this less 1 is wrong. As it is printed the loss counts 0 as wrong; models on
#: few values (one-hot columns, say) often predict exactly that, and rounding must not decide.
THRESHOLD = 1.0 + 1e-9


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
        """Return the weights of some of the rows."""
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
    """Sum the errors of S, S + j and S - i over the rows of one block.

    x (r, n), dense or sparse, and y (r, N) are unscaled; w (r,) are weights.

    2 s r n multiplications by BLAS-3 and one division an element (none for the zero-one loss); a piece of PIECE_BYTES
    next to the block. It raises DataError if a target is not a label of the zero-one loss.
    """
    x, y, w = with_weight(x, y, w)
    targets, labels = view.targets(y, where)
    weighing = Weighing.of(w, x.shape[0], round.share)
    flip = weighing.flip(labels, view)
    return _errors(x, targets, weighing.g0, flip, round, view, None if w is None else weighing)


def cached_rows(x: Any, y: Any, base: LooRound, view: RowView, where: str = "Y") -> tuple[Floats, Floats]:
    """Compute R (r, n), and per row e (N), g and, for the zero-one loss, label times scale (N), without weights.

    The rows are as in `block_errors`.

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
    """Sum the errors from cached rows. `base` is a round of the problem that they belong to. R is overwritten."""
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

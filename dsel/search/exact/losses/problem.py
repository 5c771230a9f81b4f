"""The problem that a proof for a loss is about, and its bound for any dual vector.

For any a, with d_i* the conjugate of the loss of row i, and sum a_i = 0 where there is an intercept,

    F(S) >= a'offset - sum_i w_i d_i*(a_i / w_i) - sum over S of h(z_j'a),
    h(g) = max over |b| <= limit of g b - lam b^2,

so that the columns that are in, and the largest h of the others, give a bound for all subsets of k columns. A loss that
is not a sum over rows has its conjugate at gradients only, which is enough. An item is what is chosen: a column, or a
group of columns. The h of a group is the sum of those of its columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel._lib.types import Bools, Floats, Ints
from dsel.objective.losses.loss import Loss, LossOfRows
from dsel.search.exact.losses.grouping import Grouping
from dsel.search.exact.perspective.coordinate_descent import largest

#: Stands for an infinite limit of coefficients.
LARGEST = 1e150
_EPS = float(np.finfo(np.float64).eps)
#: The rounding of a conjugate, and of a sum, in units of eps of the size of its terms.
_CONJUGATE, _SUM = 32.0, 64.0


@dataclass(frozen=True)
class LossProblem:
    """Minimize sum_i w_i d(y_i, eta_i) + lam |b|^2 over subsets of columns, with eta = offset + Z b + b0.

    Parameters
    ----------
    Z : (m, n) array
        The columns after preprocessing.
    y : (m,) array
        The targets, as `Loss.encode` returns them.
    w : (m,) array
        The weights of the rows, at least 0.
    offset : (m,) array
        What is added to the linear predictor.
    loss : Loss
        The loss of a row.
    lam : float
        The penalty on squared coefficients, at least 0.
    intercept : bool
        Whether there is an intercept b0, which has no penalty.
    limit : float, optional
        The largest size of a coefficient.
    groups : Grouping, optional
        Which columns are chosen together. By default each one is chosen by itself.

    Notes
    -----
    With lam 0 and without a limit, bounds are about coefficients of up to 1000 times the largest one of the fit on all
    columns (`LossProof.limit`).
    """

    Z: Floats
    y: Floats
    w: Floats
    offset: Floats
    loss: Loss
    lam: float
    intercept: bool
    limit: float | None = None
    groups: Grouping | None = None

    @property
    def n(self) -> int:
        """The number of items."""
        return int(self.Z.shape[1]) if self.groups is None else self.groups.n

    @property
    def width(self) -> int:
        """How many coefficients an item of a point has."""
        return self.loss.outputs * (1 if self.groups is None else self.groups.width)

    @property
    def largest(self) -> float:
        """The largest size of a coefficient, or infinity."""
        return np.inf if self.limit is None else self.limit

    @cached_property
    def rows(self) -> LossOfRows:
        """The loss of the rows, as a function of all linear predictors."""
        return self.loss.of_rows(self.y, self.w)

    @cached_property
    def columns(self) -> Floats:
        """The columns (n, m), one after the other in memory, and centered where there is an intercept.

        Notes
        -----
        The sum of a dual vector is then exactly 0. So a constant may be subtracted from a column: the only rounding is
        that of the differences.
        """
        if not self.intercept:
            return np.ascontiguousarray(self.Z.T)
        return np.ascontiguousarray(self.Z.T - (self.w @ self.Z / self.w.sum())[:, None])

    @cached_property
    def norms(self) -> Floats:
        """The norms (n,) of the columns."""
        return np.asarray(np.sqrt(np.einsum("ij,ij->i", self.columns, self.columns)))

    def members(self, S: Ints) -> Ints:
        """Return the columns of some items, one item after the other."""
        return S if self.groups is None else self.groups.members(S)

    def sizes(self, S: Ints) -> Ints:
        """Return how many columns some items have."""
        return np.ones(S.size, np.int64) if self.groups is None else self.groups.sizes[S]

    def per_column(self, values: NDArray[Any], S: Ints) -> NDArray[Any]:
        """Return values (s,) of the items S for each of their columns."""
        return values if self.groups is None else np.repeat(values, self.groups.sizes[S])

    def lengths(self, b: Floats, S: Ints) -> Floats:
        """Return the length of all coefficients b of the columns of each of the items S, (s,)."""
        return lengths(b) if self.groups is None else self.groups.lengths(lengths(b), S)

    def of_items(self, S: Ints) -> LossProblem:
        """Return the problem of some items."""
        at = self.members(S)
        return self.with_columns(self.columns[at], self.norms[at], self.groups and self.groups.among(S))

    def with_columns(self, columns: Floats, norms: Floats, groups: Grouping | None = None) -> LossProblem:
        """Return the problem of other columns (s, m), centered where there is an intercept, with their norms (s,)."""
        problem = replace(self, Z=columns.T, groups=groups)
        problem.__dict__.update(columns=columns, norms=norms, rows=self.rows)  # the cached values
        return problem

    def loss_at(self, eta: Floats) -> float:
        """Return the weighted sum of the losses of the rows at linear predictors (m,), or (m, t) for t outputs."""
        return self.rows.value(eta)

    def predictors(self, point: Point) -> Floats:
        """Return the linear predictors (m,) at a point, or (m, t) for t outputs."""
        columns, b = self.columns[self.members(point.S)], self.coefficients(point)
        if self.loss.outputs == 1:
            return np.asarray(self.offset + b @ columns + point.b0)
        return np.asarray(columns.T @ b + point.b0)

    def coefficients(self, point: Point) -> Floats:
        """Return the coefficients of the columns of the items of a point: (p,), or (p, t) for t outputs."""
        t = self.loss.outputs
        b = point.b if self.groups is None else self.groups.flat(point.b, point.S, t)
        return b.reshape(-1) if t == 1 else b.reshape(-1, t)

    def point(self, S: Ints, b: Floats, b0: Any, s: float) -> Point:
        """Return the point with the coefficients b of the columns of the items S, without items that have none."""
        rows = b if self.groups is None else self.groups.padded(b, S)
        used = rows != 0.0 if rows.ndim == 1 else rows.any(axis=1)
        return Point(S[used], rows[used], b0, s)

    def gains(self, g: Floats) -> Floats:
        """Return h(g), the most that a column with this product may lower the error."""
        g = np.abs(g)
        if self.lam == 0.0:
            return np.asarray(min(self.largest, LARGEST) * g)
        found = g * g / (4.0 * self.lam)
        if self.limit is not None:
            found = np.where(g > 2.0 * self.lam * self.limit, self.limit * (g - self.lam * self.limit), found)
        return np.asarray(found)

    def dual_at(self, eta: Floats, a: Floats) -> Dual:
        """Return what the gradient a (m,) at linear predictors eta proves, or one near it."""
        if self.loss.by_rows:
            return self.dual(a)
        a, constant, rounding, error = self.rows.dual(eta, self.offset)
        return self.of_all_columns(Dual(a, constant, np.zeros(0), rounding, error))

    def of_all_columns(self, dual: Dual) -> Dual:
        """Return a dual vector with the gains of the columns of this problem."""
        return replace(dual, gains=self.gains_of(dual.a, error=dual.error))

    def dual(self, a: Floats) -> Dual:
        """Return what a dual vector (m,) proves, whichever it is."""
        a = np.where(self.w > 0.0, a * (1.0 - 8.0 * _EPS), 0.0)  # inside the domain, in spite of rounding
        if self.intercept:
            a = balanced(a)
        unit = np.divide(a, self.w, out=np.zeros_like(a), where=self.w > 0.0)
        terms = self.w * self.loss.conjugate(self.y, unit)
        linear = a * self.offset
        constant = float(linear.sum() - terms.sum())
        if not np.isfinite(constant):
            return Dual(a, -np.inf, np.full(self.n, np.inf))
        size = float(np.abs(terms).sum() + np.abs(linear).sum())
        rounding = _EPS * ((_SUM + np.log2(a.size)) * size + _CONJUGATE * self._size(np.abs(a), np.abs(unit)))
        return Dual(a, constant - rounding, self.gains_of(a), rounding)

    def gains_of(self, a: Floats, first: int = 0, error: float = 0.0) -> Floats:
        """Return the gains of the items by a dual vector, rounding included; of columns those from `first` on.

        error: by how much the vector may be wrong, as a norm.
        """
        products, norms = np.abs(self.columns[first:] @ a), self.norms[first:]
        return self.of_each(self.gains(products + rounding_of_products(a, norms) + error * norms))

    def of_each(self, gains: Floats) -> Floats:
        """Return the gains of the items from those of their columns, rounding included."""
        return gains if self.groups is None else self.groups.sums(gains)

    def _size(self, a: Floats, unit: Floats) -> float:
        """Return the size of the terms of which the sum of the conjugates is made, as far as they can be told."""
        if self.loss.link == "identity":
            return float(a @ (np.abs(self.y) + unit))
        total, logs = self._sizes
        return (total + float(a.sum())) * (40.0 + logs + float(np.log1p(unit.max(initial=0.0))))

    @cached_property
    def _sizes(self) -> tuple[float, float]:
        """The sum of w (1 + |y|), and the largest logarithm of a target."""
        y = np.abs(self.y)
        return float(self.w @ (1.0 + y)), float(np.abs(np.log(y[y > 0.0])).max(initial=0.0))


@dataclass(frozen=True)
class Dual:
    """What a dual vector proves: F(S) >= constant - sum over S of gains_j, rounding included.

    a: (m,) the vector, with the sum 0 where there is an intercept. constant: a'offset less the conjugates. gains: (n,)
    the most that each column may lower the error. rounding: what was subtracted from the constant for rounding. error:
    by how much the vector may differ from the one that the constant is about, as a norm.
    """

    a: Floats
    constant: float
    gains: Floats
    rounding: float = 0.0
    error: float = 0.0

    def bound(self, fixed: Bools, free: Bools, q: int, more: Floats | None = None) -> float:
        """Return a lower bound for subsets of the columns `fixed` and up to q of the columns `free`, both (n,).

        more: the gains of other columns that are free.
        """
        gains = self.gains[free] if more is None else np.append(self.gains[free], more)
        inside, others = float(self.gains[fixed].sum()), largest(gains, min(q, gains.size))
        bound = self.constant - inside - others
        rounded = bound - _SUM * _EPS * (abs(self.constant) + inside + others)
        return rounded if np.isfinite(rounded) else -np.inf


@dataclass(frozen=True)
class Point:
    """Coefficients b (p,) of the items S (p,), the intercept b0, and the price s of an item.

    With t outputs of the loss, b is (p, t) and b0 (t,). Of groups of up to c columns b is (p, c t), with 0 for columns
    that a group does not have.
    """

    S: Ints
    b: Floats
    b0: Any
    s: float = 0.0

    def among(self, columns: Ints) -> Point:
        """Return the point for the problem of some columns alone, in their order."""
        place = {j: i for i, j in enumerate(columns.tolist())}
        kept = np.array([j in place for j in self.S.tolist()], np.bool_)
        S = np.array([place[j] for j in self.S[kept].tolist()], np.int64)
        return Point(S, self.b[kept], self.b0, self.s)

    def within(self, allowed: Bools) -> Point:
        """Return the point without the items that are not allowed (n,)."""
        kept = allowed[self.S]
        return Point(self.S[kept], self.b[kept], self.b0, self.s)

    def of(self, columns: Ints) -> Point:
        """Return the point of the whole problem, for a point of the problem of some columns."""
        return Point(columns[self.S], self.b, self.b0, self.s)


@dataclass(frozen=True)
class Relaxed:
    """What a relaxation found: the best bound with its dual vector, the last point and its objective."""

    bound: float
    dual: Dual
    point: Point
    value: float


#: No column, and no intercept.
START = Point(np.zeros(0, np.int64), np.zeros(0), 0.0)


def lengths(b: Floats) -> Floats:
    """Return the size of each coefficient (p,), or the length of each vector of coefficients (p, t)."""
    return np.abs(b) if b.ndim == 1 else np.asarray(np.sqrt(np.square(b).sum(axis=1)))


def rounding_of_products(a: Floats, norms: Floats) -> Floats:
    """Return what rounding may change in the product of a (m,) with each column of these norms (n,), in any order."""
    return np.asarray((a.size + 8.0) * _EPS * float(np.sqrt(a @ a)) * norms)


def balanced(a: Floats) -> Floats:
    """Return values (m,) between 0 and those of a, whose sum is exactly 0.

    Notes
    -----
    The positive or the negative values are made smaller, whichever have the larger sum. A conjugate that is finite at
    a is finite there, because it is convex, and 0 at 0. Values are multiples of one power of two, so that float64 has
    their sums exactly. An intercept of any size then adds nothing to a bound.
    """
    up, down = float(a[a > 0.0].sum()), -float(a[a < 0.0].sum())
    if not (up > 0.0 and down > 0.0 and np.isfinite(up) and np.isfinite(down)):
        return np.zeros_like(a)
    a = np.where(a > 0.0, a * min(1.0, down / up), a * min(1.0, up / down))
    top = float(np.abs(a).max()) * a.size
    if not (1e-280 < top < 1e280):
        return np.zeros_like(a)
    quantum = 2.0 ** (np.ceil(np.log2(top)) - 51.0)
    units = np.trunc(a / quantum)
    rest = float(units.sum())
    sign = np.sign(rest)
    for i in np.argsort(-sign * units, kind="stable") if rest else ():
        taken = min(abs(rest), max(sign * units[i], 0.0))
        units[i] -= sign * taken
        rest -= sign * taken
        if rest == 0.0:
            break
    return np.asarray(units * quantum)


def masks(n: int, include: Sequence[int], exclude: Sequence[int]) -> tuple[Bools, Bools]:
    """Return which columns (n,) are fixed in, and which are free."""
    fixed, free = np.zeros(n, np.bool_), np.ones(n, np.bool_)
    fixed[list(include)] = True
    free[[*include, *exclude]] = False
    return fixed, free


def dual_bound(
    problem: LossProblem, a: Floats, k: int, include: Sequence[int] = (), exclude: Sequence[int] = ()
) -> float:  # fmt: skip
    """Return a lower bound on F of all subsets of at most k columns that a dual vector proves.

    Parameters
    ----------
    problem : LossProblem
        The problem.
    a : (m,) array
        Any vector. With an intercept, some values are made smaller, so that their sum is 0. For a loss that is not a
        sum over rows, any linear predictors, whose gradient counts.
    k : int
        The largest number of columns, with the included ones.
    include, exclude : sequence of int
        Columns that are in all subsets, and in none.

    Returns
    -------
    float
        The bound, less what rounding may be worth; -infinity if the vector proves nothing.
    """
    fixed, free = masks(problem.n, include, exclude)
    a = np.asarray(a, np.float64)
    return problem.dual_at(a, a).bound(fixed, free, k - len(include))

"""The statistics of one pass over the data, and the objective that they give for a preprocessing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import NDArray

from dsel._lib.positive_definite import near_norms
from dsel._lib.types import Floats, Ints
from dsel.config.request import SCALED, Preprocess
from dsel.data.formats.source import EXACT_INTEGERS
from dsel.errors import DataError, OptionError
from dsel.objective.centering import CenteringError
from dsel.passes.execution.pass_checkpoints import storable
from dsel.passes.moments import Moments

if TYPE_CHECKING:
    from dsel.objective.dense import DenseObjective

PREPROCESS: tuple[Preprocess, ...] = get_args(Preprocess)


#: Columns whose norm is outside of these limits are divided by a power of two, so that squares of their squares are in
#: float64's range, and so are those whose square times ||Y||^2 is not. Without a penalty this changes no error.
_SMALL, _LARGE, _RANGE = 1e-60, 1e60, 1e285
#: By such a ratio of mean and standard deviation, rounding shows in the results.
_HARDLY = 1e6
#: Rows of a matrix that are made symmetric together.
_ROWS = 256
#: Pairs of columns that are multiples of each other are told up to this number.
MOST_DUPLICATES = 100


@dataclass(frozen=True)
class Scaling:
    """Centres and scales: x_j enters as (x_j - center_j) / scale_j, and targets likewise (they are X where Y = X)."""

    center_x: Floats
    scale_x: Floats
    center_y: Floats
    scale_y: Floats


@dataclass(frozen=True, kw_only=True)
class ColumnScales:
    """Means and squared norms of the columns: how they are preprocessed, and which cannot be used.

    Of m rows that have a weight: means of X (n columns) and Y (N columns), and moments about them.

    weight: the sum of the rows' weights, m without any, by which all sums and means are weighted.
    B: (n, N) X'Y about the means, yy: (N,) ||y||^2 about the means; B has no columns where Y = X.
    constant: (n,) columns with one value only. The same statistics serve every preprocessing.
    """

    m: int
    weight: float
    mean_x: Floats
    mean_y: Floats
    B: Floats
    yy: Floats
    constant: NDArray[np.bool_]
    constant_y: NDArray[np.bool_]

    @property
    def squares(self) -> Floats:
        """Return (n,) the squared norms of the columns of X about their means."""
        raise NotImplementedError

    @property
    def consistent(self) -> bool:
        """Return whether the shapes of the arrays fit together."""
        n, N = self.mean_x.size, self.mean_y.size
        x, y = (self.mean_x, self.constant, self.squares), (self.mean_y, self.yy, self.constant_y)
        vectors = all(v.shape == (n,) for v in x) and all(v.shape == (N,) for v in y)
        return self.m > 0 and self.weight > 0 and vectors and self.B.shape == (n, N)

    @property
    def unsupervised(self) -> bool:
        """Return whether Y = X."""
        return not self.mean_y.size

    def scaling(self, preprocess: Preprocess) -> Scaling:
        """Return centers and scales of X and Y. The scale of a constant column is 1.

        Where targets are given, columns of X that are `beyond_range` are divided by a power of two near their norm.
        """
        if preprocess not in PREPROCESS:
            raise OptionError(f"preprocess is {preprocess!r}.", f"One of {', '.join(PREPROCESS)}.")
        center, scale = centers_and_scales(preprocess, self.weight, self.mean_x, self.squares)
        beyond = self.beyond_range(preprocess)
        if beyond.any() and not self.unsupervised:
            scale = np.where(beyond, near_norms(self._raw_squares(preprocess)), scale)
        y = (center, scale) if self.unsupervised else centers_and_scales(preprocess, self.weight, self.mean_y, self.yy)
        return Scaling(center, scale, *y)

    def beyond_range(self, preprocess: Preprocess) -> NDArray[np.bool_]:
        """Return (n,) which columns of X are so large or small, and not scaled, that squares of squares overflow."""
        if preprocess in SCALED:
            return np.zeros(self.mean_x.size, np.bool_)
        squares = self._raw_squares(preprocess)
        outside = (squares < _SMALL**2) | (squares > _LARGE**2)
        if not self.unsupervised:
            with np.errstate(over="ignore"):
                products = squares * float(np.sum(self.yy + self.weight * self.mean_y**2))
            outside |= (products < 1.0 / _RANGE) | (products > _RANGE)
        return np.asarray(outside & ~self.unusable(preprocess))

    def _raw_squares(self, preprocess: Preprocess) -> Floats:
        raw = preprocess in ("unit", "none")
        return np.asarray(self.squares + (self.weight * self.mean_x**2 if raw else 0.0))

    def equally_spread(self, i: int, j: int) -> bool:
        """Return whether columns i and j of X have the same mean and norm, to 1e-6 of the norm."""
        squares = self._raw_squares("none")[[i, j]]
        apart = self.weight * (self.mean_x[i] - self.mean_x[j]) ** 2
        return bool(max(apart, (squares[0] - squares[1]) ** 2 / (4.0 * squares[0])) <= 1e-12 * squares[0])

    def preprocessed_squares(self, preprocess: Preprocess) -> Floats:
        """Return (n,) the squared norms of the preprocessed columns of X, unusable ones included."""
        return np.asarray(self._raw_squares(preprocess) / self.scaling(preprocess).scale_x ** 2)

    def unusable(self, preprocess: Preprocess) -> NDArray[np.bool_]:
        """Return (n,) which columns explain nothing: constant ones with centering, without it those of zeros."""
        if preprocess in ("standardize", "center"):
            return self.constant
        return np.asarray(self.constant & (self.mean_x == 0.0))

    def targets(self, preprocess: Preprocess, B: Floats) -> tuple[Floats, float]:
        """Return B = X'Y and c = ||Y||_F^2 of the preprocessed data. B: (n, N) X'Y about the means.

        Errors: DataError where all targets are constant.
        """
        scaling = self.scaling(preprocess)
        raw = preprocess in ("unit", "none")
        B = B + self.weight * np.outer(self.mean_x, self.mean_y) if raw else B
        yy = self.yy + self.weight * self.mean_y**2 if raw else self.yy
        B = B / np.outer(scaling.scale_x, scaling.scale_y)
        B[self.unusable(preprocess)] = 0.0
        useless = self.constant_y if not raw else self.constant_y & (self.mean_y == 0.0)
        yy = np.where(useless, 0.0, yy / scaling.scale_y**2)
        B[:, useless] = 0.0
        if useless.all():
            rounded = np.abs(self.mean_y).max(initial=0.0) > EXACT_INTEGERS or bool((self.yy > 0.0).any())
            words, more = (" up to the rounding of float64", ", or subtract a constant before") if rounded else ("", "")
            raise DataError(
                f"The targets are constant{words}: there is nothing to explain.", f"Check which column is Y{more}."
            )
        return B, float(yy.sum())

    def hardly_varying(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which columns of X, and which of Y, are more than a million times as large as their deviation."""
        ratios = _ratios(self.weight, self.mean_x, self.squares), _ratios(self.weight, self.mean_y, self.yy)
        return ratios[0] > _HARDLY, ratios[1] > _HARDLY

    def centering_error(
        self, preprocess: Preprocess, blocks: int, filled: NDArray[np.bool_] | bool = False, merged: bool = True
    ) -> CenteringError:
        """Return how far the rounding of means may change the inner products of the preprocessed columns.

        blocks: of rows, whose sums were merged. filled: the columns (n,) whose means replace missing values, or whether
        all may be such. merged: as for `CenteringError.of`.
        """
        raw, usable = preprocess in ("unit", "none"), ~self.unusable(preprocess)
        ratios = _ratios(self.weight, self.mean_x, self._raw_squares(preprocess))
        of_targets = _ratios(self.weight, self.mean_y, self.yy + (self.weight if raw else 0.0) * self.mean_y**2)
        largest = float(self.preprocessed_squares(preprocess)[usable].max(initial=0.0))
        return CenteringError.of(
            ratios[usable], of_targets, of_filled=ratios[usable & filled], rows=self.m, blocks=blocks, largest=largest,
            raw=raw, merged=merged,
        )  # fmt: skip

    def no_column_varies(self) -> DataError:
        """Return the error for data whose columns are all constant."""
        return DataError("All columns of X are constant: there is nothing to select.")


def without_rounding(moments: Moments) -> dict[str, Any]:
    """Return the fields of statistics from the sums of a pass.

    The mean of a constant column is its value, and the norm of a column with one value is 0 without rounding.
    """
    constant = constant_columns(moments.low_x, moments.high_x, moments.squares, moments.weight)
    constant_y = constant_columns(moments.low_y, moments.high_y, moments.yy, moments.weight)
    return {
        "m": moments.count, "weight": moments.weight, "mean_x": np.where(constant, moments.low_x, moments.mean_x),
        "mean_y": np.where(constant_y, moments.low_y, moments.mean_y), "B": moments.B,
        "yy": np.where(moments.low_y == moments.high_y, 0.0, moments.yy),
        "constant": constant, "constant_y": constant_y,
    }  # fmt: skip


@storable
@dataclass(frozen=True, kw_only=True)
class Statistics(ColumnScales):
    """Sufficient statistics of some rows. K: (n, n) X'X about the means."""

    K: Floats

    @classmethod
    def from_moments(cls, moments: Moments) -> Statistics:
        """Return the statistics from the sums of a pass."""
        K, same = _whole(moments.K), np.flatnonzero(moments.low_x == moments.high_x)
        K[same, same] = 0.0
        return cls(K=K, **without_rounding(moments))

    @property
    def squares(self) -> Floats:
        """Return (n,) the diagonal of K."""
        return np.diag(self.K)

    @property
    def consistent(self) -> bool:
        """Return whether the shapes of the arrays fit together."""
        return super().consistent and self.K.shape == 2 * self.mean_x.shape

    def in_units(self, unit: Floats) -> Statistics:
        """Return the statistics of the columns of X divided by units (n,)."""
        K, B = self.K / np.outer(unit, unit), self.B / unit[:, None]
        return replace(self, K=K, B=B, mean_x=self.mean_x / unit)

    def objective(self, preprocess: Preprocess, lam: float = 0.0) -> DenseObjective:
        """Return the objective over all n columns, unusable ones included.

        Errors: DataError where all targets are constant.
        """
        from dsel.objective.dense import DenseObjective  # imports numba, which workers of a pass do not need

        scaling = self.scaling(preprocess)
        raw = preprocess in ("unit", "none")
        scale, unusable = scaling.scale_x, self.unusable(preprocess)
        K = self.K
        if raw:
            K = np.outer(self.mean_x, self.mean_x)
            K *= self.weight
            K += self.K
        if (scale != 1.0).any():
            scales = np.outer(scale, scale)
            K = np.divide(K, scales, out=scales)
        elif not raw:
            K = K.copy()
        if unusable.any():
            K[unusable] = 0.0
            K[:, unusable] = 0.0
        if self.unsupervised:
            if unusable.all():
                raise self.no_column_varies()
            return DenseObjective(K, None, float(np.trace(K)), lam)
        B, c = self.targets(preprocess, self.B)
        return DenseObjective(K, B, c, lam)


def _whole(upper: Floats) -> Floats:
    """Return the symmetric matrix with this upper triangle."""
    K = np.array(upper.T, order="C")
    for first in range(0, K.shape[0], _ROWS):
        own = slice(first, first + _ROWS)
        K[own, own] = np.tril(K[own, own]) + np.tril(K[own, own], -1).T
        K[own, first + _ROWS :] = K[first + _ROWS :, own].T
    return K


def combined(parts: Sequence[Statistics], counts: Sequence[float] | None = None) -> Statistics:
    """Return the statistics of the rows of several parts together. O(n^2) for each.

    counts: how often each part counts, by default once.
    """
    times = np.ones(len(parts)) if counts is None else np.asarray(counts, np.float64)
    used = [(part, t) for part, t in zip(parts, times.tolist(), strict=True) if t > 0.0]
    weight = sum(t * part.weight for part, t in used)
    share = np.array([t * part.weight / weight for part, t in used])
    constant = _constant_in_all([(part.constant, part.mean_x) for part, _ in used])
    constant_y = _constant_in_all([(part.constant_y, part.mean_y) for part, _ in used])
    first = used[0][0]
    mean_x = np.where(constant, first.mean_x, share @ np.stack([part.mean_x for part, _ in used]))
    mean_y = np.where(constant_y, first.mean_y, share @ np.stack([part.mean_y for part, _ in used]))
    n, N = used[0][0].mean_x.size, used[0][0].mean_y.size
    K, B, yy = np.zeros((n, n)), np.zeros((n, used[0][0].B.shape[1])), np.zeros(N)
    for part, t in used:
        d_x, d_y = part.mean_x - mean_x, part.mean_y - mean_y
        K += t * (part.K + part.weight * np.outer(d_x, d_x))
        B += t * (part.B + part.weight * np.outer(d_x, d_y)[:, : B.shape[1]])
        yy += t * (part.yy + part.weight * d_y**2)
    return Statistics(
        m=round(sum(t * part.m for part, t in used)), weight=weight, K=K, B=B, yy=yy, constant=constant,
        mean_x=mean_x, mean_y=mean_y, constant_y=constant_y,
    )  # fmt: skip


def _constant_in_all(parts: list[tuple[NDArray[np.bool_], Floats]]) -> NDArray[np.bool_]:
    """Return which columns have the same one value in all parts. A constant column's mean is its value."""
    first = parts[0][1]
    rounding = 8.0 * np.finfo(np.float64).eps * np.abs(first)
    return np.asarray(np.all([constant & (np.abs(mean - first) <= rounding) for constant, mean in parts], axis=0))


def constant_columns(low: Floats, high: Floats, squares: Floats, weight: float) -> NDArray[np.bool_]:
    """Return which columns have one value only, up to rounding."""
    rounding = 4.0 * np.finfo(np.float64).eps * np.maximum(np.abs(low), np.abs(high))
    return np.asarray((low == high) | ((squares <= weight * rounding**2) & (high - low <= 2.0 * rounding)))


def centers_and_scales(
    preprocess: Preprocess, weight: float | Floats, mean: Floats, squares: Floats
) -> tuple[Floats, Floats]:  # fmt: skip
    """Return the center and the scale of columns. squares: squared norms about the means."""
    zero, one = np.zeros(mean.size), np.ones(mean.size)
    if preprocess == "center":
        return mean, one
    if preprocess == "standardize":
        return mean, _or_one(np.sqrt(np.maximum(squares, 0.0) / weight))
    if preprocess == "unit":
        return zero, _or_one(np.sqrt(np.maximum(squares, 0.0) + weight * mean**2))
    return zero, one


def _ratios(weight: float, mean: Floats, squares: Floats) -> Floats:
    """Return sqrt(weight) |mean| / norm, 0 for columns of norm 0."""
    norms = np.sqrt(np.maximum(squares, 0.0))
    return np.where(norms > 0.0, np.sqrt(weight) * np.abs(mean) / np.where(norms > 0.0, norms, 1.0), 0.0)


def _or_one(scale: Floats) -> Floats:
    return np.where(scale > 0.0, scale, 1.0)


def duplicates(K: Floats, columns: Ints, limit: int = MOST_DUPLICATES) -> list[tuple[int, int]]:
    """Return up to `limit` pairs of `columns` that are multiples to 1e-6 of their norm (|correlation| = 1 to 1e-12)."""
    norm = np.zeros(len(K))
    norm[columns] = np.sqrt(np.maximum(np.diag(K)[columns], 0.0))
    pairs: list[tuple[int, int]] = []
    norm[norm == 0.0] = np.inf
    for first in range(0, len(K), _ROWS):
        rows = slice(first, first + _ROWS)
        same = np.abs(K[rows, first:]) >= np.outer((1.0 - 1e-12) * norm[rows], norm[first:])
        found = np.argwhere(np.triu(same, 1)) + first
        pairs += [(int(i), int(j)) for i, j in found[: limit - len(pairs)]]
    return pairs

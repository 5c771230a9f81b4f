"""The values of a result: rows of the front, of the trace and of a path, the curve of sizes, and statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dsel._lib.types import Floats, Ints
from dsel.errors import DataError

if TYPE_CHECKING:
    from dsel.config.request import Preprocess
    from dsel.passes.refit import Fit
    from dsel.passes.statistics import ColumnScales

#: Values that differ by at most this share are equal, and the smaller size wins.
_TIE = 1e-12
#: What a note on an automatic k says first where Y = X, and the shares of X for which it names sizes.
NO_CHOICE = "no rule can choose k for X itself, because each column explains more, also of left-out rows"
SHARES = (0.9, 0.95, 0.99)
#: The dimensions of the arrays, as they are saved.
_DIMS = {
    "gains": ("selected",),
    "std": ("selected",),
    "target_std": ("target",),
    "correlation": ("selected", "selected_too"),
}


@dataclass(frozen=True)
class FrontRow:
    """The best subset found of one size.

    Parameters
    ----------
    size : int
        Number of columns, or of groups of columns, those that are always included counted.
    error : float
        f(S).
    r2 : float
        Share of ||Y||^2 that is explained, without the ridge penalty.
    indices : tuple of int
        The columns, 0-based.
    criterion : float, optional
        Value of the custom criterion, if one was minimized.
    labels : tuple of str or int
        The labels of the columns. Empty in results of older versions.
    rank : int, optional
        The number of independent columns of a row in the front of a selection. None in results of older versions.
    """

    size: int
    error: float
    r2: float
    indices: tuple[int, ...]
    criterion: float | None = None
    labels: tuple[str | int, ...] = ()
    rank: int | None = None

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> FrontRow:
        """Return the row that was saved as JSON."""
        return cls(**{**values, "indices": tuple(values["indices"]), "labels": tuple(values.get("labels", ()))})


@dataclass(frozen=True)
class SizePoint:
    """One size on the curve.

    Parameters
    ----------
    size : int
        The number of columns, always included ones counted.
    value : float
        The squared error per left-out row, on the preprocessed data, summed over targets; or the information
        criterion.
    standard_error : float, optional
        The standard error of the error: that of the mean over the folds. Where one model is tested, it is that of the
        mean over the rows; for the squared error on rows of the same data, over five parts of these rows. None for an
        information criterion, and where one test has no mean over rows.
    """

    size: int
    value: float
    standard_error: float | None = None

    @classmethod
    def along(cls, first: int, values: Floats, errors: Floats | None) -> tuple[SizePoint, ...]:
        """Return the points of the sizes from the first one, with their standard errors where there are any."""
        known = [None] * len(values) if errors is None else errors.tolist()
        return tuple(
            cls(first + s, float(value), error) for s, (value, error) in enumerate(zip(values, known, strict=True))
        )


@dataclass(frozen=True)
class SizeCurve:
    """How ``k="auto"`` chose the number of columns.

    Parameters
    ----------
    rule : str
        The criterion: folds, held-out, bic, ebic or path.
    description : str
        The rule in words.
    k : int
        The chosen size.
    one_standard_error : bool
        Whether the smallest size within one standard error of the best was chosen.
    points : tuple of SizePoint
        All sizes, ascending, each of the subset that the search found. Only an exact method makes it the best one.
    """

    rule: str
    description: str
    k: int
    one_standard_error: bool
    points: tuple[SizePoint, ...]

    @classmethod
    def choose(
        cls, rule: str, description: str, points: tuple[SizePoint, ...], one_standard_error: bool = False
    ) -> SizeCurve:
        """Return the curve with the chosen size: the one of least value, or the smallest near it."""
        best = min(points, key=lambda point: (point.value, point.size))
        limit = best.value + _TIE * abs(best.value)
        if one_standard_error:
            if best.standard_error is None:
                raise DataError(
                    "one_standard_error: the tested rows that have a weight are too few for a standard error.",
                    "Leave it out, or test on more rows.",
                )
            limit = best.value + best.standard_error
        k = min(point.size for point in points if point.value <= limit)
        return cls(rule, description, k, one_standard_error, points)

    def note_on_x_itself(self) -> str:
        """Return why no size is chosen where Y = X, and sizes that explain most of the left-out rows."""
        null = next((point.value for point in self.points if point.size == 0), 0.0)
        enough: dict[int, float] = {}  # the largest share that each size explains
        for share in SHARES:
            sizes = (point.size for point in self.points if point.size and point.value <= (1.0 - share) * null)
            enough |= {size: share for size in list(sizes)[:1]}
        shown = ", ".join(f"k={size} explains at least {share:.0%}" for size, share in enough.items())
        return f"{NO_CHOICE}: give k as a number{f' ({shown} of the variation of left-out rows)' if shown else ''}"

    def ends_at_least(self, limit: int) -> bool:
        """Return whether the least value is at the limit of the size, so that larger subsets may be better."""
        best = min(self.points, key=lambda point: (point.value, point.size))
        return best.size == limit and (self.k == limit or self.one_standard_error)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SizeCurve:
        """Return the curve that was saved as JSON."""
        return cls(**{**values, "points": tuple(SizePoint(**point) for point in values["points"])})


@dataclass(frozen=True, eq=False)
class ChosenStatistics:
    """Statistics of the s chosen columns, in their order.

    Parameters
    ----------
    gains : ndarray of shape (s,)
        By how much each column lowers f(S) after those before it, as a share of ||Y||^2. Without a ridge penalty the
        sum is R^2.
    std : ndarray of shape (s,)
        Standard deviation of each column, in the units of the data.
    target_std : ndarray of shape (N,)
        Standard deviation of each target (of each column of X where Y = X).
    correlation : ndarray of shape (s, s)
        Correlations of the columns, also of those that depend on others. NaN for a column that does not vary.

    Notes
    -----
    The final check computes the gains and the correlations from the data, by QR. Rows count with their weights.
    Missing values count as the mean of their column.
    """

    gains: Floats
    std: Floats
    target_std: Floats
    correlation: Floats

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChosenStatistics) and all(
            np.array_equal(getattr(self, name), getattr(other, name), equal_nan=True) for name in _DIMS
        )

    __hash__ = None  # type: ignore[assignment]

    def reordered(self, order: Ints) -> ChosenStatistics:
        """Return the same for the columns in another order."""
        return ChosenStatistics(
            self.gains[order], self.std[order], self.target_std, self.correlation[np.ix_(order, order)]
        )

    def arrays(self) -> dict[str, tuple[Floats, tuple[str, ...]]]:
        """Return the arrays with their dimensions, by the name under which they are saved."""
        return {f"chosen_{name}": (getattr(self, name), dims) for name, dims in _DIMS.items()}

    @classmethod
    def of(
        cls, statistics: ColumnScales, preprocess: Preprocess, S: Ints, fit: Fit, dependent: Ints
    ) -> ChosenStatistics:
        """Return the statistics of the columns S of a fit, followed by `dependent` columns without a part in it."""
        size = S.size + dependent.size
        scaling = statistics.scaling(preprocess)
        mean = (statistics.mean_x[S] - scaling.center_x[S]) / scaling.scale_x[S]
        covariance = fit.gram - statistics.weight * np.outer(mean, mean)
        std_x = np.sqrt(np.maximum(statistics.squares, 0.0) / statistics.weight)
        std_y = std_x if statistics.unsupervised else np.sqrt(np.maximum(statistics.yy, 0.0) / statistics.weight)
        if not statistics.unsupervised and std_y.size != fit.coefficients.shape[1]:  # a loss with other outputs
            std_y = np.full(fit.coefficients.shape[1], np.nan)
        correlation = np.full((size, size), np.nan)
        correlation[: S.size, : S.size] = _correlation(covariance)
        gains = np.concatenate([fit.gains / fit.total, np.zeros(dependent.size)])
        return cls(gains, std_x[np.concatenate([S, dependent])], np.asarray(std_y), correlation)

    @classmethod
    def from_arrays(cls, group: Any) -> ChosenStatistics | None:
        """Return the statistics in a saved group, or None if dsel 0.1 saved it, which did not compute them."""
        if any(f"chosen_{name}" not in group for name in _DIMS):
            return None
        return cls(**{name: np.asarray(group[f"chosen_{name}"]) for name in _DIMS})


@dataclass(frozen=True)
class TraceRow:
    """An improvement of the best subset of at most k columns.

    Parameters
    ----------
    iteration : int
        Iterations until then.
    size : int
        Number of columns of the new best subset.
    error : float
        Its f(S), or its criterion.
    """

    iteration: int
    size: int
    error: float


@dataclass(frozen=True)
class PathRow:
    """One step of a method that minimizes a cross-validated error.

    Parameters
    ----------
    action : {"insert", "remove"}
        What the step did.
    index : int
        The column, 0-based.
    label : str
        Its label.
    size : int
        Number of columns after the step.
    error : float
        Error per left-out row: squared, on the preprocessed data, summed over targets; or the share of wrong labels.
    accuracy : float, optional
        Share of right labels, for the zero-one loss.
    test_error, test_accuracy : float, optional
        The same on held-out rows, if there are any.
    """

    action: str
    index: int
    label: str
    size: int
    error: float
    accuracy: float | None = None
    test_error: float | None = None
    test_accuracy: float | None = None


def _correlation(covariance: Floats) -> Floats:
    """Return the correlations of a covariance matrix. NaN where a column does not vary."""
    variance = np.diag(covariance)
    scale = np.sqrt(np.where(variance > 0.0, variance, np.nan))
    correlation = np.clip(covariance / np.outer(scale, scale), -1.0, 1.0)
    np.fill_diagonal(correlation, np.where(variance > 0.0, 1.0, np.nan))
    return np.asarray(correlation)

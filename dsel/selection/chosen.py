"""What the final check tells about the chosen columns: gains, standard deviations, correlations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dsel._lib.types import Floats, Ints
from dsel.config.request import Preprocess

if TYPE_CHECKING:
    from dsel.passes.refit import Fit
    from dsel.passes.statistics import ColumnScales

#: The dimensions of the arrays, as they are saved.
_DIMS = {
    "gains": ("selected",),
    "std": ("selected",),
    "target_std": ("target",),
    "correlation": ("selected", "selected_too"),
}


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
        Correlations of the columns. NaN for a column that depends on the others and has no part in the fit.

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
    def from_arrays(cls, group: Any) -> ChosenStatistics | None:
        """Return the statistics in a saved group, or None if dsel 0.1 saved it, which did not compute them."""
        if any(f"chosen_{name}" not in group for name in _DIMS):
            return None
        return cls(**{name: np.asarray(group[f"chosen_{name}"]) for name in _DIMS})


def chosen_statistics(
    statistics: ColumnScales, preprocess: Preprocess, S: Ints, fit: Fit, dependent: Ints
) -> ChosenStatistics:
    """Return the statistics of the columns S of a fit, followed by `dependent` columns without a part in it."""
    size = S.size + dependent.size
    scaling = statistics.scaling(preprocess)
    mean = (statistics.mean_x[S] - scaling.center_x[S]) / scaling.scale_x[S]
    covariance = fit.gram - statistics.weight * np.outer(mean, mean)
    std_x = np.sqrt(np.maximum(statistics.squares, 0.0) / statistics.weight)
    std_y = std_x if statistics.unsupervised else np.sqrt(np.maximum(statistics.yy, 0.0) / statistics.weight)
    correlation = np.full((size, size), np.nan)
    correlation[: S.size, : S.size] = _correlation(covariance)
    gains = np.concatenate([fit.gains / fit.total, np.zeros(dependent.size)])
    return ChosenStatistics(gains, std_x[np.concatenate([S, dependent])], np.asarray(std_y), correlation)


def _correlation(covariance: Floats) -> Floats:
    """Return the correlations of a covariance matrix. NaN where a column does not vary."""
    variance = np.diag(covariance)
    scale = np.sqrt(np.where(variance > 0.0, variance, np.nan))
    correlation = np.clip(covariance / np.outer(scale, scale), -1.0, 1.0)
    np.fill_diagonal(correlation, np.where(variance > 0.0, 1.0, np.nan))
    return np.asarray(correlation)

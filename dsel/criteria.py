"""Common criteria for `dsel.select(..., criterion=...)`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dsel.data.criterion_data import ColumnData
from dsel.errors import MissingExtraError, OptionError
from dsel.search.pareto.archive import Subset


@dataclass(frozen=True)
class CrossValidated:
    """Minus the mean cross-validated score of a scikit-learn estimator, as a criterion to minimize.

    Parameters
    ----------
    estimator : estimator
        A scikit-learn estimator. It gets the chosen columns of X as they are in the data, so put a scaler into a
        pipeline.
    folds : int or splitter
        Number of folds, or a splitter of scikit-learn. Give a shuffling splitter a `random_state`.
    scoring : str or callable, optional
        As for `sklearn.model_selection.cross_val_score`, where more is better. Default: the score of the estimator.

    Raises
    ------
    MissingExtraError
        If scikit-learn is not installed.
    OptionError
        If the data have no targets.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> criterion = CrossValidated(Ridge(), folds=5)
    """

    estimator: Any
    folds: Any = 5
    scoring: Any = None

    def __call__(self, S: Subset, data: ColumnData) -> float:
        try:
            from sklearn.model_selection import cross_val_score
        except ImportError as error:
            raise MissingExtraError("scikit-learn is not installed.", "pip install scikit-learn") from error
        if not data.n_targets:
            raise OptionError("There are no targets to predict.", "Give Y.")
        Y = data.Y if data.n_targets > 1 else data.Y[:, 0]
        scores = cross_val_score(
            self.estimator, data.columns(S), Y, cv=self.folds, scoring=self.scoring, error_score="raise"
        )
        return -float(scores.mean())

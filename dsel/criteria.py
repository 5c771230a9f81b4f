"""Criteria that are often wanted, ready for `dsel.select(..., criterion=...)`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dsel.data.criterion_data import ColumnData
from dsel.errors import MissingExtraError, OptionError
from dsel.search.pareto.archive import Subset


@dataclass(frozen=True)
class CrossValidated:
    """Minus the mean cross-validated score of a scikit-learn estimator on the chosen columns of X and on Y.

    folds: a number, or a splitter of scikit-learn (give a shuffling one a random_state). scoring: as for
    cross_val_score, where more is better; by default the estimator's own. Columns are given as they are in the data:
    put a scaler into a pipeline. Errors: MissingExtraError without scikit-learn, OptionError without targets; what the
    estimator raises comes back with the subset.
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

"""Common criteria for `dsel.select(..., criterion=...)`."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from dsel.config.size_rule import RowSplit, check_split
from dsel.data.criterion_data import ColumnData
from dsel.errors import MissingExtraError, OptionError
from dsel.search.pareto.archive import Subset

_INSTALL = "pip install 'dsel[sklearn]'."


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
    split : {"random", "blocks", "forward"}
        With a number of folds: the default folds of scikit-learn, which are stratified for a classifier; blocks of
        consecutive rows; or a time series, where each block but the first is predicted from the blocks before it.
    row_groups : str or (m,) array, optional
        The group of each row. All rows of a group are in one fold. A store names a variable over its samples.

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
    split: RowSplit = "random"
    row_groups: Any = None

    def __post_init__(self) -> None:
        if find_spec("sklearn") is None:  # before a pass over the data, not after it
            raise MissingExtraError("CrossValidated needs scikit-learn, which is not installed.", _INSTALL)
        if not hasattr(self.estimator, "fit"):
            raise OptionError(f"CrossValidated: {self.estimator!r} is no estimator.", "Give one, such as Ridge().")
        try:
            check_split(self.split, 1, self.row_groups)
        except ValueError as error:
            raise OptionError(f"CrossValidated: {error}.") from error
        if self.split != "random" and not isinstance(self.folds, int):
            raise OptionError(f"CrossValidated: split {self.split} needs a number of folds, not a splitter.")

    def __call__(self, S: Subset, data: ColumnData) -> float:
        try:
            from sklearn.model_selection import cross_val_score
        except ImportError as error:
            raise MissingExtraError("scikit-learn is not installed.", _INSTALL) from error
        if not data.n_targets:
            raise OptionError("There are no targets to predict.", "Give Y.")
        Y = data.Y if data.n_targets > 1 else data.Y[:, 0]
        groups = None if self.row_groups is None else data.row_groups(self.row_groups)
        scores = cross_val_score(
            self.estimator, data.columns(S), Y, cv=self._splitter(), scoring=self.scoring, groups=groups,
            error_score="raise",
        )  # fmt: skip
        return -float(scores.mean())

    def _splitter(self) -> Any:
        """Return what scikit-learn divides the rows by."""
        from sklearn.model_selection import GroupKFold, KFold, TimeSeriesSplit

        if not isinstance(self.folds, int):
            return self.folds
        if self.row_groups is not None:
            return GroupKFold(self.folds)
        splitters = {"blocks": KFold, "forward": TimeSeriesSplit}
        return splitters[self.split](self.folds) if self.split in splitters else self.folds

"""The selector by leave-one-out or K-fold error of ridge regression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dsel.config.request import Missing, Preprocess
from dsel.sklearn.base import BaseSelector
from dsel.sklearn.targets import EncodedTarget, Task


class GreedyRLSSelector(BaseSelector):
    """Select columns by the exact leave-one-out error of ridge regression (greedy RLS), or by its K-fold error.

    Parameters
    ----------
    n_features_to_select : int, float or "auto", default=10
        The number of columns at most, or their share in (0, 1]. "auto": chosen by the error on left-out folds.
    lam : float, default=1.0
        The ridge penalty on the preprocessed data.
    lam_grid : "auto" or sequence of float, default=None
        Penalties to choose from by the error with all columns, in place of `lam`.
    folds : int, default=None
        The number of folds of the error. None: leave-one-out.
    loss : {"squared", "zero-one"}, default="squared"
        The loss of a left-out row; "zero-one" counts wrong classes, and goes with leave-one-out.
    direction : {"forward", "backward", "floating"}, default="forward"
        Insert columns; delete columns, starting from all; or delete columns after each insertion if that helps.
    preprocess : {"standardize", "center", "unit", "none"}, default="standardize"
        How columns are centered and scaled.
    task : {"auto", "classification", "regression"}, default="auto"
        What y holds.
    include, exclude : sequence of str or int, default=()
        Columns that are always or never selected.
    missing : {"refuse", "mean"}, default="refuse"
        Refuse NaN in X, or replace it by the mean of its column for the selection.
    random_state : int, RandomState or None, default=0
        The seed that divides the rows into folds.
    cache : {"memory"}, str, Path or None, default="memory"
        Where the statistics of the data are kept.

    Attributes
    ----------
    selection_ : Selection
        The result; its `path` has the error after each step. `SubsetSelector` lists the other attributes.
    lam_ : float
        The penalty that was used.

    See Also
    --------
    SubsetSelector : All methods, and all attributes.
    sklearn.linear_model.RidgeCV : Ridge regression on all columns, with the penalty chosen by the same error.

    Notes
    -----
    Leave-one-out takes a pass over the rows for each column, K-fold only the first one.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 20))
    >>> GreedyRLSSelector(2).fit(X, X[:, 3] - 2 * X[:, 7]).indices_
    array([7, 3])
    """

    _y_required = True

    def __init__(
        self,
        n_features_to_select: Any = 10,
        *,
        lam: float = 1.0,
        lam_grid: Any = None,
        folds: int | None = None,
        loss: str = "squared",
        direction: str = "forward",
        preprocess: Preprocess = "standardize",
        task: Task = "auto",
        include: Sequence[str | int] = (),
        exclude: Sequence[str | int] = (),
        missing: Missing = "refuse",
        random_state: Any = 0,
        cache: Any = "memory",
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.lam = lam
        self.lam_grid = lam_grid
        self.folds = folds
        self.loss = loss
        self.direction = direction
        self.preprocess = preprocess
        self.task = task
        self.include = include
        self.exclude = exclude
        self.missing = missing
        self.random_state = random_state
        self.cache = cache

    def _set_fitted(self, target: EncodedTarget) -> None:
        super()._set_fitted(target)
        self.lam_ = self.selection_.lam

    def _request_fields(self) -> dict[str, Any]:
        options = {"lam_grid": self.lam_grid, "direction": self.direction}
        if self.folds is None:
            return {"method": "greedy-rls", "lam": self.lam, "options": {**options, "loss": self.loss}}
        if self.loss != "squared":
            raise ValueError(f"loss={self.loss!r} goes with leave-one-out only: leave folds out.")
        return {"method": "kfold", "lam": self.lam, "options": {**options, "folds": self.folds}}

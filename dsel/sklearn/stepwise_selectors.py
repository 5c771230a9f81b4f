"""The selectors that insert columns one by one: forward selection and orthogonal matching pursuit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dsel.config.request import Missing, Preprocess
from dsel.sklearn.base import BaseSelector
from dsel.sklearn.targets import Task


class ForwardSelector(BaseSelector):
    """Select columns one by one, each time the one that lowers the squared error most.

    Parameters
    ----------
    n_features_to_select : int, float or "auto", default=10
        The number of columns at most, or their share in (0, 1]. "auto": chosen by the error on left-out folds.
    lam : float, default=0.0
        The ridge penalty on the preprocessed data.
    preprocess : {"standardize", "center", "unit", "none"}, default="standardize"
        How columns are centered and scaled.
    task : {"auto", "classification", "regression"}, default="auto"
        What y holds.
    include, exclude : sequence of str or int, default=()
        Columns that are always or never selected.
    groups : mapping or list of lists, default=None
        Columns that are selected together and count as one, as for `dsel.select`.
    missing : {"refuse", "mean"}, default="refuse"
        Refuse NaN in X, or replace it by the mean of its column for the selection.
    random_state : int, RandomState or None, default=0
        Not used: the selection does not depend on it.
    cache : {"memory"}, str, Path or None, default="memory"
        Where the statistics of the data are kept.

    Attributes
    ----------
    selection_ : Selection
        The result. `SubsetSelector` lists the other attributes.

    See Also
    --------
    SubsetSelector : All methods, and all attributes.
    sklearn.feature_selection.SequentialFeatureSelector : By the cross-validated score of any model.

    Notes
    -----
    The cost is one pass over the data with m n (n + N) multiplications, then O(n k^2).

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 20))
    >>> ForwardSelector(2).fit(X, X[:, 3] - 2 * X[:, 7]).indices_
    array([7, 3])
    """

    _method = "forward"

    def __init__(
        self,
        n_features_to_select: Any = 10,
        *,
        lam: float = 0.0,
        preprocess: Preprocess = "standardize",
        task: Task = "auto",
        include: Sequence[str | int] = (),
        exclude: Sequence[str | int] = (),
        groups: Any = None,
        missing: Missing = "refuse",
        random_state: Any = 0,
        cache: Any = "memory",
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.lam = lam
        self.preprocess = preprocess
        self.task = task
        self.include = include
        self.exclude = exclude
        self.groups = groups
        self.missing = missing
        self.random_state = random_state
        self.cache = cache

    def _request_fields(self) -> dict[str, Any]:
        return {"method": self._method, "lam": self.lam}


class OMPSelector(ForwardSelector):
    """Select columns by orthogonal matching pursuit, each time the one that correlates most with the residuals.

    Parameters
    ----------
    n_features_to_select : int, float or "auto", default=10
        The number of columns at most, or their share in (0, 1]. "auto": chosen by the error on left-out folds.
    lam : float, default=0.0
        The ridge penalty on the preprocessed data.
    preprocess : {"standardize", "center", "unit", "none"}, default="standardize"
        How columns are centered and scaled.
    task : {"auto", "classification", "regression"}, default="auto"
        What y holds.
    include, exclude : sequence of str or int, default=()
        Columns that are always or never selected.
    groups : mapping or list of lists, default=None
        Columns that are selected together and count as one, as for `dsel.select`.
    missing : {"refuse", "mean"}, default="refuse"
        Refuse NaN in X, or replace it by the mean of its column for the selection.
    random_state : int, RandomState or None, default=0
        Not used: the selection does not depend on it.
    cache : {"memory"}, str, Path or None, default="memory"
        Where the statistics of the data are kept.

    Attributes
    ----------
    selection_ : Selection
        The result. `SubsetSelector` lists the other attributes.

    See Also
    --------
    SubsetSelector : All methods, and all attributes.
    sklearn.linear_model.OrthogonalMatchingPursuit : A regressor by the same rule, for data in memory.

    Notes
    -----
    With several targets the squared correlations are added up (simultaneous OMP).

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 20))
    >>> OMPSelector(2).fit(X, X[:, 3] - 2 * X[:, 7]).indices_
    array([7, 3])
    """

    _method = "omp"

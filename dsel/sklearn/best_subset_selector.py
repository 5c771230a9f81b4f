"""The selector that proves its answer."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from dsel.config.request import Missing, Preprocess
from dsel.search.exact.certificate import dependence
from dsel.sklearn.base import BaseSelector
from dsel.sklearn.targets import EncodedTarget, Task


class BestSubsetSelector(BaseSelector):
    """Select the best subset of columns, and prove that none is better (branch and bound).

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
    seconds : float or None, default=60.0
        How long to search for the proof. A search that ends before it warns, and has the best subset found. None: no
        limit, and the search may take exponential time.
    random_state : int, RandomState or None, default=0
        The seed of the search that finds the first subset.
    cache : {"memory"}, str, Path or None, default="memory"
        Where the statistics of the data are kept.

    Attributes
    ----------
    selection_ : Selection
        The result. `SubsetSelector` lists the other attributes.
    status_ : {"optimal", "optimal-except-near-copies", "bounded", "no-useful-bound"}
        What is proved, as in a certificate.
    proven_ : bool
        Whether no subset of this size is better. Subsets with near-copies of columns may be, by up to 1e-6 of the
        error of no column.
    bound_ : float
        A lower bound on the error of every subset of this size, as `selection_.error`.

    See Also
    --------
    SubsetSelector : All methods, and all attributes.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 20))
    >>> selector = BestSubsetSelector(2).fit(X, X[:, 3] - 2 * X[:, 7])
    >>> selector.indices_, selector.proven_
    (array([7, 3]), True)
    """

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
        seconds: float | None = 60.0,
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
        self.seconds = seconds
        self.random_state = random_state
        self.cache = cache

    def _set_fitted(self, target: EncodedTarget) -> None:
        super()._set_fitted(target)
        counts = self.selection_.counts
        self.status_ = str(counts.get("status", "optimal"))
        self.proven_ = bool(counts.get("proven", True))
        self.bound_ = float(counts.get("bound", self.selection_.error))
        if not self.proven_:
            warnings.warn(self._why_not_proven(), ConvergenceWarning, stacklevel=3)

    def _why_not_proven(self) -> str:
        selection = self.selection_
        if self.status_ == "optimal-except-near-copies":
            counts = selection.counts
            return dependence(
                counts.get("near_copies", ()), selection.indices, counts.get("dependent_gap", 0.0), selection.label
            )
        ended = f"ended after {self.seconds} seconds" if selection.ended == "seconds" else "ended"
        return (
            f"The search {ended} without a proof: the error is {selection.error:.6g}, and none is below "
            f"{self.bound_:.6g}. Raise seconds, or select fewer."
        )

    def _request_fields(self) -> dict[str, Any]:
        return {"method": "branch-and-bound", "lam": self.lam, "options": {"seconds": self.seconds}}

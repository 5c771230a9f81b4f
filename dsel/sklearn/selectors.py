"""The selectors: for every method of `dsel.select`, and for some methods with what is special about them."""

from __future__ import annotations

import numbers
import warnings
from dataclasses import dataclass, field
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from dsel.api.run_proofs import alternatives_from
from dsel.config.job import ListLimits
from dsel.config.request import SelectionRequest
from dsel.data.dataset import Dataset
from dsel.jobs.proof_store import ProofBudget
from dsel.passes.statistics_cache import StatisticsCache
from dsel.search.exact.certificate_words import caveat
from dsel.selection.result import Selection
from dsel.sklearn.base_selector import BaseSelector
from dsel.sklearn.inputs import EncodedTarget, Task


@dataclass(kw_only=True, eq=False, repr=False)
class SubsetSelector(BaseSelector):
    """Select the columns that best explain y, by any method of `dsel.select`.

    Parameters
    ----------
    method : str, default="poss"
        The method, as for `dsel.select`.
    task : {"auto", "classification", "regression"}, default="auto"
        What y holds. "auto": text, booleans and categories are classes, and numbers are numbers.
    groups : mapping or list of lists, default=None
        Columns that are selected together and count as one, as for `dsel.select`.
    criterion : callable, default=None
        A function f(S) or f(S, data) to minimize in place of the squared error.
    max_k : int, default=None
        The upper limit of ``n_features_to_select="auto"``, as for `dsel.select`.
    choose_k : SizeRule, dict or str, default=None
        How ``n_features_to_select="auto"`` chooses, as for `dsel.select`.
    options : dict, default=None
        The method's own options, such as ``{"iterations": 10_000}``.
    alternatives : float or dict, default=None
        List all near-best subsets, too: those that explain less than the best one by at most this share, such as 0.01;
        or `within`, `nbest`, `limit`, `seconds` and `sizes` of `dsel.alternatives`, such as
        ``{"within": 0.01, "seconds": 10}``.

    Attributes
    ----------
    selection_ : Selection
        The result, with coefficients, front and notes.
    alternatives_ : Alternatives or None
        The near-best subsets, with a verdict and a price for each column, if they were asked for.
    support_ : ndarray of bool, shape (n,)
        The mask of the selected columns.
    indices_ : ndarray of int, shape (s,)
        The selected columns in order of gain.
    n_features_ : int
        The number of selected columns.
    n_features_in_ : int
        The number of columns in `fit`.
    feature_names_in_ : ndarray of str
        Their labels, if X has labels that are text.
    classes_ : ndarray or list of ndarray
        The classes of y, if it holds classes.

    See Also
    --------
    dsel.select : The function behind it.

    Notes
    -----
    Classes become a column of 0 and 1 each (one column for two classes). With ``preprocess="standardize"`` each of them
    has the same weight, with "center" frequent classes weigh more.

    A search over `n_features_to_select` computes the Gram matrix of each fold once: m n (n + N) multiplications. After
    that, a fit costs the search and one pass over the selected columns.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 20))
    >>> selector = SubsetSelector(n_features_to_select=2).fit(X, X[:, 3] - 2 * X[:, 7])
    >>> selector.get_support(indices=True)
    array([3, 7])
    """

    method: str = "poss"
    task: Task = "auto"
    groups: Any = None
    criterion: Any = None
    max_k: int | None = None
    choose_k: Any = None
    options: dict[str, Any] | None = None
    alternatives: Any = None

    def _select(self, dataset: Dataset, request: SelectionRequest, cache: StatisticsCache | None) -> Selection:
        selection = super()._select(dataset, request, cache)
        if self.alternatives is None:
            return selection
        asked = dict(self.alternatives) if isinstance(self.alternatives, dict) else {"within": self.alternatives}
        limits = {name: asked.pop(name) for name in ("seconds", "sizes") if name in asked}
        budget = ProofBudget.of(**{"seconds": 60.0, **limits}, near_best=ListLimits.of(**asked))
        searched: dict[str, Any] = {"method": "forward", "options": {}, "criterion": None}  # it does not matter how
        found = alternatives_from(dataset, request.model_copy(update=searched), selection, budget, cache)
        return selection.with_alternatives(found)

    def _set_fitted(self, target: EncodedTarget) -> None:
        super()._set_fitted(target)
        self.alternatives_ = self.selection_.alternatives


@dataclass(kw_only=True, eq=False, repr=False)
class BestSubsetSelector(BaseSelector):
    """Select the best subset of columns, and prove that none is better (branch and bound).

    Parameters
    ----------
    random_state : int, RandomState or None, default=0
        The seed of the search that finds the first subset.
    task : {"auto", "classification", "regression"}, default="auto"
        What y holds.
    groups : mapping or list of lists, default=None
        Columns that are selected together and count as one, as for `dsel.select`.
    seconds : float or None, default=60.0
        How long to search for the proof. A search that ends before it warns, and has the best subset found. None: no
        limit, and the search may take exponential time.

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

    task: Task = "auto"
    groups: Any = None
    seconds: float | None = 60.0

    def _set_fitted(self, target: EncodedTarget) -> None:
        super()._set_fitted(target)
        proof = self.selection_.certificate[-1]
        self.status_, self.proven_, self.bound_ = proof["status"], proof["proven"], proof["bound"]
        if not self.proven_:
            warnings.warn(self._why_not_proven(), ConvergenceWarning, stacklevel=3)

    def _why_not_proven(self) -> str:
        selection = self.selection_
        if self.status_ == "optimal-except-near-copies":
            return caveat(selection.certificate[-1], selection.label, selection.counts, selection.indices)
        ended = f"ended after {self.seconds} seconds" if selection.ended == "seconds" else "ended"
        known = f"none is below {self.bound_:.6g}" if self.bound_ > 0.0 else "nothing is known of other subsets"
        return (
            f"The search {ended} without a proof: the error is {selection.error:.6g}, and {known}. "
            "Raise seconds, or select fewer."
        )

    def _method_fields(self) -> dict[str, Any]:
        return {"method": "branch-and-bound", "options": {"seconds": self.seconds}}


@dataclass(kw_only=True, eq=False, repr=False)
class ColumnSubsetSelector(BaseSelector):
    """Select the columns that best approximate all columns of X (column subset selection, unsupervised).

    Parameters
    ----------
    method : str, default="poss"
        The method, as for `dsel.select`.
    groups : mapping or list of lists, default=None
        Columns that are selected together and count as one, as for `dsel.select`.
    options : dict, default=None
        The method's own options.

    Attributes
    ----------
    selection_ : Selection
        The result; `selection_.r2` is the share of X that the columns explain. `SubsetSelector` lists the other
        attributes.

    See Also
    --------
    SubsetSelector : The same for targets, and all attributes.

    Examples
    --------
    >>> import numpy as np
    >>> Z = np.random.default_rng(0).normal(size=(200, 2))
    >>> X = np.column_stack([Z, Z @ [1, 1], Z @ [1, -1]])
    >>> round(ColumnSubsetSelector(2).fit(X).selection_.r2, 6)
    1.0
    """

    _y_ignored = True

    method: str = "poss"
    groups: Any = None
    options: dict[str, Any] | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class GreedyRLSSelector(BaseSelector):
    """Select columns by the exact leave-one-out error of ridge regression (greedy RLS), or by its K-fold error.

    Parameters
    ----------
    lam : float, default=1.0
        The ridge penalty on the preprocessed data.
    random_state : int, RandomState or None, default=0
        The seed that divides the rows into folds.
    lam_grid : "auto" or sequence of float, default=None
        Penalties to choose from by the error with all columns, in place of `lam`.
    cv : int, splitter or list of pairs, default=None
        How rows are left out: the number of random folds, a splitter of scikit-learn, or pairs of row numbers to train
        and to test on. None: each row alone (leave-one-out).
    folds : int, default=None
        The earlier name of `cv`, for a number.
    loss : {"squared", "zero-one"}, default="squared"
        The loss of a left-out row; "zero-one" counts wrong classes, and goes with leave-one-out.
    direction : {"forward", "backward", "floating"}, default="forward"
        Insert columns; delete columns, starting from all; or delete columns after each insertion if that helps.
    task : {"auto", "classification", "regression"}, default="auto"
        What y holds.

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

    A left-out row of weight 2 is left out with all of its weight, by `cv` and without it, as `RidgeCV` does. Two copies
    of that row are left out together only where `cv` puts them into one fold.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 20))
    >>> GreedyRLSSelector(2).fit(X, X[:, 3] - 2 * X[:, 7]).indices_
    array([7, 3])
    """

    _y_required = True

    lam: float = 1.0
    lam_grid: Any = None
    cv: Any = None
    folds: int | None = None
    loss: str = "squared"
    direction: str = "forward"
    task: Task = "auto"

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None) -> BaseSelector:
        """Select columns.

        Parameters
        ----------
        X : (m, n) array, sparse matrix, DataFrame, Dask or xarray object
            The data.
        y : (m,) or (m, N) array
            The targets: numbers or classes.
        sample_weight : (m,) array, optional
            Weights >= 0 of the rows.
        groups : (m,) array, optional
            The group of each row, for `cv`: a splitter such as `GroupKFold`, or a number of folds. All rows of a group
            are in one fold.

        Returns
        -------
        BaseSelector
            The selector itself, fitted.

        Raises
        ------
        ValueError
            A parameter or the data cannot be used.
        """
        self._row_groups = groups
        try:
            return super().fit(X, y, sample_weight)
        finally:
            del self._row_groups

    def _set_fitted(self, target: EncodedTarget) -> None:
        super()._set_fitted(target)
        self.lam_ = self.selection_.lam

    def _method_fields(self) -> dict[str, Any]:
        options = {"lam_grid": self.lam_grid, "direction": self.direction}
        if self.cv is not None and self.folds is not None:
            raise ValueError("cv and folds are both given: folds is the earlier name of cv.")
        cv = self.folds if self.cv is None else self.cv
        lam = self.lam if self.lam_grid is None else 0.0
        if cv is None:
            if self._row_groups is not None:
                raise ValueError("groups need cv: without it, each row alone is left out. Give a number of folds.")
            return {"method": "greedy-rls", "lam": lam, "options": {**options, "loss": self.loss}}
        if self.loss != "squared":
            raise ValueError(f"loss={self.loss!r} goes with leave-one-out only: leave cv out.")
        divided = "folds" if isinstance(cv, numbers.Integral) else "split"
        return {"method": "kfold", "lam": lam, "options": {**options, divided: cv, "row_groups": self._row_groups}}


@dataclass(kw_only=True, eq=False, repr=False)
class ForwardSelector(SubsetSelector):
    """Select columns one by one, each time the one that lowers the squared error most.

    Parameters
    ----------
    random_state : int, RandomState or None, default=0
        Not used, except where folds choose the number of columns: the search does not depend on it.

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

    method: str = field(default="forward", init=False)


@dataclass(kw_only=True, eq=False, repr=False)
class OMPSelector(SubsetSelector):
    """Select columns by orthogonal matching pursuit, each time the one that correlates most with the residuals.

    Parameters
    ----------
    random_state : int, RandomState or None, default=0
        Not used, except where folds choose the number of columns: the search does not depend on it.

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
    With several targets the squared correlations are added up (simultaneous OMP). `indices_` is in order of gain, as
    for all selectors: each next column lowers the error most. OMP may have taken the columns in another order.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 20))
    >>> OMPSelector(2).fit(X, X[:, 3] - 2 * X[:, 7]).indices_
    array([7, 3])
    """

    method: str = field(default="omp", init=False)

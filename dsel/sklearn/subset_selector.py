"""The selector for every method of `dsel.select`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dsel.config.request import Missing, Preprocess
from dsel.sklearn.base import BaseSelector
from dsel.sklearn.targets import Task


class SubsetSelector(BaseSelector):
    """Select the columns that best explain y, by any method of `dsel.select`.

    Parameters
    ----------
    n_features_to_select : int, float or "auto", default=10
        The number of columns at most, or their share in (0, 1]. "auto": chosen by the error on left-out folds.
    method : str, default="poss"
        The method, as for `dsel.select`.
    lam : float, default=0.0
        The ridge penalty on the preprocessed data.
    preprocess : {"standardize", "center", "unit", "none"}, default="standardize"
        How columns are centered and scaled. `transform` returns them as they are.
    task : {"auto", "classification", "regression"}, default="auto"
        What y holds. "auto": text, booleans and categories are classes, and numbers are numbers.
    include, exclude : sequence of str or int, default=()
        Columns that are always or never selected, by label or position.
    groups : mapping or list of lists, default=None
        Columns that are selected together and count as one, as for `dsel.select`.
    missing : {"refuse", "mean"}, default="refuse"
        Refuse NaN in X, or replace it by the mean of its column for the selection. `transform` leaves it.
    criterion : callable, default=None
        A function f(S) or f(S, data) to minimize in place of the squared error.
    max_k : int, default=None
        The upper limit of ``n_features_to_select="auto"``, as for `dsel.select`.
    choose_k : SizeRule, dict or str, default=None
        How ``n_features_to_select="auto"`` chooses, as for `dsel.select`.
    options : dict, default=None
        The method's own options, such as ``{"iterations": 10_000}``.
    random_state : int, RandomState or None, default=0
        The seed. An int gives the same selection as ``dsel.select(seed=...)``.
    cache : {"memory"}, str, Path or None, default="memory"
        Where the statistics of the data are kept, so that a second fit to the same data reads them once only: the
        memory of this process, or a folder that processes share.

    Attributes
    ----------
    selection_ : Selection
        The result, with coefficients, front and notes.
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

    def __init__(
        self,
        n_features_to_select: Any = 10,
        *,
        method: str = "poss",
        lam: float = 0.0,
        preprocess: Preprocess = "standardize",
        task: Task = "auto",
        include: Sequence[str | int] = (),
        exclude: Sequence[str | int] = (),
        groups: Any = None,
        missing: Missing = "refuse",
        criterion: Any = None,
        max_k: int | None = None,
        choose_k: Any = None,
        options: dict[str, Any] | None = None,
        random_state: Any = 0,
        cache: Any = "memory",
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.method = method
        self.lam = lam
        self.preprocess = preprocess
        self.task = task
        self.include = include
        self.exclude = exclude
        self.groups = groups
        self.missing = missing
        self.criterion = criterion
        self.max_k = max_k
        self.choose_k = choose_k
        self.options = options
        self.random_state = random_state
        self.cache = cache

    def _request_fields(self) -> dict[str, Any]:
        return {
            "method": self.method, "lam": self.lam, "criterion": self.criterion, "max_k": self.max_k,
            "choose_k": self.choose_k, "options": dict(self.options or {}),
        }  # fmt: skip

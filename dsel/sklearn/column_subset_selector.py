"""The selector for X itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dsel.config.request import Missing, Preprocess
from dsel.sklearn.base import BaseSelector


class ColumnSubsetSelector(BaseSelector):
    """Select the columns that best approximate all columns of X (column subset selection, unsupervised).

    Parameters
    ----------
    n_features_to_select : int, float or "auto", default=10
        The number of columns at most, or their share in (0, 1]. "auto": chosen by the error on left-out folds.
    method : str, default="poss"
        The method, as for `dsel.select`.
    lam : float, default=0.0
        The ridge penalty on the preprocessed data.
    preprocess : {"standardize", "center", "unit", "none"}, default="standardize"
        How columns are centered and scaled.
    include, exclude : sequence of str or int, default=()
        Columns that are always or never selected.
    groups : mapping or list of lists, default=None
        Columns that are selected together and count as one, as for `dsel.select`.
    missing : {"refuse", "mean"}, default="refuse"
        Refuse NaN in X, or replace it by the mean of its column for the selection.
    options : dict, default=None
        The method's own options.
    random_state : int, RandomState or None, default=0
        The seed.
    cache : {"memory"}, str, Path or None, default="memory"
        Where the statistics of the data are kept.

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

    def __init__(
        self,
        n_features_to_select: Any = 10,
        *,
        method: str = "poss",
        lam: float = 0.0,
        preprocess: Preprocess = "standardize",
        include: Sequence[str | int] = (),
        exclude: Sequence[str | int] = (),
        groups: Any = None,
        missing: Missing = "refuse",
        options: dict[str, Any] | None = None,
        random_state: Any = 0,
        cache: Any = "memory",
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.method = method
        self.lam = lam
        self.preprocess = preprocess
        self.include = include
        self.exclude = exclude
        self.groups = groups
        self.missing = missing
        self.options = options
        self.random_state = random_state
        self.cache = cache

    def _request_fields(self) -> dict[str, Any]:
        return {"method": self.method, "lam": self.lam, "options": dict(self.options or {})}

"""What all selectors share: checks, encoding of targets, statistics that are computed once, and lazy data."""

from __future__ import annotations

import inspect
import numbers
import re
import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils import check_random_state
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from dsel.api.run_select import select_from
from dsel.config.ingest_request import Dates
from dsel.config.request import Categories, Missing, NearCopies, Preprocess, SelectionRequest
from dsel.data.as_dataset import as_dataset
from dsel.data.classes import with_plain_columns
from dsel.data.dataset import Dataset
from dsel.data.frames import collected, numbered, target_labels
from dsel.data.labels import as_labels
from dsel.errors import DataError, OptionError
from dsel.passes.statistics_cache import MemoryStatisticsCache, StatisticsCache
from dsel.selection.record_values import NO_CHOICE
from dsel.selection.result import Selection
from dsel.selection.results.apply import take_columns
from dsel.sklearn.inputs import (
    EncodedTarget,
    check_features,
    check_training_data,
    column_names,
    data_digest,
    encode_target,
    in_memory,
    is_lazy_or_labelled,
    opened_input,
    spread_columns,
    with_objects,
)
from dsel.storage.paths import AnyPath, as_path

#: Statistics of the data that this process has fitted selectors to, the last ones.
_CACHE = MemoryStatisticsCache()


def clear_cache() -> None:
    """Free the memory of the statistics that selectors with ``cache="memory"`` have kept in this process.

    Examples
    --------
    >>> clear_cache()
    """
    _CACHE.clear()


_PARAMETERS = "Parameters\n----------\n"


def _parameters(docstring: str) -> tuple[str, dict[str, str], str]:
    """Return what comes before the entries of the section on parameters, these entries by name, and the rest."""
    head, _, rest = inspect.cleandoc(docstring).partition(_PARAMETERS)
    section, _, tail = rest.partition("\n\n")
    return head, {entry.partition(" :")[0]: entry for entry in re.split(r"\n(?=\S)", section)}, tail


@dataclass(eq=False, repr=False)
class BaseSelector(SelectorMixin, BaseEstimator):  # type: ignore[misc]
    """Base class of the selectors: `fit` runs a request, the mixin does the rest.

    The parameters are the fields of the dataclass. Those with the name of a field of a request are given to it. The
    docstring of a subclass says what is special about its parameters; the others are added to it.

    Parameters
    ----------
    n_features_to_select : int, float or "auto", default=10
        The number of columns at most, or their share in (0, 1]. "auto": chosen by the error on left-out folds.
        A number above that of the columns is a warning, where `dsel.select` raises an error.
    lam : float, default=0.0
        The ridge penalty on the preprocessed data.
    preprocess : {"standardize", "center", "unit", "none"}, default="standardize"
        How columns are centered and scaled. `transform` returns them as they are.
    include, exclude : sequence of str or int, default=()
        Columns that are always or never selected, by label or position. A number is a label where whole numbers name
        all columns of a frame.
    categories : {"groups", "columns", "refuse"}, default="groups"
        Text and categories of a frame count as columns of zeros and ones, as for `dsel.select`. `transform` returns the
        columns of the frame as they are.
    dates : {"refuse", "days"}, default="refuse"
        Dates of a frame are refused, or become numbers of days.
    near_copies : {"first", "keep", "refuse"}, default="first"
        Of columns that correlate by at least 1 - 1e-6, search with the first one only, with all, or refuse them.
    missing : {"refuse", "mean"}, default="refuse"
        Refuse NaN in X, or replace it by the mean of its column for the selection. `transform` leaves it.
    random_state : int, RandomState or None, default=0
        The seed. An int gives the same selection as ``dsel.select(seed=...)``.
    cache : {"memory"}, str, Path or None, default="memory"
        Where the statistics of the data are kept, so that a second fit to the same data reads them once only: the
        memory of this process, or a folder that processes share.
    """

    n_features_to_select: Any = 10
    _: KW_ONLY
    lam: float = 0.0
    preprocess: Preprocess = "standardize"
    include: Sequence[str | int] = ()
    exclude: Sequence[str | int] = ()
    categories: Categories = "groups"
    dates: Dates = "refuse"
    near_copies: NearCopies = "first"
    missing: Missing = "refuse"
    random_state: Any = 0
    cache: Any = "memory"

    #: Whether y must be given; whether it is ignored.
    _y_required = False
    _y_ignored = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        base = next(kind for kind in cls.__mro__[1:] if issubclass(kind, BaseSelector))
        if cls.__doc__ and base.__doc__:  # python -OO keeps none
            head, own, tail = _parameters(cls.__doc__)
            entries = {**_parameters(base.__doc__)[1], **own}
            kept = [text for name, text in entries.items() if getattr(getattr(cls, name, None), "init", True)]
            cls.__doc__ = f"{head}{_PARAMETERS}{chr(10).join(kept)}\n\n{tail}"

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> BaseSelector:
        """Select columns.

        Parameters
        ----------
        X : (m, n) array, sparse matrix, DataFrame, Dask or xarray object
            The data.
        y : (m,) or (m, N) array, optional
            The targets: numbers or classes. Selectors that do not require it choose columns for X itself without it.
        sample_weight : (m,) array, optional
            Weights >= 0 of the rows.

        Returns
        -------
        BaseSelector
            The selector itself, fitted.

        Raises
        ------
        ValueError
            A parameter or the data cannot be used.
        """
        if y is None and self._y_required:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        y = None if self._y_ignored else with_plain_columns(collected(y))
        try:
            names = column_names(X)
        except DataError as error:
            raise ValueError(str(error)) from error
        X = opened_input(X)
        numbers, targets = numbered(X), target_labels(y)
        X, y = check_training_data(self, X, y, self.missing == "mean")
        target = EncodedTarget(None) if y is None else self._encoded(y, targets)
        if sample_weight is not None and not is_lazy_or_labelled(X):
            sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64)
        sample_weight = self._weights(y, sample_weight)
        try:
            request = self._request()
            dataset = as_dataset(
                X, target.Y, sample_weight=sample_weight, categories=request.categories, dates=request.dates,
                exclude=request.exclude,
            )  # fmt: skip
            self._source = dataset.column_numbers
            made = dataset.categories if self._source is not None else None
            self._categories = [] if made is None else list(dict.fromkeys(made[made != dataset.features].tolist()))
            names = getattr(self, "feature_names_in_", names)
            if names is not None and self._source is None:
                dataset = replace(dataset, features=as_labels(names), numbered=dataset.numbered or numbers)
            named = target.names or targets or ()
            if len(named) == dataset.n_targets:
                dataset = replace(dataset, targets=as_labels(named))
            request = dataset.named(request)
            cache = self._cache()
            if cache is not None:
                lazy = self._source is None or is_lazy_or_labelled(X)
                read = (X,) if lazy else tuple(block.x for block in dataset.blocks)
                digest = data_digest(*read, target.Y, sample_weight)
                dataset = replace(dataset, digest=digest)
            self.selection_ = self._select(dataset, request, cache)
        except (DataError, OptionError) as error:
            raise ValueError(str(error)) from error
        self._set_fitted(target)
        return self

    def transform(self, X: Any) -> Any:
        """Return the selected columns of X, in the order that they have in X.

        Parameters
        ----------
        X : (m, n) array, sparse matrix, DataFrame, Dask or xarray object
            The data.

        Returns
        -------
        array, sparse matrix, DataFrame, Dask or xarray object
            The selected columns. Dask and xarray objects stay what they are, and lazy, unless `set_output` says
            otherwise.

        Raises
        ------
        ValueError
            X does not have the columns that the selector was fitted to.
        """
        check_is_fitted(self)
        X = opened_input(X)
        default = _get_output_config("transform", estimator=self)["dense"] == "default"
        if not is_lazy_or_labelled(X):
            return super().transform(with_objects(X) if default else X)
        X = check_features(self, X)
        if default:
            return take_columns(X, self.get_support(indices=True))
        return super().transform(in_memory(X, getattr(self, "feature_names_in_", None)))

    def inverse_transform(self, X: Any) -> Any:
        """Return X with columns of zeros in place of those that were not selected.

        Parameters
        ----------
        X : (m, s) array, sparse matrix, Dask or xarray object
            Selected columns, as `transform` returns them.

        Returns
        -------
        array, sparse matrix, Dask or xarray object
            Shape (m, n). It is lazy if X is.

        Raises
        ------
        ValueError
            X does not have as many columns as were selected.
        """
        check_is_fitted(self)
        if is_lazy_or_labelled(X):
            names = getattr(self, "feature_names_in_", None)
            if names is None:
                names = np.array([f"x{j}" for j in range(self.n_features_in_)], dtype=object)
            return spread_columns(X, self.get_support(), names)
        return super().inverse_transform(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.missing == "mean"
        tags.target_tags.required = self._y_required
        tags.target_tags.multi_output = not self._y_ignored
        return tags

    def _get_support_mask(self) -> NDArray[np.bool_]:
        check_is_fitted(self)
        return self.support_

    def _request(self) -> SelectionRequest:
        seed = self.random_state
        if not isinstance(seed, numbers.Integral):
            seed = check_random_state(seed).randint(np.iinfo(np.int32).max)
        fields = {name: getattr(self, name) for name in SelectionRequest.model_fields if hasattr(self, name)}
        fields |= {"k": _size(self.n_features_to_select, self.n_features_in_), "seed": int(seed)}
        fields |= {"options": dict(fields.get("options") or {})}
        return SelectionRequest.of(**{**fields, **self._method_fields()})

    def _select(self, dataset: Dataset, request: SelectionRequest, cache: StatisticsCache | None) -> Selection:
        """Run the request on the data."""
        return select_from(dataset, request, cache)

    def _encoded(self, y: Any, names: Sequence[str] | None) -> EncodedTarget:
        """Return the targets of these names as numbers."""
        return encode_target(y, getattr(self, "task", "auto"), names)

    def _weights(self, y: Any, sample_weight: Any) -> Any:
        """Return the weights of the rows."""
        return sample_weight

    def _method_fields(self) -> dict[str, Any]:
        """Return the method of the request and its options, where they are no parameters."""
        return {}

    def _cache(self) -> StatisticsCache | None:
        if self.cache is None:
            return None
        if isinstance(self.cache, str) and self.cache == "memory":
            return _CACHE
        if isinstance(self.cache, str | AnyPath):
            return StatisticsCache(as_path(self.cache))
        raise ValueError(f"cache must be 'memory', a folder or None, got {self.cache!r}.")

    def _set_fitted(self, target: EncodedTarget) -> None:
        """Set the attributes of a fitted selector."""
        selection: Selection = self.selection_
        self.indices_ = np.array(selection.indices, np.intp)
        if self._source is not None:  # a column of the frame is selected if one of its indicator columns is
            self.indices_ = np.array(list(dict.fromkeys(self._source[self.indices_].tolist())), np.intp)
        self.support_ = np.zeros(self.n_features_in_, bool)
        self.support_[self.indices_] = True
        self.n_features_ = int(self.support_.sum())
        if target.classes is not None:
            self.classes_ = target.classes
        elif hasattr(self, "classes_"):
            del self.classes_
        for note in selection.notes:
            if note.startswith(NO_CHOICE):
                warnings.warn(f"{note}.", UserWarning, stacklevel=3)
            if note.startswith("Y has") and getattr(self, "task", None) == "auto":
                warnings.warn(
                    f"{note.split(':')[0]}. If they are classes, set task='classification', else task='regression'.",
                    UserWarning,
                    stacklevel=3,
                )


def _size(wanted: Any, n: int) -> Any:
    """Return k for n columns. Errors: ValueError."""
    if isinstance(wanted, str) and wanted == "auto":
        return wanted
    if isinstance(wanted, int | np.integer) and wanted >= 1 and wanted is not True:
        if wanted > n:
            warnings.warn(
                f"n_features_to_select={wanted} is greater than n_features={n}. All features may be selected.",
                UserWarning,
                stacklevel=4,
            )
        return min(int(wanted), n)
    if isinstance(wanted, float | np.floating) and 0.0 < wanted <= 1.0:
        return max(1, int(n * float(wanted)))
    raise ValueError(f"n_features_to_select must be a whole number >= 1, a share in (0, 1] or 'auto', got {wanted!r}.")

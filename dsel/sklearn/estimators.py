"""A classifier and a regressor on few columns: they select columns by a loss, and predict by its fit on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin, is_classifier
from sklearn.utils import column_or_1d
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from dsel._lib.types import Floats
from dsel.data.classes import with_plain_columns
from dsel.errors import DataError, OptionError
from dsel.objective.losses.registry import find_loss
from dsel.selection.results.apply import Kind
from dsel.sklearn.base_selector import BaseSelector
from dsel.sklearn.inputs import EncodedTarget, check_rows


@dataclass(kw_only=True, eq=False, repr=False)
class _SubsetPredictor(BaseSelector):
    """A selector whose selection predicts one target.

    Parameters
    ----------
    method : str, default="poss"
        The method, as for `dsel.select`.
    groups : mapping or list of lists, default=None
        Columns that are selected together and count as one, as for `dsel.select`.
    max_k, choose_k, options : default=None
        As for `SubsetSelector`.
    """

    _y_required = True

    method: str = "poss"
    groups: Any = None
    max_k: int | None = None
    choose_k: Any = None
    options: dict[str, Any] | None = None

    @property
    def coef_(self) -> Floats:
        """Coefficients of all columns in their units, 0 if not selected; none for frames with text or categories."""
        check_is_fitted(self)
        if self._categories:
            raise AttributeError(
                f"{type(self).__name__} has no coef_ here, a number for each column of X: the column "
                f"{self._categories[0]!r} became indicator columns. selection_.coefficients has the coefficients of "
                "selected ones, in the order of selection_.labels."
            )
        found = np.zeros((self.selection_.coefficients.shape[1], self.n_features_in_))
        found[:, self.indices_] = self.selection_.coefficients.T
        return found if is_classifier(self) else found[0]

    def _predicted(self, X: Any, kind: Kind) -> Floats:
        """Return the means or the linear predictors of rows, in memory: (m,), or (m, q) for many classes."""
        X = self._checked(X)
        try:
            found = np.asarray(self.selection_.predict(X, kind=kind), np.float64)
        except (DataError, OptionError) as error:
            raise ValueError(str(error)) from error
        if np.isnan(found).any():
            raise ValueError("Input X contains NaN in a selected column. Fill it in, or fit with missing='mean'.")
        return found

    def _checked(self, X: Any) -> Any:
        """Return rows to predict, with the columns of `fit`. Errors: ValueError."""
        check_is_fitted(self)
        return check_rows(self, X, self.missing == "mean")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = False
        return tags


@dataclass(kw_only=True, eq=False, repr=False)
class SubsetClassifier(ClassifierMixin, _SubsetPredictor):  # type: ignore[misc]
    """Select the columns of the best logistic regression for two or more classes, and predict by it.

    More than two classes share one set of columns, and have coefficients each (multinomial regression).

    Parameters
    ----------
    n_features_to_select : int, float or "auto", default=10
        The number of columns at most, or their share in (0, 1]. "auto": chosen by BIC.
    lam : float, default=1.0
        The ridge penalty on the preprocessed data: ``1 / C`` of scikit-learn's `LogisticRegression` on scaled columns.
    preprocess : {"standardize", "center", "unit", "none"}, default="standardize"
        How columns are centered and scaled. The intercept is not penalized. "unit" and "none" have none.
    missing : {"refuse", "mean"}, default="refuse"
        Refuse NaN in X, or replace it by the mean of its column, also in predictions.
    class_weight : dict or "balanced", default=None
        Weights of the classes, as for `dsel.select`. "balanced": all classes weigh the same.
        They do not enter the standardization, as `sample_weight` does: with `lam` above 0 the two differ.

    Attributes
    ----------
    selection_ : Selection
        The result: `error` is the deviance with the penalty, `r2` is D2. `SubsetSelector` lists the other attributes.
    classes_ : ndarray of shape (q,)
        The classes, sorted.
    coef_ : ndarray of shape (1, n) or (q, n)
        The coefficient of each column of X in its own unit, 0 for those that are not selected; a row for each of three
        or more classes. A frame with text or categories has none: ``selection_.coefficients`` has those of indicator
        columns, in the order of ``selection_.labels``.
    intercept_ : ndarray of shape (1,) or (q,)
        The intercept.

    See Also
    --------
    dsel.select : The function behind it, with ``loss="logistic"`` or ``loss="multinomial"``.
    SubsetSelector : Selects by the squared error.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 20))
    >>> y = np.where(X[:, 3] - 2 * X[:, 7] > 0.0, "yes", "no")
    >>> classifier = SubsetClassifier(2).fit(X, y)
    >>> classifier.get_support(indices=True), classifier.predict(X[:3])
    (array([3, 7]), array(['no', 'yes', 'no'], dtype='<U3'))
    """

    lam: float = 1.0
    class_weight: Any = None

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the more probable class of each row, shape (m,)."""
        scores = self.decision_function(X)
        return np.asarray(self.classes_[(scores > 0.0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)])

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each class, shape (m, q)."""
        found = self._predicted(X, "mean")
        return np.column_stack([1.0 - found, found]) if found.ndim == 1 else found

    def predict_log_proba(self, X: Any) -> Floats:
        """Return the logarithm of the probability of each class, shape (m, q)."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def decision_function(self, X: Any) -> Floats:
        """Return the logarithm of the odds of the second class, shape (m,), or a score for each of q classes (m, q)."""
        return self._predicted(X, "link")

    def _encoded(self, y: Any, names: Sequence[str] | None) -> EncodedTarget:
        y = _one_column(self, y)
        check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
        if classes.size < 2:
            raise ValueError(f"SubsetClassifier needs two classes, and y has one class only: {classes.tolist()[0]!r}.")
        self.classes_ = classes
        labels = [f"{names[0]}={label}" if names else str(label) for label in classes.tolist()]
        if classes.size == 2:
            return EncodedTarget(codes.astype(np.float64), classes, labels[1:])
        return EncodedTarget(np.eye(classes.size)[codes], classes, labels)

    def _weights(self, y: Any, sample_weight: Any) -> Any:
        y = _one_column(self, y)
        there = np.unique(y if sample_weight is None else y[np.asarray(sample_weight) > 0.0])
        if there.size < 2:
            raise ValueError("SubsetClassifier needs two classes, and the rows with weight have one class only.")
        if there.size < len(self.classes_):
            raise ValueError(f"No row with weight is in the class {np.setdiff1d(self.classes_, there).tolist()[0]!r}.")
        return sample_weight

    def _method_fields(self) -> dict[str, Any]:
        asked = self.class_weight
        if isinstance(asked, dict):  # by the numbers that stand for the classes
            if not all(0.0 < weight < math.inf for weight in asked.values()):
                raise ValueError(
                    f"class_weight is {asked}: weights of classes are finite numbers above 0; leave rows out by "
                    "sample_weight."
                )
            weights = compute_class_weight(asked, classes=self.classes_, y=self.classes_)
            asked = dict(enumerate(weights.tolist()))
        return {"loss": "logistic" if len(self.classes_) == 2 else "multinomial", "class_weight": asked}

    def _set_fitted(self, target: EncodedTarget) -> None:
        super()._set_fitted(target)
        self.intercept_ = self.selection_.intercept


@dataclass(kw_only=True, eq=False, repr=False)
class SubsetRegressor(RegressorMixin, _SubsetPredictor):  # type: ignore[misc]
    """Select the columns of the best regression for numbers, counts, amounts or survival times, and predict by it.

    It takes one target. Fit a regressor for each of several, such as by scikit-learn's `MultiOutputRegressor`, or
    select one set of columns for all of them by `SubsetSelector`.

    Parameters
    ----------
    n_features_to_select : int, float or "auto", default=10
        The number of columns at most, or their share in (0, 1]. "auto": chosen by the error on left-out folds, or by
        BIC for other losses than the squared error.
    lam : float, default=0.0
        The ridge penalty on the preprocessed data. Scikit-learn's ``PoissonRegressor(alpha)`` and
        ``GammaRegressor(alpha)`` on scaled columns have ``alpha = lam / m`` for m rows.
    preprocess : {"standardize", "center", "unit", "none"}, default="standardize"
        How columns are centered and scaled. "unit" and "none" have no intercept.
    missing : {"refuse", "mean"}, default="refuse"
        Refuse NaN in X, or replace it by the mean of its column, also in predictions.
    loss : str, mapping or Loss, default="squared"
        What is minimized, as for `dsel.select`: "squared", "poisson", "gamma", "huber", "quantile", "cox", or a loss
        with its parameters. For "cox", y has two columns, the time and the event, or is a structured array as
        scikit-survival has it; predictions are hazard ratios.

    Attributes
    ----------
    selection_ : Selection
        The result. `SubsetSelector` lists the other attributes.
    coef_ : ndarray of shape (n,)
        The coefficient of each column of X in its own unit, 0 for those that are not selected. A frame with text or
        categories has none: ``selection_.coefficients`` has those of indicator columns, in the order of
        ``selection_.labels``.
    intercept_ : float
        The intercept.

    See Also
    --------
    dsel.select : The function behind it.
    SubsetClassifier : The same for classes.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 20))
    >>> counts = rng.poisson(np.exp(1 + 0.5 * X[:, 3] - X[:, 7]))
    >>> SubsetRegressor(2, loss="poisson").fit(X, counts).get_support(indices=True)
    array([3, 7])
    """

    loss: Any = "squared"

    def predict(self, X: Any) -> Floats:
        """Return the expected target of each row, shape (m,); for the loss "cox" its hazard ratio."""
        return self._predicted(X, "mean")

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return D2, the share of the deviance that is explained; for the squared error it is R2."""
        if find_loss(self.loss).name == "squared":
            return float(super().score(X, y, sample_weight))
        found = self.selection_.score(self._checked(X), self._target(y), sample_weight=sample_weight)
        return float(found["d2"])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        try:
            find_loss(self.loss).fitted_to(np.array([-1.0, 1.0, 2.0]))
        except (DataError, OptionError):
            tags.target_tags.positive_only = True
        return tags

    def _target(self, y: Any) -> NDArray[Any]:
        """Return the target in memory, as many columns as the loss takes."""
        try:
            columns = find_loss(self.loss).target_columns
        except OptionError as error:
            raise ValueError(str(error)) from error
        return _one_column(self, y) if columns == 1 else np.asarray(with_plain_columns(y))

    def _encoded(self, y: Any, names: Sequence[str] | None) -> EncodedTarget:
        y = self._target(y)
        if y.dtype.kind not in "fiub":
            try:
                y = y.astype(np.float64)
            except (TypeError, ValueError) as error:
                raise ValueError(f"y holds no numbers: {error}. For classes use SubsetClassifier.") from error
        return EncodedTarget(y)

    def _set_fitted(self, target: EncodedTarget) -> None:
        super()._set_fitted(target)
        self.intercept_ = float(self.selection_.intercept[0])


def _one_column(estimator: _SubsetPredictor, y: Any) -> NDArray[Any]:
    """Return targets in memory as one column. Warns for those of two dimensions; errors: ValueError."""
    shape = np.shape(y)
    if len(shape) == 2 and shape[1] > 1:
        name = type(estimator).__name__
        raise ValueError(
            f"{name} takes one target: y should be a 1d array, and its shape is {shape}. Fit one {name} for each "
            "target, or select columns for all of them by SubsetSelector."
        )
    return np.asarray(column_or_1d(y.compute() if hasattr(y, "compute") else y, warn=True))

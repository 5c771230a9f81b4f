"""Selectors and predictors by the conventions of scikit-learn, for pipelines and searches of parameters."""

try:
    from sklearn.utils.validation import validate_data  # noqa: F401  (since scikit-learn 1.6)
except ImportError as error:
    raise ImportError(
        "dsel.sklearn needs scikit-learn 1.6 or newer, which is not installed: pip install 'dsel[sklearn]'"
    ) from error

from dsel.sklearn.base_selector import clear_cache
from dsel.sklearn.estimators import SubsetClassifier, SubsetRegressor
from dsel.sklearn.selectors import (
    BestSubsetSelector,
    ColumnSubsetSelector,
    ForwardSelector,
    GreedyRLSSelector,
    OMPSelector,
    SubsetSelector,
)

__all__ = [
    "BestSubsetSelector",
    "ColumnSubsetSelector",
    "ForwardSelector",
    "GreedyRLSSelector",
    "OMPSelector",
    "SubsetClassifier",
    "SubsetRegressor",
    "SubsetSelector",
    "clear_cache",
]

"""How ``k="auto"`` chooses the number of columns, and how rows are divided for it."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Annotated, Any, Literal, Self, get_args

import numpy as np
from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_validator

from dsel._lib.text import suggest
from dsel.config.types import Bool, Float, Int, Section

#: How rows are divided into folds: by a hash of their numbers, or into blocks of consecutive rows. With "forward" each
#: block is predicted from those before it.
RowSplit = Literal["random", "blocks", "forward"]
#: The same, a splitter of scikit-learn, or pairs of row numbers to train and to test on.
RowSplits = Annotated[Any, BeforeValidator(lambda value: row_splits(value))]
InformationCriterion = Literal["aic", "aicc", "bic", "ebic", "cp", "adjusted-r2"]
SizeCriterion = Literal[
    "folds", "held-out", "auc", "log-loss", "path", "aic", "aicc", "bic", "ebic", "cp", "adjusted-r2"
]
#: The rules that are information criteria.
INFORMATION = get_args(InformationCriterion)
#: The rules that compare rows which a model has not seen.
LEFT_OUT = ("folds", "held-out", "auc", "log-loss")
_FOLD_OPTIONS = ("folds", "split", "repeats", "row_groups", "gap")


def row_splits(value: Any) -> Any:
    """Validate the name of a division, a splitter, or pairs of row numbers."""
    if isinstance(value, str):
        saved = value.endswith(")") or " " in value  # what a saved selection says of a splitter, or of pairs
        if value not in get_args(RowSplit) and not saved:
            raise ValueError(f"it is a splitter of scikit-learn, or a name. {suggest(value, get_args(RowSplit))}")
        return value
    if callable(getattr(value, "split", None)):
        draws = getattr(value, "shuffle", True) and hasattr(value, "random_state")
        if draws and not isinstance(value.random_state, Integral):
            raise ValueError(f"{value} divides the rows differently each time: give it a whole number as random_state")
        return value
    if not isinstance(value, list | tuple) or not value or any(len(pair) != 2 for pair in value):
        raise ValueError("it must be a name, a splitter of scikit-learn, or pairs of rows to train and to test on")
    return value


def _row_groups(value: Any) -> Any:
    """Validate the name of a variable, or one label for each row."""
    if value is None or (isinstance(value, str) and value):
        return value
    if isinstance(value, str | bytes | Real | bool | dict):
        raise ValueError("it must be the name of a variable over the samples, or one label for each row")
    found = np.asarray(value.compute() if hasattr(value, "compute") else value)
    if found.ndim != 1:
        raise ValueError(f"it has shape {found.shape}; it must have one label for each row")
    return value if type(value).__name__ in ("Series", "DataArray") else found  # with its labels


#: The group of each row: the name of a variable of the store, or an array of m labels.
RowGroups = Annotated[Any, BeforeValidator(_row_groups)]


def check_split(split: Any, repeats: int, row_groups: Any, gap: int = 0, folds: bool = False) -> None:
    """Raise ValueError for options that exclude each other. folds: whether a number of folds is asked for."""
    if gap and not (isinstance(split, str) and split != "random"):
        raise ValueError("gap goes with split blocks or forward; a splitter has its own")
    if not isinstance(split, str):
        if repeats > 1:
            raise ValueError("repeats goes with split random: a splitter has its own")
        if folds:
            raise ValueError("folds goes with a split by name: a splitter, or pairs of rows, have a number of folds")
        if row_groups is not None and not hasattr(split, "split"):
            raise ValueError("row_groups goes with a splitter or a split by name: pairs of rows are given as they are")
        return
    if row_groups is not None and split != "random":
        raise ValueError(f"row_groups and split {split} exclude each other: groups are divided at random")
    if repeats > 1 and split != "random":
        raise ValueError(f"repeats goes with split random: blocks (split {split}) are the same each time")


def is_share(value: Any) -> bool:
    """Return whether a value of `held_out` is a share of the rows. Raise ValueError unless it is between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    if not 0.0 < float(value) < 1.0:
        raise ValueError(f"{value} is not a share of the rows: it must be above 0 and below 1")
    return True


class SizeRule(Section):
    """How ``k="auto"`` chooses the number of columns.

    Parameters
    ----------
    by : {"folds", "held-out", "auc", "log-loss", "path", "aic", "aicc", "bic", "ebic", ...}, optional
        "folds": the error on left-out folds; the search runs again on the rows outside each fold. "held-out": the
        error on held-out rows. "aic", "aicc", "bic", "ebic", "cp", "adjusted-r2": an information criterion of the
        subsets that the search finds on all rows. "path": the errors on left-out rows along the path of ``greedy-rls``
        or ``kfold``. "auc", "log-loss": one minus the area under the ROC curve, or the mean logarithmic loss, on
        left-out folds or held-out rows, with a loss for classes. With a loss, "folds" and "held-out" compare the
        deviance, and the default is "bic". An option of folds makes the default "folds", whatever its value, and a
        standard error does so with a loss. Otherwise, the default is "held-out" where `held_out` is given, "path" for
        these two methods, and "folds" for others.
    folds : int
        The number of folds.
    split : {"random", "blocks", "forward"}
        Divide the rows at random, or into blocks of consecutive rows. With "forward" there are folds + 1 blocks, and
        each but the first is predicted from the blocks before it, as for a time series. Or a splitter of scikit-learn,
        or pairs of row numbers to train and to test on, without `folds`.
    gap : int
        With split "blocks" or "forward": rows next to a tested block that no model of it is trained on.
    row_groups : str or (m,) array, optional
        The group of each row. All rows of a group are in one fold. A store names a variable over its samples.
    repeats : int
        How often the rows are divided at random.
    held_out : float, str, AnyPath or pair (X, Y), optional
        A share of the rows, and for the squared error also a store, or arrays. With split "blocks" or "forward" the
        share is that of the last rows.
    one_standard_error : bool
        Choose the smallest size whose error is at most one standard error above the least. One set of tested rows has
        one for errors that are means over rows: not for the AUC and the deviance of cox.
    gamma : float
        The weight of the number of subsets in EBIC, from 0 (BIC) to 1.

    Notes
    -----
    The information criteria use the residuals without the penalty, and count the degrees of freedom of a subset. With a
    ridge penalty these are the effective ones, the trace of K (K + lam I)^-1 for the Gram matrix K of its columns:
    fewer than its columns, and fewer the larger lam is. Without a penalty they are the rank. With a loss other than the
    squared error, each column counts as one, whatever the penalty.

    A row of weight 2 counts as two rows, also in the criteria: the number of rows is the sum of the weights. Weights of
    another unit, such as 1 / variance, thus change the chosen size. Scale them to the sum of the number of rows.

    The errors of folds come from the same pass over the data as the Gram matrix. EBIC: Chen and Chen, "Extended
    Bayesian information criteria for model selection with large model spaces", Biometrika 95, 2008.

    Examples
    --------
    >>> SizeRule(by="folds", folds=10, one_standard_error=True).folds
    10
    """

    model_config = ConfigDict(frozen=True)

    by: SizeCriterion | None = None
    folds: Int = Field(5, ge=2)
    split: RowSplits = "random"
    gap: Int = Field(0, ge=0)
    row_groups: RowGroups = None
    repeats: Int = Field(1, ge=1)
    held_out: Any = None
    one_standard_error: Bool = False
    gamma: Float = Field(1.0, ge=0, le=1)

    @model_validator(mode="before")
    @classmethod
    def _of_folds(cls, values: Any) -> Any:
        """Choose by folds where their options are given without a criterion, also with the default as their value.

        A rule that was saved has every key, and asked for no folds if it has no criterion.
        """
        unsaid = isinstance(values, dict) and values.get("by") is None and values.get("held_out") is None
        unsaid = unsaid and not values.keys() >= cls.model_fields.keys()
        of_folds = unsaid and any(values.get(name) is not None for name in _FOLD_OPTIONS)
        return {**values, "by": "folds"} if of_folds else values

    @field_validator("held_out")
    @classmethod
    def _share(cls, value: Any) -> Any:
        return float(value) if is_share(value) else value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_split(self.split, self.repeats, self.row_groups, self.gap, self.is_changed("folds"))
        if self.held_out is not None and (self.gap or not isinstance(self.split, str)):
            raise ValueError("gap and splitters cannot be used with held_out: give pairs of rows as split")
        if self.by == "held-out" and self.held_out is None:
            raise ValueError(
                "by held-out needs held_out: a share of the rows, a store, or a pair X, Y: {'held_out': 0.2}"
            )
        if self.held_out is not None and self.by not in (None, *LEFT_OUT[1:]):
            raise ValueError(f"held_out goes with by held-out, not with by {self.by}")
        if self.one_standard_error and self.by in (*INFORMATION, "path"):
            raise ValueError(
                f"one_standard_error needs folds or held-out rows: there is no standard error by {self.by}"
            )
        given = [name for name in _FOLD_OPTIONS if self.is_changed(name)]
        if given and self.by in (*INFORMATION, "path"):
            raise ValueError(f"{', '.join(given)} cannot be used by {self.by}: it divides no rows")
        if self.held_out is not None and ("folds" in given or "repeats" in given):
            raise ValueError("folds and repeats cannot be used with held_out: give one of them")
        if self.held_out is not None and given and not isinstance(self.held_out, float):
            raise ValueError(f"{', '.join(given)} cannot be used together with held-out rows")
        if self.is_changed("gamma") and self.by != "ebic":
            raise ValueError("gamma goes with by ebic")
        return self

    @property
    def divides_rows(self) -> bool:
        """Whether folds or held-out rows are asked for."""
        return self.held_out is not None or any(self.is_changed(name) for name in _FOLD_OPTIONS)


def size_rule(value: Any) -> Any:
    """Return the keys of a rule for its short form, the name of the criterion."""
    return {"by": value} if isinstance(value, str) else value

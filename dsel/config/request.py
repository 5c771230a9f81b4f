"""What may be asked of a selection: one model for `dsel.select`, job files and saved results.

It also says which rows of a store are used, and how a randomized eigendecomposition is made.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_validator

from dsel.config.ingest_request import Dates
from dsel.config.size_rule import SizeRule, size_rule
from dsel.config.types import Bool, Float, Int, Section
from dsel.errors import OptionError

#: The largest rank for an accuracy, if none is given.
MOST_RANK = 1000


class SketchRule(Section):
    """How X is replaced by a randomized sketch of lower rank.

    Parameters
    ----------
    rank : int, optional
        The rank. With `accuracy` the largest rank, by default 1000.
    accuracy : float, optional
        The share of ||X||^2 to capture, between 0 and 1. The rank is doubled until it is reached.
    oversampling : int
        Further random vectors beyond the rank.
    power_iterations : int
        Power iterations. Each one takes two passes over the data and makes the sketch sharper.
    """

    model_config = ConfigDict(frozen=True)

    rank: Int | None = Field(None, ge=1)
    accuracy: Float | None = Field(None, gt=0, lt=1)
    oversampling: Int = Field(10, ge=0)
    power_iterations: Int = Field(2, ge=1)

    @model_validator(mode="after")
    def _limit(self) -> Self:
        if self.rank is None and self.accuracy is None:
            raise ValueError("give the rank or the accuracy of the sketch")
        return self

    @property
    def most(self) -> int:
        """The largest rank."""
        return MOST_RANK if self.rank is None else self.rank


_FORMS = "write last: 90 (segments), last: 0.2 (a share of the rows), first: the same, or time: [from, to]"


def _window(value: Any) -> Any:
    """Validate a window at once, so that an error is one sentence."""
    if value is None:
        return None
    if not isinstance(value, dict) or len(value) != 1:
        raise ValueError(f"it must be one key: {_FORMS}")
    ((name, wanted),) = value.items()
    if not isinstance(name, str) or not name or "/" in name:
        raise ValueError(f"{name!r} is not a key: {_FORMS}")
    if name in ("last", "first"):
        return {name: _count(name, wanted)}
    if not isinstance(wanted, list | tuple) or len(wanted) != 2:
        raise ValueError(f"{name}: write [from, to], with null for an open end")
    low, high = (_bound(name, end) for end in wanted)
    if low is None and high is None:
        raise ValueError(f"{name}: give one of the two ends at least")
    if low is not None and high is not None and isinstance(low, str) != isinstance(high, str):
        raise ValueError(f"{name}: both ends must be numbers, or both text")
    return {name: [low, high]}


def _count(name: str, wanted: Any) -> int | float:
    if isinstance(wanted, bool) or not isinstance(wanted, numbers.Real):
        raise ValueError(f"{name}: it must be a number of segments, or a share of the rows below 1")
    if isinstance(wanted, numbers.Integral):
        if int(wanted) < 1:
            raise ValueError(f"{name}: it must be at least 1 segment")
        return int(wanted)
    share = float(wanted)
    if not 0.0 < share < 1.0:
        raise ValueError(f"{name}: {share:g} is not a share of the rows: it must be above 0 and below 1")
    return share


def _bound(name: str, value: Any) -> float | int | str | None:
    if isinstance(value, date):  # YAML reads 2026-08-01 as a date
        return value.isoformat()
    if value is None or (isinstance(value, str) and value):
        return value
    if not isinstance(value, bool) and isinstance(value, numbers.Real) and math.isfinite(value):
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    raise ValueError(f"{name}: {value!r} is neither a number, nor a time as text, nor null")


#: ``{"last": 90}`` (segments), ``{"last": 0.2}`` (a share of the rows), ``{"first": ...}`` the same, or
#: ``{"time": [from, to]}`` with the name of a variable over the samples: values >= from and < to, None for an open end.
RowWindow = Annotated[dict[str, Any] | None, BeforeValidator(_window)]


#: A column by its label, or by its index from 0.
Column = str | int
#: How columns are centered and scaled before the selection.
Preprocess = Literal["standardize", "center", "unit", "none"]
#: Those that divide the columns by a scale.
SCALED: tuple[Preprocess, ...] = ("standardize", "unit")
#: What to do about missing values in X.
Missing = Literal["refuse", "mean"]
#: Text and categories become indicator columns, chosen together or one by one, or are refused.
Categories = Literal["groups", "columns", "refuse"]
#: The first of a cluster of near-copies represents it, all are searched, or near-copies are refused.
NearCopies = Literal["first", "keep", "refuse"]
#: What follows the search.
Polish = Literal["none", "exchange"]


def _columns(value: Any) -> Any:
    """Validate a list of columns at once, so that an error is one sentence. Labels that are no text become text."""
    if value is None:
        return ()
    if isinstance(value, str | bytes | numbers.Number | dict):
        raise ValueError(f"it must be a list of labels or indices, such as [{value!r}]")
    try:
        columns = list(value)
    except TypeError:
        raise ValueError("it must be a list of labels or indices") from None
    for column in columns:
        if isinstance(column, bool):
            raise ValueError(
                f"{column} is not a column: give its label as text, in quotes in a job file, or its index from 0"
            )
        if not isinstance(column, str | numbers.Real | tuple | date) or column != column:
            raise ValueError(f"{column!r} is neither a label nor an index from 0")
    return tuple(int(column) if isinstance(column, numbers.Integral) else _text(column) for column in columns)


def _text(label: Any) -> str:
    """Return a label of a frame as text, as its dataset has it."""
    plain = (
        tuple(getattr(part, "item", lambda part=part: part)() for part in label) if isinstance(label, tuple) else label
    )
    return str(plain)


def _size(value: Any) -> Any:
    """Validate k at once, so that an error is one sentence."""
    if isinstance(value, str) and value == "auto":
        return value
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise ValueError("it must be a whole number, or auto")
    if value < 1:
        raise ValueError("it must be at least 1, or auto")
    return int(value)


#: A number of columns, or "auto".
Size = Annotated[int | Literal["auto"], BeforeValidator(_size)]


def _column_groups(value: Any) -> Any:
    """Validate the form of groups: what they name is checked with the data."""
    if value is None or (isinstance(value, str) and value):
        return value
    if isinstance(value, dict):
        lists = [isinstance(columns, list | tuple | np.ndarray) for columns in value.values()]
        if all(lists):
            return {str(name): list(_columns(columns)) for name, columns in value.items()}
        if any(lists) or not all(isinstance(name, str | numbers.Integral) for name in value.values()):
            raise ValueError("map each column to the name of its group, or each name to a list of columns")
        found: dict[str, list[Column]] = {}
        for column, name in zip(_columns(value.keys()), value.values(), strict=True):
            found.setdefault(str(name), []).append(column)
        return found
    if isinstance(value, list | tuple) and all(isinstance(columns, list | tuple | np.ndarray) for columns in value):
        return [list(_columns(columns)) for columns in value]
    raise ValueError(
        "it must be a mapping from names to lists of columns or from columns to names, lists of columns, or a "
        "coordinate's name"
    )


def _label(column: Column, labels: Sequence[str] | None, argument: str) -> str:
    """Return the label of a column that a request names. labels: see `SelectionRequest.by_name`."""
    if isinstance(column, str) and labels is not None and column not in labels:
        return column.removesuffix(" 00:00:00")  # a moment, where the labels of all columns are days
    if labels is None or isinstance(column, str):
        return str(column)
    if not 0 <= column < len(labels):
        raise OptionError(
            f"{argument}: there is no feature {column} among {len(labels)}.",
            f"Positions go from 0 to {len(labels) - 1}.",
        )
    return labels[column]


def _class_weight(value: Any) -> Any:
    """Validate weights of classes: which classes there are is checked with the data."""
    if value is None or (isinstance(value, str) and value == "balanced"):
        return value
    if not isinstance(value, Mapping):
        raise ValueError('it must be "balanced", or a mapping from classes to weights')
    found = {str(getattr(name, "item", lambda name=name: name)()): float(weight) for name, weight in value.items()}
    if not all(0.0 < weight < math.inf for weight in found.values()):
        raise ValueError("weights of classes are finite numbers above 0; leave rows out by sample_weight")
    return found


def _plain_loss(value: Any) -> Any:
    """Return the name of a loss without parameters."""
    names = [name for name, parameters in value.items() if not parameters] if isinstance(value, Mapping) else []
    return names[0] if names and len(value) == 1 else value


def _targets(value: Any) -> Any:
    """Validate the names of targets, of which one may be text."""
    return _columns([value] if isinstance(value, str | numbers.Integral) else value)


Columns = Annotated[tuple[Column, ...], BeforeValidator(_columns)]


class SelectionRequest(Section):
    """What to select, and how. Everything that can be checked without the data is checked here.

    Parameters
    ----------
    k : int or "auto"
        The number of columns to choose at most, with the included ones. "auto": `choose_k` chooses it.
    max_k : int, optional
        The upper limit of ``k="auto"``; by default 30, or fewer where there are few rows or columns.
    choose_k : SizeRule, optional
        How ``k="auto"`` chooses; by default by folds, or with a loss by BIC. The name of a criterion stands for a rule
        with that `by`.
    method : str
        The name of a method.
    options : dict
        The method's own options. `dsel.select` takes them as keyword arguments.
    targets : sequence of str or int, optional
        Some of the columns of Y, by label or index. They stay in the order of Y.
    unsupervised : bool
        Select columns for X itself (Y = X), even where the data have targets.
    sample_weight : (m,) array, str or False, optional
        Weights >= 0 of the rows; for a store or Dataset the name of a variable, by default `weight` where there is
        one, and False for none.
    rows : dict, optional
        Some consecutive rows of a store: ``{"last": 90}`` for the last 90 appends, ``{"last": 0.2}`` for a
        share of the rows, ``{"first": ...}`` likewise, or ``{"time": [from, to]}`` by a variable over the samples.
    lam : float
        The ridge penalty on the preprocessed data.
    preprocess : {"standardize", "center", "unit", "none"}
        Mean 0 and variance 1; mean 0; norm 1 without centering; or nothing.
    missing : {"refuse", "mean"}
        Refuse missing values in X, or replace them by the mean of their column.
    include, exclude : sequence of str or int
        Columns that are always or never chosen, by label or index.
    groups : mapping, list of lists or str, optional
        Columns that enter and leave together, and count as one: a mapping from columns to names of groups, or from
        names to lists of columns; lists of columns; or the name of a coordinate of the features, such as `source`,
        which `dsel ingest` writes for one-hot columns. Each other column forms a group by itself.
    categories : {"groups", "columns", "refuse"}
        Text and categories become a column of zeros and ones for each value, of a frame here, of a store in `ingest`.
        The columns of one variable are chosen together and count as one, where the method can do that and there are
        fewer than 10 000 columns; are chosen one by one; or are refused.
    dates : {"refuse", "days"}
        Dates of a frame are refused, or become numbers: days since the beginning of 1970.
    near_copies : {"first", "keep", "refuse"}
        Of columns that correlate by at least 1 - 1e-6, search with the first one only; with all of them; or refuse
        them. Without the Gram matrix in memory, a read of the columns decides. If columns are not centered either,
        near-copies are multiples of each other. Groups of columns stay whole, and custom criteria see all columns.
    polish : {"none", "exchange"}
        What follows the search: nothing, or exchanges of one column of the answer until none lowers the error.
    reduce : SketchRule, optional
        Search on a randomized eigendecomposition of lower rank in place of all of X: its `rank` or `accuracy`, and
        further keys of a `SketchRule`. The earlier name is `sketch`. By default it is used only where Y = X and nothing
        exact fits in memory.
    seed : int
        The seed of all random numbers, 0 <= seed < 2^63.
    criterion : callable or str, optional
        A function f(S) of the ascending columns chosen, or f(S, data), which is minimized in place of the squared
        error. It returns +inf for a subset that is not allowed. A job file names it as package.module:function. That is
        code, which runs with the rights of the job.
    loss : str, mapping or Loss
        What the selection minimizes: "squared", or the deviance of "logistic" (two classes), "multinomial" (three or
        more), "poisson" (counts), "gamma" (amounts above 0), "huber" (numbers with outliers), "quantile" (the median)
        or "cox" (times to an event, with the targets time and event). Or a loss with its parameters, such as
        ``{"quantile": {"level": 0.9}}``: `level` and `width` of "quantile", and `delta` of "huber".
    offset : (m,) array or str, optional
        What is added to the linear predictor of each row, such as the logarithm of an exposure; for a store the name of
        a target, which is then none, or of another variable over the samples. It needs a loss other than the squared
        error.
    class_weight : "balanced" or mapping, optional
        Weights of the classes, which multiply those of the rows in a loss for classes. "balanced": all classes weigh
        the same in total. A mapping from classes to weights leaves the others at 1. Columns are centered and scaled
        without them, so with lam above 0 they differ from the same weights of the rows.
    """

    model_config = ConfigDict(frozen=True)
    renamed: ClassVar[dict[str, str]] = {"sketch": "reduce", "target": "targets"}

    k: Size
    max_k: Int | None = Field(None, ge=1)
    choose_k: Annotated[SizeRule | None, BeforeValidator(size_rule)] = None
    method: str = "poss"
    options: dict[str, Any] = Field(default_factory=dict)
    targets: Annotated[tuple[Column, ...] | None, BeforeValidator(lambda v: None if v is None else _targets(v))] = None
    unsupervised: Bool = False
    sample_weight: Any = None
    rows: RowWindow = None
    lam: Float = Field(0.0, ge=0, allow_inf_nan=False)
    preprocess: Preprocess = "standardize"
    missing: Missing = "refuse"
    include: Columns = ()
    exclude: Columns = ()
    groups: Annotated[Any, BeforeValidator(_column_groups)] = None
    categories: Categories = "groups"
    dates: Dates = "refuse"
    near_copies: NearCopies = "first"
    polish: Polish = "none"
    reduce: SketchRule | None = None
    seed: Int = Field(0, ge=0, lt=2**63)
    criterion: Callable[..., float] | str | None = None
    loss: Annotated[Any, BeforeValidator(_plain_loss)] = "squared"
    offset: Any = None
    class_weight: Annotated[Any, BeforeValidator(_class_weight)] = None

    def by_name(self, labels: Sequence[str] | None = None) -> Self:
        """Return the request with the label of each column that a number names.

        labels: of the columns whose positions the numbers are; None where the numbers are labels. Errors: OptionError
        for a position that does not exist.
        """

        def named(columns: Iterable[Column], argument: str) -> list[str]:
            return [_label(column, labels, argument) for column in columns]

        update: dict[str, Any] = {name: tuple(named(getattr(self, name), name)) for name in ("include", "exclude")}
        if isinstance(self.groups, Mapping):
            update["groups"] = {name: named(columns, "groups") for name, columns in self.groups.items()}
        elif self.groups is not None and not isinstance(self.groups, str):
            update["groups"] = [named(columns, "groups") for columns in self.groups]
        return self.model_copy(update=update)

    @property
    def scales_matter(self) -> bool:
        """Whether a penalty makes the answer depend on the scales that the columns have on some rows."""
        return self.lam > 0.0 and self.preprocess in SCALED

    @property
    def limit(self) -> int:
        """The most columns to choose: k, or the upper limit of an automatic k."""
        limit = self.max_k if self.k == "auto" else self.k
        assert isinstance(limit, int), "validation sets the limit of an automatic k"
        return limit

    @model_validator(mode="after")
    def _automatic_size(self) -> Self:
        given = [name for name in ("max_k", "choose_k") if getattr(self, name) is not None]
        if self.k != "auto" and given:
            raise ValueError(f"{' and '.join(given)} cannot be used with k {self.k}: write k: auto")
        if self.k == "auto" and self.criterion is not None:
            raise ValueError(
                "k is auto, but a criterion compares subsets of all sizes itself: give the largest size as k"
            )
        return self

    @field_validator("options")
    @classmethod
    def _no_nan(cls, options: dict[str, Any]) -> dict[str, Any]:
        for name, value in options.items():
            if isinstance(value, float) and math.isnan(value):
                raise ValueError(f"{name} is not a number (nan)")
        return options

    @field_validator("targets")
    @classmethod
    def _some_targets(cls, targets: tuple[Column, ...] | None) -> tuple[Column, ...] | None:
        if targets == ():
            raise ValueError("name at least one target, or leave it out to use all")
        return targets

    @field_validator("criterion", mode="before")
    @classmethod
    def _function(cls, criterion: Any) -> Any:
        if criterion is None or callable(criterion) or (isinstance(criterion, str) and ":" in criterion):
            return criterion
        raise ValueError("it must be a function, or package.module:function")

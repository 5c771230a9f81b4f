"""How well a selection predicts given rows: the deviance, and for classes the figures of a classifier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from dsel._lib.text import counted, shorten
from dsel._lib.types import Floats
from dsel.config.request import SCALED
from dsel.data.as_dataset import as_dataset
from dsel.data.blocks import load_block
from dsel.data.classes import class_labels, with_plain_columns
from dsel.data.frame_numbers import with_days
from dsel.data.frames import collected, frame_labels, names_columns, targets_in, without_blanks
from dsel.data.frames import opened as named
from dsel.data.icechunk_snapshot import is_snapshot
from dsel.data.in_memory import align, is_data_array, is_xarray_dataset, xarray_variables
from dsel.data.labels import coordinate_values, is_a, is_frame
from dsel.data.offset import split_offset
from dsel.data.store.array import StoredArray
from dsel.data.weights import array_weights
from dsel.errors import DataError, OptionError
from dsel.objective.losses.logistic import Logistic
from dsel.objective.losses.loss import Loss
from dsel.objective.losses.multinomial import class_name
from dsel.selection.record import SelectionRecord
from dsel.selection.results.apply import offset_of_rows, opened, predict
from dsel.storage.paths import AnyPath

#: The best constant is looked for up to this size, in at most this number of steps.
_FARTHEST, _MOST_STEPS = 1e300, 2000


@dataclass(frozen=True)
class ScoredRows:
    """Rows with their targets and predictions.

    Parameters
    ----------
    loss : Loss
        The loss of the selection.
    y : (m,) array
        The targets as the loss takes them: 0 and 1 for two classes, 0, 1, 2, ... for more.
    w : (m,) array
        The weights.
    eta : (m,) or (m, t) array
        The linear predictors, offsets included; for several outputs of the loss a column each.
    offset : (m,) array or float
        The offsets.
    """

    loss: Loss
    y: Floats
    w: Floats
    eta: Floats
    offset: Floats | float = 0.0

    @property
    def deviance(self) -> float:
        """Return the deviance of the rows."""
        return self.loss.of_rows(self.y, self.w).value(self.eta)

    @property
    def mean(self) -> Floats:
        """Return the predicted means: (m,), or a column for each of many classes."""
        contrasts = self.loss.contrasts
        return self.loss.mean(self.eta if contrasts is None else self.eta @ contrasts.T)

    def against_others(self, number: int) -> ScoredRows:
        """Return the rows with one class in place of 1, and all others as 0. Their predictors are log odds."""
        p = np.clip(self.mean[:, number], 1e-300, 1.0 - 1e-16)
        return ScoredRows(Logistic(), (self.y == number).astype(np.float64), self.w, np.log(p) - np.log1p(-p))

    @property
    def predicted(self) -> Floats:
        """Return the number of the most probable class of each row."""
        return np.asarray(self.eta > 0.0 if self.loss.contrasts is None else self.mean.argmax(axis=1), np.float64)

    def null_deviance(self) -> float:
        """Return the deviance of the best constant in the linear predictors, where its slope is 0."""
        if self.loss.contrasts is not None:
            sums = np.bincount(self.y.astype(np.int64), self.w)
            return float(-2.0 * scipy.special.xlogy(sums, sums / sums.sum()).sum())
        rows, shift = self.loss.of_rows(self.y, self.w), np.broadcast_to(np.asarray(self.offset, float), self.y.shape)
        if not self.loss.has_intercept:
            return rows.value(shift)
        there = self.w > 0.0
        same = np.ptp(self.y[there]) == 0.0 and np.ptp(shift[there]) == 0.0
        if same or self.loss.endless_constant(self.y, self.w):
            return 0.0  # without rounding errors

        def slope(b: float) -> float:
            return float(self.w @ self.loss.slope(self.y, b + shift))

        low, high = -1.0, 1.0
        while slope(low) > 0.0 and low > -_FARTHEST:
            low *= 2.0
        while slope(high) < 0.0 and high < _FARTHEST:
            high *= 2.0
        if slope(low) * slope(high) < 0.0:  # else the deviance is flat at an end, or falls without end
            b = scipy.optimize.brentq(slope, low, high, xtol=1e-300, maxiter=_MOST_STEPS, disp=False)
        else:
            b = low if abs(slope(low)) <= abs(slope(high)) else high
        return rows.value(b + shift)


def scored_rows(
    selection: SelectionRecord, X: Any, y: Any, sample_weight: Any = None, offset: Any = None
) -> ScoredRows:
    """Return rows with their predictions. Errors: DataError for other targets than those of the loss."""
    loss = selection.loss
    if len(selection.predicted) != 1 and loss.contrasts is None:
        raise OptionError(f"There are {len(selection.targets)} targets.", "Use score, or one of the targets.")
    X, offset = split_offset(X, offset)
    X, y, sample_weight = _aligned(selection, X, y, sample_weight)
    X = opened(selection, X)
    offset = offset_of_rows(selection, X, offset)
    eta = _predicted(selection, X, offset)
    if loss.contrasts is not None:
        return _scored_classes(selection, eta @ loss.contrasts, y, sample_weight)
    eta = eta.reshape(-1)
    try:
        if loss.target_columns > 1:
            values = np.column_stack(_target_columns(selection, with_plain_columns(y)))
        else:
            values = np.asarray(_numbers_of_classes(selection, y), np.float64).reshape(-1)
    except (TypeError, ValueError) as error:
        raise DataError(f"y holds no numbers: {error}.", "Give numbers, or 0 and 1 for classes.") from error
    if len(values) != len(eta):
        raise DataError(f"y has {len(values)} values, and X has {eta.size} rows.", "Give one for each row.")
    if not np.isfinite(values).all():
        raise DataError(f"y is not finite in row {np.argwhere(~np.isfinite(values))[0, 0]}.", "Leave such rows out.")
    w = _weights(sample_weight, eta.size)
    if loss.classifies:
        classes = np.asarray(loss.parameters()["classes"])
        other = np.setdiff1d(values, classes)
        if other.size:
            raise DataError(f"y has the value {other[0]:g}, and the classes are {classes[0]:g} and {classes[1]:g}.")
    elif not loss.endless_constant(values, w):
        found = loss.fitted_to(values, w)
        loss = found if loss.target_columns > 1 else loss  # the columns may be in another order
    return ScoredRows(loss, loss.encode(values), w, eta, 0.0 if offset is None else offset)


def _predicted(selection: SelectionRecord, X: Any, offset: Any = None) -> Floats:
    """Return the linear predictors of all rows. Errors: DataError where there is none, for a missing value."""
    eta = np.asarray(predict(selection, X, offset, "link"), np.float64)
    without = np.flatnonzero(np.isnan(eta.reshape(len(eta), -1)).any(axis=1))
    if without.size:
        raise DataError(
            f"X has missing values in chosen columns of {counted(without.size, 'row')}, such as row {without[0]}.",
            'Leave such rows out, or select with missing="mean", which fills them with the means of the selection.',
        )
    return eta


def _aligned(selection: SelectionRecord, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
    """Return X, the targets and the weights with the same rows in the same order, as `select` brings them together."""
    X = collected(X)
    X = without_blanks(X, [*selection.names, *selection.targets]) if is_frame(X) else X
    y = _own_targets(selection, X) if y is None else y
    if is_xarray_dataset(X):
        X, y, sample_weight, _ = xarray_variables(X, y, False, sample_weight)
    elif isinstance(X, str | AnyPath) or is_snapshot(X):
        y, sample_weight = _stored(X, y, sample_weight)
    X, y, sample_weight, _ = named(X, y, sample_weight)
    X, y, sample_weight = align(opened(selection, X) if is_data_array(X) else X, y, sample_weight)
    y = with_days(y) if selection.request.dates == "days" else y
    labels = frame_labels(y)
    if is_data_array(y) and y.ndim == 2 and y.dims[1] in y.coords:
        labels = [*map(str, coordinate_values(y.coords[y.dims[1]]))]
    if labels is not None and len(labels) > 1 and set(selection.targets) <= set(labels):
        places = [labels.index(target) for target in selection.targets]
        if is_a(y, "pyarrow", "Table"):
            y = y.select(places)
        else:
            y = y[:, places] if is_data_array(y) else y[[y.columns[i] for i in places]]
    return X, y, sample_weight


def _own_targets(selection: SelectionRecord, X: Any) -> list[str] | None:
    """Return the names of the targets that X holds; None for those of a Dataset. Errors: OptionError if it has none."""
    if is_xarray_dataset(X) and "Y" in X:
        return None
    names: list[str] | None = targets_in(X, selection.targets)
    if isinstance(X, str | AnyPath) or is_snapshot(X):
        stored = [str(name) for name in as_dataset(X).targets]
        names = list(selection.targets) if set(selection.targets) <= set(stored) else stored
    if not names:
        raise OptionError("X holds no targets.", "Give y, the targets of the rows of X.")
    return names


def _stored(store: Any, y: Any, sample_weight: Any) -> tuple[Any, Any]:
    """Return the targets and the weights of a store that are named, or its own weights where none are given.

    Others are returned in the order of the rows. Errors: those of `as_dataset` for unknown names, and of `in_order`.
    """
    import pandas as pd

    names = [y] if isinstance(y, str) else y if names_columns(y) else None
    weights = sample_weight if sample_weight is None or isinstance(sample_weight, str | bool) else False
    dataset = as_dataset(store, targets=names, unsupervised=names is None, sample_weight=weights)
    if names is not None:
        parts = (block.y.compute() if block.lazy else block.y for block in dataset.blocks)
        values = [np.asarray(load_block(part, dataset.target_columns)) for part in parts]
        y = pd.DataFrame(np.concatenate(values), columns=list(dataset.targets))
    else:
        y = dataset.in_order(y, "Y")
    if dataset.weights is not None:
        found = dataset.weights.values
        sample_weight = found.read(0, dataset.m) if isinstance(found, StoredArray) else found
    return y, sample_weight


def _weights(asked: Any, rows: int) -> Floats:
    """Return the weights of rows. Errors: DataError where they are no weights of these rows."""
    if asked is None or asked is False:
        return np.ones(rows)
    return np.asarray(array_weights(asked, rows).values, np.float64)


def _numbers_of_classes(selection: SelectionRecord, y: Any) -> Any:
    """Return the numbers of the two classes that the selection was made from, if y holds classes; else y."""
    found = class_labels(y)
    if found is None or found.dtype.kind == "b":
        return y
    asked = [str(label) for label in found.ravel().tolist()]
    figures, second = selection.class_figures, selection.class_of(selection.targets[0])[1]
    second = figures.names[1] if figures else second
    names = set(figures.names[:1]) if figures else set(asked) - {second}
    if not second or len(names) > 1:
        return y
    if unknown := sorted(set(asked) - names - {second}):
        raise DataError(f"y has the class {unknown[0]}, and the classes are {shorten([*names, second])}.")
    zero, one = selection.loss.parameters()["classes"] if selection.loss.classifies else (0.0, 1.0)
    return [one if label == second else zero for label in asked]


def _scored_classes(selection: SelectionRecord, eta: Floats, y: Any, sample_weight: Any) -> ScoredRows:
    """Return rows of many classes, which are given as the selection took them: text, numbers, or columns of 0 and 1."""
    names = class_names(selection)
    values = np.asarray(y)
    if values.ndim == 2 and values.shape[1] == len(names):
        codes = selection.loss.encode(values)
    else:
        place = {name: i for i, name in enumerate(names)}
        asked = [class_name(v) if isinstance(v, int | float) else str(v) for v in values.ravel().tolist()]
        unknown = [name for name in asked if name not in place]
        if unknown:
            raise DataError(f"y has the class {unknown[0]}, and the classes are {shorten(names)}.")
        codes = np.array([place[name] for name in asked], np.float64)
    if len(codes) != len(eta):
        raise DataError(f"y has {len(codes)} values, and X has {len(eta)} rows.", "Give one for each row.")
    w = _weights(sample_weight, len(eta))
    return ScoredRows(selection.loss, codes, w, eta)


def class_names(selection: SelectionRecord) -> list[str]:
    """Return the classes of a selection by a loss for many classes, as text, in the order of its targets."""
    return [selection.class_of(target)[1] or target for target in selection.targets]


def score(
    selection: SelectionRecord, X: Any, y: Any, sample_weight: Any = None, offset: Any = None
) -> dict[str, float]:
    """Return figures of given rows. See `Selection.score`."""
    if selection.loss.contrasts is None and len(selection.predicted) != 1:
        return _score_of_targets(selection, X, y, sample_weight)
    rows = scored_rows(selection, X, y, sample_weight, offset)
    null = rows.null_deviance()
    share = 1.0 - rows.deviance / null if null > 0.0 else np.nan
    found = {"deviance": rows.deviance, "d2" if selection.by_loss else "r2": share}
    if rows.loss.classifies:
        parts = [rows] if rows.loss.contrasts is None else [rows.against_others(i) for i in range(rows.mean.shape[1])]
        found["auc"] = float(np.mean([roc_area(part) for part in parts]))
        found["log_loss"] = rows.deviance / (2.0 * float(rows.w.sum()))
        found["accuracy"] = float(rows.w @ (rows.predicted == rows.y) / rows.w.sum())
    return found | rows.loss.of_rows(rows.y, rows.w).figures(rows.eta)


def _score_of_targets(selection: SelectionRecord, X: Any, y: Any, sample_weight: Any) -> dict[str, float]:
    """Return the squared error and R2 of several targets, weighted among each other as the selection weights them."""
    if not selection.targets:
        raise OptionError("The columns were chosen for X itself: there is no y.", "Compare predict(X) with X.")
    X, y, sample_weight = _aligned(selection, X, y, sample_weight)
    eta = _predicted(selection, X)
    values = np.column_stack(_target_columns(selection, y))
    if values.shape != eta.shape:
        raise DataError(
            f"y has the shape {values.shape}, and the predictions for X have {eta.shape}.",
            "Give each target of each row.",
        )
    if not np.isfinite(values).all():
        raise DataError(f"y is not finite in row {np.argwhere(~np.isfinite(values))[0, 0]}.", "Leave such rows out.")
    w = _weights(sample_weight, len(eta))
    errors = w @ (values - eta) ** 2
    squares = w @ (values - w @ values / w.sum()) ** 2
    squares[np.ptp(values[w > 0.0], axis=0) == 0.0] = 0.0  # without rounding errors
    scale = squares if selection.request.preprocess in SCALED else np.ones_like(squares)
    if not squares.any():
        return {"deviance": float(errors.sum()), "r2": np.nan}
    with np.errstate(divide="ignore", invalid="ignore"):
        return {"deviance": float(errors.sum()), "r2": float(1.0 - (errors / scale).sum() / (squares / scale).sum())}


def _target_columns(selection: SelectionRecord, y: Any) -> list[Floats]:
    """Return the columns of y in the order of the targets. A target `name=class` is 1 where a column has that class."""
    y = y.compute() if hasattr(y, "compute") else y.to_pandas() if is_a(y, "pyarrow", "Table") else y
    labels = frame_labels(y)
    if labels is None and np.ndim(y) == 2:
        return list(np.asarray(y, np.float64).T)
    targets = selection.targets
    pairs = [selection.class_of(target) for target in targets]
    columns = {pairs[0][0]: y} if labels is None else dict(zip(labels, (y[name] for name in y.columns), strict=True))
    found = []
    for target, (name, level) in zip(targets, pairs, strict=True):
        if target in columns:
            found.append(np.asarray(columns[target], np.float64))
            continue
        if name not in columns:
            raise DataError(f"y has no target {target}.", f"Give all of {shorten(targets)}.")
        words = np.array([str(label) for label in np.asarray(columns[name]).ravel().tolist()])
        known = selection.classes.get(name) or [other for column, other in pairs if column == name]
        if unknown := sorted(set(words.tolist()) - set(known)):
            raise DataError(f"y has the class {unknown[0]}, and the classes are {shorten(sorted(known))}.")
        found.append((words == level).astype(np.float64))
    return found


def confusion(rows: ScoredRows) -> Floats:
    """Return (q, q) the weight of the rows of each class (row of the table) by predicted class (column)."""
    q = 2 if rows.loss.contrasts is None else len(rows.loss.contrasts)
    places = q * rows.y.astype(np.int64) + rows.predicted.astype(np.int64)
    return np.asarray(np.bincount(places, rows.w, q * q), np.float64).reshape(q, q)


def roc_curve(rows: ScoredRows) -> tuple[Floats, Floats]:
    """Return the shares of false and of true positives at every threshold, from (0, 0) to (1, 1)."""
    order = np.argsort(-rows.eta, kind="stable")
    ends = np.append(np.diff(rows.eta[order]) != 0.0, True)
    true, false = (np.cumsum((rows.w * part)[order])[ends] for part in (rows.y, 1.0 - rows.y))
    with np.errstate(invalid="ignore"):
        return np.append(0.0, false / false[-1]), np.append(0.0, true / true[-1])


def roc_area(rows: ScoredRows) -> float:
    """Return the area under the ROC curve; NaN where the rows have one class only."""
    false, true = roc_curve(rows)
    return float(np.trapezoid(true, false))

"""How well a selection predicts given rows: the deviance, and for classes the figures of a classifier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dsel._lib.types import Floats
from dsel.errors import DataError, OptionError
from dsel.objective.losses.loss import Loss
from dsel.selection.record import SelectionRecord
from dsel.selection.results.apply import predict


@dataclass(frozen=True)
class ScoredRows:
    """Rows with their targets and predictions.

    Parameters
    ----------
    loss : Loss
        The loss of the selection.
    y : (m,) array
        The targets as the loss takes them: 0 and 1 for classes.
    w : (m,) array
        The weights.
    eta : (m,) array
        The linear predictors, offsets included.
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
        return float(self.w @ self.loss.deviance(self.y, self.eta))

    @property
    def mean(self) -> Floats:
        """Return the predicted means."""
        return self.loss.mean(self.eta)

    def null_deviance(self) -> float:
        """Return the deviance of the best constant in the linear predictors, by Newton's method with halved steps."""
        b, shift = 0.0, np.broadcast_to(np.asarray(self.offset, np.float64), self.y.shape)
        value = float(self.w @ self.loss.deviance(self.y, b + shift))
        for _ in range(200):
            slope = float(self.w @ self.loss.slope(self.y, b + shift))
            step = -slope / max(float(self.w @ self.loss.working_curvature(self.y, b + shift)), 1e-300)
            while (new := float(self.w @ self.loss.deviance(self.y, b + step + shift))) > value and abs(step) > 1e-12:
                step /= 2.0
            if new >= value:
                break
            b, value = b + step, new
        return value


def scored_rows(
    selection: SelectionRecord, X: Any, y: Any, sample_weight: Any = None, offset: Any = None
) -> ScoredRows:
    """Return rows with their predictions. Errors: DataError for other targets than those of the loss."""
    if len(selection.targets) != 1:
        raise OptionError(f"There are {len(selection.targets)} targets.", "Compare predictions with Y by yourself.")
    eta = np.asarray(predict(selection, X, offset, "link"), np.float64).reshape(-1)
    loss = selection.loss
    try:
        values = np.asarray(y, np.float64).reshape(-1)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"y holds no numbers: {error}.", "Give classes as 0 and 1, as the note of the result says."
        ) from error
    if values.shape != eta.shape:
        raise DataError(f"y has {values.size} values, and X has {eta.size} rows.", "Give one for each row.")
    if not np.isfinite(values).all():
        raise DataError(f"y is not finite in row {np.flatnonzero(~np.isfinite(values))[0]}.", "Leave such rows out.")
    w = np.ones(eta.size) if sample_weight is None else np.asarray(sample_weight, np.float64)
    if loss.classifies:
        classes = np.asarray(loss.parameters()["classes"])
        other = np.setdiff1d(values, classes)
        if other.size:
            raise DataError(f"y has the value {other[0]:g}, and the classes are {classes[0]:g} and {classes[1]:g}.")
    else:
        loss.fitted_to(values, w)
    shift = 0.0 if offset is None or isinstance(offset, str) else np.asarray(offset, np.float64)
    return ScoredRows(loss, loss.encode(values), w, eta, shift)


def score(
    selection: SelectionRecord, X: Any, y: Any, sample_weight: Any = None, offset: Any = None
) -> dict[str, float]:
    """Return figures of given rows. See `Selection.score`."""
    rows = scored_rows(selection, X, y, sample_weight, offset)
    null = rows.null_deviance()
    share = 1.0 - rows.deviance / null if null > 0.0 else np.nan
    found = {"deviance": rows.deviance, "d2" if selection.by_loss else "r2": share}
    if rows.loss.classifies:
        found["auc"] = roc_area(rows)
        found["log_loss"] = rows.deviance / (2.0 * float(rows.w.sum()))
        found["accuracy"] = float(rows.w @ ((rows.eta > 0.0) == (rows.y > 0.0)) / rows.w.sum())
    return found


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

"""How well a selection tells two classes apart, on given rows: the ROC curve, and the calibration."""

from __future__ import annotations

from typing import Any

import numpy as np

from dsel.errors import OptionError
from dsel.selection.plots import style
from dsel.selection.record import SelectionRecord
from dsel.selection.results.score import ScoredRows, class_names, roc_curve, scored_rows

#: Rows are divided by their probability into so many parts of the same size.
_PARTS = 10


def draw_roc(
    selection: SelectionRecord, X: Any, y: Any, ax: Any = None, sample_weight: Any = None, offset: Any = None
) -> Any:
    """Draw the share of true positives against that of false ones, and return the axes."""
    rows = _rows(selection, X, y, sample_weight, offset)
    ax = style.axes(ax, grid="y")
    _draw_diagonal(ax)
    for number, (name, part) in enumerate(_classes(selection, rows)):
        false, true = roc_curve(part)
        area = float(np.trapezoid(true, false))
        ax.plot(false, true, color=_color(number), linewidth=1.8, label=f"{name}area {area:.3f}")
    style.name_axes(ax, "share of false positives", "share of true positives")
    style.legend(ax, loc="lower right")
    return ax


def draw_calibration(
    selection: SelectionRecord, X: Any, y: Any, ax: Any = None, sample_weight: Any = None, offset: Any = None
) -> Any:
    """Draw the share of a class against its predicted probability, and return the axes."""
    rows = _rows(selection, X, y, sample_weight, offset)
    ax = style.axes(ax, grid="y")
    _draw_diagonal(ax)
    for number, (name, part) in enumerate(_classes(selection, rows)):
        predicted, observed = calibration(part)
        label = f"{name}tenths of the rows"
        ax.plot(predicted, observed, "o-", color=_color(number), markersize=4.5, linewidth=1.8, label=label)
    style.name_axes(ax, "predicted probability", "share of the rows")
    style.legend(ax, loc="lower right")
    return ax


def calibration(rows: ScoredRows) -> tuple[Any, Any]:
    """Return the mean probability and the share of the second class, in tenths of the weight by probability."""
    p = rows.mean
    order = np.argsort(p, kind="stable")
    order = order[rows.w[order] > 0.0]
    w = rows.w[order]
    middle = (np.cumsum(w) - w / 2.0) / w.sum()
    part = np.minimum((middle * _PARTS).astype(int), _PARTS - 1)
    total = np.bincount(part, w, _PARTS)
    there = total > 0.0
    sums = (np.bincount(part, w * values[order], _PARTS) for values in (p, rows.y))
    predicted, observed = (values[there] / total[there] for values in sums)
    return predicted, observed


def _classes(selection: SelectionRecord, rows: ScoredRows) -> list[tuple[str, ScoredRows]]:
    """Return the rows as they are for two classes; for more, each class by its name against all others."""
    if rows.loss.contrasts is None:
        return [("", rows)]
    return [(f"{name}: ", rows.against_others(i)) for i, name in enumerate(class_names(selection))]


def _color(number: int) -> str:
    """Return the color of a class: blue for the only one."""
    return style.BLUE if number == 0 else f"C{number}"


def _draw_diagonal(ax: Any) -> None:
    ax.plot([0.0, 1.0], [0.0, 1.0], color=style.MUTED, linestyle="--", linewidth=1.2)


def _rows(selection: SelectionRecord, X: Any, y: Any, sample_weight: Any, offset: Any) -> ScoredRows:
    """Return the rows with their predictions. Errors: OptionError unless a loss for classes was minimized."""
    if not selection.loss.classifies:
        raise OptionError(
            f"The selection was made with the {selection.request.loss} loss, which has no classes.",
            'Select with loss="logistic" or loss="multinomial".',
        )
    return scored_rows(selection, X, y, sample_weight, offset)

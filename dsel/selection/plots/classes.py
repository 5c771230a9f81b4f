"""How well a selection tells classes apart: the ROC curve, and the calibration, of its rows or of given ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from dsel.errors import MissingInputError, OptionError
from dsel.selection.class_figures import ClassFigures
from dsel.selection.plots import style
from dsel.selection.record import SelectionRecord
from dsel.selection.results.score import ScoredRows, class_names, roc_curve, scored_rows

#: Rows are divided by their probability into this number of parts of the same size.
_PARTS = 10


def draw_roc(
    selection: SelectionRecord, X: Any = None, y: Any = None, ax: Any = None, sample_weight: Any = None,
    offset: Any = None,
) -> Any:  # fmt: skip
    """Draw the share of true positives against that of false ones, and return the axes."""
    curves: list[tuple[str, Any, Any, float]]
    if X is None:
        known = _figures(selection)
        curves = [(name, *curve, area) for name, curve, area in zip(known.drawn, known.roc, known.auc, strict=True)]
    else:
        parts = [(name, *roc_curve(part)) for name, part in _classes(selection, X, y, sample_weight, offset)]
        curves = [(name, false, true, float(np.trapezoid(true, false))) for name, false, true in parts]
    ax = style.axes(ax, grid="y")
    _draw_diagonal(ax)
    for number, (name, false, true, area) in enumerate(curves):
        words = f"area {area:.3f}" if np.isfinite(area) else "one class only, so no area"
        ax.plot(false, true, color=_color(number), linewidth=1.8, label=f"{name}{words}")
    style.name_axes(ax, "share of false positives", "share of true positives")
    style.legend(ax, loc="lower right")
    return ax


def draw_calibration(
    selection: SelectionRecord, X: Any = None, y: Any = None, ax: Any = None, sample_weight: Any = None,
    offset: Any = None,
) -> Any:  # fmt: skip
    """Draw the share of a class against its predicted probability, and return the axes."""
    lines: list[tuple[str, Any, Any]]
    if X is None:
        figures, of = _figures(selection), selection.counted_rows
        lines = [(name, *curve) for name, curve in zip(figures.drawn, figures.calibration, strict=True)]
    else:
        parts = _classes(selection, X, y, sample_weight, offset)
        lines = [(name, *calibration(part)) for name, part in parts]
        of = "rows" if np.ptp(parts[0][1].w) == 0.0 else "weight of the rows"
    ax = style.axes(ax, grid="y")
    _draw_diagonal(ax)
    for number, (name, predicted, observed) in enumerate(lines):
        label = f"{name}tenths of the {of}"
        ax.plot(predicted, observed, "o-", color=_color(number), markersize=4.5, linewidth=1.8, label=label)
    style.name_axes(ax, "predicted probability", f"share of the {of}")
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


def _figures(selection: SelectionRecord) -> ClassFigures:
    """Return what is known of the rows of the selection. Errors: MissingInputError where there is nothing."""
    if selection.class_figures is None:
        raise MissingInputError("The selection has no counts of classes.", 'Select with loss="logistic", or give X, y.')
    return selection.class_figures


def describe(selection: SelectionRecord) -> str:
    """Return the ROC curve in words."""
    figures = _figures(selection)
    areas = ", ".join(f"{name}{area:.3f}" for name, area in zip(figures.drawn, figures.auc, strict=True))
    right = f"{figures.accuracy:.2%} of the {selection.counted_rows}"
    return f"Area under the curve: {areas}. The most probable class is right for {right}."


def describe_calibration(selection: SelectionRecord) -> str:
    """Return the calibration in words."""
    off = max(float(np.abs(np.subtract(*curve)).max()) for curve in _figures(selection).calibration)
    tenths = f"tenths of the {selection.counted_rows}"
    return f"Shares differ from the predicted probabilities by at most {off:.3f} in {tenths}."


def _classes(
    selection: SelectionRecord, X: Any, y: Any, sample_weight: Any, offset: Any
) -> list[tuple[str, ScoredRows]]:
    """Return the rows as they are for two classes; for more, each class by its name against all others."""
    rows = _rows(selection, X, y, sample_weight, offset)
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

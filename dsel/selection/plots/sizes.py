"""The curve along which ``k="auto"`` chose the number of columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from dsel.errors import MissingInputError
from dsel.selection.information_criteria import NAMES
from dsel.selection.plots import style
from dsel.selection.plots.style import counted, true_minus
from dsel.selection.record import SelectionRecord
from dsel.selection.record_values import SizeCurve


def draw(selection: SelectionRecord, ax: Any = None) -> Any:
    """Draw the value of each size with its standard error, and return the axes."""
    curve = size_curve(selection)
    ax = style.axes(ax, grid="y")
    grouped = bool(selection.groups)
    sizes = [point.size for point in curve.points]
    values = np.array([point.value for point in curve.points])
    errors = np.array([np.nan if point.standard_error is None else point.standard_error for point in curve.points])
    if np.isfinite(errors).any():
        ax.fill_between(sizes, values - errors, values + errors, color=style.BLUE, alpha=0.15, linewidth=0,
                        label="± one standard error")  # fmt: skip
    line = {"marker": style.marker(sizes), "markersize": 4.5, "linewidth": 1.8, "label": _name(selection, curve)}
    ax.plot(sizes, values, color=style.BLUE, **line)
    best = int(np.argmin(values))
    if sizes[best] != curve.k:
        shape = {"marker": "s", "color": style.MUTED, "markersize": 8, "markeredgewidth": 1.5}
        style.ring(ax, sizes[best], values[best], f"least: {counted(sizes[best], grouped)}", **shape)
    style.ring(ax, curve.k, values[sizes.index(curve.k)], f"chosen: {counted(curve.k, grouped)}")
    style.whole_numbers(ax.xaxis)
    style.name_axes(ax, style.size_name(selection), _name(selection, curve))
    style.legend(ax, loc="upper right")
    return ax


def size_curve(selection: SelectionRecord) -> SizeCurve:
    """Return the curve of a selection.

    Raises
    ------
    MissingInputError
        If the number of columns was given.
    """
    if selection.size_curve is None:
        raise MissingInputError("The number of columns was given, not chosen.", 'Select with k="auto" for a curve.')
    return selection.size_curve


def _name(selection: SelectionRecord, curve: SizeCurve) -> str:
    names = {
        **NAMES,
        "adjusted-r2": "minus the adjusted R²",
        "auc": "1 - AUC on left-out rows",
        "log-loss": "logarithmic loss on left-out rows",
    }
    what, weighted = "deviance" if selection.by_loss else "error", "weighted " if selection.weights else ""
    return names.get(curve.rule, f"{weighted}{what} per left-out row")


def describe(selection: SelectionRecord) -> str:
    """Return the picture in words."""
    curve = size_curve(selection)
    best = min(curve.points, key=lambda point: (point.value, point.size))
    text = f"The value is least, {true_minus(f'{best.value:.4g}')}, with {counted(best.size, bool(selection.groups))}."
    if best.size != curve.k:
        text += f" The rule chooses {counted(curve.k, bool(selection.groups))}."
    return text

"""The coefficients of the chosen columns: bars for one target, a matrix for several."""

from __future__ import annotations

from typing import Any

import numpy as np

from dsel._lib.types import Floats
from dsel.errors import MissingInputError
from dsel.selection.plots import style
from dsel.selection.plots.style import tick_labels, true_minus
from dsel.selection.record import SelectionRecord

#: At most this many columns, in order of gain, and this many named targets.
MOST_COLUMNS, MOST_TARGET_NAMES = 30, 16


def draw(selection: SelectionRecord, ax: Any = None, standardized: bool = True) -> Any:
    """Draw the coefficients in order of gain, and return the axes."""
    values = shown_values(selection, standardized)
    labels = selection.names[: len(values)]
    bars = values.shape[1] == 1
    ax = style.axes(ax, height=1.2 + 0.25 * len(values), grid="x" if bars else "")
    if bars:
        _draw_bars(ax, values[:, 0])
        style.name_rows(ax, labels)
        style.name_axes(ax, _measure(standardized), "")
        return ax
    limit = float(np.nanmax(np.abs(values), initial=0.0)) or 1.0
    style.matrix(ax, values, limit, _measure(standardized))
    ax.set_yticks(np.arange(len(labels)) + 0.5, tick_labels(labels))
    ax.tick_params(length=0)
    _name_targets(ax, selection, values.shape[1])
    return ax


def _draw_bars(ax: Any, values: Floats) -> None:
    """Draw a line with a dot for each value. The color repeats the sign."""
    colors = [style.BLUE if value >= 0 else style.ORANGE for value in values]
    ax.axvline(0.0, color=style.MUTED, linewidth=0.8)
    ax.hlines(range(len(values)), 0.0, values, color=colors, linewidth=2.0)
    ax.scatter(values, range(len(values)), color=colors, s=28, zorder=3)
    ax.spines["left"].set_visible(False)
    ax.margins(x=0.08)


def _name_targets(ax: Any, selection: SelectionRecord, N: int) -> None:
    if N <= MOST_TARGET_NAMES and selection.targets:
        names = tick_labels(selection.targets, 14)
        ax.set_xticks(np.arange(N) + 0.5, names, rotation=90 if N > 5 else 0)
        style.name_axes(ax, "", "")
    else:
        ax.set_xticks([])
        style.name_axes(ax, f"{N:,} {'columns of X' if selection.unsupervised else 'targets'}, in their order", "")


def _measure(standardized: bool) -> str:
    return "standardized coefficient" if standardized else "coefficient"


def shown_values(selection: SelectionRecord, standardized: bool, most: int = MOST_COLUMNS) -> Floats:
    """Return (s, N) coefficients of the first columns: for units of one standard deviation, or as they are."""
    values = selection.coefficients[:most]
    if not values.size:
        raise MissingInputError("The selection has no coefficients to draw.", "Choose at least one column.")
    if not standardized:
        return values
    statistics = style.statistics_of(selection, "standard deviations", ", or draw them with standardized=False")
    if selection.by_loss:  # the linear predictor has no unit
        return np.asarray(values * statistics.std[: len(values), None])
    scale = np.where(statistics.target_std > 0.0, statistics.target_std, np.inf)
    return np.asarray(values * statistics.std[: len(values), None] / scale)


def describe(selection: SelectionRecord, standardized: bool = True) -> str:
    """Return the picture in words. Where Y = X, chosen columns explain themselves: it is about the other columns."""
    values, predicted = shown_values(selection, standardized), selection.predicted
    sizes = np.abs(values)
    if selection.unsupervised and not np.isin(predicted, selection.names).all():
        sizes[:, np.isin(predicted, selection.names)] = 0.0
    i, j = np.unravel_index(int(np.argmax(sizes)), values.shape)
    about = "" if values.shape[1] == 1 else f" for {predicted[j]}"
    return f"The largest coefficient is {true_minus(f'{values[i, j] + 0.0:.3g}')}, of {selection.names[i]}{about}."

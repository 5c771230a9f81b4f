"""The correlations of the chosen columns with each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from dsel._lib.types import Floats
from dsel.selection.plots import style
from dsel.selection.plots.style import tick_labels, true_minus
from dsel.selection.record import SelectionRecord

#: At most this many columns get numbers, and names.
_MOST_NUMBERS, _MOST_NAMES = 10, 40
#: Numbers on darker cells than this are white.
_DARK = 0.55


def draw(selection: SelectionRecord, ax: Any = None) -> Any:
    """Draw the correlation matrix in order of gain, and return the axes."""
    values = correlations(selection)
    s = len(values)
    ax = style.axes(ax, height=5.4)
    style.matrix(ax, values, 1.0, "correlation")
    ax.set_aspect("equal")
    ax.tick_params(length=0)
    if s <= _MOST_NAMES:
        names = tick_labels(selection.names, 14)
        small = {"fontsize": "small"} if s <= 20 else {"fontsize": "xx-small"}
        ax.set_yticks(np.arange(s) + 0.5, names, **small)
        ax.set_xticks(np.arange(s) + 0.5, names, rotation=90, **small)
    else:
        style.name_axes(ax, f"chosen columns, {selection.order}", "")
    if s <= _MOST_NUMBERS:
        _write_numbers(ax, values)
    return ax


def correlations(selection: SelectionRecord) -> Floats:
    """Return (s, s) the correlations of the chosen columns.

    Raises
    ------
    MissingInputError
        If the result was saved without them, or holds no column.
    """
    return style.statistics_of(selection, "correlations").correlation


def _write_numbers(ax: Any, values: Floats) -> None:
    for (i, j), value in np.ndenumerate(values):
        if i != j and np.isfinite(value):
            color = "#ffffff" if abs(value) > _DARK else style.INK
            text = true_minus(f"{value:.2f}".replace("0.", "."))
            ax.text(j + 0.5, i + 0.5, text, ha="center", va="center", color=color, fontsize="small")


def describe(selection: SelectionRecord) -> str:
    """Return the picture in words."""
    values = np.abs(correlations(selection))
    np.fill_diagonal(values, np.nan)
    if len(values) < 2 or np.isnan(values).all():
        return "There are no two columns to compare."
    i, j = np.unravel_index(int(np.nanargmax(values)), values.shape)
    signed, pair = true_minus(f"{correlations(selection)[i, j]:.2f}"), (selection.names[i], selection.names[j])
    return f"The strongest correlation is {signed}, between {' and '.join(pair)}."

"""How the error changes with each chosen column: on left-out rows, or on the data by QR."""

from __future__ import annotations

from typing import Any

import numpy as np

from dsel.selection.plots import style
from dsel.selection.record import SelectionRecord

#: More columns than this share the last bar.
_MOST_BARS = 30


def draw(selection: SelectionRecord, ax: Any = None) -> Any:
    """Draw the steps of a method with a path, or else the gain of each chosen column, and return the axes."""
    return _draw_steps(selection, ax) if selection.path else _draw_gains(selection, ax)


def _draw_steps(selection: SelectionRecord, ax: Any) -> Any:
    ax = style.axes(ax, grid="y")
    steps = range(1, len(selection.path) + 1)
    marker = style.marker(steps)
    errors = [row.error for row in selection.path]
    ax.plot(steps, errors, color=style.BLUE, marker=marker, markersize=4.5, linewidth=1.8, label="left-out rows")
    if selection.path[0].test_error is not None:
        tests = [np.nan if row.test_error is None else row.test_error for row in selection.path]
        ax.plot(steps, tests, color=style.ORANGE, linestyle="--", marker=marker and "s", markersize=4, linewidth=1.5,
                label="held-out rows")  # fmt: skip
    best = int(np.argmin(errors))
    style.ring(ax, best + 1, errors[best], f"least: {style.counted(selection.path[best].size)}")
    style.whole_numbers(ax.xaxis)
    of = "share of wrong labels" if selection.path[0].accuracy is not None else "error per row"
    style.name_axes(ax, "step", of)
    style.legend(ax, loc="upper right")
    return ax


def _draw_gains(selection: SelectionRecord, ax: Any) -> Any:
    """Draw a bar for each column, from the share that is explained before it to that after it."""
    labels, gains = _bars(selection)
    ax = style.axes(ax, height=1.2 + 0.25 * len(labels), grid="x")
    after = np.cumsum(gains)
    ax.barh(range(len(gains)), gains, left=after - gains, height=0.62, color=style.BLUE)
    # a thin line joins each bar to the next
    ax.vlines(after[:-1], np.arange(len(gains) - 1), np.arange(1, len(gains)), color=style.BLUE, linewidth=0.8)
    style.name_rows(ax, labels)
    ax.set_xlim(left=0.0)
    style.name_axes(ax, f"share explained so far{selection.less_penalty}", "")
    return ax


def _bars(selection: SelectionRecord) -> tuple[list[str], np.ndarray[Any, Any]]:
    """Return the labels and gains of the columns; many columns share the last bar."""
    labels, gains = list(selection.names), style.statistics_of(selection, "gains").gains
    if len(labels) <= _MOST_BARS:
        return labels, gains
    rest = len(labels) - _MOST_BARS + 1
    return [*labels[:-rest], f"{rest} more"], np.append(gains[:-rest], gains[-rest:].sum())


def describe(selection: SelectionRecord) -> str:
    """Return the picture in words."""
    if selection.path:
        best = min(selection.path, key=lambda row: row.error)
        return (
            f"The error on left-out rows is {selection.path[0].error:.4g} after the first step and least, "
            f"{best.error:.4g}, with {style.counted(best.size)}."
        )
    labels, gains = _bars(selection)
    together = f", and all {len(selection)} chosen columns {gains.sum():.1%}" if len(selection) > 1 else ""
    return f"{labels[0]} explains {gains[0]:.1%}{together}{selection.less_penalty}."

"""The convergence of a search: its best value against its iterations."""

from __future__ import annotations

from typing import Any

from dsel._lib.text import counted, noun
from dsel.errors import MissingInputError
from dsel.selection.plots import style
from dsel.selection.record import SelectionRecord

#: The axis of iterations is logarithmic if the last is this many times the first improvement.
_LOGARITHMIC_FROM = 50


def draw(selection: SelectionRecord, ax: Any = None) -> Any:
    """Draw the best value after each improvement, and return the axes."""
    iterations, values = improvements(selection)
    ax = style.axes(ax, grid="y")
    end = max(selection.iterations, iterations[-1])
    ax.step([*iterations, end], [*values, values[-1]], where="post", color=style.BLUE, linewidth=1.8)
    if len(values) <= style.MOST_MARKERS:
        ax.plot(iterations, values, "o", color=style.BLUE, markersize=4)
    ax.plot([end], [values[-1]], "|", color=style.BLUE, markersize=12, markeredgewidth=2)
    if end > _LOGARITHMIC_FROM * iterations[0]:
        ax.set_xscale("log")
    else:
        style.whole_numbers(ax.xaxis)
    style.name_axes(ax, "iteration", _measure(selection))
    return ax


def _measure(selection: SelectionRecord) -> str:
    if selection.criterion is not None:
        return "criterion, best so far"
    if _total_square(selection) is None:
        return "deviance, best so far" if selection.by_loss else "error f(S), best so far"
    if selection.by_loss:
        return f"{'1 − F(S) / F(∅)' if selection.lam else 'D²'}, best so far"
    return "1 − f(S) / ‖Y‖², best so far" if selection.lam else "R², best so far"


def improvements(selection: SelectionRecord) -> tuple[list[int], list[float]]:
    """Return the iterations, from 1, and the best values: the share that is explained, the error, or the criterion.

    Raises
    ------
    MissingInputError
        If the search made no improvement.
    """
    trace = [row for row in selection.trace if row.size]
    if not trace:
        raise MissingInputError(
            "The search left no trace.", "Methods with iterations, such as poss, do where there is something to choose."
        )
    total, values = _total_square(selection), [row.error for row in trace]
    if total is not None and selection.criterion is None:
        values = [1.0 - value / total for value in values]
    return [max(row.iteration, 1) for row in trace], values


def _total_square(selection: SelectionRecord) -> float | None:
    """Return ||Y||^2 of the preprocessed data, or None if the result is too old to tell."""
    if selection.statistics is None:
        empty = [row.error for row in selection.front if not row.size and not selection.include]
        return empty[0] if empty else None
    left = 1.0 - float(selection.statistics.gains.sum())
    return selection.error / left if left > 1e-9 else None


def describe(selection: SelectionRecord) -> str:
    """Return the picture in words."""
    iterations, values = improvements(selection)
    made = f"{selection.iterations:,} {noun(selection.iterations, 'iteration')}"
    if len(values) == 1:
        return f"The first subset has {values[0]:.4g}, and none of {made} improved it."
    return (
        f"{counted(len(values), 'improvement')} in {made}, from {values[0]:.4g} to {values[-1]:.4g}. "
        f"The last came at iteration {iterations[-1]:,}."
    )

"""The convergence of a search: its best value against its iterations."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from dsel._lib.text import counted, noun
from dsel.errors import MissingInputError
from dsel.selection.plots import style
from dsel.selection.record import SelectionRecord
from dsel.selection.record_values import TraceRow

#: The axis of iterations is logarithmic if the last is this many times the first improvement.
_LOGARITHMIC_FROM = 50


def draw(selection: SelectionRecord, ax: Any = None) -> Any:
    """Draw the best value after each improvement, and return the axes."""
    found = improvements(selection)
    iterations, values = [row.iteration for row in found], [row.error for row in found]
    ax = style.axes(ax, grid="y")
    end = max(selection.iterations, iterations[-1])
    ax.step([*iterations, end], [*values, values[-1]], where="post", color=style.BLUE, linewidth=1.8)
    if len(values) <= style.MOST_MARKERS:
        ax.plot(iterations, values, "o", color=style.BLUE, markersize=4)
    ax.plot([end], [values[-1]], "|", color=style.BLUE, markersize=12, markeredgewidth=2)
    first = next((iteration for iteration in iterations if iteration), end)
    if end > _LOGARITHMIC_FROM * first:
        ax.set_xscale("symlog", linthresh=1)  # the start is iteration 0
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


def improvements(selection: SelectionRecord) -> list[TraceRow]:
    """Return the start and the improvements after it. In place of errors they have what `_measure` names.

    Raises
    ------
    MissingInputError
        If the search left no trace.
    """
    start = [row for row in selection.trace if not row.iteration]
    trace = [*start[-1:], *(row for row in selection.trace if row.iteration)]
    total = None if selection.criterion is not None else _total_square(selection)
    found = [row if total is None else replace(row, error=round(1.0 - row.error / total, 12)) for row in trace]
    if not (found := [row for row in found if math.isfinite(row.error)]):
        raise MissingInputError(
            "The search left no trace.", "Methods with iterations, such as poss, do where there is something to choose."
        )
    return found


def _total_square(selection: SelectionRecord) -> float | None:
    """Return ||Y||^2 of the preprocessed data, or None if the result is too old to tell."""
    if selection.statistics is None:
        empty = [row.error for row in selection.front if not row.size and not selection.include]
        return empty[0] if empty else None
    left = 1.0 - float(selection.statistics.gains.sum())
    return selection.error / left if left > 1e-9 else None


def describe(selection: SelectionRecord) -> str:
    """Return the picture in words."""
    first, *later = improvements(selection)
    made = f"{selection.iterations:,} {noun(selection.iterations, 'iteration')}"
    start = f"The search started with {_value(first, selection)}."
    if first.iteration:
        start = f"The first value, {_value(first, selection)}, came at iteration {first.iteration:,}."
    if not later:
        return f"{start} None of {made} improved it."
    last = later[-1]
    return (
        f"{start} {counted(len(later), 'improvement')} in {made} led to {_value(last, selection)}, "
        f"{'the last ' * (len(later) > 1)}at iteration {last.iteration:,}."
    )


def _value(row: TraceRow, selection: SelectionRecord) -> str:
    """Return a value in words, with the size of its subset where the answer has another one."""
    answer = len(selection.groups or selection)
    return f"{row.error:.4g}{'' if row.size == answer else f' ({style.counted(row.size, bool(selection.groups))})'}"

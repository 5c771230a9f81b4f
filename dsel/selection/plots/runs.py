"""Which columns each run of a repeated job chose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dsel._lib.text import printable
from dsel.selection.changes.runs import RunSummary
from dsel.selection.plots import style

#: The largest number of columns: those of the last run first, then those that most runs chose.
MOST_COLUMNS = 30
#: The largest number of runs, the last ones.
MOST_RUNS = 60


def draw(runs: Sequence[RunSummary], ax: Any = None) -> Any:
    """Draw a dot for each chosen column of each run, and return the axes. Columns of the last run are filled."""
    columns = shown_columns(runs)
    sets = {i: run.columns for i, run in enumerate(runs[-MOST_RUNS:], 1)}
    ax = style.dots(ax, sets, columns, len(runs[-1].columns), ("in the last run", "not any more"), 6.0)
    style.name_rows(ax, [printable(label) for label in columns])
    style.name_axes(ax, f"run, oldest first (the last one is {runs[-1].run})", "")
    return ax


def shown_columns(runs: Sequence[RunSummary]) -> list[str]:
    """Return the columns to draw: those of the last run in order of gain, then the others by how many runs chose them.

    The first column is at the top.
    """
    return style.most_frequent(runs[-1].columns, (run.columns for run in runs[-MOST_RUNS:]), MOST_COLUMNS)


def describe(runs: Sequence[RunSummary]) -> str:
    """Return the picture in words."""
    shown = runs[-MOST_RUNS:]
    changed = sum(run.changed for run in shown)
    always = len(set(shown[0].columns).intersection(*(run.columns for run in shown)))
    common = f"{style.counted(always) if always else 'No column'} {'is' if always < 2 else 'are'}"
    return f"{len(shown)} runs, {changed} of which changed the selection. {common} in the answer of every run."

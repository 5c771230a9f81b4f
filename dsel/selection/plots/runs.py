"""Which columns each run of a repeated job chose."""

from __future__ import annotations

from collections import Counter
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
    shown, columns = runs[-MOST_RUNS:], shown_columns(runs)
    ax = style.axes(ax, height=1.2 + 0.22 * len(columns), grid="y")
    place = {label: i for i, label in enumerate(columns)}
    last = set(runs[-1].columns)
    dots = [(i + 1, label) for i, run in enumerate(shown) for label in run.columns if label in place]
    kept = [(x, place[label]) for x, label in dots if label in last]
    gone = [(x, place[label]) for x, label in dots if label not in last]
    size = max(6.0, min(36.0, 900.0 / len(shown)))
    style.dots(ax, kept, gone, ("in the last run", "not any more"), s=size)
    style.name_rows(ax, [printable(label) for label in columns])
    style.whole_numbers(ax.xaxis)
    style.name_axes(ax, f"run, oldest first (the last one is {runs[-1].run})", "")
    return ax


def shown_columns(runs: Sequence[RunSummary]) -> list[str]:
    """Return the columns to draw: those of the last run in order of gain, then the others by how many runs chose them.

    The first column is at the top.
    """
    counts = Counter(label for run in runs[-MOST_RUNS:] for label in run.columns)
    last = list(runs[-1].columns)
    others = sorted(set(counts) - set(last), key=lambda label: (-counts[label], label))
    return [*last, *others][:MOST_COLUMNS]


def describe(runs: Sequence[RunSummary]) -> str:
    """Return the picture in words."""
    shown = runs[-MOST_RUNS:]
    changed = sum(run.changed for run in shown)
    always = set(shown[0].columns).intersection(*(run.columns for run in shown))
    return f"{len(shown)} runs, {changed} of which changed the selection. All of them chose {len(always)} columns."

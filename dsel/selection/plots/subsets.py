"""Which columns the best subset of each size holds."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

from dsel.errors import MissingInputError
from dsel.selection.plots import style
from dsel.selection.record import FrontRow, SelectionRecord

#: At most this many columns: the chosen ones first, then those in the most subsets.
MOST_COLUMNS = 30
#: More dots than this become pixels in vector files, which would be large otherwise.
_MOST_VECTORS = 1500


def draw(selection: SelectionRecord, ax: Any = None) -> Any:
    """Draw a dot for each column of each best subset of at most k columns, and return the axes."""
    rows, columns = shown_rows(selection), shown_columns(selection)
    ax = style.axes(ax, height=1.2 + 0.22 * len(columns), grid="y")
    place = {j: i for i, j in enumerate(columns)}
    dots = [(row.size, place[j]) for row in rows for j in row.indices if j in place]
    last = min(len(selection), MOST_COLUMNS)  # chosen columns come first
    chosen, others = [dot for dot in dots if dot[1] < last], [dot for dot in dots if dot[1] >= last]
    size = max(3.0, min(36.0, 900.0 / len(rows)))
    style.dots(ax, chosen, others, ("chosen", "not chosen"), s=size, rasterized=len(dots) > _MOST_VECTORS)
    style.name_rows(ax, [selection.label(j) for j in columns])
    style.whole_numbers(ax.xaxis)
    style.name_axes(ax, style.size_name(selection), "")
    return ax


def nested(selection: SelectionRecord) -> bool:
    """Return whether each best subset contains the smaller ones: then there is nothing to see."""
    return all(set(a.indices) <= set(b.indices) for a, b in pairwise(_rows(selection)))


def _rows(selection: SelectionRecord) -> list[FrontRow]:
    return [row for row in selection.front if 0 < row.size <= selection.k]


def shown_rows(selection: SelectionRecord) -> list[FrontRow]:
    """Return the best subsets of at most k columns that hold any.

    Raises
    ------
    MissingInputError
        If there are fewer than two.
    """
    rows = _rows(selection)
    if len(rows) < 2:
        raise MissingInputError(
            f"The method {selection.method} kept one subset only.", "Use a method that keeps a front, such as poss."
        )
    return rows


def shown_columns(selection: SelectionRecord) -> list[int]:
    """Return the columns to draw: the chosen ones in order of gain, then the others by the number of their subsets."""
    counts = Counter(j for row in shown_rows(selection) for j in row.indices)
    others = sorted(set(counts) - set(selection.indices), key=lambda j: (-counts[j], j))
    return [*selection.indices, *others][:MOST_COLUMNS]


def describe(selection: SelectionRecord) -> str:
    """Return the picture in words."""
    rows = shown_rows(selection)
    if nested(selection):
        return "Each best subset contains the smaller ones."
    count = len({j for row in rows for j in row.indices})
    sizes = f"{rows[0].size} to {rows[-1].size}"
    return f"The best subsets of {sizes} columns use {count} different columns. They are not nested."

"""Which columns the best subset of each size holds."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from dsel.errors import MissingInputError
from dsel.selection.plots import style
from dsel.selection.record import SelectionRecord
from dsel.selection.record_values import FrontRow

#: At most this many columns: the chosen ones first, then those in the most subsets.
MOST_COLUMNS = 30


def draw(selection: SelectionRecord, ax: Any = None) -> Any:
    """Draw a dot for each column of each best subset of at most k columns, and return the axes."""
    rows, columns = shown_rows(selection), shown_columns(selection)
    sets = {row.size: row.indices for row in rows}
    ax = style.dots(ax, sets, columns, len(selection), ("chosen", "not chosen"), 3.0)  # chosen columns come first
    style.name_rows(ax, [selection.label(j) for j in columns])
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
            f"There are no two subsets of at most {style.counted(selection.k, bool(selection.groups))} to compare.",
            "Choose more columns, by a method that keeps a front, such as poss.",
        )
    return rows


def shown_columns(selection: SelectionRecord) -> list[int]:
    """Return the columns to draw: the chosen ones in order of gain, then the others by the number of their subsets."""
    return style.most_frequent(selection.indices, (row.indices for row in shown_rows(selection)), MOST_COLUMNS)


def describe(selection: SelectionRecord) -> str:
    """Return the picture in words."""
    rows = shown_rows(selection)
    if nested(selection):
        return "Each best subset contains the smaller ones."
    count = len({j for row in rows for j in row.indices})
    of = f"{rows[0].size} to {style.counted(rows[-1].size, bool(selection.groups))}"
    return f"The best subsets of {of} use {count} different columns. They are not nested."

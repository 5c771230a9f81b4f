"""Text, tables and warnings for a terminal. Rich makes tables, and is imported when the first one is made."""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

#: Width of text that is not for a terminal: so wide that no line is broken.
_ENDLESS = 1_000_000


def text_table(*names: str, left: Collection[str] = (), fold: Collection[str] = ()) -> Table:
    """Return a table with these columns, aligned to the right, without lines.

    left: columns that are aligned to the left. fold: columns whose text may continue on the next line.
    """
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in names:
        folds = name in fold
        justify, overflow = "left" if name in left else "right", "fold" if folds else "ellipsis"
        table.add_column(name, justify=justify, overflow=overflow, no_wrap=not folds)  # type: ignore[arg-type]
    return table


def console_text(parts: Iterable[str | Table], width: int | None = None) -> str:
    """Return lines of text and tables as they are printed on a terminal of this width; None for no limit."""
    from rich.console import Console

    # Labels are not markup: they may contain [C] or :apple:.
    # Without force_jupyter=False a notebook would show what only the record should hold.
    console = Console(
        width=width or _ENDLESS, record=True, file=io.StringIO(), markup=False, emoji=False, highlight=False,
        force_jupyter=False,
    )  # fmt: skip
    for part in parts:
        console.print(part)
    return "".join(f"{line.rstrip()}\n" for line in console.export_text().splitlines())


def warn_caller(message: str) -> None:
    """Warn with the line that called dsel."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "dsel":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)

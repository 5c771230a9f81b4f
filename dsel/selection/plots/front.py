"""The quality of the best subset of each size, compared with forward selection and with what is still possible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from dsel._lib.text import at_least, at_most
from dsel.errors import MissingInputError, OptionError
from dsel.search.exact.certificate_words import STATUS_WORDS, claim, scope
from dsel.selection.plots import style
from dsel.selection.plots.style import counted
from dsel.selection.record import SelectionRecord
from dsel.selection.record_values import FrontRow

#: What the picture can show.
Quantity = Literal["r2", "error", "criterion"]
#: The diamonds of sizes without a gap: status, color, and color inside.
_DIAMONDS = (("optimal", style.GREEN, style.GREEN), ("optimal-except-near-copies", style.ORANGE, "none"))
_NAMES = {"r2": "share of Y explained, R²", "error": "error f(S)", "criterion": "criterion"}


def draw(selection: SelectionRecord, ax: Any = None, quantity: Quantity | None = None) -> Any:
    """Draw the quality against the number of columns, and return the axes."""
    quantity = _quantity(selection, quantity)
    rows = shown_rows(selection.front, quantity)
    ax = style.axes(ax, grid="y")
    if quantity == "error" or (quantity == "r2" and not selection.lam):
        _draw_certificates(ax, selection, quantity)
    if quantity != "criterion":
        _draw_forward(ax, [row for row in selection.forward if row.size], rows, quantity)
    _draw_front(ax, selection, rows, quantity)
    style.whole_numbers(ax.xaxis)
    style.name_axes(ax, style.size_name(selection), _name(selection, quantity))
    style.legend(ax, "best", loc="lower right" if quantity == "r2" else "upper right")
    return ax


def _name(selection: SelectionRecord, quantity: Quantity) -> str:
    if selection.by_loss:
        return {"r2": "share of the deviance explained, D²", "error": "deviance with the penalty"}.get(
            quantity, quantity
        )
    return _NAMES[quantity].replace("Y", "X" if selection.unsupervised else "Y")


def _quantity(selection: SelectionRecord, quantity: Quantity | None) -> Quantity:
    """Return what to draw: by default what was minimized, and R^2 where that is the same.

    With a ridge penalty it is not: then a subset of larger R^2 can have a larger f, which certificates are about.
    """
    if quantity is None:
        if selection.criterion is not None:
            return "criterion"
        return "error" if selection.lam else "r2"
    if quantity not in _NAMES:
        raise OptionError(f"quantity is {quantity!r}.", f"One of {', '.join(_NAMES)}.")
    if quantity == "criterion" and selection.criterion is None:
        raise OptionError("The selection was made without a custom criterion.", "Draw 'r2' or 'error'.")
    return quantity


def shown_rows(rows: Sequence[FrontRow], quantity: Quantity = "r2") -> list[FrontRow]:
    """Return the subsets that have a column and a value.

    Raises
    ------
    MissingInputError
        If there is none.
    """
    shown = [row for row in rows if row.size and getattr(row, quantity) is not None]
    if rows and not shown:
        raise MissingInputError("The selection has no subset to draw.", "Choose at least one column.")
    return shown


def _draw_front(ax: Any, selection: SelectionRecord, rows: list[FrontRow], quantity: Quantity) -> None:
    inside = [row for row in rows if row.size <= selection.k]
    beyond = [row for row in rows if row.size >= selection.k]
    marker = style.marker(rows)
    if len(beyond) > 1:  # larger subsets than were asked for: found on the way
        ax.plot(*_points(beyond, quantity), color=style.BLUE, marker=marker, markersize=3.5, linewidth=1.2, alpha=0.35)
    label = f"best found ({selection.method})"
    ax.plot(*_points(inside, quantity), color=style.BLUE, marker=marker, markersize=4.5, linewidth=1.8, label=label)
    chosen = next((row for row in rows if set(row.indices) == set(selection.indices)), None)
    if chosen is not None:
        value = getattr(chosen, quantity)
        label = f"chosen: {counted(chosen.size, bool(selection.groups))}, {value:.4g}"
        style.ring(ax, chosen.size, value, label, markersize=11)


def _draw_forward(ax: Any, forward: list[FrontRow], front: list[FrontRow], quantity: Quantity) -> None:
    """Draw forward selection, unless it is the front itself."""
    if forward and differs(forward, front):
        ax.plot(*_points(forward, quantity), color=style.MUTED, linestyle="--", linewidth=1.2,
                marker=style.marker(forward, "s"), markersize=3, label="forward selection",
                markerfacecolor="none")  # fmt: skip


def differs(forward: Sequence[FrontRow], front: Sequence[FrontRow]) -> bool:
    """Return whether forward selection has another value than the front at some size."""
    best = {row.size: row.error for row in front}
    return any(abs(best.get(row.size, row.error) - row.error) > 1e-9 * abs(row.error) for row in forward)


def _draw_certificates(ax: Any, selection: SelectionRecord, quantity: Quantity) -> None:
    """Draw from the best value known to the proved bound, a step for each certified size."""
    value, bound = ("r2", "r2_bound") if quantity == "r2" else ("value", "bound")
    rows = [row for row in selection.certificate if row["size"]]
    open_rows = [row for row in rows if not row["status"].startswith("optimal")]
    for row in open_rows:
        edges = [row["size"] - 0.5, row["size"] + 0.5]
        label = "still possible (certificate)" if row is open_rows[0] else None
        ax.fill_between(edges, row[value], row[bound], color=style.ORANGE, alpha=0.18, linewidth=0, label=label)
        ax.plot(edges, [row[bound]] * 2, color=style.ORANGE, linewidth=1.2)
    for status, color, fill in _DIAMONDS:
        proven = [row for row in rows if row["status"] == status]
        if proven:
            ax.plot([row["size"] for row in proven], [row[value] for row in proven], "D", color=color, markersize=6,
                    markerfacecolor=fill, label=f"proved {STATUS_WORDS[status]}", zorder=3)  # fmt: skip


def _points(rows: list[FrontRow], quantity: Quantity) -> tuple[list[int], np.ndarray[Any, Any]]:
    return [row.size for row in rows], np.array([getattr(row, quantity) for row in rows], float)


def describe(selection: SelectionRecord) -> str:
    """Return the picture in words."""
    quantity = _quantity(selection, None)
    grouped = bool(selection.groups)
    name = {"r2": "R²", "error": "The error", "criterion": "The criterion"}[quantity]
    if selection.by_loss:
        name = {"r2": "D²"}.get(quantity, "The deviance with the penalty")
    shown = shown_rows(selection.front, quantity)
    rows = [row for row in shown if row.size <= selection.k] or shown  # the choice may be no column
    ends = getattr(rows[0], quantity), getattr(rows[-1], quantity)
    smallest = f"{ends[0]:.4g} with {rows[0].size} and " if len(rows) > 1 else ""
    text = f"{name} is {smallest}{ends[1]:.4g} with {counted(rows[-1].size, grouped)}."
    if quantity != "criterion" and selection.forward:
        end = selection.forward[-1]
        text += f" Forward selection reaches {getattr(end, quantity):.4g} with {end.size}."
    if selection.certificate and quantity != "criterion":
        row = selection.certificate[-1]
        limit = f"at most {at_most(row['r2_bound'])}" if quantity == "r2" else f"at least {at_least(row['bound'])}"
        limit = " ".join(filter(None, (limit, scope(row))))
        limit = STATUS_WORDS["no-useful-bound"] if row["status"] == "no-useful-bound" else limit
        text += f" The certificate of {counted(row['size'], grouped)}: {claim(row) or limit}."
    return text

"""The near-best subsets, what having each column or doing without it costs, and how much subsets rely on it."""

from __future__ import annotations

from typing import Any

import numpy as np

from dsel._lib.types import Floats
from dsel.errors import MissingInputError
from dsel.selection.alternatives import VERDICTS, Alternatives, Price
from dsel.selection.plots import style
from dsel.selection.record import SelectionRecord

#: At most this many columns and subsets: the best ones.
MOST_COLUMNS, MOST_SUBSETS = 30, 40


def found_in(selection: SelectionRecord) -> Alternatives:
    """Return the near-best subsets of a selection.

    Raises
    ------
    MissingInputError
        If there are none.
    """
    if selection.alternatives is None or not selection.alternatives.subsets:
        raise MissingInputError(
            "The selection has no alternatives.", "dsel.alternatives lists them, and selection.with_alternatives."
        )
    return selection.alternatives


def _of_one_size(selection: SelectionRecord, what: str) -> Alternatives:
    """Return the near-best subsets. Errors: MissingInputError where a criterion ranks subsets of several sizes."""
    found = found_in(selection)
    if found.by:
        remedy = "List subsets of one size: dsel.alternatives without by."
        raise MissingInputError(f"The list by {found.by} has no {what} of columns.", remedy)
    return found


def shown_prices(selection: SelectionRecord) -> list[Price]:
    """Return the columns of the pictures: necessary ones first, then those in the most near-best subsets."""
    found = found_in(selection)
    counts = found.counts
    some = [
        price for price in found.columns if counts.get(price.index) or price.verdict in ("necessary", "replaceable")
    ]
    some.sort(key=lambda price: (VERDICTS.index(price.verdict), -counts.get(price.index, 0), price.index))
    return some[:MOST_COLUMNS]


def draw_subsets(selection: SelectionRecord, ax: Any = None) -> Any:
    """Draw subsets by columns, the best subset on the left, and return the axes."""
    found, prices = found_in(selection), shown_prices(selection)
    shown = found.subsets[:MOST_SUBSETS]
    r2 = np.array([row.r2 for row in shown])
    values = np.array([[row.r2 if price.index in row.indices else np.nan for row in shown] for price in prices])
    ax = style.axes(ax, height=1.6 + 0.22 * len(prices))
    low, high = float(r2.min()), float(r2.max())
    image = ax.pcolormesh(
        np.arange(len(shown) + 1) - 0.5, np.arange(len(prices) + 1) - 0.5, np.ma.masked_invalid(values),
        cmap=_colormap(), vmin=low, vmax=max(high, low + 1e-9), edgecolors="none",
    )  # fmt: skip
    style.color_bar(ax, image, selection.share_sign)
    style.name_rows(ax, [str(price.label) for price in prices])
    style.name_axes(ax, f"subset, the best one{f' by {found.by}' * bool(found.by)} first", "")
    ax.set_xticks(*_places(len(shown)))
    return ax


def _colormap() -> Any:
    """Return a map from a pale to a full blue, which suits light and dark pages."""
    colors = style.import_matplotlib("colors")
    blue = colors.to_rgb(style.MATRIX_ENDS[1])
    return colors.LinearSegmentedColormap.from_list("dsel-blue", [(*blue, 0.35), (*blue, 1.0)])


def _places(count: int) -> tuple[list[int], list[str]]:
    """Return where the subsets are numbered, from 1, and the numbers."""
    step = max(1, -(-count // 10))
    return list(range(0, count, step)), [str(place + 1) for place in range(0, count, step)]


def describe_subsets(selection: SelectionRecord) -> str:
    """Return the picture in words."""
    return " ".join(f"{line[:1].upper()}{line[1:]}." for line in found_in(selection).lines())


def draw_prices(selection: SelectionRecord, ax: Any = None) -> Any:
    """Draw R2 of the best known subsets with and without each column, with what is still possible, on axes."""
    found, prices = _of_one_size(selection, "prices"), shown_prices(selection)
    ax = style.axes(ax, height=1.2 + 0.26 * len(prices), grid="x")
    for shift, color, shape, name in ((-0.14, style.BLUE, "o", "with"), (0.14, style.ORANGE, "D", "without")):
        places = np.arange(len(prices)) + shift
        known, bound = _ends(found, prices, name)
        ax.hlines(places, known, bound, color=color, linewidth=5, alpha=0.3, label=f"possible {name} it")
        ax.plot(known, places, linestyle="none", marker=shape, color=color, markersize=5, label=f"best known {name} it")
    limit = found.r2(found.limit_error)
    ax.axvline(limit, color=style.MUTED, linewidth=1, linestyle="--", label="least of a near-best subset")
    style.name_rows(ax, [str(price.label) for price in prices])
    style.name_axes(ax, f"{selection.share_sign}{selection.less_penalty}", "")
    style.legend(ax, "best known", loc="upper center", bbox_to_anchor=(0.5, -1.9 / len(prices)), ncols=2)
    return ax


def _ends(found: Alternatives, prices: list[Price], name: str) -> tuple[Floats, Floats]:
    """Return R2 of the best known subsets, and bounds on it; NaN where none is known."""
    errors = [getattr(price, f"error_{name}") for price in prices]
    known = np.array([np.nan if error is None else found.r2(error) for error in errors])
    bound = np.array([found.r2(getattr(price, f"bound_{name}")) for price in prices])
    return known, np.where(np.isnan(known), np.nan, np.fmax(bound, known))


def describe_prices(selection: SelectionRecord) -> str:
    """Return the picture in words."""
    found, prices = _of_one_size(selection, "prices"), shown_prices(selection)
    dearest = max(prices, key=lambda price: -1.0 if price.error_without is None else price.error_without)
    best = (
        f"The best known subset has {selection.share_less_penalty.replace('2', '²')} {found.r2(found.best_error):.4f}."
    )
    if dearest.error_without is None:
        return best
    left = found.r2(dearest.error_without)
    return f"{best} Of those without a {found.noun}, that without {dearest.label} has least: {left:.4f}."


def draw_reliance(selection: SelectionRecord, ax: Any = None) -> Any:
    """Draw how much R2 near-best subsets lose without each of their columns, as intervals, on axes."""
    prices = relied_on(selection)
    ax = style.axes(ax, height=1.2 + 0.22 * len(prices), grid="x")
    low, high = np.array([price.reliance for price in prices]).T
    places = np.arange(len(prices))
    ax.hlines(places, low, high, color=style.BLUE, linewidth=3)
    ax.plot(low, places, linestyle="none", marker="|", color=style.BLUE, markersize=9)
    ax.plot(high, places, linestyle="none", marker="|", color=style.BLUE, markersize=9)
    ax.set_xlim(left=0.0)
    style.name_rows(ax, [str(price.label) for price in prices])
    what = f"loss of {selection.share_less_penalty.replace('2', '²')}"
    style.name_axes(ax, f"{what} when the {found_in(selection).noun} is left out", "")
    return ax


def relied_on(selection: SelectionRecord) -> list[Price]:
    """Return the columns of near-best subsets, those with the largest loss first.

    Raises
    ------
    MissingInputError
        If the losses are not known, as in a list by an information criterion.
    """
    found = _of_one_size(selection, "losses")
    prices = [price for price in found.columns if price.reliance is not None]
    if not prices:
        raise MissingInputError("The list of near-best subsets has no losses.", "List the subsets again.")
    prices.sort(key=lambda price: -price.reliance[1] if price.reliance else 0.0)
    return prices[:MOST_COLUMNS]


def describe_reliance(selection: SelectionRecord) -> str:
    """Return the picture in words."""
    first = relied_on(selection)[0]
    _, high = first.reliance or (0.0, 0.0)
    return f"The largest loss is that of {first.label}: {high:.4f}."

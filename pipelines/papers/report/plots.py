"""Draw plots as SVG: for the page, whose colors they follow, and as files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsel.selection.plots import style
from dsel.selection.report.figures import svg
from pipelines.papers.report.model import Plot, Series

if TYPE_CHECKING:
    from markupsafe import Markup

_WIDTH, _HEIGHT = 400, 320
#: The first three follow the page; all differ for color-blind readers, and in dash or marker.
_COLORS = (
    style.BLUE,
    style.ORANGE,
    style.GREEN,
    "#cc79a7",
    "#8a6d3b",
    "#56b4e9",
    "#b8a500",
    style.MUTED,
    "#7b61c9",
    style.INK,
)
_DASHES = (
    "-",
    "--",
    "-.",
    ":",
    (0, (6, 2)),
    (0, (3, 1, 1, 1)),
    (0, (1, 1)),
    (0, (8, 2, 2, 2)),
    (0, (4, 4)),
    (0, (2, 2)),
)
_MARKERS = "osD^vPX<>*"


def for_page(plot: Plot, name: str) -> Markup:
    """Return a plot as an SVG element whose ids begin with `name`."""
    return svg(name, lambda ax: draw(plot, ax), _WIDTH, _HEIGHT)


def write_file(plot: Plot, path: Path) -> None:
    """Write a plot as an SVG file on white."""
    matplotlib = style.import_matplotlib()
    figure = style.import_matplotlib("figure").Figure(figsize=(_WIDTH / 72, _HEIGHT / 72), layout="constrained")
    with matplotlib.rc_context({"svg.hashsalt": "dsel", "font.size": 11.0}):
        draw(plot, figure.add_subplot())
        figure.savefig(path, format="svg", metadata={"Date": None})


def draw(plot: Plot, ax: Any) -> None:
    """Draw a plot on axes."""
    style.axes(ax, grid="y")
    style.name_axes(ax, plot.x, plot.y)
    if plot.log_x:
        ax.set_xscale("log")
    if plot.log_y:
        ax.set_yscale("log")
    for place, series in enumerate(plot.series):
        _draw_series(ax, series, place)
    if not plot.log_x and all(value.is_integer() for series in plot.series for value in series.x):
        style.whole_numbers(ax.xaxis)
    if plot.x_names:
        ax.set_xticks(range(len(plot.x_names)), list(plot.x_names))
    if plot.limits is not None:
        ax.set_ylim(*plot.limits)
    columns = 3 if len(plot.series) > 4 else 2
    style.legend(ax, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=columns, handlelength=2.4)


def _draw_series(ax: Any, series: Series, place: int) -> None:
    color, dash = _COLORS[place % len(_COLORS)], _DASHES[place % len(_DASHES)]
    if series.kind == "level":
        ax.axhline(series.y[0], color=color, linestyle=dash, linewidth=1.4, label=series.name)
        return
    marker = _MARKERS[place % len(_MARKERS)] if series.kind == "points" else None
    ax.plot(
        series.x, series.y, color=color, linestyle=dash, linewidth=1.6, marker=marker, markersize=4.5,
        label=series.name,
    )  # fmt: skip
    if series.spread:
        ax.errorbar(
            series.x, series.y, yerr=series.spread, fmt="none", ecolor=color, elinewidth=0.9, capsize=2, alpha=0.7
        )

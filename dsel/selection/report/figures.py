"""The pictures of the report, as SVG inside the page."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dsel.errors import MissingInputError
from dsel.selection.changes.runs import RunSummary
from dsel.selection.plots import coefficients, correlation, front, path, runs, sizes, style, subsets, trace
from dsel.selection.record import SelectionRecord

if TYPE_CHECKING:
    from markupsafe import Markup

#: Fixed colors of the pictures become the page's variables, which differ in light and dark.
_VARIABLES = {
    style.INK: "--ink", style.MUTED: "--muted", style.GRID: "--grid", style.BLUE: "--blue", style.ORANGE: "--orange",
    style.GREEN: "--green",
}  # fmt: skip
#: Widths of a picture in CSS pixels: for phones and columns, and for the width of the page.
_NARROW, _WIDE = 400, 880
_RC = {"svg.fonttype": "none", "font.size": 11.0, "axes.labelsize": 10.5, "svg.hashsalt": "dsel"}

Draw = Callable[[Any], Any]


@dataclass(frozen=True)
class Figure:
    """One picture.

    name: for its id. title: a few words. alt: the picture in words. narrow, wide: markup; wide may be None. missing:
    why there is no picture, or empty.
    """

    name: str
    title: str
    caption: str
    alt: str = ""
    narrow: Markup | None = None
    wide: Markup | None = None
    missing: str = ""


def figures(selection: SelectionRecord, history: Sequence[RunSummary] = ()) -> dict[str, Figure]:
    """Return the pictures by name. What cannot be drawn says why. history: the runs of a repeated job."""
    return {made.name: made for made in (*_figures(selection), *_figures_of_runs(history))}


def _figures_of_runs(history: Sequence[RunSummary]) -> Iterator[Figure]:
    if len(history) > 1:
        rows = len(runs.shown_columns(history))
        yield figure(
            "runs", "Columns of each run", "A dot for each column that a run chose; those of the last run are filled.",
            lambda: runs.describe(history), lambda ax: runs.draw(history, ax), 70 + 20 * rows, wide=70 + 20 * rows,
        )  # fmt: skip


def _figures(selection: SelectionRecord) -> Iterator[Figure]:
    s, bars = len(selection), min(len(selection), 30)
    yield figure(
        "front", "Best subset of each size", _front_caption(selection), lambda: front.describe(selection),
        lambda ax: front.draw(selection, ax), 300, wide=320,
    )  # fmt: skip
    if selection.size_curve is not None:
        yield figure(
            "sizes", "Choice of the number of columns", f"{_sentence(selection.size_curve.description)}.",
            lambda: sizes.describe(selection), lambda ax: sizes.draw(selection, ax), 300, wide=300,
        )  # fmt: skip
    by_steps = bool(selection.path)
    yield figure(
        "path", "Error by step" if by_steps else "What each column adds",
        "Errors on rows that the fit did not see." if by_steps
        else "Share explained, column by column in order of gain.",
        lambda: path.describe(selection), lambda ax: path.draw(selection, ax), 300 if by_steps else 70 + 22 * bars,
    )  # fmt: skip
    if not subsets.nested(selection):
        yield figure(
            "subsets", "Columns of each best subset", "A dot for each column; those of the chosen columns are filled.",
            lambda: subsets.describe(selection), lambda ax: subsets.draw(selection, ax),
            70 + 20 * len(subsets.shown_columns(selection)),
        )  # fmt: skip
    if not by_steps:
        yield figure(
        "trace", "Convergence", "The best value so far. The end mark is where the search stopped.",
        lambda: trace.describe(selection), lambda ax: trace.draw(selection, ax), 280, wide=260,
    )  # fmt: skip
    standardized = selection.statistics is not None
    yield figure(
        "coefficients", "Coefficients",
        "Per standard deviation of the column and of the target, so that they can be compared." if standardized
        else "In units of the data.",
        lambda: coefficients.describe(selection, standardized),
        lambda ax: coefficients.draw(selection, ax, standardized), 70 + 22 * min(s, coefficients.MOST_COLUMNS),
    )  # fmt: skip
    yield figure(
        "correlation", "Correlation of the chosen columns", "In order of gain. Blue is positive, orange negative.",
        lambda: correlation.describe(selection), lambda ax: correlation.draw(selection, ax), 350,
    )  # fmt: skip


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _front_caption(selection: SelectionRecord) -> str:
    caption = "Each point is the best subset found with that number of columns."
    if any(row.size > selection.k for row in selection.front):
        caption += f" Paler points are larger than {selection.k}."
    return caption


def figure(
    name: str, title: str, caption: str, describe: Callable[[], str], draw: Draw, height: int, wide: int | None = None
) -> Figure:
    """Return a picture, or why there is none."""
    try:
        return Figure(
            name, title, caption, describe(), svg(name, draw, _NARROW, height),
            None if wide is None else svg(f"{name}-wide", draw, _WIDE, wide),
        )  # fmt: skip
    except MissingInputError as error:
        return Figure(name, title, caption, missing=str(error))


def svg(name: str, draw: Draw, width: int, height: int) -> Markup:
    """Return what `draw` draws on axes as SVG, `width` by `height` CSS pixels.

    Text stays text, colors follow the page, and ids begin with `name`. Screen readers get the description instead.
    """
    from markupsafe import Markup

    matplotlib, made = style.import_matplotlib(), io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with warnings.catch_warnings(), matplotlib.rc_context(_RC):
        warnings.simplefilter("ignore")  # letters that matplotlib's font lacks: the browser has other fonts
        drawn = style.import_matplotlib("figure").Figure(figsize=(width / 72, height / 72), layout="constrained")
        draw(drawn.add_subplot())
        drawn.savefig(made, format="svg", transparent=True, metadata=nothing)
    return Markup(_for_page(made.getvalue(), name, width, height))


def _for_page(text: str, name: str, width: int, height: int) -> str:
    """Return the SVG element without its preamble, with unique ids and the variables of the page."""
    body = text[text.index(">", text.index("<svg")) + 1 :]
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", body, flags=re.DOTALL)
    body = re.sub(r"<[^>]+>", lambda tag: _tag_for_page(tag[0], name), body)
    kind = "wide" if name.endswith("-wide") else "narrow"
    return (
        f'<svg class="{kind}" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'xmlns:xlink="http://www.w3.org/1999/xlink" aria-hidden="true" focusable="false">{body}'
    )


def _tag_for_page(tag: str, name: str) -> str:
    tag = re.sub(r'\b(id="|href="#|url\(#)', rf"\g<1>{name}-", tag)
    return re.sub("|".join(_VARIABLES), lambda color: f"var({_VARIABLES[color[0]]})", tag)

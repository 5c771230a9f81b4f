"""The pictures of the report, as SVG inside the page."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from dsel.errors import MissingInputError
from dsel.selection.changes.runs import RunSummary
from dsel.selection.plots import (
    alternatives,
    classes,
    coefficients,
    correlation,
    front,
    path,
    runs,
    sizes,
    style,
    subsets,
    trace,
)
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


def _figures_of_alternatives(selection: SelectionRecord) -> Iterator[Figure]:
    if selection.alternatives is None or not selection.alternatives.subsets:
        return
    noun, by = selection.alternatives.noun, selection.alternatives.by
    height = 70 + 22 * len(alternatives.shown_prices(selection))
    pictures = (
        ("near-best", f"Best subsets by {by}" if by else "Near-best subsets",
         "A column of cells for each subset, the best one first.",
         alternatives.describe_subsets, alternatives.draw_subsets, height),
        ("prices", f"With and without each {noun}", "The best known subsets. Bands reach to what is still possible.",
         alternatives.describe_prices, alternatives.draw_prices, height + 80),
        ("reliance", f"What subsets lose without a {noun}", "From the least to the largest loss of near-best subsets.",
         alternatives.describe_reliance, alternatives.draw_reliance, height),
    )  # fmt: skip
    for name, title, caption, describe, draw, high in pictures[: 1 if by else None]:
        yield figure(name, title, caption, partial(describe, selection), partial(draw, selection), high)


def figures(selection: SelectionRecord, history: Sequence[RunSummary] = ()) -> dict[str, Figure]:
    """Return the pictures by name. What cannot be drawn says why. history: the runs of a repeated job."""
    made = (*_figures(selection, history), *_figures_of_alternatives(selection))
    return {one.name: one for one in made}


def _figures(selection: SelectionRecord, history: Sequence[RunSummary]) -> Iterator[Figure]:
    def picture(
        module: Any, title: str, caption: str, height: int, wide: int | None = None, of: Any = selection, **options: Any
    ) -> Figure:
        describe, draw = partial(module.describe, of, **options), partial(module.draw, of, **options)
        return figure(module.__name__.rpartition(".")[2], title, caption, describe, draw, height, wide)

    rows = min(len(selection), coefficients.MOST_COLUMNS)
    yield picture(front, "Best subset of each size", _front_caption(selection), 300, 320)
    if selection.size_curve is not None:
        rule = selection.size_curve.description
        yield picture(sizes, f"Choice of the {style.size_name(selection)}", f"{rule[:1].upper()}{rule[1:]}.", 300, 300)
    if selection.path:
        yield picture(path, "Error by step", "Errors on rows that the fit did not see.", 300)
    else:
        order = "in the order of the table" if selection.groups else selection.order
        caption = f"Share explained{selection.less_penalty}, column by column, {order}."
        yield picture(path, "What each column adds", caption, 70 + 22 * rows)
    if not subsets.nested(selection):
        caption = "A dot for each column; those of the chosen columns are filled."
        yield picture(subsets, "Columns of each best subset", caption, 70 + 20 * len(subsets.shown_columns(selection)))
    if not selection.path:
        yield picture(
            trace, "Convergence", "The best value so far. The end mark is where the search stopped.", 280, 260
        )
    if selection.class_figures is not None:
        caption = "On the rows of the selection, which flatter it. Other rows: selection.plot.roc(X, y)."
        yield figure("roc", "ROC curve", caption, partial(classes.describe, selection),
                     lambda ax: classes.draw_roc(selection, ax=ax), 330)  # fmt: skip
        caption = f"The share of a class in tenths of the {selection.counted_rows}, by its predicted probability."
        yield figure("calibration", "Calibration", caption, partial(classes.describe_calibration, selection),
                     lambda ax: classes.draw_calibration(selection, ax=ax), 330)  # fmt: skip
    standardized = selection.statistics is not None
    caption = "In units of the data."
    if standardized:
        both = "of the column" if selection.by_loss else "of the column and of the target"
        caption = f"Per standard deviation {both}, so that they can be compared."
    yield picture(coefficients, "Coefficients", caption, 70 + 22 * rows, standardized=standardized)
    order = f"{selection.order[:1].upper()}{selection.order[1:]}{' of the groups' if selection.groups else ''}"
    caption = f"{order}. Blue is positive, orange negative."
    yield picture(correlation, "Correlation of the chosen columns", caption, 350)
    if len(history) > 1:
        height = 70 + 20 * len(runs.shown_columns(history))
        caption = "A dot for each column that a run chose; those of the last run are filled."
        yield picture(runs, "Columns of each run", caption, height, height, of=history)


def _front_caption(selection: SelectionRecord) -> str:
    caption = f"Each point is the best subset found with that {style.size_name(selection)}."
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

"""The style of the pictures: colors that color-blind readers can tell apart, quiet axes, clear text.

Labels of columns are shortened to fit into a picture, and stay different from each other.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any
from unicodedata import east_asian_width

from dsel.errors import MissingExtraError, MissingInputError
from dsel.selection.record import SelectionRecord
from dsel.selection.record_values import ChosenStatistics

ELLIPSIS = "…"
#: Words and what separates them.
_WORDS = re.compile(r"([^\w]+|_+)")
#: Fewer labels than this keep the words that they share.
_FEWEST_THAT_SHARE = 3


def short_labels(labels: Iterable[str], width: int = 18) -> list[str]:
    """Return labels of at most about `width` characters.

    Words that all long labels share are left out first. Then labels are cut in the middle, since ends often tell them
    apart. Labels that would become equal keep more characters, or get a number where they are equal.
    """
    clean = _without_shared_words([printable(label) for label in labels], width)
    short = [_cut(label, width) for label in clean]
    for wider in range(width + 4, 3 * width, 4):
        repeated = _repeated(short)
        if not repeated:
            return short
        short = [_cut(full, wider) if cut in repeated else cut for full, cut in zip(clean, short, strict=True)]
    return _numbered(short)


def printable(label: str) -> str:
    """Return a label on one line, without control characters."""
    text = "".join(c if c.isprintable() else " " for c in label)
    return " ".join(text.split()) or "(blank)"


def counted(size: int, grouped: bool = False) -> str:
    """Return a number of columns, or of groups of columns, in words."""
    word = "group" if grouped else "column"
    return f"{size:,} {word}{'' if size == 1 else 's'}"


def tick_labels(labels: Iterable[str], width: int = 18) -> list[str]:
    """Return short labels that matplotlib draws as they are, also where they contain dollar signs."""
    return [label.replace("$", r"\$") for label in short_labels(labels, width)]


def true_minus(number: str) -> str:
    """Return a number with a minus sign in place of the hyphen."""
    return number.replace("-", "−")


def _without_shared_words(labels: list[str], width: int) -> list[str]:
    """Return labels in which an ellipsis replaces the words that all long labels of as many words share."""
    groups: dict[int, list[int]] = defaultdict(list)
    words = [_WORDS.split(label) for label in labels]
    for i, label in enumerate(labels):
        if len(label) > width:
            groups[len(words[i])].append(i)
    shorter = list(labels)
    for count, members in groups.items():
        shared = [len({words[i][place] for i in members}) == 1 for place in range(count)]
        if len(members) >= _FEWEST_THAT_SHARE and not all(shared):
            for i in members:
                kept = [ELLIPSIS if same else word for word, same in zip(words[i], shared, strict=True)]
                shorter[i] = re.sub(f"{ELLIPSIS}+", ELLIPSIS, "".join(kept))
    return shorter


def _cut(label: str, width: int) -> str:
    if any(east_asian_width(c) in "WF" for c in label):
        width = max(width // 2, 3)  # such letters are twice as wide
    if len(label) <= width:
        return label
    tail = width // 2
    return label[: width - 1 - tail].rstrip() + ELLIPSIS + label[-tail:].lstrip()


def _repeated(labels: list[str]) -> set[str]:
    return {label for label, count in Counter(labels).items() if count > 1}


def _numbered(labels: list[str]) -> list[str]:
    repeated, seen, numbered = _repeated(labels), Counter[str](), []
    for label in labels:
        seen[label] += 1
        numbered.append(f"{label} ({seen[label]})" if label in repeated else label)
    return numbered


#: Text, secondary text, and lines of the grid.
INK, MUTED, GRID = "#1f2933", "#5f6b76", "#dde3e8"
#: From the palette of Okabe and Ito. Pictures also differ in shape or dash where they differ in color.
BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#009e73"
#: The ends of the scale of matrices: the same on light and dark pages, so that white numbers are legible on them.
MATRIX_ENDS = "#d55e01", "#0072b3"
#: More points than this on a line are drawn without markers.
MOST_MARKERS = 40
#: More dots than this become pixels in vector files, which would be large otherwise.
_MOST_VECTORS = 1500


def import_matplotlib(module: str = "") -> Any:
    """Import and return matplotlib, or a module of it, or raise MissingExtraError."""
    try:
        return import_module(f"matplotlib.{module}" if module else "matplotlib")
    except ImportError as error:
        raise MissingExtraError(
            f"Pictures need matplotlib, which is not installed ({error}).", "pip install 'dsel[plots]'."
        ) from error


def axes(ax: Any, height: float = 4.0, grid: str = "") -> Any:
    """Return the axes, or those of a new figure, `height` inches high, with thin lines across the axis `grid`."""
    if ax is None:
        _, ax = import_matplotlib("pyplot").subplots(figsize=(6.4, height), layout="constrained")
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(MUTED)
    ax.tick_params(color=MUTED, labelcolor=INK)
    ax.set_axisbelow(True)
    if grid:
        ax.grid(axis=grid, color=GRID, linewidth=0.8)
    return ax


def marker(points: Any, shape: str = "o") -> str:
    """Return the marker of a line through these points: none if there are many."""
    return shape if len(points) <= MOST_MARKERS else ""


def ring(ax: Any, x: float, y: float, label: str, **arguments: Any) -> None:
    """Draw a ring around a point."""
    style = {"marker": "o", "color": BLUE, "markersize": 9, "markeredgewidth": 2, **arguments}
    ax.plot([x], [y], linestyle="none", markerfacecolor="none", label=label, **style)


def most_frequent(first: Sequence[Any], sets: Iterable[Iterable[Any]], most: int) -> list[Any]:
    """Return at most `most` elements of sets: the first ones in their order, then others by how many sets have them."""
    counts = Counter(element for one in sets for element in one)
    others = sorted(set(counts) - set(first), key=lambda element: (-counts[element], element))
    return [*first, *others][:most]


def dots(
    ax: Any, sets: Mapping[int, Iterable[Any]], rows: Sequence[Any], filled: int, labels: tuple[str, str], least: float
) -> Any:
    """Draw a dot for each element of each set, and return the axes: x is the key of a set, y the place in `rows`.

    Those of the first rows are filled, the others hollow. labels: what they are. least: the size of the smallest dots.
    """
    ax = axes(ax, height=1.2 + 0.22 * len(rows), grid="y")
    place = {element: i for i, element in enumerate(rows)}
    points = [(x, place[element]) for x, elements in sets.items() for element in elements if element in place]
    shape = {"s": max(least, min(36.0, 900.0 / len(sets))), "rasterized": len(points) > _MOST_VECTORS}
    if full := [point for point in points if point[1] < filled]:
        ax.scatter(*zip(*full, strict=True), color=BLUE, label=labels[0], **shape)
    if hollow := [point for point in points if point[1] >= filled]:
        faces = {"edgecolors": MUTED, "facecolors": "none"}
        ax.scatter(*zip(*hollow, strict=True), label=labels[1], **faces, **shape)
    whole_numbers(ax.xaxis)
    return ax


def name_axes(ax: Any, x: str, y: str) -> None:
    """Write what the axes measure."""
    ax.set_xlabel(x, color=MUTED)
    ax.set_ylabel(y, color=MUTED)


def statistics_of(selection: SelectionRecord, what: str, remedy: str = "") -> ChosenStatistics:
    """Return the statistics of the chosen columns. Errors: MissingInputError without them, or without a column."""
    if selection.statistics is None:
        again = f"Run the job again with this version{remedy}."
        raise MissingInputError(f"The result has no {what}: dsel 0.1 saved it.", again)
    if not len(selection):
        raise MissingInputError("The selection has no column to draw.", "Choose at least one column.")
    return selection.statistics


def size_name(selection: SelectionRecord) -> str:
    """Return what the sizes of subsets count."""
    return "number of groups" if selection.groups else "number of columns"


def whole_numbers(axis: Any) -> None:
    """Put the ticks of an axis at whole numbers."""
    axis.set_major_locator(import_matplotlib("ticker").MaxNLocator(integer=True, min_n_ticks=1))


def name_rows(ax: Any, labels: Sequence[str]) -> None:
    """Name the rows 0, 1, ... of a picture from the top."""
    ax.set_yticks(range(len(labels)), tick_labels(labels))
    ax.set_ylim(len(labels) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)


def legend(ax: Any, first: str = "", **arguments: Any) -> None:
    """Draw the legend, if more than one thing has a name: first those whose name begins with `first`."""
    handles, labels = ax.get_legend_handles_labels()
    if len(labels) > 1:
        order = sorted(range(len(labels)), key=lambda i: not labels[i].startswith(first))
        shown = [handles[i] for i in order], [labels[i] for i in order]
        ax.legend(*shown, frameon=False, labelcolor=INK, fontsize="small", **arguments)


def diverging_colormap() -> Any:
    """Return a map from orange (-1) to blue (1). 0 is transparent, so that it suits light and dark pages."""
    colors = import_matplotlib("colors")
    orange, blue = (colors.to_rgb(color) for color in MATRIX_ENDS)
    ends = [(*orange, 1.0), (*orange, 0.0), (*blue, 0.0), (*blue, 1.0)]
    return colors.LinearSegmentedColormap.from_list("dsel", list(zip((0.0, 0.5, 0.5, 1.0), ends, strict=True)))


def matrix(ax: Any, values: Any, limit: float, label: str) -> None:
    """Draw a matrix, row 0 at the top, with a scale from -limit to limit."""
    rows, columns = values.shape
    few = rows * columns <= 2500  # as vectors; more would make the file large
    colors = {"cmap": diverging_colormap(), "vmin": -limit, "vmax": limit}
    if few:
        image = ax.pcolormesh(values, **colors)
    else:
        image = ax.imshow(values, interpolation="nearest", extent=(0, columns, rows, 0), aspect="auto", **colors)
    ax.set_ylim(rows, 0)
    ax.spines[["left", "bottom"]].set_visible(False)
    color_bar(ax, image, label)


def color_bar(ax: Any, image: Any, label: str) -> None:
    """Draw what the colors of an image mean next to it."""
    bar = ax.figure.colorbar(image, ax=ax, shrink=0.8, aspect=30, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(color=MUTED, labelcolor=INK, labelsize="small")
    bar.set_label(label, color=MUTED, fontsize="small")

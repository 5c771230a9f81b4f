"""The section of the report about stability selection, where its result is in the folder of the selection."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsel.selection.plots.labels import printable
from dsel.selection.report.figures import Figure, figure
from dsel.selection.result import Selection
from dsel.selection.stability.plot import draw
from dsel.selection.stability.result import Stability

#: Columns that were not chosen and are listed: the most frequent ones. Bars in the picture.
_OTHERS, _BARS = 5, 20


@dataclass(frozen=True)
class StabilityRow:
    """A column, or a group, with the share of the subsamples that it is chosen on."""

    label: str
    frequency: str
    chosen: bool


@dataclass(frozen=True)
class StabilitySection:
    """How often columns are chosen on subsamples, for sets as large as the selection."""

    text: str
    rows: tuple[StabilityRow, ...]
    picture: Figure


def stability_section(selection: Selection, stability: Stability | None) -> StabilitySection | None:
    """Return the section; None without a result of stability selection, or if it is of data of another shape."""
    if stability is None or stability.shape != selection.shape or not len(selection):
        return None
    chosen = list(selection.groups) if selection.groups else selection.labels
    size = min(len(chosen), stability.k)
    frequency = stability.frequency(size)
    order = [int(j) for j in np.argsort(-frequency, kind="stable") if frequency[j] > 0.0]
    mine = [j for j in order if stability.names[j] in chosen]
    others = [j for j in order if stability.names[j] not in chosen][:_OTHERS]
    rows = tuple(
        StabilityRow(printable(stability.names[j]), f"{frequency[j]:.2f}", j in mine)
        for j in sorted([*mine, *others], key=order.index)
    )
    method = stability.request.get("method", "")
    text = f"Share of {stability.description} on which {method} chooses a column, for sets of up to {size}."
    picture = figure(
        "stability", "Selection frequencies", text,
        lambda: "Bars: " + ", ".join(f"{row.label} {row.frequency}" for row in rows),
        lambda ax: draw(stability, ax, size, None, _BARS), 70 + 22 * min(len(order), _BARS),
    )  # fmt: skip
    return StabilitySection(text, rows, picture)

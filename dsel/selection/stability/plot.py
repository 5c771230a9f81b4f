"""Selection frequencies as bars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dsel.selection.plots import style

if TYPE_CHECKING:
    from dsel.selection.stability.result import Stability


def draw(stability: Stability, ax: Any, size: int | None, threshold: float | None, most: int) -> Any:
    """Draw the frequencies of the most frequent columns, and return the axes."""
    frequency = stability.frequency(size)
    order = np.argsort(-frequency, kind="stable")[:most]
    order = order[frequency[order] > 0.0]
    ax = style.axes(ax, height=max(1.6, 0.9 + 0.24 * len(order)))
    style.grid(ax, "x")
    ax.barh(range(len(order)), frequency[order], color=style.BLUE, height=0.7)
    line = ""
    if threshold is not None:
        ax.axvline(threshold, color=style.ORANGE, linestyle="--")
        line = f"; line: {threshold:g}"
    style.name_rows(ax, [stability.names[j] for j in order])
    ax.set_xlim(0.0, 1.0)
    style.name_axes(ax, f"share of {stability.samples} subsamples, size {size or stability.k}{line}", "")
    return ax

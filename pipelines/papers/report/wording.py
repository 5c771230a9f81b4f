"""Numbers and states as text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pipelines.papers.report.model import Comparison, ComparisonTable, Number

_STATES = {
    "same": "same", "close": "agrees", "differs": "differs", "ours only": "ours only",
    "paper only": "not computed",
}  # fmt: skip


class Line(NamedTuple):
    """A row of a table of comparisons, as text. state: for its color."""

    data: str
    method: str
    paper: str
    ours: str
    difference: str
    errors: str
    mark: str
    verdict: str
    state: str


def number(found: Number | None, table: ComparisonTable) -> str:
    """Return a number with its standard deviation, or a dash."""
    if found is None:
        return "–"
    mean = f"{found.mean / table.scale:.{table.decimals}f}".replace("-", "−")
    return f"{mean} ± {found.std / table.scale:.{table.decimals}f}" if found.std > 0.0 else mean


def line(row: Comparison, table: ComparisonTable) -> Line:
    """Return a row of a table as text."""
    return Line(
        row.data, row.method, number(row.paper, table), number(row.ours, table), difference(row, table), errors(row),
        row.mark, _STATES[row.state], row.state.replace(" ", "-"),
    )  # fmt: skip


def difference(row: Comparison, table: ComparisonTable) -> str:
    """Return ours - the paper's, in percent of the paper's too where no number varies."""
    off = row.difference
    if off is None:
        return ""
    written = f"{off / table.scale:+.{table.decimals}f}"
    if not row.random and row.paper is not None and row.paper.mean:
        written += f" ({100.0 * off / abs(row.paper.mean):+.2g} %)"
    return written.replace("-", "−")


def errors(row: Comparison) -> str:
    """Return the difference in standard errors, where a number varies."""
    off = row.standard_errors
    return "" if off is None else f"{off:+.1f}".replace("-", "−")


def counts(rows: Iterable[Comparison]) -> dict[str, int]:
    """Return how many rows have each state."""
    found = dict.fromkeys(_STATES, 0)
    for row in rows:
        found[row.state] += 1
    return found


def duration(seconds: float) -> str:
    """Return seconds as a reader says them."""
    return f"{seconds / 60.0:.0f} min" if seconds >= 90.0 else f"{seconds:.0f} s"

"""What a part of the report holds: comparisons with a paper's numbers, tables, plots and statements.

All of it can be saved as JSON and read again.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict

#: Differences of at most this many standard errors are agreement.
LIMIT = 2.0

State = Literal["same", "close", "differs", "ours only", "paper only"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


class Number(_Frozen):
    """A mean over runs, or one value.

    std: standard deviation of the runs. runs: how many there are. unit: worth of the last printed digit, 0 for
    unrounded numbers.
    """

    mean: float
    std: float = 0.0
    runs: int = 1
    unit: float = 0.0

    @property
    def error(self) -> float:
        """The standard error of the mean, with that of rounding."""
        return math.sqrt(self.std**2 / self.runs + self.unit**2 / 12.0)


class Comparison(_Frozen):
    """A number of a paper next to ours.

    reason: why they differ, or why one is missing. mark: a remark for the table's own column.
    """

    data: str
    method: str
    paper: Number | None = None
    ours: Number | None = None
    reason: str = ""
    mark: str = ""

    @property
    def random(self) -> bool:
        """Whether one of the numbers varies from run to run."""
        return any(number is not None and number.std > 0.0 for number in (self.paper, self.ours))

    @property
    def difference(self) -> float | None:
        """Ours - the paper's."""
        return None if self.paper is None or self.ours is None else self.ours.mean - self.paper.mean

    @property
    def standard_errors(self) -> float | None:
        """The difference in standard errors, where one of the numbers varies."""
        if self.paper is None or self.ours is None or not self.random:
            return None
        error = math.hypot(self.paper.error, self.ours.error)
        return (self.ours.mean - self.paper.mean) / error if error > 0.0 else None

    @property
    def state(self) -> State:
        """Whether the numbers agree: within one unit of the last printed digit, or within `LIMIT` standard errors.

        Printed numbers may be rounded or cut.
        """
        if self.paper is None or self.ours is None:
            return "paper only" if self.ours is None else "ours only"
        if abs(self.ours.mean - self.paper.mean) < max(self.paper.unit, 1e-12):
            return "same"
        off = self.standard_errors
        return "close" if off is not None and abs(off) <= LIMIT else "differs"


class ComparisonTable(_Frozen):
    """Comparisons with the same kind of number.

    value: what the numbers are. decimals: digits after the point. mark: head of the column of marks, or empty.
    scale: numbers are divided by it before they are written.
    """

    title: str
    value: str
    rows: tuple[Comparison, ...]
    decimals: int = 4
    mark: str = ""
    scale: float = 1.0


class Grid(_Frozen):
    """A table of text. Columns of remarks have a head in `Grid.REMARKS`."""

    REMARKS: ClassVar = ("remark", "found")

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Series(_Frozen):
    """A line of a plot.

    spread: half the length of an error bar at each point, or empty. kind: a line, a line with points, or a level
    across the plot, for which only the first y counts.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    spread: tuple[float, ...] = ()
    kind: Literal["line", "points", "level"] = "line"


class Plot(_Frozen):
    """One picture. words: what it shows, for those who cannot see it. limits: of the y axis."""

    title: str
    x: str
    y: str
    series: tuple[Series, ...]
    words: str
    log_x: bool = False
    log_y: bool = False
    limits: tuple[float, float] | None = None
    x_names: tuple[str, ...] = ()


class Claim(_Frozen):
    """A statement of a paper, and whether our figures confirm it. found: our figures in a few words."""

    said: str
    holds: bool
    found: str = ""


class Content(_Frozen):
    """What a part computes.

    reduced: what is smaller than in the paper, and other differences from its procedure. missing: what cannot be made,
    and why.
    """

    lead: str
    tables: tuple[ComparisonTable, ...] = ()
    grids: tuple[Grid, ...] = ()
    plots: tuple[Plot, ...] = ()
    claims: tuple[Claim, ...] = ()
    reduced: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @classmethod
    def without_data(cls, reason: str) -> Content:
        """Return the content of a part whose data sets are all missing."""
        return cls(lead="Nothing could be computed.", missing=(reason,))

    @property
    def comparisons(self) -> list[Comparison]:
        return [row for table in self.tables for row in table.rows]

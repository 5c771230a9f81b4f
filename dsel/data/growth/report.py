"""What an append did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from dask.utils import format_bytes

from dsel._lib.text import shorten


@dataclass(frozen=True)
class AppendReport:
    """What an append did, and what the new rows hold.

    Attributes
    ----------
    rows : int
        The rows that were appended; 0 if they were in the store already.
    shape : tuple of int
        The shape of X now, (m, n).
    segments : int
        The number of segments now.
    bytes_written : int
        Bytes of the new rows in memory.
    seconds : float
        The time that the call took.
    resumed_rows : int
        The new rows that an interrupted call had written before.
    missing : dict of str to int
        The missing values of each column of X in the new rows, where there are any.
    infinite : dict of str to int
        The infinite values of each column of X in the new rows, where there are any.
    constant : list of str
        The columns of X that have one value only in the new rows.
    already : str
        Why nothing was appended; else empty.
    notes : list of str
        What else was done.
    """

    rows: int
    shape: tuple[int, int]
    segments: int
    bytes_written: int = 0
    seconds: float = 0.0
    resumed_rows: int = 0
    missing: Mapping[str, int] = field(default_factory=dict)
    infinite: Mapping[str, int] = field(default_factory=dict)
    constant: Sequence[str] = ()
    already: str = ""
    notes: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the report as values that JSON has."""
        values = asdict(self)
        return {**values, **{name: list(values[name]) for name in ("shape", "constant", "notes")}}

    def lines(self) -> list[str]:
        """Return the report as text, one fact per line."""
        m, n = self.shape
        store = f"the store has {m:,} rows x {n:,} features in {self.segments} segments"
        if self.already:
            return [f"{self.already}: nothing to do; {store}"]
        text = [f"{self.rows:,} rows appended, {format_bytes(self.bytes_written)} in {self.seconds:.1f} s; {store}"]
        if self.resumed_rows:
            text.append(f"continued after row {self.resumed_rows:,} of an interrupted append")
        if self.missing:
            shown = shorten((f"{name} ({count})" for name, count in self.missing.items()), 8)
            text.append(f"missing values in {len(self.missing)} columns of the new rows: {shown}")
        if self.infinite:
            text.append(f"infinite values, which no selection takes: {shorten(self.infinite, 8)}")
        if self.constant and self.rows > 1:
            text.append(f"constant in the new rows: {shorten(self.constant, 8)}")
        return [*text, *self.notes]

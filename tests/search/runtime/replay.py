"""A search on workers replayed from its journal: the archive that its merges lead to, and how it grew.

Merges after the last checkpoint of a process that died are undone where the next one resumed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from dsel.search.journal import found_in, read_journal
from dsel.search.outcome import FrontPoint
from dsel.search.pareto.archive import IsolationFunction, ParetoArchive, Subset, together


@dataclass(frozen=True)
class Columns:
    """What the local columns of a journal's subsets are in the data: see `dsel.search.journal.columns_of`."""

    k: int
    included: tuple[int, ...]
    without: tuple[int, ...]

    @classmethod
    def from_event(cls, event: dict[str, Any]) -> Self:
        """Read a started or resumed event."""
        return cls(event["k"], tuple(event["included"]), tuple(event["without"]))

    def in_data(self, S: Subset) -> tuple[int, ...]:
        """Return the included columns, then those of S, as columns of the data."""
        outside = np.asarray(self.without, np.int64)
        # Before the i-th of those outside there are outside[i] - i candidates.
        before = np.searchsorted(outside - np.arange(outside.size), np.asarray(S, np.int64), side="right")
        return (*self.included, *(int(j) for j in np.asarray(S, np.int64) + before))


@dataclass(frozen=True)
class Step:
    """An improvement of the best subset of at most k columns.

    seconds: after the start. members: local columns. solutions: size of the archive at that moment.
    """

    seconds: float
    value: float
    members: Subset
    solutions: int


class Replay:
    """The archive as it grows with the events of a journal."""

    def __init__(self, k: int, isolation: IsolationFunction = together) -> None:
        self._isolation = isolation
        self.archive = ParetoArchive(k, isolation)
        self.steps: list[Step] = []
        self.began = self.seconds = 0.0
        self.lives = self.subsets = 0
        self.ended = ""

    @property
    def points(self) -> list[FrontPoint]:
        """The archive, oldest solution first, the empty set included."""
        return self.archive.points

    def add(self, event: dict[str, Any]) -> None:
        """Process the next event."""
        at = event.get("at", 0.0)
        self.began = self.began if self.lives else at
        self.seconds = at - self.began
        kind = event["event"]
        self.ended = ""
        if kind in ("started", "resumed"):
            self._begin(event["solutions"], afresh=kind == "started")
        elif kind == "merged":
            for S, f in found_in(event):
                self._merge(S, f)
        elif kind == "ended":
            self.ended = event["why"]

    def _begin(self, solutions: list[list[Any]], afresh: bool) -> None:
        self.lives += 1
        self.archive = ParetoArchive.restore(self.archive.k, solutions, self._isolation)
        best = self.archive.best()
        self.steps = [step for step in self.steps if not afresh and step.value >= best.value]
        self._note(best)

    def _merge(self, S: Subset, f: float) -> None:
        self.subsets += 1
        if self.archive.offer(S, f) and len(S) <= self.archive.k:
            self._note(FrontPoint(len(S), f, S))

    def _note(self, point: FrontPoint) -> None:
        if point.value < (self.steps[-1].value if self.steps else math.inf):
            self.steps.append(Step(self.seconds, point.value, point.members, len(self.archive)))


def replayed(path: Path, k: int, isolation: IsolationFunction = together) -> Replay:
    """Replay the whole journal of a search for k columns."""
    found = Replay(k, isolation)
    for event in read_journal(path):
        found.add(event)
    return found

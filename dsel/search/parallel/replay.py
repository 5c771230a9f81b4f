"""An asynchronous run once more, from its journal alone: the archive that its merges lead to, and how it grew.

Merges after the last checkpoint of a process that died are undone where the next one resumed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dsel.objective.base import Objective
from dsel.search.base import FrontPoint
from dsel.search.parallel.journal import found_in
from dsel.search.pareto.archive import IsolationFunction, ParetoArchive, Subset, together


@dataclass(frozen=True)
class Columns:
    """What the local columns of a journal's subsets are in the data: candidates are all columns but `without`,
    ascending; `included` ones are always chosen and count for no k."""

    k: int
    included: tuple[int, ...]
    without: tuple[int, ...]

    @classmethod
    def of(cls, objective: Objective, k: int) -> Self:
        """Those of a search for k columns."""
        columns = np.asarray(objective.columns, np.int64)
        without = np.setdiff1d(np.arange(columns.max(initial=-1) + 1), columns)
        return cls(k, tuple(int(j) for j in objective.included), tuple(without.tolist()))

    @classmethod
    def from_event(cls, event: dict[str, Any]) -> Self:
        """Those that a started or resumed event tells of."""
        return cls(event["k"], tuple(event["included"]), tuple(event["without"]))

    def in_data(self, S: Subset) -> tuple[int, ...]:
        """Included columns, then those of S, as columns of the data."""
        outside = np.asarray(self.without, np.int64)
        # Before the i-th of those outside stand outside[i] - i candidates.
        before = np.searchsorted(outside - np.arange(outside.size), np.asarray(S, np.int64), side="right")
        return (*self.included, *(int(j) for j in np.asarray(S, np.int64) + before))


@dataclass(frozen=True)
class Step:
    """The best subset of at most k columns became better: seconds after the start, f, the subset (local columns), and
    the solutions in the archive then."""

    seconds: float
    value: float
    members: Subset
    solutions: int


class Replay:
    """The archive as it grows when the events of a journal are taken in one by one."""

    def __init__(self, k: int, isolation: IsolationFunction = together) -> None:
        self._isolation = isolation
        self.archive = ParetoArchive(k, isolation)
        self.steps: list[Step] = []
        self.began = self.seconds = 0.0
        self.lives = self.packages = self.lost = self.subsets = 0
        self.workers: Sequence[int] = ()
        self.ended = ""

    @property
    def points(self) -> list[FrontPoint]:
        """The archive, oldest solution first, the empty set included."""
        return self.archive.points

    def take(self, event: dict[str, Any]) -> None:
        """The next event."""
        at = event.get("at", 0.0)
        self.began = self.began if self.lives else at
        self.seconds = at - self.began
        kind = event["event"]
        self.ended = ""
        if kind in ("started", "resumed"):
            self._begin(event["solutions"], anew=kind == "started")
        elif kind == "merged":
            self.packages += event["key"] is not None
            for S, f in found_in(event):
                self._merge(S, f)
        elif kind == "lost":
            self.lost += 1
        elif kind == "workers":
            self.workers = (*self.workers, event["number"])
        elif kind == "ended":
            self.ended = event["why"]

    def _begin(self, solutions: list[list[Any]], anew: bool) -> None:
        self.lives += 1
        self.archive = ParetoArchive.restore(self.archive.k, solutions, self._isolation)
        best = self.archive.best()
        self.steps = [step for step in self.steps if not anew and step.value >= best.value]
        self._note(best)

    def _merge(self, S: Subset, f: float) -> None:
        self.subsets += 1
        if self.archive.offer(S, f) and len(S) <= self.archive.k:
            self._note(FrontPoint(len(S), f, S))

    def _note(self, point: FrontPoint) -> None:
        if point.value < (self.steps[-1].value if self.steps else math.inf):
            self.steps.append(Step(self.seconds, point.value, point.members, len(self.archive)))

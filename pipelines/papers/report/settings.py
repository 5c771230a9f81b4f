"""What a part needs to know to compute its figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pipelines.papers.report.model import Content
from pipelines.processes import map_processes

Value = TypeVar("Value")
Task = TypeVar("Task")


@dataclass(frozen=True)
class Settings:
    """How much to compute, and where.

    quick: few runs and small data, to see that it works. processes: at the same time, one BLAS thread each. folder: of
    the report; a part may keep intermediate figures there. until: of `time.monotonic`; no task of a part begins later.
    """

    folder: Path
    quick: bool = False
    processes: int = 2
    until: float = math.inf

    @property
    def unfinished(self) -> Path:
        """Return the folder with results of tasks of a part that is not finished."""
        return self.folder / "unfinished"

    def map(self, work: Callable[[Task], Value], tasks: Iterable[Task]) -> list[Value]:
        """Return the results of the tasks of a part in order, those of an interrupted call included."""
        file = self.unfinished / f"{work.__module__}.{work.__name__}{'-quick' if self.quick else ''}.pickle"
        return map_processes(work, tasks, self.processes, self.until, file)

    def pick(self, full: Value, quick: Value) -> Value:
        """Return the full or the quick setting."""
        return quick if self.quick else full


@dataclass(frozen=True)
class Part:
    """A table or figure of a paper. make: computes it. title: as in the paper, with its number."""

    name: str
    title: str
    make: Callable[[Settings], Content]


@dataclass(frozen=True)
class Paper:
    """A paper: its reference and the parts of the report that belong to it."""

    name: str
    title: str
    reference: str
    parts: tuple[Part, ...]

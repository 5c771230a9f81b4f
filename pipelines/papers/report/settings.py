"""What a part needs to know to compute its figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pipelines.papers.report.model import Content

Value = TypeVar("Value")


@dataclass(frozen=True)
class Settings:
    """How much to compute, and where.

    quick: few runs and small data, to see that it works. processes: at the same time, one BLAS thread each. folder: of
    the report; a part may keep intermediate figures there.
    """

    folder: Path
    quick: bool = False
    processes: int = 2

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

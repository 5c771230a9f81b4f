"""What is measured of one run of the scaling benchmark."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Run:
    """One measured run. processors: logical ones, 0 where asynchronous, and so `rounds`. client: processor seconds of
    the client's process, which holds the scheduler."""

    workers: int
    processors: int
    evaluations: int
    seconds: float
    packages: int
    client: float
    rounds: int

    @property
    def speed(self) -> float:
        """Evaluations a second."""
        return self.evaluations / self.seconds

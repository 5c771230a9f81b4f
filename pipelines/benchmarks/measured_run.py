"""The measurements of one run of the scaling benchmark."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Run:
    """One measured run.

    processors: logical processors, 0 if asynchronous; so is `rounds`. client: processor seconds of the process that
    holds the client and the scheduler.
    """

    workers: int
    processors: int
    evaluations: int
    seconds: float
    tasks: int
    client: float
    rounds: int

    @property
    def speed(self) -> float:
        """Evaluations per second."""
        return self.evaluations / self.seconds

"""Progress of a search on workers, for people who watch it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SearchProgress:
    """Progress of a search.

    Parameters
    ----------
    iterations, limit : int
        Iterations so far, and their limit.
    evaluations : int
        Evaluations so far.
    best : float
        Smallest f so far.
    archive : int
        Solutions in the archive.
    per_second : float
        Evaluations per second of this run.
    workers : int
        Workers at this moment.
    utilisation : float
        Fraction of the workers' time spent on evaluations.
    seconds_left : float or None
        Time to the last iteration at this speed. None: not known.
    """

    iterations: int
    limit: int
    evaluations: int
    best: float
    archive: int
    per_second: float
    workers: int
    utilisation: float
    seconds_left: float | None

    def __str__(self) -> str:
        return (
            f"{self.evaluations:,} evaluations, best {self.best:.6g}, archive {self.archive}, "
            f"{self.per_second:,.3g} per second, {self.workers} workers {self.utilisation:.0%} busy"
        )

"""How a search on workers is getting on: what a person who watches wants to know."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """iterations: done, of how many. per_second: evaluations since this run began. utilisation: the share of the
    workers' time that was spent on evaluations. seconds_left: to the last iteration at this pace, None while unknown.
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
        left = "" if self.seconds_left is None else f", {_duration(self.seconds_left)} left"
        return (
            f"{self.evaluations:,} evaluations, best {self.best:.6g}, archive {self.archive}, "
            f"{self.per_second:,.3g} a second, {self.workers} workers {self.utilisation:.0%} busy{left}"
        )


def _duration(seconds: float) -> str:
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"

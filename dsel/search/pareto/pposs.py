"""PPOSS as a method: rounds of offspring of one parent, the same bits on any number of workers."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from dsel.config.types import Int
from dsel.search.method import Method, ProblemSummary, Requirements
from dsel.search.pareto.options import SliceOptions, place
from dsel.search.pareto.run import run


class PpossOptions(SliceOptions):
    """Options of PPOSS, which makes T = floor(2 e k^2 n / processors) rounds.

    Without a custom criterion or isolation function an offspring takes about a microsecond, less than a message to a
    worker. So a task is a slice of whole rounds. With ``slices: 1`` and ``search_on: workers`` the search is Algorithm
    2 of the paper to the letter: the offspring of each round are divided among the workers. It has no warm start and no
    exchange searches then, and takes some milliseconds for each round.

    Parameters
    ----------
    processors : int
        N, the offspring of each round. The same seed and `processors` give the same bits on any number of workers. A
        few times the number of workers keeps them busy, because a third of the offspring need no evaluation.
    """

    processors: Int = Field(32, ge=1, le=100_000)

    @property
    def _divides_rounds(self) -> bool:
        return self.slices == 1 and self.search_on == "workers"

    def calls_function(self, criterion: bool) -> bool:
        return super().calls_function(criterion) or self._divides_rounds

    def conflict(self, criterion: bool) -> str:
        if super().calls_function(criterion) and self.slices is not None:
            return "slices: with a custom criterion or isolation function, use processors"
        return super().conflict(criterion)

    def _asked(self) -> tuple[int | None, int | None, int]:
        return self.slices, self.slice_iterations, self.processors


def requirements(problem: ProblemSummary, options: PpossOptions) -> Requirements:
    """Return what PPOSS needs."""
    return replace(options.requirements(problem), iterations=options.known_iterations(problem))


METHOD = Method(
    "pposs",
    "POSS in rounds of offspring that workers evaluate; reproducible (PPOSS).",
    run,
    options=PpossOptions,
    requirements=requirements,
    resumable=True,
    takes_criterion=True,
    place=place,
    every_size=True,
    takes_groups=True,
)

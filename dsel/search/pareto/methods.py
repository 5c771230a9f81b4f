"""POSS and POCSS as a method: Pareto optimization of (f(S), |S|).

PPOSS as a method: rounds of offspring of one parent, the same bits on any number of workers.

PPOSS-asy as a method: workers search on the newest archive without waiting for each other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import Field

from dsel.config.types import Int
from dsel.search.method import Method, ProblemSummary, Requirements
from dsel.search.pareto.options import SliceOptions, WorkerOptions, place
from dsel.search.pareto.run import run


class PossOptions(SliceOptions):
    """Options of POSS and POCSS.

    `warm_start` and `exchange_every` cannot be combined with a custom criterion or isolation function.
    """


def poss_requirements(problem: ProblemSummary, options: PossOptions) -> Requirements:
    """Return what POSS needs: the whole Gram matrix only where exchange searches are asked, or a custom isolation."""
    return replace(options.requirements(problem), iterations=options.known_iterations(problem))


POSS = Method(
    "poss",
    "Pareto optimization of the error and the number of columns (POSS; POCSS where Y = X).",
    run,
    options=PossOptions,
    requirements=poss_requirements,
    place=place,
    resumable=True,
    takes_criterion=True,
    every_size=True,
    takes_groups=True,
)


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


def pposs_requirements(problem: ProblemSummary, options: PpossOptions) -> Requirements:
    """Return what PPOSS needs."""
    return replace(options.requirements(problem), iterations=options.known_iterations(problem))


PPOSS = Method(
    "pposs",
    "POSS in rounds of offspring that workers evaluate; reproducible (PPOSS).",
    run,
    options=PpossOptions,
    requirements=pposs_requirements,
    resumable=True,
    takes_criterion=True,
    place=place,
    every_size=True,
    takes_groups=True,
)


class PpossAsyOptions(WorkerOptions):
    """Options of PPOSS-asy. On several workers the result depends on the order in which their results arrive."""

    _order: ClassVar[Literal["index", "arrival"]] = "arrival"


def pposs_asy_requirements(problem: ProblemSummary, options: PpossAsyOptions) -> Requirements:
    """Return what PPOSS-asy needs."""
    return options.requirements(problem)


PPOSS_ASY = Method(
    "pposs-asy",
    "POSS on workers that never wait for each other; not reproducible (PPOSS-asy).",
    run,
    options=PpossAsyOptions,
    requirements=pposs_asy_requirements,
    resumable=True,
    takes_criterion=True,
    place=place,
    every_size=True,
    takes_groups=True,
)

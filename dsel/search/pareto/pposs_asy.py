"""PPOSS-asy as a method: workers search on the newest archive without waiting for each other."""

from __future__ import annotations

from typing import ClassVar, Literal

from dsel.search.method import Method, ProblemSummary, Requirements
from dsel.search.pareto.options import WorkerOptions, place
from dsel.search.pareto.run import run


class PpossAsyOptions(WorkerOptions):
    """Options of PPOSS-asy. On several workers the result depends on the order in which their results arrive."""

    _order: ClassVar[Literal["index", "arrival"]] = "arrival"


def requirements(problem: ProblemSummary, options: PpossAsyOptions) -> Requirements:
    """Return what PPOSS-asy needs."""
    return options.requirements(problem)


METHOD = Method(
    "pposs-asy",
    "POSS on workers that never wait for each other; not reproducible (PPOSS-asy).",
    run,
    options=PpossAsyOptions,
    requirements=requirements,
    resumable=True,
    takes_criterion=True,
    place=place,
    every_size=True,
    takes_groups=True,
)

"""POSS and POCSS as a method: Pareto optimization of (f(S), |S|)."""

from __future__ import annotations

from dataclasses import replace

from dsel.search.method import Method, ProblemSummary, Requirements
from dsel.search.pareto.options import SliceOptions, place
from dsel.search.pareto.run import run


class PossOptions(SliceOptions):
    """Options of POSS and POCSS.

    `warm_start` and `exchange_every` cannot be combined with a custom criterion or isolation function.
    """


def requirements(problem: ProblemSummary, options: PossOptions) -> Requirements:
    """Return what POSS needs: the whole Gram matrix only where exchange searches are asked, or a custom isolation."""
    return replace(options.requirements(problem), iterations=options.known_iterations(problem))


METHOD = Method(
    "poss",
    "Pareto optimization of the error and the number of columns (POSS; POCSS where Y = X).",
    run,
    options=PossOptions,
    requirements=requirements,
    place=place,
    resumable=True,
    takes_criterion=True,
    every_size=True,
    takes_groups=True,
)

"""The penalized methods in the POSS paper, by those of `dsel`."""

from __future__ import annotations

from dsel.errors import MissingExtraError
from dsel.objective.dense import DenseObjective
from dsel.search.method import ProblemSummary, SearchTask
from dsel.search.registry import METHODS


def installed(method: str) -> bool:
    """Return whether the package for this method is installed."""
    chosen = METHODS[method.lower()]
    try:
        chosen.requirements(ProblemSummary(m=1, n=1, n_targets=1, k=1), chosen.options())
    except MissingExtraError:
        return False
    return True


def support(method: str, objective: DenseObjective, k: int) -> list[int]:
    """Return the columns of the best model with at most k variables on the path, refitted without the penalty."""
    chosen = METHODS[method.lower()]
    return list(chosen.run(SearchTask(objective, k, 0, chosen.options())).best(k).members)

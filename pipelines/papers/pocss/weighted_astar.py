"""Weighted A* with a bound on its error, in place of WA*-b of Arai et al. (AAAI 2016), whose formula is in no text."""

from __future__ import annotations

from dsel.search.anytime import Stop, drive
from dsel.search.exact.astar.search import AStar
from pipelines.papers.pocss.table_1 import K, least_error, prepared
from pipelines.papers.preprocess import self_expression

REASON = (
    "Not the paper's WA*-b, whose formula no available text has. It is A* with dynamic weighting, whose error "
    "is at most 1 + ε times the least."
)
#: The paper's epsilon, and what is tried where the search does not end in the time.
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)


def error_ratio(task: tuple[str, float]) -> tuple[float, float] | None:
    """Return the error ratio and epsilon of the first search that ends; task: (data set, seconds for each)."""
    name, seconds = task
    X = prepared(name)
    assert X is not None
    objective = self_expression(X)
    for epsilon in EPSILONS:
        search = AStar(objective, K, epsilon=epsilon)
        drive(search, Stop(iterations=2**62, seconds=seconds))
        if search.done:
            return objective.value(search.answer) / least_error(objective, K), epsilon
    return None

"""POSS for groups of columns: the search for a custom criterion, over groups in place of columns."""

from __future__ import annotations

from dataclasses import replace

from dsel.objective.groups import GroupedObjective
from dsel.search.anytime import drive
from dsel.search.method import SearchTask
from dsel.search.outcome import FrontPoint, SearchOutcome
from dsel.search.parallel.worker_tasks import bind
from dsel.search.pareto.archive import Subset
from dsel.search.pareto.criterion import Criterion, CriterionPoss


def run_poss(task: SearchTask, grouped: GroupedObjective) -> SearchOutcome:
    """Run POSS over groups to its end. A criterion or isolation function gets the columns of the groups."""
    objective, options = task.objective, task.options

    def of_columns(function: Criterion) -> Criterion:
        return lambda S: function(tuple(sorted(objective.in_data(grouped.members(S)))))

    criterion: Criterion = grouped.value
    if task.criterion is not None:
        criterion = of_columns(bind(task.criterion, task.data))
    isolation = of_columns(options.isolation) if callable(options.isolation) else options.isolation
    if task.state is not None:
        search = CriterionPoss.restore(criterion, task.state, isolation if callable(isolation) else None)
    else:
        search = CriterionPoss(criterion, grouped.n, task.k, seed=task.seed, isolation=isolation)
    stop = options.stop(task.k, objective)
    stop = replace(stop, iterations=options.most_iterations(task.k, grouped.n))
    ended = drive(search, stop, task.on_slice)
    points = [_of_columns(grouped, point) for point in search.front() if point.size]
    if task.criterion is None:
        points = [FrontPoint(0, grouped.c, ()), *(point for point in points if point.value < grouped.c)]
    else:
        points = [FrontPoint(0, float("inf"), ()), *points]
    return SearchOutcome(tuple(points), search.trace, search.iteration, ended, dict(search.counts()))


def _of_columns(grouped: GroupedObjective, point: FrontPoint) -> FrontPoint:
    members: Subset = grouped.members(point.members)
    return replace(point, members=members)

"""The options of a search by slices, and where it runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import Field

from dsel.config.types import Int
from dsel.objective.base import FEW_TARGETS
from dsel.search.method import ProblemSummary, Requirements
from dsel.search.parallel.on_workers import WorkerOptions
from dsel.search.pareto.archive_memory import first_slots, restart_slots, table_bytes
from dsel.search.placement import ASKED, NO_CLUSTER, Placement, Site
from dsel.search.slices.size import (
    LEAST_SECONDS,
    SliceSize,
    automatic_size,
    evaluations_at_a_time,
    iteration_seconds,
    least_generations,
    least_size,
    least_slice_seconds,
    slice_iterations,
)

#: Slices at a time where workers are asked for and the search is short.
_FEW_SLICES = 8


class SliceOptions(WorkerOptions):
    """Options of a search by slices.

    The result depends on `slices` and `slice_iterations`, and not on where the slices run. It records both.

    Parameters
    ----------
    slices : int, optional
        Slices of iterations that may be out at the same time. Each starts from the archive as it was this many
        slices before. With 1 the search is sequential. By default 1 where the search takes less than about 5 s, and up
        to 64 in proportion to its time, by a formula. With a custom criterion or isolation function, iterations that
        may be out at the same time: by default up to 128 on a cluster, and 1 without one.
    slice_iterations : int, optional
        Iterations of a slice, by default 0.2 s of work or some more. It is 1 with a custom criterion or isolation
        function.
    """

    slices: Int | None = Field(None, ge=1, le=100_000)
    slice_iterations: Int | None = Field(None, ge=1)

    def conflict(self, criterion: bool) -> str:
        if self.calls_function(criterion) and self.slice_iterations not in (None, 1):
            return "slice_iterations is 1 with a custom criterion or isolation function"
        if self.processes > 1 and not self.calls_function(criterion):
            return "processes: only with a custom criterion or isolation function"
        return super().conflict(criterion)

    def conflict_with_groups(self) -> str:
        asked = self.slices not in (None, 1) or self.slice_iterations is not None or self.search_on == "workers"
        return (
            "slices, slice_iterations and search_on cannot be used for groups of columns"
            if asked
            else super().conflict_with_groups()
        )

    def requirements(self, problem: ProblemSummary) -> Requirements:
        found = super().requirements(problem)
        if self.slices == 1 or found.table_slots < first_slots(problem.k):
            return found
        few = problem.n_targets if problem.n_targets <= FEW_TARGETS else 0
        return replace(found, table_slots=restart_slots(problem.n, few, problem.k))

    @property
    def size(self) -> SliceSize:
        """The division of the search, once `place` has set it; one slice at a time before."""
        return SliceSize(self.slices or 1, self.slice_iterations or 1)


def place_iterations(problem: ProblemSummary, options: SliceOptions, site: Site) -> Placement:
    """Return where a search runs whose iterations are about equal, with its division into slices."""
    k, n = problem.k - problem.included, problem.n - problem.included - problem.excluded
    if not 0 < k <= n:
        return Placement(why="there is nothing to search")
    iterations = options.most_iterations(k, n)
    if options.calls_function(problem.criterion):
        return place_evaluations(options, site, iterations)
    few = problem.n_targets if problem.n_targets <= FEW_TARGETS else 0
    every = options.exchange_interval(n, k, site.has_gram)
    each = iteration_seconds(n, k, few, every)
    size = _division(options, iterations, each, least_generations(every), least_slice_seconds(n, k))
    seconds = iterations * each if options.seconds is None else min(iterations * each, options.seconds)
    shared: dict[str, Any] = {
        "options": {"slices": size.slices, "slice_iterations": size.iterations}, "tasks": size.slices,
        "seconds": seconds, "tables": table_bytes(n, few, k, restart_slots(n, few, k)),
    }  # fmt: skip
    if size.slices == 1:
        short = f"the search takes less than about {LEAST_SECONDS:g} s"
        return Placement(why=short if seconds < LEAST_SECONDS else "slices: 1", **shared)
    division = f"{size.slices} slices of {size.iterations:,} iterations at a time"
    if options.search_on == "client":
        return Placement(why=f"{ASKED}; {division}", **shared)
    if not site.cluster:
        return Placement(why=f"{NO_CLUSTER}; {division}", **shared)
    if not site.has_gram and not site.shares_folder:
        return Placement(why=f"the workers share no folder for Gram rows; {division}", **shared)
    return Placement("workers", division, **shared)


def _division(options: SliceOptions, iterations: int, each: float, generations: int, least: float) -> SliceSize:
    """Return the division into slices: what is asked, else by the formula."""
    size = automatic_size(iterations, each, generations, options.seconds, least)
    if options.slices is not None:
        size = least_size(iterations, each, generations, options.slices, least)
        if options.slices == 1:
            size = SliceSize(1, slice_iterations(iterations, each, generations, least=least))
    elif options.search_on == "workers" and size.slices == 1:
        size = least_size(iterations, each, generations, _FEW_SLICES, least)
    return size if options.slice_iterations is None else SliceSize(size.slices, options.slice_iterations)


def place_evaluations(options: SliceOptions, site: Site, iterations: int) -> Placement:
    """Return where a search runs that calls a user's function for each subset."""
    on_cluster = site.cluster and options.search_on != "client"
    slices = options.slices or (evaluations_at_a_time(iterations) if on_cluster else 1)
    recorded = {"slices": slices, "slice_iterations": 1}
    division = f"{slices} iterations of one evaluation at a time"
    if on_cluster and slices > 1:
        return Placement("workers", division, recorded, slices)
    why = ASKED if options.search_on == "client" else NO_CLUSTER if not site.cluster else "slices: 1"
    return Placement(why=why, options=recorded, tasks=slices)

"""What a method is run with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dsel.objective.base import Objective
from dsel.search.anytime import AnytimeSearch, Stop
from dsel.search.greedy.greedy_rls import LooRows
from dsel.search.options import StopOptions
from dsel.search.parallel.executor import ExecutorFactory, Serial
from dsel.search.parallel.journal import Journal
from dsel.search.pareto.criterion import Criterion
from dsel.search.pareto.poss import paper_iterations
from dsel.storage.paths import Place

OnSlice = Callable[[AnytimeSearch], None]


@dataclass(frozen=True)
class Run:
    """What a method is run with: `state` resumes an anytime search, `on_slice` sees it between slices.

    executor: makes the executor of a search on workers. journal: of the events of such a search. shared_folder: a
    folder that the workers read, too, for the objective's arrays; without one they are sent.
    """

    objective: Objective
    k: int
    seed: int
    options: Any
    state: dict[str, Any] | None = None
    on_slice: OnSlice | None = None
    criterion: Criterion | None = None  # of ascending columns in the data; in place of the objective's f
    rows: LooRows | None = None  # of methods that value subsets on the rows of the data
    data: Any = None  # second argument of a criterion f(S, data)
    executor: ExecutorFactory = Serial
    journal: Journal | None = None
    shared_folder: Place | None = None


def poss_stop(options: StopOptions, k: int, objective: Objective) -> Stop:
    """The stopping rules that the options ask for; the paper's T where they do not say."""
    target = options.target
    if options.target_r2 is not None:
        target = (1.0 - options.target_r2) * objective.total
    return Stop(
        iterations=options.iterations or paper_iterations(k, objective.n),
        seconds=options.seconds,
        target=target,
        patience=options.patience,
        bound=options.bound,
    )

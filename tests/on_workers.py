"""Searches on workers: count their tasks, and have small data searched as wide data are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from distributed import LocalCluster
from distributed.diagnostics.plugin import SchedulerPlugin

import dsel.objective.on_demand as on_demand
import dsel.planning.plan as planning
from dsel.planning.representations.choice import candidates
from dsel.planning.representations.representation import ProblemShape, Representation, Resources

#: How the keys of searches' tasks begin, unlike those of passes.
_SEARCH = "dsel-"


class CountTasks(SchedulerPlugin):
    """Counts the tasks of searches that each worker has finished, and calls functions after some numbers of tasks."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.then: dict[int, Callable[[], None]] = {}

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Count a task that a worker has finished."""
        if (start, finish) == ("processing", "memory") and str(key).startswith(_SEARCH):
            self.done[kwargs["worker"]] += 1
            if (call := self.then.pop(self.done.total(), None)) is not None:
                call()

    def since_last_call(self) -> int:
        """Return the number of tasks since the last call."""
        found = self.done.total()
        self.done.clear()
        return found


def hold_column_blocks(replace: Callable[[Any, str, Any], None]) -> None:
    """Have data kept in blocks of columns, as wide data are."""

    def choose(problem: ProblemShape, available: Resources) -> Representation:
        return next(one for one in candidates(problem, available) if one.name == "column-blocks")

    replace(planning, "choose", choose)
    replace(on_demand, "FEW_COLUMNS", 8)


@contextmanager
def counting_tasks(cluster: LocalCluster) -> Iterator[CountTasks]:
    """Count the tasks of a cluster in the block."""
    plugin = CountTasks()
    cluster.scheduler.add_plugin(plugin, name="count")  # type: ignore[no-untyped-call]
    yield plugin
    cluster.scheduler.remove_plugin("count")  # type: ignore[no-untyped-call]

"""A slice on a worker: iterations from a given snapshot of the archive, in compiled code."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from uuid import uuid4

from dsel.objective.base import Objective
from dsel.objective.objective_file import ObjectiveFile
from dsel.objective.shared_rows import MissingInputs, NeededInputs, RowsOnFiles, SharedRows
from dsel.search.outcome import Improvement
from dsel.search.parallel.executor import Cleanup, Slice, Task, TaskResult
from dsel.search.parallel.quadratic_rounds import PpossRounds
from dsel.search.parallel.worker_tasks import call_all, objective_cleanup
from dsel.search.pareto.archive import Isolation, Subset
from dsel.search.pareto.search import Poss

#: Searches with their tables, by run. Only the last run has any: they are large.
_searches: dict[str, list[Poss]] = {}
#: Runs that have ended. A slice that ends later leaves nothing in memory.
_ended: deque[str] = deque(maxlen=1000)
_lock = threading.Lock()
#: The counts of a search that are added up over slices.
COUNTED = ("looked_up", "valued", "evaluated", "accepted")


@dataclass(frozen=True)
class SliceResult:
    """What a slice found.

    Parameters
    ----------
    solutions : tuple of (Subset, float)
        Archived subsets that the snapshot does not hold, with f, oldest first.
    trace : tuple of Improvement
        The improvements over the best subset of the snapshot.
    iteration : int
        The iteration at which the slice ended: its last one, unless the target was reached before.
    counts : dict
        How many look-ups, values, evaluations and accepted solutions there were.
    needed : NeededInputs, optional
        What the slice stopped for at `iteration`. Then, as for every slice with `inputs`, `solutions` is the whole
        archive.
    """

    solutions: tuple[tuple[Subset, float], ...]
    trace: tuple[Improvement, ...]
    iteration: int
    counts: dict[str, int]
    needed: NeededInputs | None = None


@dataclass(frozen=True)
class SliceRules:
    """What defines the iterations of a search, apart from the objective.

    Parameters
    ----------
    k : int
        The size limit.
    seed : int
        The seed.
    isolation : {"none", "min-index"}
        Subsets compete only with subsets of the same isolation value.
    exchange_every : int
        Iterations between two exchange searches, 0 for none.
    processors : int
        Offspring per round of PPOSS; 0 for POSS.
    """

    k: int
    seed: int
    isolation: Isolation = "none"
    exchange_every: int = 0
    processors: int = 0

    def search(self, objective: Objective, memory: int) -> Poss:
        """Return a search with an empty archive. memory: bytes for its tables."""
        kind = partial(PpossRounds, processors=self.processors) if self.processors else Poss
        return kind(
            objective, self.k, seed=self.seed, isolation=self.isolation, exchange_every=self.exchange_every,
            memory_limit=memory,
        )  # fmt: skip


def run_slice(search: Poss, part: Slice) -> SliceResult:
    """Run the iterations of a slice from its snapshot, and return what they found.

    The result depends on the slice alone, not on what the search did before: which subsets are archived is decided by
    values that do not depend on how the tables were computed.
    """
    needed = None
    try:
        search.restart(part.start, [S for S, _ in part.solutions], part.parents)
    except MissingInputs as missing:
        return SliceResult(part.solutions, (), part.start, dict.fromkeys(COUNTED, 0), missing.needed)
    before = search.counts()
    try:
        search.advance(part.stop, part.target)
    except MissingInputs as missing:  # the search is as it was before the iteration that needs them
        needed = missing.needed
    known = {S for S, _ in part.solutions} if part.inputs is None else set()
    found = tuple((z.members, z.value) for z in search.archived if z.size and z.members not in known)
    after = search.counts()
    counts = {name: after[name] - before[name] for name in COUNTED}
    return SliceResult(found, search.trace, search.iteration, counts, needed)


@dataclass(frozen=True)
class RunSnapshotSlices:
    """Work that runs slices of a search.

    Parameters
    ----------
    objective : ObjectiveFile, SharedRows or Objective
        The arrays, or where they are.
    rules : SliceRules
        What defines the iterations.
    memory : int
        Bytes for the tables of one archive. A worker has one archive per slice that it runs at the same time.
    run : str
        Name of the run. Workers use it to tell runs apart.

    Raises
    ------
    CapacityError
        If the tables need more than `memory`.
    """

    objective: ObjectiveFile | SharedRows | Objective
    rules: SliceRules
    memory: int = 8 << 30
    run: str = field(default_factory=lambda: uuid4().hex)

    def __call__(self, task: Task) -> TaskResult:
        assert isinstance(task.payload, Slice)
        with _lock:
            idle = _searches.get(self.run)
            search = idle.pop() if idle else None  # no other thread may use it now
        if search is None:
            search = self.rules.search(self._opened(), self.memory)
            search.warm_up()
        if task.payload.inputs is not None:
            assert isinstance(search.objective, RowsOnFiles)
            search.objective.use(task.payload.inputs)
        start = time.perf_counter()
        found = run_slice(search, task.payload)
        seconds = time.perf_counter() - start
        with _lock:
            for other in [other for other in _searches if other != self.run]:
                del _searches[other]
            if not (is_over := self.run in _ended):
                _searches.setdefault(self.run, []).append(search)
        if is_over:  # this task has read the objective after the run released it
            call_all(self.cleanup())
        return TaskResult((found,), seconds)

    def _opened(self) -> Objective:
        return self.objective.load() if isinstance(self.objective, ObjectiveFile | SharedRows) else self.objective

    def cleanup(self) -> tuple[Cleanup, ...]:
        """Return functions that release the searches and the objective."""
        release: Callable[[], None] = partial(_release_run, self.run)
        return (release,) if isinstance(self.objective, SharedRows) else (release, *objective_cleanup(self.objective))


def _release_run(run: str) -> None:
    """Release the searches of a run that has ended."""
    with _lock:
        _ended.append(run)
        _searches.pop(run, None)

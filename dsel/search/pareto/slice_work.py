"""A slice on a worker: iterations from a given snapshot of the archive, in compiled code."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from uuid import uuid4

from dsel.objective.objective_interface import Objective
from dsel.objective.objective_on_workers import (
    MissingInputs,
    NeededInputs,
    ObjectiveFile,
    PublishedInputs,
    RowsOnWorker,
    SharedRows,
)
from dsel.search.anytime import Stop, drive
from dsel.search.ask_tell import Cleanup, Task, TaskResult, call_all
from dsel.search.outcome import Improvement
from dsel.search.pareto.archive import Isolation, Subset
from dsel.search.pareto.compiled import Poss
from dsel.search.pareto.evaluations import objective_cleanup
from dsel.search.runtime import kept_on_worker

#: The counts of a search that are added up over slices.
COUNTED = ("looked_up", "valued", "evaluated", "accepted")
#: A slice that takes longer comes back, and continues as another task.
LONGEST_SECONDS = 2.0


@dataclass(frozen=True)
class Slice:
    """Iterations [start, stop) from a snapshot of the archive.

    solutions: (subset, f) of the snapshot, oldest first, without the empty set. target: the slice ends as soon as f is
    at or below it.
    parents: the sizes of the subsets that may be drawn as parents; None for all.
    inputs: for an objective on demand, what the client has published of it.
    """

    start: int
    stop: int
    solutions: tuple[tuple[Subset, float], ...]
    target: float | None = field(default=None, kw_only=True)
    parents: tuple[int, ...] | None = field(default=None, kw_only=True)
    inputs: PublishedInputs | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class SliceResult:
    """What a slice found.

    Parameters
    ----------
    solutions : tuple of (Subset, float)
        The archive at its end, with f, oldest first, without the empty set.
    trace : tuple of Improvement
        The improvements over the best subset of the snapshot.
    iteration : int
        The iteration at which it ended.
    counts : dict
        How many look-ups, values, evaluations and accepted solutions there were.
    complete : bool
        Whether it reached its end or the target. If not, it continues from here with the same bits.
    needed : NeededInputs, optional
        What it stopped for.
    """

    solutions: tuple[tuple[Subset, float], ...]
    trace: tuple[Improvement, ...]
    iteration: int
    counts: dict[str, int]
    complete: bool = True
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
    any_size : bool
        Archive subsets of any size, not only of fewer than 2k columns.
    """

    k: int
    seed: int
    isolation: Isolation = "none"
    exchange_every: int = 0
    processors: int = 0
    any_size: bool = False

    def search(self, objective: Objective, memory: int) -> Poss:
        """Return a search with an empty archive. memory: bytes for its tables."""
        return Poss(objective, memory_limit=memory, **asdict(self))


def run_slice(search: Poss, part: Slice, seconds: float = LONGEST_SECONDS) -> SliceResult:
    """Run the iterations of a slice from its snapshot, for about this many seconds, and return what they found.

    The result depends on the slice alone, not on what the search did before: which subsets are archived is decided by
    values that do not depend on how the tables were computed. So a slice that is cut and continues elsewhere finds the
    same.
    """
    try:
        search.restart(part.start, [S for S, _ in part.solutions], part.parents)
    except MissingInputs as missing:
        return SliceResult(part.solutions, (), part.start, dict.fromkeys(COUNTED, 0), False, missing.needed)
    before, needed, ended = search.counts(), None, ""
    try:
        ended = drive(search, Stop(part.stop, seconds, part.target))
    except MissingInputs as missing:  # the search is as it was before the iteration that needs them
        needed = missing.needed
    found = tuple((z.members, z.value) for z in search.archived if z.size)
    after = search.counts()
    counts = {name: after[name] - before[name] for name in COUNTED}
    complete = ended == "target" or search.iteration >= part.stop
    return SliceResult(found, search.trace, search.iteration, counts, complete, needed)


@dataclass(frozen=True)
class RunSlices:
    """Work that runs slices of a search. A process keeps the tables of a search for the next slice.

    Parameters
    ----------
    objective : ObjectiveFile, SharedRows or Objective
        The arrays, or where they are.
    rules : SliceRules
        What defines the iterations.
    memory : int
        Bytes for the tables of one archive. A worker has one archive per slice that it runs at the same time.
    seconds : float
        A slice that takes longer comes back before its end.
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
    seconds: float = LONGEST_SECONDS
    run: str = field(default_factory=lambda: uuid4().hex)

    def __call__(self, task: Task) -> TaskResult:
        part: Slice = task.payload
        search: Poss | None = kept_on_worker.take(self.run)
        if search is None:
            search = self.rules.search(self._opened(), self.memory)
            search.warm_up()
        if part.inputs is not None:
            assert isinstance(search.objective, RowsOnWorker)
            search.objective.use(part.inputs)
        start = time.perf_counter()
        found = run_slice(search, part, self.seconds)
        seconds = time.perf_counter() - start
        if not kept_on_worker.keep(self.run, search):
            call_all(self.cleanup())  # this task has read the objective after the run released it
        return TaskResult(found, seconds, units=max(found.iteration - part.start, 1))

    def warm_up(self, objective: Objective, iterations: int | None = None) -> None:
        """Compile what slices of this objective need, and keep the search if slices run in this process.

        iterations: how many there will be, if they run in this process.
        """
        search = self.rules.search(objective, self.memory)
        search.warm_up(iterations)
        if self.objective is objective:
            kept_on_worker.keep(self.run, search)

    def _opened(self) -> Objective:
        return self.objective.load() if isinstance(self.objective, ObjectiveFile | SharedRows) else self.objective

    def cleanup(self) -> tuple[Cleanup, ...]:
        """Return functions that release the searches and the objective."""
        release = kept_on_worker.releasing(self.run)
        return (release,) if isinstance(self.objective, SharedRows) else (release, *objective_cleanup(self.objective))

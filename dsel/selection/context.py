"""What a run may use, and what its steps work on."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from dsel.data.dataset import Dataset
from dsel.engine.engine_protocol import THREADS, Engine
from dsel.objective.objective_interface import ItemObjective, Objective
from dsel.passes.cross_validation.rows import DatasetRows
from dsel.passes.statistics_cache import StatisticsCache
from dsel.planning.representations.representation import Prepared
from dsel.planning.validation import ValidatedRequest
from dsel.search.journal import Journal
from dsel.search.method import OnSlice
from dsel.search.outcome import FrontPoint, SearchOutcome
from dsel.selection.near_copies import Clusters, NearCopies
from dsel.selection.record_values import FrontRow
from dsel.selection.result import Selection
from dsel.storage.paths import AnyPath, ObjectPath


@dataclass(frozen=True)
class RunContext:
    """What a run may use.

    Parameters
    ----------
    engine : Engine
        Where passes over the data and searches on workers run. Default: threads of this process.
    cache : StatisticsCache, optional
        Cache of statistics.
    state : dict, optional
        Saved state of an interrupted search.
    on_slice : callable, optional
        Called with the search between its slices.
    on_stage : callable, optional
        Called with the name of each stage before it begins.
    journal : Journal, optional
        Where a search on workers writes its events.
    shared_folder : Path or ObjectPath, optional
        Folder that the workers read, too. The arrays of an objective go there; without it they are sent.
    scratch : Path, optional
        Folder for a cache that can be made again. It is kept if the run is interrupted.
    isolated_cluster : str
        Kind of the cluster, if its workers share no folder with this process. Empty if they do.
    search_engine : Engine
        Where the tasks of the search run. The plan sets it.
    start : tuple of tuple of int
        Subsets of columns of the data that the search evaluates first, such as those of the previous run.
    compare : callable, optional
        Called after the final check as ``compare(run, fit, selection)`` with a `SelectionRun`, and as the fourth
        argument the fits by a loss. It returns the selection with what changed since the previous run.
    keeps_trees : bool
        Whether proofs keep their trees for the next run.
    last_runs : tuple of Path or ObjectPath
        The folders of runs whose proofs have kept theirs: an unfinished one of older data, then the previous one.
    """

    engine: Engine = THREADS
    cache: StatisticsCache | None = None
    state: dict[str, Any] | None = None
    on_slice: OnSlice | None = None
    on_stage: Callable[[str], None] | None = None
    journal: Journal | None = None
    shared_folder: AnyPath | None = None
    scratch: Path | None = None
    isolated_cluster: str = ""
    search_engine: Engine = THREADS
    start: tuple[tuple[int, ...], ...] = ()
    compare: Callable[..., Selection] | None = None
    keeps_trees: bool = False
    last_runs: tuple[AnyPath, ...] = ()

    @property
    def shares_folder(self) -> bool:
        """Whether the workers can read `shared_folder`."""
        on_bucket = isinstance(self.shared_folder, ObjectPath)
        return self.shared_folder is not None and (on_bucket or not self.isolated_cluster)

    @property
    def copies(self) -> Path | None:
        """A folder for a copy of the data that the workers read, too; None if there is none."""
        if self.scratch is not None or self.shared_folder is not None:  # a job
            return self.scratch
        return Path(tempfile.gettempdir()) if self.engine.on_this_host else None


@dataclass(frozen=True)
class SelectionRun:
    """A selection whose data are prepared: what its steps after the first pass work on.

    whole: the objective over all columns. objective: over those that may be chosen, given the included ones. rows: that
    the method scores subsets on, if it does. copies: the near-copies.
    """

    dataset: Dataset
    validated: ValidatedRequest
    context: RunContext
    prepared: Prepared
    whole: Objective
    objective: Objective
    rows: DatasetRows | None = None
    copies: NearCopies = field(default_factory=NearCopies)

    @property
    def clusters(self) -> Clusters:
        """The sets of near-copies, of which the first represents the others."""
        return self.copies.clusters

    def asking(self, **changes: Any) -> SelectionRun:
        """Return the run with other values of fields of the request."""
        request = self.validated.request.model_copy(update=changes)
        return replace(self, validated=replace(self.validated, request=request))

    @property
    def subject(self) -> ItemObjective:
        """The objective over what is chosen: columns, or groups of columns."""
        return self.validated.subject(self.objective)

    @property
    def has_intercept(self) -> bool:
        """Whether least-squares models have an intercept, which takes a degree of freedom."""
        return self.validated.request.preprocess in ("standardize", "center")

    @cached_property
    def always(self) -> list[int]:
        """The columns that are always chosen: the included ones, without constant columns, which no subset has."""
        unusable = self.validated.useless(self.prepared.statistics)
        return [int(j) for j in self.validated.include if not unusable[j]]

    @property
    def most(self) -> int:
        """How many columns, or groups, are chosen at most besides those that always are."""
        return self.validated.request.limit - self.validated.included

    @property
    def reachable(self) -> int:
        """The same without columns that cannot be used, such as constant ones."""
        return min(self.most, self.subject.n)

    def row(
        self, size: int, error: float, r2: float, members: Sequence[int], *, criterion: float | None = None,
        rank: int | None = None,
    ) -> FrontRow:  # fmt: skip
        """Return a row of a front with these columns of the data, and with their labels."""
        labels = tuple(self.dataset.names[j] for j in members)
        return FrontRow(size, error, r2, tuple(members), criterion, labels, rank)

    def best(self, outcome: SearchOutcome) -> FrontPoint:
        """Return the best subset of at most k columns."""
        return outcome.best(self.most)

"""The interface of a representation: what it supports, what it needs, its passes, and how it is prepared.

Notation: X (m, n), N targets (0 where Y = X), k columns to choose, K = X'X, B = X'Y, M = B B'.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from dsel._lib.byte_sizes import format_bytes
from dsel._lib.types import Ints
from dsel.config.request import SketchRule
from dsel.data.dataset import Dataset
from dsel.engine.engine_protocol import Engine
from dsel.objective.objective_interface import FEW_TARGETS, Objective
from dsel.passes.columns.column_factor import ColumnFactor
from dsel.passes.data_pass import PassCost
from dsel.passes.gram import FoldStatistics
from dsel.passes.refit import Fit, check_pass, grows, likely_check_pass, refit, refit_pass
from dsel.passes.statistics import ColumnScales
from dsel.passes.statistics_cache import StatisticsCache
from dsel.passes.sums import Sums
from dsel.passes.trial import TrialRead
from dsel.planning.representations import memory
from dsel.planning.validation import ValidatedRequest
from dsel.search.method import Requirements
from dsel.storage.paths import ICECHUNK

#: From this number of columns in memory on, a search that adapts does without a Gram matrix if there are fewer rows.
WIDE = 10_000
#: Gram rows per pass over column blocks: at least, at most, and bytes of them at most.
FEWEST_ROWS, MOST_ROWS, ROW_BYTES_PER_PASS = 8, 32, 128 << 20
#: Leading rows of X that this process keeps for bounds on inner products: at most, and bytes of them at most.
LEADING_ROWS, LEADING_BYTES = 256, 1 << 30
#: Bytes per second from memory and from a store, flops per second, and the passes besides those for Gram rows, of which
#: each column may need one. Passes are chosen instead of the Gram matrix where they take this many times less, unless
#: it takes less than these seconds. The matrix takes some seconds for each of its elements, too: it is scaled, copied
#: and searched for columns that are alike.
_MEMORY_SPEED, _STORE_SPEED, _FLOPS, _OTHER_PASSES, _MUCH, _SHORT = 5e9, 5e8, 2e10, 2, 4.0, 0.25
_GRAM_ELEMENT = 1.5e-8
#: With at most this many columns the Gram matrix is small: rounds on left-out rows take it.
MOST_SMALL = 1000


@dataclass(frozen=True)
class ProblemShape:
    """The numbers from which a representation is chosen.

    Parameters
    ----------
    m, n, N : int
        Rows, columns and targets. N is 0 where Y = X.
    itemsize : int
        Bytes of an entry of X.
    k : int
        Columns to choose.
    chunk : tuple of int
        Rows and columns of a chunk of X.
    needs : Requirements
        What the method needs.
    sketch : SketchRule, optional
        The sketch that the request asks for.
    in_memory : bool
        X is in the memory of this process.
    summed : bool
        There are no rows, only their sums.
    library_bytes : int
        Bytes of the libraries that a worker needs to read X, besides those that every worker has.
    """

    m: int
    n: int
    N: int
    itemsize: int
    k: int
    chunk: tuple[int, int]
    needs: Requirements
    sketch: SketchRule | None = None
    in_memory: bool = False
    summed: bool = False
    library_bytes: int = 0

    @classmethod
    def of(cls, dataset: Dataset, k: int, requirements: Requirements, sketch: SketchRule | None = None) -> ProblemShape:
        """Return the shape of a selection of k columns by a method with these requirements."""
        rows = max((block.stop - block.start for block in dataset.blocks), default=0)
        width = dataset.n if dataset.store is None else dataset.store.column_bounds[1]
        itemsize = max(1, math.ceil(dataset.x_bytes / (dataset.m * dataset.n)))
        return cls(
            dataset.m, dataset.n, dataset.n_targets, itemsize, k, (rows, width), requirements, sketch,
            dataset.in_memory, isinstance(dataset, Sums),
            memory.SNAPSHOT_LIBRARIES if dataset.name.startswith(ICECHUNK) else 0,
        )  # fmt: skip

    @property
    def rounds(self) -> bool:
        """Return whether the method scores subsets on left-out rows, in rounds of k columns at most."""
        return self.needs.cross_validation is not None

    @property
    def full_height(self) -> bool:
        """Return whether the rounds need columns of full height where they run without K."""
        return self.needs.cross_validation is not None and self.needs.cross_validation.full_height

    @property
    def least_entered(self) -> int:
        """Return how many columns enter a subset of the search at least."""
        return self.needs.columns_entered or self.k

    @property
    def x_bytes(self) -> int:
        """Return the bytes of X, read once."""
        return self.m * self.n * self.itemsize

    @property
    def tile_bytes(self) -> int:
        """Return the bytes of a chunk."""
        return self.chunk[0] * self.chunk[1] * self.itemsize

    @property
    def row_block_bytes(self) -> int:
        """Return the bytes of a block of full rows, as the Gram pass reads them."""
        return self.chunk[0] * (self.n * self.itemsize + 8 * self.N)

    @property
    def column_block_bytes(self) -> int:
        """Return the bytes of a block of full columns."""
        return self.m * self.chunk[1] * self.itemsize

    @property
    def table_bytes(self) -> int:
        """Return the bytes of the search's tables: per subset 4 numbers a column, and one per target kept apart."""
        few = self.N if self.N <= FEW_TARGETS else 0
        return 8 * self.n * (self.needs.lookahead + self.needs.table_slots * (4 + few))

    @property
    def keeps_moments(self) -> bool:
        """Return whether a row of M is kept with each row of K."""
        return not 0 < self.N <= FEW_TARGETS and not self.needs.gram_rows_alone

    @property
    def gram_row_bytes(self) -> int:
        """Return the bytes of one row of K, and of M where that is kept."""
        return 8 * self.n * (2 if self.keeps_moments else 1)

    @property
    def rows_per_pass(self) -> int:
        """Return how many Gram rows one pass over the column blocks computes."""
        rows = FEWEST_ROWS
        while rows < MOST_ROWS and 2 * rows * self.gram_row_bytes <= ROW_BYTES_PER_PASS:
            rows *= 2
        return rows

    @property
    def rows_beat_gram(self) -> bool:
        """Return whether passes for the Gram rows of k columns take much less time than one for all of K.

        For data in memory, also whether all of K would take longer than the limit of the search. Rounds on left-out
        rows take one pass for each Gram row, no more.
        """
        needs = self.needs
        if (
            not (self.N or needs.gram_rows_alone)
            or needs.whole_gram
            or needs.eigen_factor
            or (needs.gram_sums > 1 and not self.rounds)
        ):
            return False
        gram = self.n**2 * (self.m / _FLOPS + _GRAM_ELEMENT)
        if self.rounds:
            rows = self.k * (self.x_bytes / self._reading_speed + 2.0 * self.m * self.n / _FLOPS)
            return self.n > MOST_SMALL and ((self.in_memory and self.n > self.m) or gram > rows)
        if needs.adapts and self.in_memory and self.n >= WIDE and self.n > self.m:
            return True
        limited = self.in_memory and needs.seconds is not None and gram > needs.seconds
        if gram < _SHORT or not (needs.few_columns or limited):
            return False
        one_pass = self.x_bytes / self._reading_speed + 2.0 * self.m * self.n * self.rows_per_pass / _FLOPS
        return gram > _MUCH * (self.k + _OTHER_PASSES) * one_pass

    @property
    def _reading_speed(self) -> float:
        """Return the bytes of X that are read in a second."""
        return _MEMORY_SPEED if self.in_memory else _STORE_SPEED

    @property
    def leading_rows(self) -> int:
        """Return how many rows of X this process may keep for bounds on inner products."""
        return min(self.m, LEADING_ROWS, LEADING_BYTES // (4 * self.n))


@dataclass(frozen=True)
class Resources:
    """Workers and memory to plan for.

    Parameters
    ----------
    workers : int
        The number of workers.
    worker_memory : int or None
        The memory limit of each worker in bytes; None without a limit.
    client_memory : int
        The memory available to this process in bytes.
    keeps_values : bool
        Whether workers can keep blocks of columns.
    """

    workers: int
    worker_memory: int | None
    client_memory: int
    keeps_values: bool = True


@dataclass(frozen=True)
class Saved:
    """What the cache already has.

    Parameters
    ----------
    statistics, eigendecomposition : bool
        Whether they are complete.
    disk_bytes : int
        Bytes on disk of what will be saved.
    missing : tuple of (int, int), optional
        The rows [start, stop) of the segments whose statistics are not saved. None: all rows.
    missing_means : tuple of (int, int), optional
        The same for the means that replace missing values.
    """

    statistics: bool = False
    eigendecomposition: bool = False
    disk_bytes: int = 0
    missing: tuple[tuple[int, int], ...] | None = None
    missing_means: tuple[tuple[int, int], ...] | None = None


@dataclass
class Prepared:
    """A problem that is ready to be searched.

    Parameters
    ----------
    statistics : ColumnScales
        Means and norms of the columns.
    objective : callable
        ``objective(lam)`` returns the objective over all n columns.
    fit : callable
        ``fit(S, lam)`` recomputes f(S) from the data.
    counts : dict
        What the result says about the representation.
    folds : dict, optional
        The statistics of every fold, for cross-validation.
    errors : callable, optional
        ``errors(subsets, lam)`` recomputes f and the residual sum of squares of several subsets from the data, where
        the objective approximates f.
    factor : ColumnFactor, optional
        The preprocessed data as columns, where the Gram matrix is not held.
    left_out : callable, optional
        ``left_out(k)`` returns by how much f of k columns of the data may be below that of the objective.
    """

    statistics: ColumnScales
    objective: Callable[[float], Objective]
    fit: Callable[[Ints, float], Fit]
    counts: dict[str, Any] = field(default_factory=dict)
    folds: FoldStatistics | None = None
    errors: Callable[[Sequence[Ints], float], list[tuple[float, float]]] | None = None
    factor: ColumnFactor | None = None
    left_out: Callable[[int], float] | None = None


class Representation(ABC):
    """One way to hold the Gram matrix K of a problem.

    An instance belongs to one problem and the resources it is planned for. It is cheap: nothing is read.

    Parameters
    ----------
    shape : ProblemShape
        The numbers of the problem.
    resources : Resources
        Workers and memory.

    Attributes
    ----------
    name : str
        The name in plans and results.
    exact : bool
        Whether f is that of the data, not an approximation.
    holds_gram : bool
        Whether this process holds all of K. Then the number of passes is known before the search.

    Notes
    -----
    To add a representation, write a class in this folder and list it in `dsel.planning.representations.choice`.
    """

    name: ClassVar[str]
    exact: ClassVar[bool] = True
    holds_gram: ClassVar[bool] = False

    def __init__(self, shape: ProblemShape, resources: Resources) -> None:
        self.shape, self.resources = shape, resources

    # What it supports and needs.

    @property
    def unsupported(self) -> str:
        """Return what the method needs that this representation does not have; empty if nothing."""
        return ""

    @property
    @abstractmethod
    def worker_bytes(self) -> int:
        """Return the memory limit that a worker needs, in bytes."""

    @property
    @abstractmethod
    def client_bytes(self) -> int:
        """Return the memory that this process needs, in bytes."""

    @property
    @abstractmethod
    def passes(self) -> int:
        """Return about how many passes over X it takes. `costs` has the exact number."""

    @property
    def bytes_read(self) -> int:
        """Return about how many bytes the passes read."""
        return self.passes * self.shape.x_bytes

    @property
    @abstractmethod
    def reason(self) -> str:
        """Return why one would choose it, in words."""

    @property
    @abstractmethod
    def memory_parts(self) -> tuple[str, str]:
        """Return what takes the memory of a worker, and that of this process, in words."""

    @property
    def obstacle(self) -> str:
        """Return why it cannot be used; empty if it can."""
        return self.unsupported or self.shortage

    @property
    def shortage(self) -> str:
        """Return which memory is missing; empty if none."""
        n, resources = self.shape.n, self.resources
        in_worker, in_client = self.memory_parts
        if resources.worker_memory is not None and self.worker_bytes > resources.worker_memory:
            return (
                f"A worker needs {format_bytes(self.worker_bytes)} for {n} columns ({in_worker}) and is limited to "
                f"{format_bytes(resources.worker_memory)}."
            )
        if self.client_bytes > resources.client_memory:
            return (
                f"The search over {n} columns needs {format_bytes(self.client_bytes)} in this process ({in_client}); "
                f"{format_bytes(resources.client_memory)} are available."
            )
        return ""

    # Its passes.

    @abstractmethod
    def saved(self, validated: ValidatedRequest, cache: StatisticsCache) -> Saved:
        """Return what the cache has for these data and request."""

    @abstractmethod
    def costs(self, validated: ValidatedRequest, saved: Saved) -> list[PassCost]:
        """Return the costs of the passes up to the end of the search, in their order.

        Parameters
        ----------
        validated : ValidatedRequest
            The data and the request.
        saved : Saved
            What needs no pass.

        Returns
        -------
        list of PassCost
            One entry per kind of pass.
        """

    def check_cost(self, validated: ValidatedRequest, cache: StatisticsCache | None = None) -> PassCost:
        """Return the cost of the final pass on the chosen columns, if they are in the widest chunks of the store.

        Where it is saved for the columns of an earlier run: the cost if the same ones are chosen.
        """
        dataset, k, columns = validated.dataset, validated.most_columns, None
        if dataset.store is not None and dataset.n_targets:
            widths = np.diff(dataset.store.column_bounds)
            widest = np.sort(np.argsort(-widths, kind="stable")[:k])
            columns = np.asarray(dataset.store.column_bounds)[:-1][widest]
        if validated.request.missing != "mean" and grows(dataset):
            if (likely := likely_check_pass(dataset, k, cache)) is not None:
                return likely.cost()
            return check_pass(dataset, np.arange(k) if columns is None else columns, dataset.row_ranges).cost()
        return refit_pass(dataset, k, dataset.n_targets or dataset.n, columns).cost()

    @property
    def search_bytes(self) -> int:
        """Return the bytes of the objective on a worker that runs a part of the search: K, and M where it is kept."""
        return 8 * self.shape.n * self.shape.n * (2 if self.shape.keeps_moments else 1)

    def worker_bytes_of_search(self, tables: int) -> int:
        """Return the memory limit that a worker needs for a part of the search. tables: bytes of its tables."""
        return self.worker_limit(self.search_bytes + tables)

    def worker_limit(self, size: float) -> int:
        """Return the memory limit of a worker that holds `size` bytes of numbers, and the libraries that read X."""
        return memory.worker_limit(size + self.shape.library_bytes)

    def notes(self) -> Iterator[str]:
        """Yield remarks for the user of the plan."""
        return iter(())

    @property
    def planned_counts(self) -> dict[str, int]:
        """Return the counts of the search that are planned, to compare with those measured."""
        return {}

    #: The counts of the search that are compared with the plan.
    measured_counts: ClassVar[tuple[str, ...]] = ()

    def trial(self, dataset: Dataset) -> TrialRead:
        """Return the read of one part of X as tasks read it, to measure the speed of reading."""
        return TrialRead.of(dataset, dataset.blocks[0].x) if dataset.blocks else TrialRead(None, 0)

    # Its preparation.

    @abstractmethod
    def prepare(self, validated: ValidatedRequest, engine: Engine, cache: StatisticsCache | None = None) -> Prepared:
        """Make the passes for the statistics and return the problem, ready to be searched.

        Parameters
        ----------
        validated : ValidatedRequest
            The data and the request.
        engine : Engine
            Where the passes run.
        cache : StatisticsCache, optional
            Where statistics are loaded from and saved.

        Raises
        ------
        DataError
            If the data hold values that cannot be used.
        """


def row_fit(
    validated: ValidatedRequest, statistics: ColumnScales, engine: Engine, cache: StatisticsCache | None = None
) -> Callable[[Ints, float], Fit]:
    """Return the function that recomputes f(S) in one pass over blocks of rows."""
    request = validated.request

    def fit(S: Ints, lam: float) -> Fit:
        return refit(
            validated.dataset, S, statistics.scaling(request.preprocess), lam,
            usable=~statistics.unusable(request.preprocess),
            fill=statistics.mean_x if request.missing == "mean" else None, engine=engine, cache=cache,
        )  # fmt: skip

    return fit

"""A pass: one read of the data, whose cost is known before it runs.

The planner makes the same passes as the run, by the same functions, and adds up their costs. So the plan is the sum of
what will run, not a second description of it.

Accounting of passes: what each pass over the data read and did, to compare with the plan.

The tree in which partial results are merged: FAN_IN at a time, level by level.

The tree depends only on how many leaves there are. Parts of it may be merged on workers, in this process, or in an
earlier run that was interrupted: the result has the same bits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from typing import Any

from dsel._lib.events import emit, is_observed
from dsel.engine.engine_protocol import Engine

#: Partial results merged by one task.
FAN_IN = 4


@dataclass(frozen=True)
class PassCost:
    """The cost of a pass, or of several passes of one kind.

    Parameters
    ----------
    name : str
        What the passes are for.
    passes : int
        How many passes over the data.
    bytes_read : int
        Bytes read, uncompressed, whole chunks.
    tasks : int
        Tasks of the Dask graphs.
    flops : int
        Multiplications and additions.
    partial_bytes : int
        Bytes of the largest partial result of one task.
    """

    name: str
    passes: int = 0
    bytes_read: int = 0
    tasks: int = 0
    flops: int = 0
    partial_bytes: int = 0

    @classmethod
    def total(cls, name: str, costs: Iterable[PassCost]) -> PassCost:
        """Return the sum of some costs under one name."""
        found = list(costs)
        return cls(
            name,
            sum(cost.passes for cost in found),
            sum(cost.bytes_read for cost in found),
            sum(cost.tasks for cost in found),
            sum(cost.flops for cost in found),
            max((cost.partial_bytes for cost in found), default=0),
        )


class Pass(ABC):
    """One read of the data: a function of each block, whose results are merged.

    A pass is made without reading anything. It is made the same way to be planned (`cost`) and to be run (`run`). What
    only earlier passes or the search can tell, such as the means that replace missing values, is an argument of `run`.

    See Also
    --------
    dsel.passes.reduce_blocks.RowPass : A pass over blocks of rows.
    dsel.passes.columns.column_blocks.ColumnPass : A pass over blocks of columns.
    """

    name: str

    @abstractmethod
    def cost(self) -> PassCost:
        """Return the cost of this pass. Nothing is read."""

    @abstractmethod
    def run(self, engine: Engine, *args: Any, **arguments: Any) -> Any:
        """Make the pass and return its merged result.

        Parameters
        ----------
        engine : Engine
            Where the tasks run. Data in memory are processed in this process.
        *args, **arguments
            What the function of a block gets besides the data. Each kind of pass says what it takes.

        Raises
        ------
        DataError
            If a block cannot be read, or holds values that cannot be used.
        ClusterError, CapacityError
            If workers are lost or out of memory.
        """

    @property
    def key(self) -> str:
        """Return the prefix of this pass's task names."""
        return self.name.replace(" ", "-")


def merge_tasks(leaves: int) -> int:
    """Return the number of tasks that merge `leaves` partial results into one, FAN_IN at a time.

    Examples
    --------
    >>> [merge_tasks(leaves) for leaves in (1, 4, 5, 6, 16)]
    [0, 1, 2, 3, 5]
    """
    tasks = 0
    while leaves > 1:
        tasks += leaves // FAN_IN + (leaves % FAN_IN > 1)
        leaves = -(-leaves // FAN_IN)
    return tasks


@dataclass(frozen=True)
class PassRecord:
    """One pass that was made.

    Parameters
    ----------
    name : str
        The name of the pass.
    tasks : int
        Tasks of its Dask graph, 0 for data in memory.
    bytes_read : int
        Bytes that its tasks read, uncompressed, whole chunks.
    seconds : float
        Its duration.
    whole : bool
        Whether it counts as a pass over the data: it read all columns of X, not only some or a cache.
    """

    name: str
    tasks: int
    bytes_read: int
    seconds: float
    whole: bool = True


@dataclass
class PassLog:
    """The passes made so far, in order."""

    records: list[PassRecord] = field(default_factory=list)

    @property
    def passes(self) -> int:
        """Return the number of passes over all of the data."""
        return sum(record.whole for record in self.records)

    @property
    def tasks(self) -> int:
        """Return the tasks of all passes."""
        return sum(record.tasks for record in self.records)

    @property
    def bytes_read(self) -> int:
        """Return the bytes that all passes read."""
        return sum(record.bytes_read for record in self.records)

    @property
    def seconds(self) -> float:
        """Return the duration of all passes."""
        return sum(record.seconds for record in self.records)


_LOGS: ContextVar[tuple[PassLog, ...]] = ContextVar("_LOGS", default=())


@contextmanager
def log_passes() -> Iterator[PassLog]:
    """Yield a log of the passes that this thread makes in the block, also those of nested blocks."""
    log = PassLog()
    token = _LOGS.set((*_LOGS.get(), log))
    try:
        yield log
    finally:
        _LOGS.reset(token)


def record_pass(record: PassRecord) -> None:
    """Add a pass to all open logs."""
    for log in _LOGS.get():
        log.records.append(record)
    if is_observed():
        emit("pass", **asdict(record))


Combine = Callable[[list[Any]], Any]

#: A node of the tree: its level (leaves have 0), the first of its leaves, and its merged result.
Node = tuple[int, int, Any]


def complete_subtrees(first: int, last: int) -> list[tuple[int, int]]:
    """Return (level, first leaf) of the largest nodes that cover the leaves [first, last) exactly, in order.

    Examples
    --------
    >>> complete_subtrees(3, 22)
    [(0, 3), (1, 4), (1, 8), (1, 12), (1, 16), (0, 20), (0, 21)]
    """
    found = []
    while first < last:
        level = 0
        while first % FAN_IN ** (level + 1) == 0 and first + FAN_IN ** (level + 1) <= last:
            level += 1
        found.append((level, first))
        first += FAN_IN**level
    return found


class OnDisk:
    """A result that is in a file, to be loaded when it is merged."""

    def __init__(self, load: Callable[[], Any]) -> None:
        self.load = load


def _loaded(value: Any) -> Any:
    return value.load() if isinstance(value, OnDisk) else value


class MergeTree:
    """The tree, as far as its first leaves are merged. It holds at most FAN_IN - 1 results of each level.

    Parameters
    ----------
    combine : callable, optional
        ``combine(parts)`` merges the results of consecutive nodes from left to right. Without it all results are kept.
    """

    def __init__(self, combine: Combine | None, nodes: Iterable[Node] = ()) -> None:
        self._combine = combine
        self.nodes: list[Node] = []
        self.leaves = 0
        for level, _, value in nodes:
            self.add(level, value)

    def add(self, level: int, value: Any) -> None:
        """Add the result of the next node, of a level."""
        first = self.leaves
        self.leaves += FAN_IN**level
        self.nodes.append((level, first, value))
        while self._combine is not None and self._is_full(level):
            group = self.nodes[-FAN_IN:]
            self.nodes[-FAN_IN:] = [(level + 1, group[0][1], self._combine([_loaded(part) for _, _, part in group]))]
            level += 1

    def add_whole(self, value: Any) -> None:
        """Add the merged result of all leaves."""
        self.nodes = [(0, 0, value)]

    def _is_full(self, level: int) -> bool:
        last = self.nodes[-FAN_IN:]
        return len(last) == FAN_IN and all(one[0] == level for one in last)

    def finish(self) -> list[Any]:
        """Return the merged result of all leaves as a list of one, or without `combine` the results of all nodes."""
        if self._combine is None:
            return [_loaded(value) for _, _, value in self.nodes]
        rest: list[Any] = []
        highest = max(level for level, _, _ in self.nodes)
        for level in range(highest + 1):
            rest = [*(_loaded(value) for at, _, value in self.nodes if at == level), *rest]
            rest = [self._combine(rest)] if len(rest) > 1 else rest
        return rest

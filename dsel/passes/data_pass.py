"""A pass: one read of the data, whose cost is known before it runs.

The planner makes the same passes as the run, by the same functions, and adds up their costs. So the plan is the sum of
what will run, not a second description of it.

Accounting of passes: what each pass over the data read and did, to compare with the plan.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

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

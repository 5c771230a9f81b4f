"""Accounting of passes: what each pass over the data read and did, to compare with the plan."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field


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

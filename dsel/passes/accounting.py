"""What the passes over the data were: counted as they are made, to be held against the plan."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Pass:
    """One pass over all columns (or, not `whole`, over the blocks of some): its name, the tasks of its graph (0: none
    was needed), the bytes that its tasks read, seconds."""

    name: str
    tasks: int
    bytes_read: int
    seconds: float
    whole: bool = True


@dataclass
class Ledger:
    """The passes so far."""

    passes: list[Pass] = field(default_factory=list)

    @property
    def whole(self) -> int:
        """How many there were over all of the data."""
        return sum(one.whole for one in self.passes)

    @property
    def tasks(self) -> int:
        """Tasks of all passes."""
        return sum(one.tasks for one in self.passes)

    @property
    def bytes_read(self) -> int:
        """Bytes that all passes read, uncompressed, whole chunks."""
        return sum(one.bytes_read for one in self.passes)

    @property
    def seconds(self) -> float:
        """Time of all passes."""
        return sum(one.seconds for one in self.passes)


@dataclass
class Counted:
    """A partial result, and the bytes that were read for it."""

    value: Any
    bytes_read: int


_OPEN: ContextVar[tuple[Ledger, ...]] = ContextVar("_OPEN", default=())


@contextmanager
def counted() -> Iterator[Ledger]:
    """The passes made in the block (by this thread), those of inner blocks too."""
    ledger = Ledger()
    token = _OPEN.set((*_OPEN.get(), ledger))
    try:
        yield ledger
    finally:
        _OPEN.reset(token)


def note(name: str, tasks: int, bytes_read: int, seconds: float, whole: bool = True) -> None:
    """A pass was made."""
    for ledger in _OPEN.get():
        ledger.passes.append(Pass(name, tasks, bytes_read, seconds, whole))

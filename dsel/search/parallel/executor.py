"""What goes to a worker and what comes back, and who carries it: the interface of all executors."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from dsel.errors import DselError
from dsel.search.pareto.archive import Subset


@dataclass(frozen=True)
class Slice:
    """Iterations [start, stop) from a snapshot of the archive: (subset, f), oldest first, the empty set left out."""

    start: int
    stop: int
    solutions: tuple[tuple[Subset, float], ...]


@dataclass(frozen=True)
class Package:
    """The work of one future. key: its own among all. load: the subsets to be valued, or a Slice."""

    key: str
    load: tuple[Subset, ...] | Slice

    @property
    def units(self) -> int:
        """Evaluations, or iterations, in it."""
        return self.load.stop - self.load.start if isinstance(self.load, Slice) else len(self.load)


@dataclass(frozen=True)
class Answer:
    """What a package came to, after so many seconds of work.

    found: f of its subsets, in their order (the first ones where `error` stopped it), or (subset, f) of what
    a slice leaves that its snapshot did not hold.
    """

    found: tuple[Any, ...]
    seconds: float
    error: DselError | None = None


@dataclass(frozen=True)
class Lost:
    """A package that never came back; whether it is itself under suspicion (its workers died or hung under it)."""

    why: str
    suspect: bool


#: Small to send: lets go of something that a process keeps from one package to the next.
LetGo = Callable[[], None]


class Work(Protocol):
    """What is done with a package, on a worker: picklable."""

    def __call__(self, package: Package) -> Answer: ...

    def let_go(self) -> tuple[LetGo, ...]:
        """For every process that did some of it, once it is done: so that nothing of it stays in memory."""


class Executor(Protocol):
    """Carries packages to where the work is done. Packages come back in any order, each once, well or lost."""

    @property
    def workers(self) -> int:
        """Packages that can be worked on at the same time, now; at least 1."""

    @property
    def spread(self) -> int:
        """Packages to cut the work into, at least `workers`: more where workers may yet come."""

    @property
    def room(self) -> int:
        """Packages that may be sent now so that no worker is idle."""

    def send(self, package: Package) -> None:
        """Errors: ClusterError where there is nobody to take it any more."""

    def back(self, seconds: float) -> list[tuple[Package, Answer | Lost]]:
        """What has come back, waited for at most so long. Errors: ClusterError when nothing can come back again."""

    def close(self) -> None:
        """Let go of everything that is out."""


@dataclass(frozen=True)
class Carriage:
    """What an executor is asked to heed: seconds that one evaluation may take, processes where it starts its own."""

    evaluation_limit: float | None = None
    processes: int = 1


ExecutorFactory = Callable[[Work, Carriage], Executor]


class Serial:
    """In this process, one package after another: where everything is that the search needs."""

    workers = spread = 1

    def __init__(self, work: Work, carriage: Carriage | None = None) -> None:
        self._work = work
        self._waiting: deque[Package] = deque()

    @property
    def room(self) -> int:
        """One at a time: the next one is made with all that is known."""
        return 1 - len(self._waiting)

    def send(self, package: Package) -> None:
        self._waiting.append(package)

    def back(self, seconds: float) -> list[tuple[Package, Answer | Lost]]:
        if not self._waiting:
            time.sleep(seconds)
            return []
        package = self._waiting.popleft()
        return [(package, self._work(package))]

    def close(self) -> None:
        self._waiting.clear()
        for let_go in self._work.let_go():
            let_go()

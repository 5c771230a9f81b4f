"""Contenders for one lock on a schedule: each step of one of them is one operation on the folder."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from dsel.errors import OutputError
from dsel.storage import locks as module
from dsel.storage.locks import locked
from dsel.storage.paths import AnyPath

#: The operations after which another contender may be next.
OPERATIONS = ("create_file", "list_names", "_read")


#: The number of first steps at which a schedule changes its mind. Every second one does so only where it matters most:
#: before a file is created, and while the lock is held.
CHANGES, STEPS, DECISIVE_STEPS = 3, 60, 10


class Schedule:
    """Let one thread at a time continue, until its next operation on the folder.

    The threads have random priorities, and at a few random steps the one that would continue becomes the last. Such
    schedules find races that need few delays far more often than a random choice at every step.

    Source: Burckhardt et al., "A randomized scheduler with probabilistic guarantees of finding bugs", ASPLOS 2010.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._decisive_only = seed % 2 == 0
        self._changes = set(self._random.sample(range(DECISIVE_STEPS if self._decisive_only else STEPS), CHANGES))
        self._decisive: set[str] = set()
        self._order: list[str] = []
        self._count = 0
        self._turns: dict[str, threading.Event] = {}
        self._waiting: set[str] = set()
        self._lock = threading.Condition()
        self._alive: set[str] = set()

    def step(self, decisive: bool = False) -> None:
        """Wait for the turn of this thread."""
        name = threading.current_thread().name
        if name not in self._turns:
            return
        with self._lock:
            (self._decisive.add if decisive else self._decisive.discard)(name)
            self._waiting.add(name)
            self._lock.notify_all()
        self._turns[name].wait(600)
        self._turns[name].clear()

    def _next(self) -> str:
        """Return the living thread of the highest priority, or make it the last at a step of change."""
        first = next(name for name in self._order if name in self._alive)
        if self._decisive_only and first not in self._decisive:
            return first
        if self._count in self._changes:
            self._order.remove(first)
            self._order.append(first)
            first = next(name for name in self._order if name in self._alive)
        self._count += 1
        return first

    def run(self, works: dict[str, Callable[[], None]]) -> None:
        """Run the works, one step of one of them after the other."""

        def life(name: str, work: Callable[[], None]) -> None:
            self.step()
            try:
                work()
            finally:
                with self._lock:
                    self._alive.discard(name)
                    self._lock.notify_all()

        self._turns = {name: threading.Event() for name in works}
        self._alive = set(works)
        self._order = self._random.sample(sorted(works), len(works))
        for name, work in works.items():
            threading.Thread(target=life, args=(name, work), name=name).start()
        while True:
            with self._lock:
                assert self._lock.wait_for(lambda: self._waiting >= self._alive, 600)
                if not self._alive:
                    return
                name = self._next()
                self._waiting.discard(name)
            self._turns[name].set()


def contend(folder: AnyPath, contenders: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let contenders take and free the lock twice each; return those that held it, and assert that none overlapped."""
    schedule = Schedule(seed)
    held: list[str] = []
    inside: set[str] = set()

    def stepping(function: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*arguments: Any) -> Any:
            schedule.step(function.__name__ == "create_file")
            return function(*arguments)

        return stepped

    def work() -> None:
        name = threading.current_thread().name
        for _ in range(2):
            try:
                with locked(folder, name, "out"):
                    inside.add(name)
                    assert inside == {name}, f"{inside} hold the lock on schedule {seed}"
                    held.append(name)
                    schedule.step(decisive=True)
                    inside.discard(name)
            except OutputError:
                continue
            except AssertionError as error:
                failures.append(str(error))

    failures: list[str] = []
    with monkeypatch.context() as patch:
        for name in OPERATIONS:
            patch.setattr(module, name, stepping(getattr(module, name)))
        schedule.run({f"contender {i}": work for i in range(contenders)})
    assert not failures
    return held

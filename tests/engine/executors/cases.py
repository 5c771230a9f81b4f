"""Criteria that misbehave on workers, and a search to run on any executor."""

from __future__ import annotations

import os
import signal
import time
from functools import cache
from pathlib import Path

from dsel.search.anytime import Stop
from dsel.search.ask_tell import ExecutorOptions, SerialExecutor
from dsel.search.pareto.criterion import CriterionSearch
from dsel.search.pareto.evaluations import EvaluateSubsets
from dsel.search.runtime.dispatcher import Dispatcher
from tests.search.pareto.by_hand import N_COLUMNS, cover, search_of

COLUMNS = tuple((j,) for j in range(N_COLUMNS))
T = 640


class LoggedCriterion:
    """`cover`, which writes each call to a file. It may be slow, or misbehave as `bad` says."""

    def __init__(self, path: Path, seconds: float = 0.0, bad=None) -> None:
        self.path, self.seconds, self.bad = path, seconds, bad

    def __call__(self, S) -> float:
        with self.path.open("a") as file:
            file.write(f"{S}\n")
        time.sleep(self.seconds)
        if self.bad is not None:
            self.bad(S, self.path)
        return cover(S)

    def calls(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []


def hangs_once(S, path: Path) -> None:
    """Hang at the first subset of two columns."""
    if len(S) == 2 and not path.with_suffix(".hung").exists():
        path.with_suffix(".hung").write_text(str(S))
        time.sleep(1000)


def dies_and_hangs(S, path: Path) -> None:
    """Die at the first subset of one column, and hang at the first one of two."""
    if len(S) == 1 and not path.with_suffix(".died").exists():
        path.with_suffix(".died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    hangs_once(S, path)


def raises(S, path: Path) -> None:
    if len(S) == 2:
        raise ZeroDivisionError("no folds left")


def wait_for_second_worker(S, path: Path) -> None:
    """Block all but the first evaluations until the test has seen a second worker."""
    while len(S) > 1 and not path.with_suffix(".second").exists():
        time.sleep(0.01)


@cache
def undisturbed() -> CriterionSearch:
    """Return the search in one process."""
    search = search_of(processors=16, seed=3, T=T)
    Dispatcher(search, SerialExecutor(EvaluateSubsets(cover, None, COLUMNS)), Stop(iterations=T)).run()
    return search


def run(executor, criterion, search=None, journal=None, on_slice=None, **options):
    """Run a search on an executor, and return it with its statistics."""
    search = search or search_of(processors=16, seed=3, T=T)
    work = EvaluateSubsets(criterion, None, COLUMNS)
    dispatcher = Dispatcher(search, executor(work, ExecutorOptions(**options)), Stop(iterations=T), journal)
    dispatcher.run(on_slice)
    return search, dispatcher.stats

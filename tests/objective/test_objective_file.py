"""An objective that workers read from a file: once in a process, by whichever thread needs it first."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dsel.objective import objective_on_workers as module
from dsel.objective.objective_on_workers import ObjectiveFile, save_objective
from dsel.search.ask_tell import Task, call_all
from dsel.search.pareto.slice_work import RunSlices, Slice, SliceRules
from dsel.search.portfolio.steps import RunSteps, Step
from dsel.search.runtime import kept_on_worker
from tests.search.cases import random_data, regression

THREADS = 8


@pytest.fixture
def files(tmp_path: Path) -> list[ObjectiveFile]:
    module._loaded.clear()
    return [save_objective(regression(*random_data(seed, m=30, n=6)), tmp_path) for seed in (1, 2)]


def test_threads_that_begin_at_the_same_moment_read_it_once(
    files: list[ObjectiveFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, read, plain = threading.Barrier(THREADS), [], module._from_arrays

    def counted(arrays: dict[str, Any]) -> Any:
        read.append(threading.current_thread())
        return plain(arrays)

    def load(_: int) -> Any:
        begin.wait()
        return files[0].load()

    monkeypatch.setattr(module, "_from_arrays", counted)
    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(load, range(THREADS)))
    assert len(read) == 1
    assert all(one is found[0] for one in found)


def test_threads_of_two_searches_get_their_own(files: list[ObjectiveFile]) -> None:
    expected = [save_objective(one.load(), one.place.parent).digest for one in files]
    assert expected == [one.digest for one in files]
    folder = files[0].place.parent
    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(lambda i: save_objective(files[i % 2].load(), folder).digest, range(40)))
    assert found == expected * 20


@pytest.mark.parametrize("kind", ["slices", "steps"])
def test_a_task_that_ends_after_its_search_leaves_nothing_in_memory(files: list[ObjectiveFile], kind: str) -> None:
    work: Any = RunSlices(files[0], SliceRules(2, 0))
    part: Any = Slice(0, 50, ())
    if kind == "steps":
        work, part = RunSteps(files[0], 2, 0), Step(0, (), 0, "poss", 0, 50, 60.0)
    kept = kept_on_worker._kept
    assert work(Task("first", part)).found
    assert module._loaded
    assert kept
    call_all(work.cleanup())
    work(Task("late", part))
    assert not module._loaded
    assert not kept

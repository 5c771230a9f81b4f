"""Both engines give the same values, in process or on workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dask.delayed import delayed
from distributed import Client

from dsel.data.dataset import as_dataset
from dsel.engine.base import Engine
from dsel.engine.dask_engine import DaskEngine
from dsel.engine.executors.dask_futures import DaskExecutor
from dsel.engine.thread_engine import THREADS, ThreadEngine
from dsel.passes.gram import gram_statistics
from dsel.search.parallel.executor import ExecutorOptions, SerialExecutor
from dsel.search.parallel.worker_tasks import EvaluateSubsets
from tests.stores import make_store, regression

WORK = EvaluateSubsets(len, None, (0, 1))


@pytest.fixture(scope="module")
def dask_engine() -> Iterator[Engine]:
    with Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None) as client:  # type: ignore[no-untyped-call]
        yield DaskEngine(client)


def test_one_value_or_a_list_of_values(dask_engine: Engine) -> None:
    for engine in (THREADS, dask_engine):
        assert engine.run(delayed(sum)([1, 2])) == 3
        assert engine.run([delayed(sum)([1, 2]), delayed(max)([5, 4])]) == [3, 5]
        assert engine.run(engine.keep([delayed(sum)([i]) for i in range(4)])) == [0, 1, 2, 3]


def test_a_pass_gives_the_same_bits(dask_engine: Engine, tmp_path: Path) -> None:
    dataset = as_dataset(str(make_store(tmp_path / "data.zarr", *regression(m=900), chunks=(100, 24))))
    here, there = (gram_statistics(dataset, engine=engine) for engine in (THREADS, dask_engine))
    assert np.array_equal(here.K, there.K)
    assert np.array_equal(here.B, there.B)


def test_what_an_engine_says_of_itself(dask_engine: Engine) -> None:
    assert (THREADS.workers, THREADS.worker_memory, THREADS.keeps_values, THREADS.in_process) == (1, None, False, True)
    assert ThreadEngine(2, 1 << 30).worker_memory == 1 << 30
    assert (dask_engine.workers, dask_engine.keeps_values, dask_engine.in_process) == (1, True, False)
    assert (dask_engine.worker_memory or 0) > 0


def test_the_executor_of_each_engine(dask_engine: Any) -> None:
    options = ExecutorOptions()
    assert isinstance(THREADS.executor(WORK, options), SerialExecutor)
    executor = dask_engine.executor(WORK, options)
    assert isinstance(executor, DaskExecutor)
    executor.close()

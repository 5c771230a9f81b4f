"""Both engines give the same values, in process or on workers."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import numpy as np
import pytest
from dask.delayed import delayed
from distributed import Client, futures_of, wait

from dsel.data.as_dataset import as_dataset
from dsel.engine import parcel as large_values
from dsel.engine.dask_engine import SMALL_BYTES, SMALL_FLOPS, DaskEngine, WorkersOnDemand
from dsel.engine.dask_futures import DaskExecutor
from dsel.engine.engine_protocol import THREADS, Engine, ThreadEngine
from dsel.passes.columns import column_blocks
from dsel.passes.columns.column_blocks import ColumnBlocks
from dsel.passes.columns.column_factor import ColumnFactor
from dsel.passes.columns.column_statistics import column_statistics
from dsel.passes.columns.eigendecomposition import exact_eigendecomposition, randomized_eigendecomposition
from dsel.passes.gram import gram_statistics
from dsel.search.ask_tell import ExecutorOptions, SerialExecutor
from dsel.search.pareto.evaluations import EvaluateSubsets
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
    assert (THREADS.workers, THREADS.worker_memory, THREADS.in_process) == (1, None, True)
    assert ThreadEngine(2, 1 << 30).worker_memory == 1 << 30
    assert (dask_engine.workers, dask_engine.in_process) == (1, False)
    assert (dask_engine.worker_memory or 0) > 0


def test_tasks_that_run_while_another_one_fails_end_before_the_error_is_raised() -> None:
    begun, ended = threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        time.sleep(0.2)
        ended.set()

    def failing() -> None:
        begun.wait(600)
        raise ValueError("a block is damaged")

    with dask.config.set(num_workers=2), pytest.raises(ValueError, match="damaged"):
        THREADS.run([delayed(slow)(), delayed(failing)()])
    assert ended.is_set()


def test_the_executor_of_each_engine(dask_engine: Any) -> None:
    options = ExecutorOptions()
    assert isinstance(THREADS.executor(WORK, options), SerialExecutor)
    executor = dask_engine.executor(WORK, options)
    assert isinstance(executor, DaskExecutor)
    executor.close()


# --- large values ---


@pytest.fixture
def small_graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A warning of distributed, which is an error, for a graph of more than 64 KiB; values are cut into 16 KiB."""
    for module in (large_values, column_blocks):
        monkeypatch.setattr(module, "MOST_WITH_GRAPH", 16 << 10)
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "64KiB"}), warnings.catch_warnings():
        warnings.filterwarnings("error", "Sending large graph")
        yield


def test_a_large_value_is_not_sent_with_the_graph(dask_engine: Any, small_graphs: None) -> None:
    value = {"a": np.arange(30_000.0), "b": np.asfortranarray(np.ones((100, 100))), "c": [1, "x"]}
    with pytest.raises(UserWarning, match="large graph"):
        dask_engine.run(delayed(sorted)(delayed(value, traverse=False)))
    kept: list[Any] = []
    found = dask_engine.run(delayed(_doubled)(dask_engine.share(value, "some-value", kept)))
    assert len(kept) > 2
    assert np.array_equal(found["a"], 2 * value["a"])
    assert np.array_equal(found["b"], 2 * value["b"])
    assert found["c"] == value["c"]


def _doubled(value: Any) -> Any:
    value["a"] *= 2
    value["b"] *= 2
    return value


def test_no_graph_of_an_eigendecomposition_is_large(dask_engine: Any, tmp_path: Path, small_graphs: None) -> None:
    X = np.random.default_rng(3).normal(size=(120, 900))
    blocks = ColumnBlocks(as_dataset(str(make_store(tmp_path / "wide.zarr", X, chunks=(120, 100)))))
    here, there = (
        ColumnFactor(blocks, column_statistics(blocks), "center", "error", one) for one in (THREADS, dask_engine)
    )
    assert np.array_equal(exact_eigendecomposition(here).W, exact_eigendecomposition(there).W)
    assert np.array_equal(
        randomized_eigendecomposition(here, 1.0, 20).W, randomized_eigendecomposition(there, 1.0, 20).W
    )


def test_a_piece_that_is_lost_with_its_worker_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_values, "MOST_WITH_GRAPH", 16 << 10)
    with Client(processes=False, n_workers=2, threads_per_worker=1, dashboard_address=None) as client:  # type: ignore[no-untyped-call]
        kept: list[Any] = []
        value = DaskEngine(client).share(np.arange(30_000.0), "some-value", kept)
        wait([futures_of(piece) for part in kept for piece in part])
        client.cluster.sync(next(iter(client.cluster.workers.values())).close)
        assert DaskEngine(client).run(delayed(np.sum)(value)) == np.arange(30_000.0).sum()


def test_values_kept_by_the_last_worker_are_computed_again_by_the_next_one() -> None:
    with Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None) as client:  # type: ignore[no-untyped-call]
        engine, cluster = DaskEngine(client), client.cluster
        kept = engine.keep([delayed(sum)([i]) for i in range(4)])
        wait(futures_of(kept))
        name, worker = cluster.workers.popitem()
        del cluster.worker_spec[name]
        cluster.sync(worker.close)
        cluster.scale(1)
        assert engine.run(kept) == [0, 1, 2, 3]


# --- workers on demand ---


def test_workers_start_with_the_first_work_that_needs_them(dask_engine: Any) -> None:
    started: list[int] = []

    def start() -> DaskEngine:
        started.append(1)
        return dask_engine  # type: ignore[no-any-return]

    engine = WorkersOnDemand(start, 3, 1 << 30)
    assert (engine.workers, engine.worker_memory, engine.in_process) == (3, 1 << 30, False)
    assert engine.for_pass(SMALL_BYTES, SMALL_FLOPS, 8) is THREADS
    assert engine.peak_memory() == {}
    assert callable(engine.executor)
    with engine.errors(lambda error: None), pytest.raises(KeyError), engine.errors(lambda error: None):
        raise KeyError
    assert not started
    for bytes_read, flops in ((SMALL_BYTES + 1, 0), (0, SMALL_FLOPS + 1)):
        assert WorkersOnDemand(start, 1, None).for_pass(bytes_read, flops, 8) is dask_engine
    assert engine.run(delayed(sum)([1, 2])) == 3
    assert (len(started), engine.workers) == (3, 1)
    assert engine.for_pass(1, 1, 8) is dask_engine  # they run already


def test_a_pass_too_large_for_this_process_starts_workers(dask_engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=1 << 20))
    assert WorkersOnDemand(lambda: dask_engine, 1, None).for_pass(1 << 20, 1, 8) is dask_engine

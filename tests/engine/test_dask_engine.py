"""Which workers are used, and what their errors become."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dask.delayed import delayed
from distributed import Client

import dsel
from dsel.engine.connect import active_client
from dsel.engine.dask_engine import DaskEngine
from dsel.errors import CapacityError, OptionError
from tests.stores import make_store, regression

X, Y = regression(m=500)
IN_PROCESS = {"processes": False, "n_workers": 1, "threads_per_worker": 1, "dashboard_address": None}


@pytest.fixture
def client() -> Iterator[Any]:
    with Client(**IN_PROCESS) as client:  # type: ignore[no-untyped-call]
        yield client


def test_inside_a_task_its_own_threads_do_the_work(client: Any, tmp_path: Path) -> None:
    """Its client would wait for a worker that waits for it."""
    store = make_store(tmp_path / "data.zarr", X, Y, chunks=(100, 24))
    assert active_client() is client
    assert client.submit(active_client).result(timeout=600) is None
    found = client.submit(dsel.select, str(store), k=3, method="forward").result(timeout=600)
    assert found.indices == dsel.select(X, Y, k=3, method="forward").indices


def test_an_asynchronous_client_is_refused() -> None:
    async def look() -> None:
        async with Client(**IN_PROCESS, asynchronous=True):  # type: ignore[no-untyped-call]
            active_client()

    with pytest.raises(OptionError, match="asynchronous=False"):
        asyncio.run(look())


def _too_much() -> None:
    raise MemoryError("Unable to allocate 3 TiB")


def test_a_task_out_of_memory_is_an_error_of_capacity(client: Any) -> None:
    with pytest.raises(CapacityError, match="Unable to allocate 3 TiB") as found:
        DaskEngine(client).run(delayed(_too_much)())
    assert found.value.exit_code == 71


def _slow_sum(*values: int) -> int:
    time.sleep(0.15)
    return sum(values)


def test_only_finished_tasks_count_and_their_number_never_falls(client: Any) -> None:
    """The scheduler forgets finished tasks that nothing needs; tasks it has not received yet look the same."""
    said: list[int] = []
    leaves = [delayed(_slow_sum)(i, dask_key_name=f"slow-{i}") for i in range(8)]
    merged = [delayed(_slow_sum)(*leaves[i : i + 4], dask_key_name=f"merged-{i}") for i in (0, 4)]
    engine = DaskEngine(client, lambda done, total: said.append(done))
    assert engine.run(delayed(_slow_sum)(*merged, dask_key_name="slow-all")) == 28
    assert said == sorted(said)
    assert said[0] < 8
    assert len(set(said)) > 2


def test_tasks_that_compute_an_array_do_not_count(client: Any) -> None:
    array = pytest.importorskip("dask.array")
    said: list[tuple[int, int]] = []
    parts = [(array.ones((20, 3), chunks=(5, 3)) + i).to_delayed() for i in range(2)]
    leaves = [delayed(np.sum)(part.ravel().tolist(), dask_key_name=f"check-{i}") for i, part in enumerate(parts)]
    merged = delayed(sum)(leaves, dask_key_name="check-merge-0")
    assert DaskEngine(client, lambda done, total: said.append((done, total))).run(merged, after=4) == 180
    assert said[-1] == (3, 7)


def test_several_are_brought_in_their_order_and_released(client: Any) -> None:
    said: list[tuple[int, int]] = []
    values = [delayed(int)(text) for text in ("3", "1", "2")]
    assert DaskEngine(client, lambda done, total: said.append((done, total))).run(values) == [3, 1, 2]
    assert said[-1] == (3, 3)
    deadline = time.monotonic() + 600.0
    while client.futures and time.monotonic() < deadline:  # the client's own thread releases them
        time.sleep(0.01)
    assert not client.futures
    with pytest.raises(CapacityError):
        DaskEngine(client).run([*values, delayed(_too_much)()])

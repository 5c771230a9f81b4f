"""A pass costs what it says beforehand: passes, bytes and tasks are those that are counted when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest

from dsel.data.as_dataset import as_dataset
from dsel.data.dataset import Dataset
from dsel.data.row_partition import RowPartition
from dsel.engine.engine_protocol import ThreadEngine
from dsel.passes.columns.column_blocks import ColumnBlocks
from dsel.passes.columns.column_factor import ColumnFactor, leading_rows_pass, product_pass, row_gram_pass
from dsel.passes.columns.column_statistics import column_means_pass, column_moments_pass, column_statistics
from dsel.passes.data_pass import Pass, PassCost, log_passes
from dsel.passes.gram import fold_pass, gram_pass, means_pass, tile_passes
from dsel.passes.moments import plan_tiles
from dsel.passes.reduce_blocks import RowPass
from tests.stores import make_store, regression

CHUNKS = [(17, 60), (60, 60), (1, 60), (30, 5), (12, 7)]


@pytest.fixture(params=CHUNKS, ids=str)
def dataset(request: Any, tmp_path: Path) -> Dataset:
    X, Y = regression(m=60, n=60)
    return as_dataset(make_store(tmp_path / "s.zarr", X, Y, request.param))


def agrees(one: Pass, **arguments: Any) -> Any:
    """Run a pass, and compare its cost with what was counted."""
    cost = one.cost()
    with log_passes() as log:
        found = one.run(ThreadEngine(), **arguments)
    assert (log.passes, log.bytes_read, log.tasks) == (cost.passes, cost.bytes_read, cost.tasks)
    return found


def test_passes_over_rows(dataset: Dataset) -> None:
    agrees(gram_pass(dataset, dataset.row_ranges))
    agrees(means_pass(dataset, dataset.row_ranges))
    agrees(fold_pass(dataset, RowPartition(60, 3, repeats=2), dataset.row_ranges))
    for one in tile_passes(dataset, plan_tiles(60, 8 * 32 * 32), dataset.row_ranges):
        agrees(one)


def test_passes_over_columns(dataset: Dataset) -> None:
    blocks = ColumnBlocks(dataset)
    scaling = np.zeros((2, 60))
    agrees(column_means_pass(blocks))
    agrees(column_moments_pass(blocks))
    agrees(product_pass(blocks, 3), per_column=scaling, shared=np.ones((60, 3)))
    agrees(leading_rows_pass(blocks), per_column=scaling, shared=np.arange(0, 60, 9))
    if not blocks.by_rows:
        agrees(row_gram_pass(blocks), per_column=scaling)


@pytest.mark.parametrize("kind", ["memory", "dask"])
def test_other_data(kind: str) -> None:
    X, Y = regression(m=200)
    dataset = as_dataset(X if kind == "memory" else da.from_array(X, chunks=(30, 24)), Y)  # type: ignore[no-untyped-call]
    agrees(gram_pass(dataset, dataset.row_ranges))
    agrees(column_moments_pass(ColumnBlocks(dataset)))


class _Keeping(ThreadEngine):
    def keep(self, values: list[Any]) -> list[Any]:
        import dask

        return list(dask.persist(*values, scheduler="synchronous"))  # type: ignore[attr-defined,no-untyped-call]


def test_blocks_that_workers_keep_are_loaded_once(tmp_path: Path) -> None:
    X, Y = regression(m=200)
    dataset = as_dataset(make_store(tmp_path / "s.zarr", X, Y, (200, 5)))
    blocks, engine = ColumnBlocks(dataset, keep=True), _Keeping()
    with log_passes() as log:
        statistics = column_statistics(blocks, "refuse", engine)
        factor = ColumnFactor(blocks, statistics, "center", "refuse", engine)
        products = factor.products(np.ones((200, 2)))
        factor.columns(np.array([3, 9]))
    costs = (blocks.load_cost(), column_moments_pass(blocks).cost(), product_pass(blocks, 2).cost())
    planned = PassCost.total("all", costs)
    assert (planned.passes, planned.bytes_read) == (1, dataset.x_bytes + dataset.y_bytes)
    assert (log.passes, log.bytes_read) == (planned.passes, planned.bytes_read)
    assert sum(record.tasks for record in log.records[:-1]) == planned.tasks
    np.testing.assert_allclose(products, np.ones((2, 200)) @ (X - X.mean(axis=0)), atol=1e-9)


def test_costs_add_up() -> None:
    X, _ = regression(m=60)
    one = RowPass("sums", as_dataset(X), lambda x, y, block: x.sum(axis=0), np.add, 8 * 24, flops=5)
    total = PassCost.total("both", [one.cost(), one.cost()])
    assert total == PassCost("both", 2, 2 * X.nbytes, 0, 10, 8 * 24)
    np.testing.assert_allclose(one.run(), X.sum(axis=0))

"""K by tiles is K: every entry of its upper triangle summed once, in as few reads as the memory of a worker allows."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsel.data.as_dataset import as_dataset
from dsel.data.ingest import ingest_arrays
from dsel.errors import CapacityError
from dsel.passes.data_pass import log_passes
from dsel.passes.gram import gram_statistics
from dsel.passes.moments import NARROWEST, plan_tiles
from tests.stores import count_reads, reads_so_far, regression


@given(n=st.integers(1, 3000), share=st.floats(0.01, 1.5))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_tiles_cover_the_upper_triangle_once_and_fill_what_they_may(n: int, share: float) -> None:
    budget = max(8 * n * n * share, 8 * min(n, NARROWEST) ** 2)
    tiling = plan_tiles(n, budget)
    seen = np.zeros((n, n), np.int8)
    for read in tiling.reads:
        assert sum(strip.nbytes for strip in read) <= budget
        for s in read:
            seen[s.top : s.bottom, s.left : s.right] += 1
    assert seen.max() == 1
    assert seen[np.triu_indices(n)].all()
    fewest = math.ceil(4 * n * (n + 1) / budget)  # bytes of the triangle itself
    assert len(tiling.reads) <= (fewest + 2 if budget > 8 * 300**2 else 4 * fewest + 4)


def test_one_read_where_all_fits_and_more_memory_never_means_more_reads() -> None:
    assert len(plan_tiles(1000, 8 * 1000 * 1000).reads) == 1
    reads = [len(plan_tiles(5000, budget).reads) for budget in np.geomspace(2e6, 3e8, 30)]
    assert reads == sorted(reads, reverse=True)
    with pytest.raises(CapacityError, match="a tile of the Gram matrix needs"):
        plan_tiles(5000, 1000)


@pytest.mark.parametrize("chunks", [(100, 60), (70, 25), (600, 7)])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_statistics_are_those_of_one_pass(tmp_path: Path, chunks: tuple[int, int], weighted: bool) -> None:
    X, Y = regression(n=60)
    X[3, 5] = np.nan
    rng = np.random.default_rng(0)
    store = tmp_path / "s.zarr"
    ingest_arrays(X, store, y=Y, chunks=chunks, weight=rng.uniform(0, 2, 600) if weighted else None)
    dataset = as_dataset(store)
    tiling = plan_tiles(60, 8 * 32 * 32)
    assert len(tiling.reads) >= 3
    expected = gram_statistics(dataset, missing="mean")
    count_reads()
    with log_passes() as log:
        found = gram_statistics(dataset, missing="mean", tiling=tiling)
    passes = log.passes
    assert passes == 1 + len(tiling.reads)
    for name in ("mean_x", "mean_y", "K", "B", "yy", "weight", "constant"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-11, atol=1e-9)
    times = reads_so_far()
    of_last = max(int(key.split("/")[-1]) for key in times if key.startswith("X/"))
    assert times["X/c/0/0"] < passes if of_last > 1 else times["X/c/0/0"] == passes
    assert times[f"X/c/0/{of_last}"] == passes
    assert times["Y/c/0/0"] == 1  # read with the first tiles alone; the means of X are counted without

"""Measure greedy RLS in memory, as the number of rows grows, and out of core.

In memory it is compared with Algorithm 3 of the paper in plain NumPy. Out of core it is compared with reading the data
alone and with the arithmetic alone.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import dsel
from dsel._lib.types import Floats
from dsel.data.as_dataset import as_dataset
from dsel.data.blocks import Block
from dsel.data.dataset import Dataset
from dsel.data.generate import generate_regression
from dsel.engine.clusters.local import local_cluster
from dsel.engine.dask_engine import DaskEngine
from dsel.engine.engine_protocol import THREADS, Engine
from dsel.objective.cross_validation.losses import block_errors
from dsel.passes.cross_validation.rows import DatasetRows
from dsel.passes.gram import gram_statistics
from dsel.passes.reduce_blocks import RowPass
from dsel.search.cross_validation.rounds import GreedyRls
from pipelines.benchmarks.protocol import Benchmark
from pipelines.benchmarks.synthetic import regression_data

N, K = 1000, 50

#: Floating-point operations per element, plus 2 s for s chosen columns (one target, squared loss).
FLOPS = 9


def memory(quick: bool) -> dict[str, Any]:
    """Compare with Algorithm 3 in memory."""
    return _show(in_memory(5_000 if quick else 50_000))


def height(quick: bool) -> dict[str, Any]:
    """Measure rounds as the number of rows grows."""
    return time_against_height((5_000, 10_000) if quick else (50_000, 100_000, 200_000, 400_000, 1_000_000))


def disk(quick: bool) -> dict[str, Any]:
    """Measure rounds out of core, on generated data of 4 GB."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "generated.zarr"
        generate_regression(store, samples=50_000 if quick else 1_000_000, features=N)
        return _show(out_of_core(store, rounds=6))


def _show(figures: dict[str, Any]) -> dict[str, Any]:
    for key, value in figures.items():
        print(f"{key}: {value}", flush=True)
    return figures


def plain_algorithm_3(X: Floats, y: Floats, k: int, lam: float) -> list[int]:
    """Return the columns that Algorithm 3 chooses, in NumPy, a block of candidates at a time. Squared loss."""
    m, n = X.shape
    a, d, C = y / lam, np.ones(m) / lam, X / lam
    S: list[int] = []
    step = max(1, (1 << 18) // m)
    while len(S) < k:
        errors = np.empty(n)
        for start in range(0, n, step):
            part = slice(start, start + step)
            v, c = X[:, part], C[:, part]
            u = c / (1.0 + np.einsum("mn,mn->n", v, c))
            left = (a[:, None] - u * (a @ v)) / (d[:, None] - u * c)
            errors[part] = np.einsum("mn,mn->n", left, left)
        errors[S] = np.inf
        b = int(np.argmin(errors))
        u = C[:, b] / (1.0 + X[:, b] @ C[:, b])
        a, d = a - u * (X[:, b] @ a), d - u * C[:, b]
        C -= np.outer(u, X[:, b] @ C)
        S.append(b)
    return S


def in_memory(m: int) -> dict[str, Any]:
    """Return the wall time of `dsel.select` and of Algorithm 3 for k = 50 of 1000 columns and m rows."""
    X, y = regression_data(m, N)
    _ours(X[:500], y[:500], 2)
    seconds, found = _timed(lambda: _ours(X, y, K))
    plain, expected = _timed(lambda: plain_algorithm_3(X, y[:, 0], K, 1.0))
    search = found.seconds["search"]
    same = _ours(X, y, K, preprocess="none").indices == tuple(expected)
    return {
        "rows_in_memory": m, "seconds_dsel": seconds, "seconds_of_its_search": search, "seconds_numpy": plain,
        "numpy_over_dsel": plain / seconds, "numpy_over_search": plain / search, "same_selection": same,
    }  # fmt: skip


def _ours(X: Floats, y: Floats, k: int, **options: Any) -> dsel.Selection:
    return dsel.select(X, y, k=k, method="greedy-rls", lam=1.0, **options)


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    answer = work()
    return time.perf_counter() - start, answer


def time_against_height(heights: Sequence[int]) -> dict[str, Any]:
    """Return how far the seconds per round are from proportional to the number of rows in memory."""
    each = {m: seconds_per_round(m) for m in heights}
    for m, (seconds, cached) in each.items():
        _show({f"seconds_per_round_{m}_rows": f"{seconds:.4g} ({'with' if cached else 'without'} the cache)"})
    per_row = [seconds / m for m, (seconds, _) in each.items()]
    return _show({"most_over_least_per_row": max(per_row) / min(per_row)})


def seconds_per_round(m: int) -> tuple[float, bool]:
    """Return the seconds per round on m rows in memory (mean of five), and whether the cache fitted."""
    block = np.random.default_rng(0).standard_normal((min(m, 50_000), N), np.float32)
    X = np.empty((m, N), np.float32)
    for start in range(0, m, len(block)):  # repeated rows do: only the time matters
        X[start : start + len(block)] = block[: m - start]
    y = X[:, :5].sum(axis=1, dtype=np.float64) + np.random.default_rng(1).standard_normal(m)
    dataset = as_dataset(X, y)
    statistics = gram_statistics(dataset)
    search, rows = _search(dataset, statistics, THREADS)
    _rounds(search, rows, 1)  # makes the cache, if it fits
    return _timed(partial(_rounds, search, rows, 5))[0] / 5, rows.passes == 0


def _search(dataset: Dataset, statistics: Any, engine: Engine) -> tuple[GreedyRls, DatasetRows]:
    rows = DatasetRows(dataset, statistics, "standardize", engine=engine)
    return GreedyRls(rows.problem(1.0), K, range(dataset.n)), rows


def _rounds(search: GreedyRls, rows: DatasetRows, count: int) -> None:
    for _ in range(count):
        round = search.ask()
        assert round is not None
        search.tell(rows.errors(round))


def _read_alone(dataset: Dataset, engine: Engine) -> None:
    RowPass("read", dataset, _touch, np.add, 8).run(engine)


def _touch(x: Any, y: Any, block: Block) -> Floats:
    return np.zeros(1)


def _chunk_reads(client: Any) -> int:
    counts = client.run(_reads_of_x)
    return int(sum(counts.values()))


def _count_reads() -> None:
    from dsel.data.store.array import StoredArray

    if hasattr(StoredArray, "_rows_read"):
        StoredArray._rows_read = 0
        return
    plain = StoredArray.read
    StoredArray._rows_read = 0  # type: ignore[attr-defined]

    def read(self: Any, start: int, stop: int, columns: Any = None) -> Any:
        if self.variable == "X":
            StoredArray._rows_read += stop - start  # type: ignore[attr-defined]
        return plain(self, start, stop, columns)

    StoredArray.read = read  # type: ignore[method-assign]


def _reads_of_x() -> int:
    from dsel.data.store.array import StoredArray

    return int(getattr(StoredArray, "_rows_read", 0))


def _written() -> int:
    """Return the bytes that this process has written to storage so far."""
    with open("/proc/self/io") as io:
        return next(int(line.split()[1]) for line in io if line.startswith("write_bytes"))


def out_of_core(store: Path, rounds: int) -> dict[str, Any]:
    """Return the time of rounds on two workers of 1 GiB, of reading alone, and of the arithmetic alone."""
    dataset = as_dataset(str(store))
    with local_cluster(2, "1GiB") as client:
        engine = DaskEngine(client)
        statistics = gram_statistics(dataset, engine=engine)
        search, rows = _search(dataset, statistics, engine)
        _rounds(search, rows, 1)  # loads the compiled code
        client.run(_count_reads)
        before, files = sum(client.run(_written).values()), _bytes_under(store)
        seconds = reading = 0.0
        for _ in range(rounds):  # alternating, so that other load affects both
            seconds += _timed(lambda: _rounds(search, rows, 1))[0]
            reading += _timed(lambda: _read_alone(dataset, engine))[0] / rounds
        written = sum(client.run(_written).values()) - before + _bytes_under(store) - files
        reads = _chunk_reads(client) / dataset.m / rounds - 1.0  # less the pass that only reads
        arithmetic = _arithmetic_alone(dataset, search, rows, client, rounds)
        peaks = [f"{peak / 2**20:.0f} of {limit / 2**20:.0f} MiB" for peak, limit in engine.peak_memory().values()]
    floor = max(reading, arithmetic)
    per_element = 2 * (1 + rounds // 2) + FLOPS
    return {
        "store": str(store), "rows": dataset.m, "bytes_per_round": dataset.nbytes,
        "seconds_per_round": seconds / rounds,
        "seconds_reading_alone": reading, "GB_per_second_reading": dataset.nbytes / reading / 1e9,
        "seconds_arithmetic_alone": arithmetic, "flops_per_element": per_element,
        "GFLOP_per_second": per_element * dataset.m * dataset.n / arithmetic / 1e9,
        "out_of_core_over_floor": seconds / rounds / floor, "over_both": seconds / rounds / (reading + arithmetic),
        "reads_per_round": reads, "bytes_written": written, "worker_memory": peaks,
    }  # fmt: skip


def _arithmetic_alone(dataset: Dataset, search: GreedyRls, rows: DatasetRows, client: Any, rounds: int) -> float:
    """Return the seconds that the arithmetic of one round takes for all rows on both workers.

    Both workers repeat it on one block in memory, with half of the rounds' columns chosen.
    """
    from dsel.objective.cross_validation.leave_one_out import prepare

    half = prepare(search.problem, np.asarray(search.members[: 1 + rounds // 2], np.int64))
    block = dataset.blocks[0]
    share = dataset.m / (block.stop - block.start) / 2

    spent = client.run(_repeat_block, block, half, rows.transform, max(1, round(share / 10)))
    return float(max(spent.values()) * share)


def _repeat_block(block: Block, round: Any, transform: Any, times: int) -> float:
    """Return the seconds per block."""
    from threadpoolctl import threadpool_limits

    from dsel.data.blocks import load_block

    x, y = load_block(block.x), load_block(block.y)
    with threadpool_limits(1, "blas"):
        start = time.perf_counter()
        for _ in range(times):
            block_errors(x, y, block, round, transform, "the data")
    return (time.perf_counter() - start) / times


def _bytes_under(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.parent.rglob("*") if path.is_file())


BENCHMARK = Benchmark(
    "greedy-rls",
    "Measure greedy RLS in memory, as rows grow, and out of core on two workers of 1 GiB.",
    {"memory": memory, "height": height, "disk": disk},
)

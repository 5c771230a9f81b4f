"""Compare the Gram pass and the eigendecomposition (rank 50) with dask.array and dask-ml, out of core.

The data are several times as large as the workers' memory. The "floor" reads the same bytes and makes the same BLAS
calls as the Gram pass, and does nothing else. Each computation gets a fresh cluster. What workers read is counted where
zarr opens chunks of X: the operating system also counts modules, and the partial sums that workers send each other.
"""

from __future__ import annotations

import logging
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
from scipy.linalg.blas import dsyrk

from dsel._lib.types import Floats
from dsel.data.as_dataset import as_dataset
from dsel.data.blocks import PIECE_BYTES
from dsel.data.dataset import Dataset
from dsel.data.generate import generate_regression
from dsel.engine.clusters.local import local_cluster
from dsel.engine.dask_engine import DaskEngine
from dsel.passes.data_pass import log_passes
from dsel.passes.gram import gram_statistics
from dsel.passes.reduce_blocks import RowPass
from dsel.planning.representations.choice import choose
from dsel.planning.representations.representation import ProblemShape, Resources
from dsel.search.method import Requirements
from pipelines.table import json_line, text_table

RANK, WORKERS = 50, 2
#: Seconds after which a computation is abandoned.
TIMEOUT = 300.0


@dataclass(frozen=True)
class Measured:
    """Wall seconds, peak memory of a worker in bytes, bytes read over bytes of X, and the computed value.

    passes: the chunk files of X that workers read. recorded: the records of the passes of dsel; 0 for other tools.
    """

    seconds: float
    peak: int
    passes: float
    recorded: float
    value: Any


def run(quick: bool, store: Path | None = None, memory: str = "1GiB") -> dict[str, float]:
    """Print a table and, as the last line, the ratios as JSON."""
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        if store is None:
            store = Path(folder) / "data.zarr"
            m, n = (100_000, 400) if quick else (1_000_000, 1000)
            generate_regression(store, samples=m, features=n, worker_memory=1 << 30)
        dataset = as_dataset(str(store), unsupervised=True)
        limit = _limit(memory)
        figures = _compare(dataset, memory)
        found = _ratios(dataset, figures, limit)
    exact = figures["eigendecomposition"]
    for name in ("dask svd_compressed", "dask-ml PCA"):
        peer = figures.get(name)
        if peer is not None and exact is not None:
            off = float(np.abs(peer.value / exact.value - 1.0).max())
            print(f"{name}: largest relative error of an eigenvalue {off:.1e}")
    rows = [
        [
            name,
            f"{f.seconds:.1f}",
            f"{f.peak / 2**20:.0f}",
            f"{f.passes:.2f}",
            f"{f.recorded:.2f}" if f.recorded else "-",
        ]
        if f
        else [name, "-", "-", "-", "-"]
        for name, f in figures.items()
    ]
    m, n = dataset.m, dataset.n
    print(f"{m} x {n}, {dataset.x_bytes / 1e9:.2f} GB, {WORKERS} workers of {memory}; rank {RANK}")
    print(text_table(["", "seconds", "peak MiB", "passes read", "recorded"], rows))
    print(json_line(found))
    return found


def _limit(memory: str) -> int:
    from dask.utils import parse_bytes

    return int(parse_bytes(memory))


def _compare(dataset: Dataset, memory: str) -> dict[str, Measured | None]:
    works: dict[str, Callable[[Dataset, Any], Any]] = {
        "floor of the Gram pass": _floor,
        "Gram pass": lambda dataset, client: gram_statistics(dataset, engine=DaskEngine(client)),
        "eigendecomposition": _eigen,
        "dask X.T @ X": _plain_gram,
        "dask svd_compressed": _svd_compressed,
    }
    if find_spec("dask_ml") is not None:
        works["dask-ml PCA"] = _pca
    return {name: _measure(dataset, work, memory) for name, work in works.items()}


def _measure(dataset: Dataset, work: Callable[[Dataset, Any], Any], memory: str) -> Measured | None:
    """Return the measurements of a computation, or None if it failed or took too long."""
    with local_cluster(WORKERS, memory) as client:
        client.run(_warm_up)
        found: list[Any] = []
        start = time.perf_counter()
        runner = threading.Thread(target=_attempt, args=(work, dataset, client, found), daemon=True)
        runner.start()
        runner.join(TIMEOUT)
        seconds = time.perf_counter() - start
        if not found or isinstance(found[0], Exception):
            print(f"{work.__name__.strip('_')}: {found[0] if found else f'abandoned after {TIMEOUT:.0f} s'}")
            return None
        read = sum(client.run(_bytes_read).values())
        peak = max(peak for peak, _ in DaskEngine(client).peak_memory().values())
    value, recorded = found[0]
    return Measured(seconds, peak, read / _stored_bytes(dataset), recorded / dataset.x_bytes, value)


def _attempt(work: Callable[[Dataset, Any], Any], dataset: Dataset, client: Any, found: list[Any]) -> None:
    with client.as_current(), log_passes() as made:
        try:
            value = work(dataset, client)
            found.append((value, made.bytes_read))
        except Exception as error:  # reported in place of the figures
            found.append(error)


def _warm_up() -> None:
    import dask.array
    import scipy.linalg

    import dsel.passes.gram

    assert dask.array
    assert scipy.linalg
    assert dsel.passes.gram
    _count_chunks()


#: The bytes of the chunks of X that zarr has read in this worker.
_CHUNKS = [0]


def _count_chunks() -> None:
    """Count the bytes of chunks of X that zarr reads here from now on. dsel and Dask open different kinds of store."""
    from zarr.storage import FsspecStore, LocalStore

    LocalStore.get = _counted(LocalStore.get)  # type: ignore[method-assign]
    FsspecStore.get = _counted(FsspecStore.get)  # type: ignore[method-assign]


def _counted(plain: Any) -> Any:
    async def get(self: Any, key: str, *args: Any, **named: Any) -> Any:
        value = await plain(self, key, *args, **named)
        if value is not None and "X/c/" in f"{self}/{key}":
            _CHUNKS[0] += len(value)
        return value

    return get


def _bytes_read() -> int:
    return _CHUNKS[0]


def _stored_bytes(dataset: Dataset) -> int:
    """Return the bytes of all chunk files of X."""
    return sum(path.stat().st_size for path in (Path(dataset.name) / "X" / "c").rglob("*") if path.is_file())


def multiply_block(x: Any, y: Any, block: Any) -> int:
    """Convert and multiply one block as the Gram pass does, and return its rows."""
    r, n = x.shape
    K = np.zeros((n, n), order="F")
    step = max(1, PIECE_BYTES // (8 * n))
    for start in range(0, r, step):
        K = dsyrk(1.0, np.asarray(x[start : start + step], np.float64).T, beta=1.0, c=K, overwrite_c=1)
    return int(r)


def _add(a: int, b: int) -> int:
    return a + b


def _floor(dataset: Dataset, client: Any) -> int:
    size = 8 * dataset.n * dataset.n
    engine = DaskEngine(client)
    return int(RowPass("floor", dataset, multiply_block, _add, size).run(engine))


def _eigen(dataset: Dataset, client: Any) -> Floats:
    statistics = gram_statistics(dataset, engine=DaskEngine(client))
    values, V = scipy.linalg.eigh(statistics.objective("center").K)
    W = np.sqrt(values[-RANK:])[:, None] * V[:, -RANK:].T
    return np.asarray(np.square(W).sum(axis=1)[::-1])


def _array(dataset: Dataset) -> Any:
    import dask.array as da

    return da.from_zarr(dataset.name, component="X")  # type: ignore[no-untyped-call]


def _plain_gram(dataset: Dataset, client: Any) -> float:
    X = _array(dataset)
    return float((X.T @ X).compute()[0, 0])


def _svd_compressed(dataset: Dataset, client: Any) -> Floats:
    import dask.array as da

    X = _array(dataset)
    X = X - X.mean(axis=0)
    _, s, _ = da.linalg.svd_compressed(X, RANK, n_power_iter=2, seed=0, compute=True)  # type: ignore[no-untyped-call]
    return np.asarray(s.compute(), np.float64) ** 2


def _pca(dataset: Dataset, client: Any) -> Floats:
    from dask_ml.decomposition import PCA

    fitted = PCA(n_components=RANK, svd_solver="randomized", iterated_power=2, random_state=0).fit(_array(dataset))
    return np.asarray(fitted.singular_values_, np.float64) ** 2


def _ratios(dataset: Dataset, figures: dict[str, Measured | None], limit: int) -> dict[str, float]:
    floor, ours, eigen = (figures[n] for n in ("floor of the Gram pass", "Gram pass", "eigendecomposition"))
    assert floor is not None
    assert ours is not None
    assert eigen is not None
    peers = [f for f in (figures.get("dask svd_compressed"), figures.get("dask-ml PCA")) if f is not None]
    rows = max(b.stop - b.start for b in dataset.blocks)
    itemsize = dataset.x_bytes // (dataset.m * dataset.n)
    problem = ProblemShape(dataset.m, dataset.n, 0, itemsize, RANK, (rows, dataset.n), Requirements())
    planned = choose(problem, Resources(WORKERS, limit, 4 << 30)).passes
    return {
        "gram_over_floor": ours.seconds / floor.seconds,
        "eigh_over_best_peer_time": eigen.seconds / min((p.seconds for p in peers), default=float("nan")),
        "eigh_over_best_peer_memory": eigen.peak / min((p.peak for p in peers), default=float("nan")),
        "passes_planned": planned,
        "passes_measured": round(eigen.passes, 2),
        "passes_recorded": round(eigen.recorded, 2),
        "peak_over_limit": max(ours.peak, eigen.peak) / limit,
    }

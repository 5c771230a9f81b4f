"""Small stores for tests, and a counter of the chunks that are read from them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from dsel.data.ingest import ingest_arrays
from dsel.data.store.segments import MOST_SEGMENTS, begin_append, publish_append, visible_rows


def regression(m: int = 600, n: int = 24, seed: int = 0, dtype: str = "float64") -> tuple[Any, Any]:
    """Return data that float32 represents exactly; the target depends on six columns."""
    rng = np.random.default_rng(seed)
    X = (rng.integers(-512, 512, size=(m, n)) / 256).astype(dtype)
    X[:, 1] = (X[:, 0] + X[:, 1]) / 2
    beta = np.array([3, -2, 2, 1.5, -1, 1])
    y = X[:, [2, 5, 7, 11, 13, 17]].astype(float) @ beta + rng.integers(-512, 512, size=m) / 128
    return X, y[:, None]


def make_store(path: Path, X: Any, Y: Any = None, chunks: tuple[int, int] | None = None) -> Path:
    """Write arrays as a store."""
    ingest_arrays(X, path, y=Y, chunks=chunks, overwrite=True)
    return path


def write_rows(path: Path, X: Any, Y: Any = None) -> None:
    """Write the rows that a store does not have yet, by hand. Readers see them when they are published."""
    import zarr

    group = zarr.open_group(path, mode="r+")
    m = visible_rows(path) or group["X"].shape[0]  # type: ignore[union-attr]
    rows = {"X": X, **({} if Y is None else {"Y": Y}), **({"weight": np.ones(len(X))} if "weight" in group else {})}
    for name, values in rows.items():
        array: Any = group[name]
        array.resize((len(values), *array.shape[1:]))
        array.with_config({"write_empty_chunks": True})[m:] = values[m:]


def append_rows(path: Path, X: Any, Y: Any = None, most: int = MOST_SEGMENTS) -> None:
    """Append the rows that a store does not have yet as one segment, in one step."""
    import zarr

    begin_append(path, visible_rows(path) or zarr.open_group(path)["X"].shape[0])  # type: ignore[union-attr]
    write_rows(path, X, Y)
    publish_append(path, len(X), most=most)


def count_reads() -> Counter[str]:
    """Count the chunk files of X and Y that zarr reads in this process from now on. The patch stays."""
    from zarr.storage import LocalStore

    counter: Counter[str] = getattr(LocalStore, "_test_reads", Counter())
    if hasattr(LocalStore, "_test_reads"):
        counter.clear()
        return counter
    LocalStore._test_reads = counter  # type: ignore[attr-defined]
    plain_get = LocalStore.get

    async def get(self: Any, key: str, *args: Any, **kwargs: Any) -> Any:
        value = await plain_get(self, key, *args, **kwargs)
        if value is not None and "c/" in key:
            counter[f"{Path(self.root).name}/{key}"] += 1
        return value

    LocalStore.get = get  # type: ignore[method-assign]
    return counter


def reads_so_far() -> dict[str, int]:
    """Return what `count_reads` has counted in this process."""
    from zarr.storage import LocalStore

    return dict(getattr(LocalStore, "_test_reads", {}))

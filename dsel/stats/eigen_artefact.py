"""A saved eigendecomposition: W as a store in column chunks (it can be read in shards), the small parts beside it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from dsel.data.chunking import choose_chunks
from dsel.data.ingest import ingest_arrays
from dsel.data.store import open_store
from dsel.stats.artefact import ArtefactStore, flush
from dsel.stats.eigen import Eigen
from dsel.versions import versions

_SCALARS = ("total", "way", "passes", "powers", "error_bound", "error_chance")
_CHUNK_MEMORY = 1 << 30


def eigen_key(fingerprint: str, **options: Any) -> dict[str, Any]:
    """What an eigendecomposition depends on: the data, preprocessing, way, rank, powers, seed."""
    return ArtefactStore.key(fingerprint, kind="eigen", **options)


def save_eigen(store: ArtefactStore, key: dict[str, Any], eigen: Eigen) -> Path:
    """Write under a temporary name, flush, rename; one that is there already stays. Errors: OSError, OutputError."""
    path = store.path(key)
    if load_eigen(store, key) is not None:
        return path
    staging = store.folder / f".{path.name}-{uuid4().hex[:8]}"
    try:
        staging.mkdir(parents=True)
        r, n = eigen.W.shape
        columns = choose_chunks((n, r), 8, worker_memory=_CHUNK_MEMORY)[0]
        ingest_arrays(eigen.W, staging / "W.zarr", chunks=(r, columns))
        arrays = {"values": eigen.values, **({} if eigen.U is None else {"U": eigen.U})}
        with (staging / "arrays.npz").open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
            flush(file)
        with (staging / "manifest.json").open("w") as text:
            scalars = {name: getattr(eigen, name) for name in _SCALARS}
            json.dump({"key": key, "versions": versions(), "eigen": scalars}, text, indent=2)
            flush(text)
        shutil.rmtree(path, ignore_errors=True)
        os.rename(staging, path)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return path


def load_eigen(store: ArtefactStore, key: dict[str, Any]) -> Eigen | None:
    """The eigendecomposition, or None where there is none for just this key (or it cannot be read)."""
    path = store.path(key)
    try:
        manifest = json.loads((path / "manifest.json").read_text())
        if manifest["key"] != key:
            return None
        with np.load(path / "arrays.npz", allow_pickle=False) as arrays:
            values, U = arrays["values"], arrays.get("U", None)
        held = open_store(path / "W.zarr")
        W = held.x.read(0, held.shape[0])
        found = Eigen(W, values, U, **manifest["eigen"])
    except Exception:  # damaged bytes raise nearly anything
        return None
    return found if W.shape[0] == values.size else None

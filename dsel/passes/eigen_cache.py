"""A saved eigendecomposition, W, D_y and P of eq. (8): W as a store in column chunks, the small parts beside it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from dsel._lib.versions import versions
from dsel.data.chunking import choose_chunks
from dsel.data.ingest import ingest_arrays
from dsel.data.store.reader import open_store
from dsel.errors import StorageError
from dsel.passes.cache import ArtefactStore
from dsel.passes.eigendecomposition import Eigen
from dsel.storage.paths import Place, Remote, drop_unfinished, make_folder, new_file, new_tree, put_in_place

_SCALARS = ("total", "way", "passes", "powers", "error_bound", "error_chance")
_CHUNK_MEMORY = 1 << 30


def eigen_key(fingerprint: str, **options: Any) -> dict[str, Any]:
    """What an eigendecomposition depends on: the data, preprocessing, way, rank, powers, seed."""
    return ArtefactStore.key(fingerprint, kind="eigen", **options)


def save_eigen(store: ArtefactStore, key: dict[str, Any], eigen: Eigen) -> Place:
    """Write it whole or not at all (in object storage the manifest comes last); one that is there already stays.

    Errors: OSError, OutputError, CapacityError, AccessError, StorageError.
    """
    path = store.path(key)
    if load_eigen(store, key) is not None:
        return path
    staging = path if isinstance(path, Remote) else new_tree(store.folder, path.name)
    try:
        make_folder(staging)
        r, n = eigen.W.shape
        columns = choose_chunks((n, r), 8, worker_memory=_CHUNK_MEMORY)[0]
        ingest_arrays(eigen.W, staging / "W.zarr", chunks=(r, columns), overwrite=True)
        arrays = {"D_y": eigen.values, "P": np.sqrt(eigen.values)}  # the diagonal: Y = X, so U_y = U_x
        arrays |= {} if eigen.U is None else {"U": eigen.U}
        with new_file(staging / "arrays.npz") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        with new_file(staging / "manifest.json") as file:
            scalars = {name: getattr(eigen, name) for name in _SCALARS}
            file.write(json.dumps({"key": key, "versions": versions(), "eigen": scalars}, indent=2).encode())
        put_in_place(staging, path.name)
    finally:
        drop_unfinished(staging)
    return path


def load_eigen(store: ArtefactStore, key: dict[str, Any]) -> Eigen | None:
    """The eigendecomposition, or None where there is none for just this key (or it cannot be read)."""
    path = store.path(key)
    try:
        manifest = json.loads((path / "manifest.json").read_text())
        if manifest["key"] != key:
            return None
        with (path / "arrays.npz").open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            values, U = arrays["D_y"], arrays.get("U", None)
        held = open_store(path / "W.zarr")
        W = held.x.read(0, held.shape[0])
        found = Eigen(W, values, U, **manifest["eigen"])
    except StorageError:
        raise
    except Exception:  # damaged bytes raise nearly anything
        return None
    return found if W.shape[0] == values.size else None

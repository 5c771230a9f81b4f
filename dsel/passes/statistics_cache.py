"""Statistics on disk, reused by later runs on the same data with the same options.

Each entry is a folder, written whole or not at all, and named by a digest of everything that it depends on. In object
storage, which has no rename, an entry is complete when its manifest is there: that is written last. Files of an
unfinished entry may be written again at any time, since the same key gives the same bits.

Statistics kept in the memory of this process, for calls on the same data one after the other.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import numpy as np
import psutil

from dsel._lib.damage import DamagedFileError, warn_of_damage
from dsel._lib.npz import read_npz
from dsel._lib.versions import versions
from dsel.data.dataset import Dataset
from dsel.data.ingest import ingest_arrays
from dsel.data.schema import choose_chunks
from dsel.data.store.reader import open_store
from dsel.errors import AccessError, DselError, StorageError
from dsel.passes.columns.column_statistics import ColumnStatistics
from dsel.passes.columns.eigendecomposition import Eigen
from dsel.passes.execution.pass_checkpoints import warning_if_unwritable
from dsel.passes.statistics import Statistics
from dsel.storage.json_files import checked_json, parse_checked_json
from dsel.storage.leftovers import remove_leftovers
from dsel.storage.paths import (
    AnyPath,
    ObjectPath,
    discard_tree,
    make_folder,
    open_for_writing,
    publish_tree,
    staging_tree,
)

log = logging.getLogger("dsel")

FORMAT = 2
_MANIFEST = "manifest.json"
#: Kinds whose arrays are in one file.
_KINDS: dict[str, type[Any]] = {"gram": Statistics, "columns": ColumnStatistics}
_EIGEN = "eigen"
_EIGEN_SCALARS = ("total", "passes", "powers", "error_bound", "error_chance")
_CHUNK_MEMORY = 1 << 30

T = TypeVar("T")


class StatisticsCache:
    """A folder of statistics and eigendecompositions.

    An entry is named by the digest of its key: format, kind, fingerprint of the data, options. `on_disk`: whether
    entries take space on a disk.
    """

    on_disk = True

    def __init__(self, folder: AnyPath) -> None:
        self.folder = folder

    @staticmethod
    def key(fingerprint: str, kind: str = "gram", **options: Any) -> dict[str, Any]:
        """Return the key of an entry. kind: gram (Statistics), columns (ColumnStatistics) or eigen (Eigen)."""
        return {"format": FORMAT, "kind": kind, "input": fingerprint, "options": options}

    def path(self, key: dict[str, Any]) -> AnyPath:
        """Return the folder of an entry."""
        digest = hashlib.blake2b(json.dumps(key, sort_keys=True).encode(), digest_size=10).hexdigest()
        return self.folder / f"{key['kind']}-{digest}"

    def has(self, key: dict[str, Any]) -> bool:
        """Return whether there seems to be an entry for this key. Its arrays are not read."""
        path = self.path(key)
        try:
            complete = bool(parse_checked_json((path / _MANIFEST).read_text())[0]["key"] == key)
        except (OSError, AccessError, ValueError, LookupError, TypeError):
            return False
        return complete and (path / "arrays.npz").is_file()

    def load(self, key: dict[str, Any]) -> Any:
        """Return the entry, or None where there is none for this key, or it cannot be read.

        A damaged one is a warning: the caller computes it again.
        """
        path = self.path(key)
        try:
            written_last = (path / _MANIFEST).read_bytes()
        except (OSError, AccessError):
            return None
        try:
            manifest = parse_checked_json(written_last.decode())[0]
            if manifest["key"] != key:
                return None
            return _load_eigen(path, manifest) if key["kind"] == _EIGEN else _load_statistics(path, key)
        except StorageError:
            raise
        except (OSError, ValueError, LookupError, TypeError, DselError) as error:
            warn_of_damage(path, "the data are read again", error)
        return None

    def save(self, key: dict[str, Any], value: Any) -> AnyPath | None:
        """Write an entry and return its folder. An entry that another process has saved meanwhile stays.

        Where it cannot be written, log a warning and return None: the next run computes it again.
        """
        path, saved = self.path(key), None
        with warning_if_unwritable(self.folder):
            if not isinstance(path, ObjectPath) or self.load(key) is None:
                self._write(key, value, path)
            saved = path
        return saved

    def _write(self, key: dict[str, Any], value: Any, path: AnyPath) -> None:
        staging = path if isinstance(path, ObjectPath) else staging_tree(self.folder, path.name)
        if isinstance(self.folder, Path):
            remove_leftovers(self.folder)
        try:
            make_folder(staging)
            manifest: dict[str, Any] = {"key": key, "versions": versions()}
            if isinstance(value, Eigen):
                manifest["eigen"] = {name: getattr(value, name) for name in _EIGEN_SCALARS}
                arrays = _save_factors(staging, value)
            else:
                arrays = {field.name: np.asarray(getattr(value, field.name)) for field in fields(value)}
            with open_for_writing(staging / "arrays.npz") as file:
                np.savez(file, **arrays)
            with open_for_writing(staging / _MANIFEST) as file:
                file.write(checked_json(manifest, indent=2).encode())
            self._publish(key, staging, path)
        finally:
            discard_tree(staging)

    def _publish(self, key: dict[str, Any], staging: AnyPath, path: AnyPath) -> None:
        if staging == path or self.load(key) is not None:
            return
        try:
            publish_tree(staging, path.name)
        except OSError:
            if self.load(key) is None:
                raise


def load_or_compute(
    cache: StatisticsCache | None, dataset: Dataset, kind: str, compute: Callable[[], T], **options: Any
) -> T:
    """Return an entry of the cache for these data and options, or compute it and save it there.

    kind, options: as for `StatisticsCache.key`. Data in memory have no fingerprint, and are not cached.
    """
    if cache is None or dataset.fingerprint is None:
        return compute()
    key = cache.key(dataset.fingerprint, kind, **options)
    found: T | None = cache.load(key)
    if found is not None:
        log.info("statistics of %s (%s) are saved in %s: the data are not read", dataset.name, kind, cache.path(key))
        return found
    found = compute()
    cache.save(key, found)
    return found


def _load_statistics(path: AnyPath, key: dict[str, Any]) -> Statistics | ColumnStatistics:
    kind = _KINDS[key["kind"]]
    with (path / "arrays.npz").open("rb") as file:
        values = read_npz(file, [field.name for field in fields(kind)])
    found: Statistics | ColumnStatistics = kind(**{**values, "m": int(values["m"]), "weight": float(values["weight"])})
    if not found.consistent:
        raise DamagedFileError("the shapes of its arrays do not fit together")
    return found


def _load_eigen(path: AnyPath, manifest: dict[str, Any]) -> Eigen:
    with (path / "arrays.npz").open("rb") as file:
        values, U = read_npz(file, ("D_y", "U")).values()
    store = open_store(path / "W.zarr")
    W = store.x.read(0, store.shape[0])
    scalars = {name: manifest["eigen"][name] for name in _EIGEN_SCALARS}
    if W.shape[0] != values.size:
        raise DamagedFileError("the shapes of its arrays do not fit together")
    return Eigen(W, values, U, **scalars)


def _save_factors(folder: AnyPath, eigen: Eigen) -> dict[str, Any]:
    """Write W as a store in column chunks; return the small arrays of eq. (8): D_y, P (diagonal, as Y = X) and U."""
    r, n = eigen.W.shape
    columns = choose_chunks((n, r), 8, worker_memory=_CHUNK_MEMORY)[0]
    ingest_arrays(eigen.W, folder / "W.zarr", chunks=(r, columns), overwrite=True)
    return {"D_y": eigen.values, "P": np.sqrt(eigen.values), "U": eigen.U}


#: Entries take at most this share of the memory that is available when one is added.
_SHARE = 0.25


class MemoryStatisticsCache(StatisticsCache):
    """Statistics in memory. The entries that were used last are kept, as far as their memory allows.

    Parameters
    ----------
    limit : int, optional
        Bytes that all entries may take. By default a quarter of the memory that is available.

    Examples
    --------
    >>> from dsel.api import select_from
    >>> from dsel.config.request import SelectionRequest
    >>> from dsel.data.dataset import as_dataset
    >>> from dataclasses import replace
    >>> X = np.random.default_rng(0).normal(size=(50, 4))
    >>> dataset = replace(as_dataset(X, X[:, 1] + 1), digest="my data")
    >>> cache = MemoryStatisticsCache()
    >>> [select_from(dataset, SelectionRequest(k=k, method="forward"), cache).passes for k in (1, 2)]
    [2, 1]
    """

    on_disk = False

    def __init__(self, limit: int | None = None) -> None:
        super().__init__(Path("the memory of this process"))
        self._limit = limit
        self._entries: OrderedDict[str, tuple[Any, int]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        """Remove all entries."""
        with self._lock:
            self._entries.clear()

    def has(self, key: dict[str, Any]) -> bool:
        """Return whether there is an entry for this key."""
        return _text(key) in self._entries

    def load(self, key: dict[str, Any]) -> Any:
        """Return the entry, or None where there is none."""
        with self._lock:
            found = self._entries.get(_text(key))
            if found is None:
                return None
            self._entries.move_to_end(_text(key))
            return found[0]

    def save(self, key: dict[str, Any], value: Any) -> AnyPath | None:
        """Keep an entry, and remove those that were not used for longest. One that is too large is not kept."""
        arrays = [getattr(value, field.name) for field in fields(value)]
        size = sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))
        with self._lock:
            held = sum(size for _, size in self._entries.values())
            limit = self._limit
            if limit is None:
                limit = int(_SHARE * (psutil.virtual_memory().available + held))
            if size > limit:
                return None
            while held + size > limit:
                held -= self._entries.popitem(last=False)[1][1]
            self._entries[_text(key)] = value, size
        return self.path(key)


def _text(key: dict[str, Any]) -> str:
    return json.dumps(key, sort_keys=True)

"""What passes have computed, reused by later runs on the same data with the same options.

A folder of files. An entry (statistics or an eigendecomposition) is named by a digest of everything that it depends on.
The sums of the segments of a store (`dsel.passes.segment_sums`) are in the same folder. A file holds what it depends on
in its header, and appears whole or not at all. One that is damaged is computed again.

The same in the memory of this process, for calls on the same data one after the other.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import psutil

from dsel._lib.versions import versions
from dsel.data.dataset import Dataset
from dsel.errors import AccessError, CapacityError, OutputError, StorageError
from dsel.passes.execution.pass_checkpoints import read_header, read_value, stored_bytes, write_value
from dsel.storage.leftovers import remove_leftovers
from dsel.storage.paths import AnyPath, list_names, make_folder

log = logging.getLogger("dsel")

#: Entries of format 2 were folders. They are not read: what they hold is computed again.
FORMAT = 3

T = TypeVar("T")


class StatisticsCache:
    """A folder of statistics, eigendecompositions and sums.

    An entry is named by the digest of its key: format, kind, fingerprint of the data, options. `on_disk`: whether
    entries take space on a disk.
    """

    on_disk = True

    def __init__(self, folder: AnyPath) -> None:
        self.folder = folder

    @staticmethod
    def key(fingerprint: str, kind: str = "gram", **options: Any) -> dict[str, Any]:
        """Return the key of an entry. kind: gram, folds (Statistics), columns (ColumnStatistics) or eigen (Eigen)."""
        return {"format": FORMAT, "kind": kind, "input": fingerprint, "options": options}

    def path(self, key: dict[str, Any]) -> AnyPath:
        """Return the file of an entry."""
        return self.folder / _file_name(key)

    def has(self, key: dict[str, Any]) -> bool:
        """Return whether there seems to be an entry for this key. Its arrays are not read."""
        return self.header(_file_name(key)).get("key") == key

    def load(self, key: dict[str, Any]) -> Any:
        """Return the entry, or None where there is none for this key, or it cannot be read.

        A damaged one is a warning: the caller computes it again.
        """
        return self.read(_file_name(key), {"key": key})

    def save(self, key: dict[str, Any], value: Any) -> AnyPath | None:
        """Write an entry and return its file. The same key gives the same bits, so it may be written several times.

        Where it cannot be written, log a warning and return None: the next run computes it again.
        """
        if isinstance(self.folder, Path):
            remove_leftovers(self.folder)
        saved = self.write(_file_name(key), {"key": key, "versions": versions()}, value)
        return self.path(key) if saved else None

    # The files, by name.

    def names(self) -> set[str]:
        """Return the names of all files."""
        return list_names(self.folder)

    def header(self, name: str) -> dict[str, Any]:
        """Return what a file depends on; nothing if it is missing or damaged."""
        return read_header(self.folder / name) or {}

    def read(self, name: str, wanted: dict[str, Any]) -> Any:
        """Return the value of a file; None if it is missing or damaged, or its header has not all that is wanted."""
        header, value = read_value(self.folder / name) or ({}, None)
        return value if {**header, **wanted} == header else None

    def write(self, name: str, header: dict[str, Any], value: Any) -> bool:
        """Write or replace a file in one step; log a warning and return False where it cannot be written."""
        try:
            make_folder(self.folder)
            write_value(self.folder / name, header, value)
        except (OSError, AccessError, CapacityError, OutputError, StorageError) as error:
            log.warning(
                "statistics are not saved, the next run reads the data again: %s cannot be written (%s); "
                "name another folder with artefacts", self.folder, error,
            )  # fmt: skip
            return False
        return True


def _file_name(key: dict[str, Any]) -> str:
    digest = hashlib.blake2b(json.dumps(key, sort_keys=True).encode(), digest_size=10).hexdigest()
    return f"{key['kind']}-{digest}.npz"


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
    >>> import numpy as np
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
        self._entries: OrderedDict[str, tuple[dict[str, Any], Any, int]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        """Remove all entries."""
        with self._lock:
            self._entries.clear()

    def header(self, name: str) -> dict[str, Any]:
        """Return what an entry depends on; nothing if it is missing."""
        entry = self._entries.get(name)
        return {} if entry is None else entry[0]

    def read(self, name: str, wanted: dict[str, Any]) -> Any:
        """Return the value of an entry, or None where there is none."""
        with self._lock:
            if name not in self._entries:
                return None
            self._entries.move_to_end(name)
            return self._entries[name][1]

    def write(self, name: str, header: dict[str, Any], value: Any) -> bool:
        """Keep an entry, and remove those that were not used for longest. One that is too large is not kept."""
        size = stored_bytes(value)
        with self._lock:
            held = sum(size for _, _, size in self._entries.values())
            limit = self._limit
            if limit is None:
                limit = int(_SHARE * (psutil.virtual_memory().available + held))
            if size > limit:
                return False
            while held + size > limit:
                held -= self._entries.popitem(last=False)[1][2]
            self._entries[name] = header, value, size
        return True

"""What passes have computed, reused by later runs on the same data with the same options.

A folder of files. An entry (statistics or an eigendecomposition) is named by a digest of everything that it depends on.
The sums of the segments of a store are in the same folder. A file holds what it depends on in its header, and appears
whole or not at all. One that is damaged is computed again.

Another cache is in the memory of this process, for calls on the same data one after the other.

Sums over the rows of a store are saved for each of its segments: a later run reads only segments that are new. The sum
of a segment depends on its rows alone. The total is merged from the first segment to the last. So a run that finds all,
some or none of it saved gives the same bits. There is one file per segment, and one with the total so far.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import psutil

from dsel._lib.versions import versions
from dsel.data.dataset import Dataset
from dsel.data.row_partition import RowPartition
from dsel.data.store.reader import Store
from dsel.errors import AccessError, CapacityError, OutputError, StorageError
from dsel.passes.execution.pass_checkpoints import read_value, stored_bytes, write_value
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

    def header(self, name: str) -> dict[str, Any]:
        """Return what a file depends on; nothing if it is missing or damaged."""
        return (read_value(self.folder / name, with_arrays=False) or ({}, None))[0]

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
                "name another folder with statistics_folder", self.folder, error,
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
    >>> from dsel.api.run_select import select_from
    >>> from dsel.config.request import SelectionRequest
    >>> from dsel.data.as_dataset import as_dataset
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


SUMS_FORMAT = 1
#: Files of segments that do not exist any more are removed after this time.
_STALE_SECONDS = 7 * 86400.0

#: Rows [start, stop).
Range = tuple[int, int]

#: Makes the pass over some ranges of rows, and yields the sum of each.
Compute = Callable[[tuple[Range, ...]], Iterator[Any]]


def keeps_sums(dataset: Dataset, cache: StatisticsCache | None) -> bool:
    """Return whether the sums of the segments of these data are saved: those of a dense store alone, on a disk."""
    return cache is not None and cache.on_disk and isinstance(dataset.store, Store) and dataset.digest is None


@dataclass(frozen=True)
class SegmentSums:
    """One kind of sums over the rows of a dataset.

    Parameters
    ----------
    dataset : Dataset
        The data.
    cache : StatisticsCache or None
        Where sums are saved. None, or data that are not in a dense store: nowhere.
    kind : str
        What is summed.
    options : dict
        What the sums depend on besides the data.
    by_segment : bool
        Whether the sum of a segment is of use if other rows change. If not, only the total is saved.
    partition : RowPartition, optional
        The division of the rows that the sums depend on.
    replaced : dict, optional
        What the sums depend on besides, of which only the last total is saved. That of the first segments is of use if
        rows follow, as it is where the sum of a segment is.
    """

    dataset: Dataset
    cache: StatisticsCache | None
    kind: str
    options: dict[str, Any]
    by_segment: bool = True
    partition: RowPartition | None = None
    replaced: dict[str, Any] | None = None

    @property
    def missing(self) -> tuple[Range, ...]:
        """Return the ranges of rows that must be read."""
        return tuple(self.dataset.row_ranges[i] for i in self._unsaved(self._covered()))

    @property
    def saved_for(self) -> dict[str, Any] | None:
        """Return what the saved total depends on besides the rows and the options (`replaced`); None without any."""
        replaced: dict[str, Any] | None = self._header().get("depends", {}).get("replaced")
        return replaced

    def total(self, compute: Compute, merge: Callable[[Any, Any], Any]) -> Any:
        """Return the sum over all rows: what is saved, and what `compute` returns for the rest.

        Parameters
        ----------
        compute : callable
            ``compute(ranges)`` yields the sums of some ranges of rows.
        merge : callable
            ``merge(a, b)`` returns the sum of consecutive rows. It may overwrite `a`.
        """
        ranges, store, first = self.dataset.row_ranges, self._store, self._covered()
        total = store.read(self._total_name, {}) if store is not None and first else None
        first = 0 if total is None else first
        unsaved = self._unsaved(first)
        self._report(len(ranges), unsaved)
        computed = compute(tuple(ranges[i] for i in unsaved)) if unsaved else iter(())
        for i in range(first, len(ranges)):
            value = None
            if store is not None and i not in unsaved:
                value = store.read(self._name(i), {"depends": self._depends})
            if value is None:
                value = next(computed) if i in unsaved else next(compute((ranges[i],)))
                if store is not None and self.by_segment:
                    header = {"depends": self._depends, "segments": [self._segments[i]]}
                    store.write(self._name(i), header, value)
            total = value if total is None else merge(total, value)
        next(computed, None)  # it ends the pass
        if store is not None and first < len(ranges):
            if len(self._segments) > 1 or not self.by_segment:
                store.write(self._total_name, {"depends": self._depends, "segments": self._segments}, total)
            self._remove_stale(store)
        return total

    # What is saved.

    @property
    def _store(self) -> StatisticsCache | None:
        """Return where the sums are saved, if they are."""
        return self.cache if keeps_sums(self.dataset, self.cache) else None

    @cached_property
    def _options(self) -> dict[str, Any]:
        """Return what the sums depend on besides the rows of the store."""
        data, divisions = self.dataset, [self.dataset.row_part, self.partition]
        return {
            "format": SUMS_FORMAT, "kind": self.kind, "options": self.options,
            "targets": data.n_targets if data.target_columns is None or not data.n_targets
            else data.target_columns.tolist(),
            "weight": None if data.weights is None else data.weights.name,
            "held_out": data.held_out,
            "parts": [None if one is None else [one.key, None if one.by_row else data.m] for one in divisions],
        }  # fmt: skip

    @property
    def _depends(self) -> dict[str, Any]:
        return self._options if self.replaced is None else {**self._options, "replaced": self.replaced}

    @cached_property
    def _segments(self) -> list[str]:
        """Return what the rows of each segment are known by."""
        placed = self.dataset.row_part is not None or self.partition is not None  # parts depend on the row's number
        return [
            f"{segment.fingerprint(*self._variables)}{f'-{segment.start}' if placed else ''}"
            for segment in self.dataset.segments
        ]

    @cached_property
    def _variables(self) -> list[str]:
        weights = self.dataset.weights
        return ["X", *(["Y"] if self.dataset.n_targets else []), *([weights.name] if weights is not None else [])]

    @cached_property
    def _prefix(self) -> str:
        return f"sums-{_digest(json.dumps(self._options, sort_keys=True), 8)}"

    @cached_property
    def _present(self) -> set[str]:
        return list_names(self._store.folder) if self._store is not None and self.by_segment else set()

    def _name(self, i: int) -> str:
        return f"{self._prefix}-{self._segments[i]}.npz"

    @property
    def _total_name(self) -> str:
        window = f"-{_digest(self.dataset.window, 4)}" if self.dataset.window else ""
        return f"{self._prefix}{window}.npz"

    def _unsaved(self, first: int) -> list[int]:
        """Return which segments from `first` on must be read."""
        return [
            i for i in range(first, len(self.dataset.row_ranges))
            if not self._present or self._name(i) not in self._present
        ]  # fmt: skip

    def _header(self) -> dict[str, Any]:
        """Return the header of the saved total."""
        return {} if self._store is None else self._store.header(self._total_name)

    def _covered(self) -> int:
        """Return how many of the segments the saved total covers, from the first one on."""
        if self.by_segment and (not self._present or self._total_name not in self._present):
            return 0  # the listing saves a request
        header = self._header()
        covers = list(header.get("segments", []))
        if not covers or header.get("depends") != self._depends:
            return 0
        extends = self.by_segment or self.replaced is not None
        partly = extends and covers == self._segments[: len(covers)]
        return len(covers) if partly or covers == self._segments else 0

    def _remove_stale(self, store: StatisticsCache) -> None:
        """Remove the files of segments that were merged or rewritten, once they are old."""
        if not isinstance(store.folder, Path) or not self.by_segment:
            return
        assert isinstance(self.dataset.store, Store)
        whole = {segment.fingerprint(*self._variables) for segment in self.dataset.store.segments}
        for name in list_names(store.folder):
            known = name.removeprefix(f"{self._prefix}-").removesuffix(".npz")
            if not name.startswith(f"{self._prefix}-") or known.partition("-")[0] in whole or known in self._segments:
                continue
            with suppress(OSError):
                if time.time() - (store.folder / name).stat().st_mtime > _STALE_SECONDS:
                    (store.folder / name).unlink(missing_ok=True)

    def _report(self, count: int, missing: list[int]) -> None:
        if self._store is None or len(missing) == count:
            return
        name, folder = self.dataset.name, self._store.folder
        if not missing:
            log.info("statistics of %s (%s) are saved in %s: the data are not read", name, self.kind, folder)
            return
        rows = sum(stop - start for start, stop in (self.dataset.row_ranges[i] for i in missing))
        log.info(
            "statistics of %s (%s) are saved in %s for %d of %d segments: %d of %d rows are read", name, self.kind,
            folder, count - len(missing), count, rows, self.dataset.m,
        )  # fmt: skip


def _digest(text: str, size: int) -> str:
    return hashlib.blake2b(text.encode(), digest_size=size).hexdigest()

"""Statistics kept in the memory of this process, for calls on the same data one after the other."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import fields
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import psutil

from dsel.passes.statistics_cache import StatisticsCache
from dsel.storage.paths import AnyPath

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

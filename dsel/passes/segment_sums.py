"""Sums over the rows of a store, saved for each of its segments: a later run reads only segments that are new.

The sum of a segment depends on its rows alone. The total is merged from the first segment to the last. So a run that
finds all, some or none of it saved gives the same bits.

A folder has one file per segment, and one with the total so far. Each holds what it depends on and is replaced by one
write.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dsel.data.dataset import Dataset
from dsel.data.row_partition import RowPartition
from dsel.data.store.reader import Store
from dsel.passes.statistics_cache import StatisticsCache

log = logging.getLogger("dsel")

FORMAT = 1
#: Files of segments that do not exist any more are removed after this time.
_STALE_SECONDS = 7 * 86400.0

#: Rows [start, stop).
Range = tuple[int, int]

#: Makes the pass over some ranges of rows, and yields the sum of each.
Compute = Callable[[tuple[Range, ...]], Iterator[Any]]


def keeps_sums(dataset: Dataset, cache: StatisticsCache | None) -> bool:
    """Return whether the sums of the segments of these data are saved: those of a dense store, on a disk."""
    return cache is not None and cache.on_disk and isinstance(dataset.store, Store)


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
    extends : bool
        Whether the total of the first segments is of use if rows follow. Sums of a segment always are, if so.
    replaced : dict, optional
        What the sums depend on besides, of which only the last total is saved.
    """

    dataset: Dataset
    cache: StatisticsCache | None
    kind: str
    options: dict[str, Any]
    by_segment: bool = True
    partition: RowPartition | None = None
    extends: bool = True
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
            "format": FORMAT, "kind": self.kind, "options": self.options,
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
        return self._store.names() if self._store is not None and self.by_segment else set()

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
        partly = self.extends and covers == self._segments[: len(covers)]
        return len(covers) if partly or covers == self._segments else 0

    def _remove_stale(self, store: StatisticsCache) -> None:
        """Remove the files of segments that were merged or rewritten, once they are old."""
        if not isinstance(store.folder, Path) or not self.by_segment:
            return
        assert isinstance(self.dataset.store, Store)
        whole = {segment.fingerprint(*self._variables) for segment in self.dataset.store.segments}
        for name in store.names():
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

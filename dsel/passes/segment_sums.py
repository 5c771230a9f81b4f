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
from typing import Any, Protocol

from dsel.data.dataset import Dataset
from dsel.data.row_partition import RowPartition
from dsel.data.store.reader import Store
from dsel.passes.execution.pass_checkpoints import read_header, read_value, warning_if_unwritable, write_value
from dsel.storage.paths import AnyPath, list_names, make_folder

log = logging.getLogger("dsel")

FORMAT = 1
#: Files of segments that do not exist any more are removed after this time.
_STALE_SECONDS = 7 * 86400.0

#: Rows [start, stop).
Range = tuple[int, int]

#: Makes the pass over some ranges of rows, and yields the sum of each.
Compute = Callable[[tuple[Range, ...]], Iterator[Any]]


class SumsCache(Protocol):
    """A folder for sums. `on_disk` is False for a cache in memory, which keeps none."""

    on_disk: bool
    folder: AnyPath


def keeps_sums(dataset: Dataset, cache: SumsCache | None) -> bool:
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
    cache: SumsCache | None
    kind: str
    options: dict[str, Any]
    by_segment: bool = True
    partition: RowPartition | None = None
    extends: bool = True
    replaced: dict[str, Any] | None = None

    @property
    def missing(self) -> tuple[Range, ...]:
        """Return the ranges of rows that must be read."""
        if not self._is_saved:
            return self.dataset.row_ranges
        covered = self._covered()
        return tuple(
            place
            for i, place in enumerate(self.dataset.row_ranges)
            if i >= covered and self._name(i) not in self._present
        )

    @property
    def saved_for(self) -> dict[str, Any] | None:
        """Return what the saved total depends on besides the rows and the options (`replaced`); None without any."""
        header = read_header(self._folder / self._total_name) if self._is_saved else None
        return None if header is None else header.get("depends", {}).get("replaced")

    def total(self, compute: Compute, merge: Callable[[Any, Any], Any]) -> Any:
        """Return the sum over all rows: what is saved, and what `compute` returns for the rest.

        Parameters
        ----------
        compute : callable
            ``compute(ranges)`` yields the sums of some ranges of rows.
        merge : callable
            ``merge(a, b)`` returns the sum of consecutive rows. It may overwrite `a`.
        """
        ranges, total = self.dataset.row_ranges, None
        first = 0
        if self._is_saved:
            first, total = self._load_total()
        missing = [i for i in range(first, len(ranges)) if not self._is_saved or self._name(i) not in self._present]
        self._report(len(ranges), missing)
        computed = compute(tuple(ranges[i] for i in missing)) if missing else iter(())
        for i in range(first, len(ranges)):
            value = None if i in missing else self._load(i)
            if value is None:
                value = next(computed) if i in missing else next(compute((ranges[i],)))
                self._save_segment(i, value)
            total = value if total is None else merge(total, value)
        next(computed, None)  # it ends the pass
        if self._is_saved and first < len(ranges):
            self._save_total(total)
            self._remove_stale()
        return total

    # What is saved.

    @property
    def _is_saved(self) -> bool:
        return keeps_sums(self.dataset, self.cache)

    @property
    def _folder(self) -> Any:
        assert self.cache is not None
        return self.cache.folder

    @cached_property
    def _options(self) -> dict[str, Any]:
        """Return what the sums depend on besides the rows of the store."""
        data, divisions = self.dataset, [self.dataset.row_part, self.partition]
        return {
            "format": FORMAT, "kind": self.kind, "options": self.options,
            "targets": self._targets,
            "weight": None if data.weights is None else data.weights.name,
            "held_out": data.held_out,
            "parts": [None if one is None else [one.key, None if one.by_row else data.m] for one in divisions],
        }  # fmt: skip

    @property
    def _depends(self) -> dict[str, Any]:
        return self._options if self.replaced is None else {**self._options, "replaced": self.replaced}

    @property
    def _targets(self) -> int | list[int]:
        data = self.dataset
        return data.n_targets if data.target_columns is None or not data.n_targets else data.target_columns.tolist()

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
        text = json.dumps(self._options, sort_keys=True)
        return "sums-" + hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    @cached_property
    def _present(self) -> set[str]:
        return list_names(self._folder) if self.by_segment else set()

    def _name(self, i: int) -> str:
        return f"{self._prefix}-{self._segments[i]}.npz"

    @cached_property
    def _total_name(self) -> str:
        window = (
            f"-{hashlib.blake2b(self.dataset.window.encode(), digest_size=4).hexdigest()}"
            if self.dataset.window
            else ""
        )
        return f"{self._prefix}{window}.npz"

    def _covered(self) -> int:
        """Return how many of the segments the saved total covers, from the first one on."""
        if self.by_segment and self._total_name not in self._present:  # the listing saves a request
            return 0
        header = read_header(self._folder / self._total_name)
        if header is None or header.get("depends") != self._depends:
            return 0
        covers = list(header.get("segments", []))
        partly = self.extends and covers == self._segments[: len(covers)]
        return len(covers) if covers and (partly or covers == self._segments) else 0

    def _load_total(self) -> tuple[int, Any]:
        covered = self._covered()
        found = read_value(self._folder / self._total_name) if covered else None
        return (0, None) if found is None else (covered, found[1])

    def _load(self, i: int) -> Any:
        found = read_value(self._folder / self._name(i))
        return found[1] if found is not None and found[0].get("depends") == self._depends else None

    def _save_segment(self, i: int, value: Any) -> None:
        if self._is_saved and self.by_segment:
            self._write(self._name(i), {"depends": self._depends, "segments": [self._segments[i]]}, value)

    def _save_total(self, value: Any) -> None:
        if len(self._segments) > 1 or not self.by_segment:
            self._write(self._total_name, {"depends": self._depends, "segments": self._segments}, value)

    def _write(self, name: str, header: dict[str, Any], value: Any) -> None:
        with warning_if_unwritable(self._folder):
            make_folder(self._folder)
            write_value(self._folder / name, header, value)

    def _remove_stale(self) -> None:
        """Remove the files of segments that were merged or rewritten, once they are old."""
        if not isinstance(self._folder, Path) or not self.by_segment:
            return
        assert isinstance(self.dataset.store, Store)
        whole = {segment.fingerprint(*self._variables) for segment in self.dataset.store.segments}
        for name in list_names(self._folder):
            known = name.removeprefix(f"{self._prefix}-").removesuffix(".npz")
            if not name.startswith(f"{self._prefix}-") or known.partition("-")[0] in whole or known in self._segments:
                continue
            with suppress(OSError):
                if time.time() - (self._folder / name).stat().st_mtime > _STALE_SECONDS:
                    (self._folder / name).unlink(missing_ok=True)

    def _report(self, count: int, missing: list[int]) -> None:
        if not self._is_saved or len(missing) == count:
            return
        name, folder = self.dataset.name, self._folder
        if not missing:
            log.info("statistics of %s (%s) are saved in %s: the data are not read", name, self.kind, folder)
            return
        rows = sum(stop - start for start, stop in (self.dataset.row_ranges[i] for i in missing))
        log.info(
            "statistics of %s (%s) are saved in %s for %d of %d segments: %d of %d rows are read", name, self.kind,
            folder, count - len(missing), count, rows, self.dataset.m,
        )  # fmt: skip

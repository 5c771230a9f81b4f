"""Writing a store, whose X is dense or sparse.

After each row of chunks, or block, the progress file of the staging area is replaced. If the call is interrupted, the
same call continues from there.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import numpy as np

from dsel._lib.versions import versions
from dsel.config.ingest_request import IngestRequest, Progress
from dsel.data import schema
from dsel.data.formats.source import Source, SparseSource
from dsel.data.ingest_report import ColumnProfile, IngestReport, report_of
from dsel.data.labels import require_unique
from dsel.data.store.staging import Staging, check_place, output_errors, staging_of
from dsel.errors import DataError, OptionError
from dsel.storage.locks import Lock
from dsel.storage.paths import AnyPath, walk, zarr_store

if TYPE_CHECKING:
    import zarr

#: ``save(rows, **more)`` records how many rows are written, and what else a later call needs to continue.
Save = Callable[..., None]

COMPRESSIONS: Final = ("none", "zstd", "lz4")


@dataclass(frozen=True)
class StorePlan(ABC):
    """What is written where. Two plans with equal keys write the same chunks, byte for byte."""

    source: Source | SparseSource
    store: AnyPath
    compression: str
    #: What `write` begins with: no rows, and what else it saves.
    first_state: ClassVar[dict[str, Any]]

    def __post_init__(self) -> None:
        if self.compression not in COMPRESSIONS:
            known = ", ".join(COMPRESSIONS)
            raise OptionError(f"compression={self.compression!r} is not known.", f"Use one of {known}.")

    @property
    def staging(self) -> Staging:
        return staging_of(self.store)

    @property
    def stored_key(self) -> dict[str, Any]:
        """The key as JSON gives it back."""
        stored: dict[str, Any] = json.loads(json.dumps(self.key))
        return stored

    @property
    @abstractmethod
    def key(self) -> dict[str, Any]:
        """What the written chunks depend on."""

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the group that only this kind of store has."""
        return {}

    @abstractmethod
    def create_arrays(self) -> None:
        """Create all arrays, those with a value for each row empty."""

    @abstractmethod
    def write(self, state: dict[str, Any], save: Save, progress: Progress | None, lock: Lock) -> ColumnProfile | None:
        """Write the rows from those on that `state` has, and save the state. Return what the columns hold, if known."""

    @property
    @abstractmethod
    def chunk_shape(self) -> tuple[int, ...]:
        """Rows and columns of a chunk of X; of a sparse X, values."""

    def check_disk(self, start: int) -> None:
        """Raise CapacityError if the rows from `start` on cannot fit."""
        return

    def create(
        self, name: str, shape: tuple[int, ...], chunks: tuple[int, ...], dtype: np.dtype[Any] | str,
        attributes: dict[str, Any] | None = None,
    ) -> zarr.Array[Any]:  # fmt: skip
        """Create an empty array. A lost chunk of floats is read as NaN, not as zeros; chunks of zeros are written."""
        import zarr

        is_float = not isinstance(dtype, str) and dtype.kind == "f"
        return zarr.create_array(
            zarr_store(self.staging.group / name), shape=shape, chunks=chunks, dtype=dtype,
            compressors=compressors(self.compression), filters=None, attributes=attributes,
            fill_value=np.nan if is_float else "" if isinstance(dtype, str) else 0,
            dimension_names=schema.DIMENSIONS.get(name), config={"write_empty_chunks": True},
        )  # fmt: skip

    def open(self, names: Iterable[str]) -> dict[str, zarr.Array[Any]]:
        """Open the arrays that exist, for writing."""
        import zarr

        folders = {name: self.staging.group / name for name in names}
        return {
            # Not stored. open_array ignores config=, and zarr.config belongs to all threads.
            name: zarr.open_array(zarr_store(folder), mode="r+").with_config({"write_empty_chunks": True})
            for name, folder in folders.items()
            if (folder / schema.METADATA_FILE).is_file()
        }

    def create_group(self, more: dict[str, Any]) -> None:
        """Write the metadata of the group, last: without them there is no store."""
        import zarr

        source, group = self.source, self.staging.group
        (group / schema.METADATA_FILE).unlink(missing_ok=True)  # left by a call interrupted just before its end
        classes = {name: list(found) for name, found in source.classes.items()}
        attributes = {
            **self.attributes, schema.ATTR_FORMAT: schema.FORMAT_VERSION, schema.ATTR_VERSION: versions()["dsel"],
            schema.ATTR_SOURCE: source.name,
            schema.ATTR_CREATED: datetime.now(UTC).isoformat(timespec="microseconds"),  # tells replaced stores apart
            **({schema.ATTR_CLASSES: classes} if classes else {}), **more,
        }  # fmt: skip
        zarr.create_group(zarr_store(group), attributes=attributes)


def write_store(plan: StorePlan, request: IngestRequest, attributes: dict[str, Any] | None = None) -> IngestReport:
    """Write the source of `plan` into its store, and continue where an interrupted call with an equal key stopped.

    `request.progress(rows_done, rows)` is called after each row of chunks or block. For a dense X, memory
    holds the rows of one row of chunks, and a few copies of one chunk. Rows that do not fit into `plan.memory` are in a
    temporary file. For a sparse X, memory holds a few blocks and chunks.

    Raises OutputError (the store exists, the folder is missing or not writable, another process writes it),
    CapacityError (disk), and DataError (labels repeat, a value cannot be stored, or the source has changed meanwhile).
    """
    began = time.perf_counter()
    source, staging = plan.source, plan.staging
    for labels, what in ((source.features, "feature"), (source.targets, "target")):
        if labels is not None:
            require_unique(labels, what, source.name, "Give every column a unique name.")
    check_place(plan.store, request.overwrite)
    with output_errors(plan.store), staging.locked() as lock:
        check_place(plan.store, request.overwrite)  # another process may have finished meanwhile
        key = plan.stored_key
        state = staging.state() if staging.rows_done(key) else {}
        if not plan.first_state.keys() <= state.keys():
            state = plan.first_state
        start = int(state["rows"])
        if start == 0:
            staging.clear()
        plan.check_disk(start)
        if start == 0:
            plan.create_arrays()
            staging.save(key, **state)
        profile = plan.write(state, partial(staging.save, key), request.progress, lock)
        if plan.stored_key != key:
            staging.clear()
            raise DataError(f"{source.name} changed while it was read.", "Start again when nothing writes to it.")
        lock.require()
        plan.create_group({**(attributes or {}), **({} if profile is None else _missing(profile, source.sources))})
        staging.publish()
    size = sum(entry.size for entry in walk(plan.store))
    return report_of(source, profile, plan.chunk_shape, size, time.perf_counter() - began, start)


def _missing(profile: ColumnProfile, sources: Sequence[str] | None) -> dict[str, int]:
    """Return the attributes of a store that say how many values are missing."""
    counts = {
        schema.ATTR_MISSING: profile.missing_once(sources),
        schema.ATTR_MISSING_TARGETS: int(profile.missing_targets.sum()),
    }
    return {name: count for name, count in counts.items() if count}


def compressors(compression: str) -> list[Any]:
    """Return the compressor, if any, and always the checksum: it costs little and finds every damaged chunk."""
    from zarr.codecs import BloscCodec, Crc32cCodec

    if compression == "none":
        return [Crc32cCodec()]
    kind: Literal["zstd", "lz4"] = "zstd" if compression == "zstd" else "lz4"
    return [BloscCodec(cname=kind, clevel=3, shuffle="shuffle"), Crc32cCodec()]

"""Append the rows of a file, or of an object in memory, to a store.

Merge the small segments of a store.

What an append did.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time as clock
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import date, datetime
from typing import Any, Protocol, Unpack

from dask.utils import format_bytes

from dsel._lib.text import shorten
from dsel.config.ingest_request import SourceKeywords, SourceOptions, with_options
from dsel.data import schema
from dsel.data.append.dense import DenseRows, GrowingArray, SparseRows, remove_temporary
from dsel.data.formats.base import Source, SparseSource
from dsel.data.formats.missing import without_missing_values
from dsel.data.ingest import open_any
from dsel.data.ingest_report import profile_of
from dsel.data.schema import DEFAULT_WORKER_MEMORY
from dsel.data.store.array import is_complete, read_attributes
from dsel.data.store.column_profile import ColumnProfile
from dsel.data.store.reader import Store, open_store
from dsel.data.store.segments import Segment, begin_append, compact, publish_append
from dsel.data.store.sparse import SparseStore, is_sparse, open_sparse
from dsel.data.store.staging import Staging, output_errors, staging_of
from dsel.data.store.writer import Progress
from dsel.errors import CapacityError, DataError, OptionError, OutputError
from dsel.storage.locks import Lock
from dsel.storage.paths import AnyPath, ObjectPath, as_path


@dataclass(frozen=True)
class AppendReport:
    """What an append did, and what the new rows hold.

    Attributes
    ----------
    rows : int
        The rows that were appended; 0 if they were in the store already.
    shape : tuple of int
        The shape of X now, (m, n).
    segments : int
        The number of segments now.
    bytes_written : int
        Bytes of the new rows in memory.
    seconds : float
        The time that the call took.
    resumed_rows : int
        The new rows that an interrupted call had written before.
    missing : dict of str to int
        The missing values of each column of X in the new rows, where there are any.
    infinite : dict of str to int
        The infinite values of each column of X in the new rows, where there are any.
    constant : list of str
        The columns of X that have one value only in the new rows.
    already : str
        Why nothing was appended; else empty.
    notes : list of str
        What else was done.
    """

    rows: int
    shape: tuple[int, int]
    segments: int
    bytes_written: int = 0
    seconds: float = 0.0
    resumed_rows: int = 0
    missing: Mapping[str, int] = field(default_factory=dict)
    infinite: Mapping[str, int] = field(default_factory=dict)
    constant: Sequence[str] = ()
    already: str = ""
    notes: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the report as values that JSON has."""
        values = asdict(self)
        return {**values, **{name: list(values[name]) for name in ("shape", "constant", "notes")}}

    def lines(self) -> list[str]:
        """Return the report as text, one fact per line."""
        m, n = self.shape
        store = f"the store has {m:,} rows x {n:,} features in {self.segments} segments"
        if self.already:
            return [f"{self.already}: nothing to do; {store}"]
        text = [f"{self.rows:,} rows appended, {format_bytes(self.bytes_written)} in {self.seconds:.1f} s; {store}"]
        if self.resumed_rows:
            text.append(f"continued after row {self.resumed_rows:,} of an interrupted append")
        if self.missing:
            shown = shorten((f"{name} ({count})" for name, count in self.missing.items()), 8)
            text.append(f"missing values in {len(self.missing)} columns of the new rows: {shown}")
        if self.infinite:
            text.append(f"infinite values, which no selection takes: {shorten(self.infinite, 8)}")
        if self.constant and self.rows > 1:
            text.append(f"constant in the new rows: {shorten(self.constant, 8)}")
        return [*text, *self.notes]


class NewRows(Protocol):
    """Rows that are appended, of either kind of store."""

    @property
    def source(self) -> Source | SparseSource: ...
    @property
    def rows(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def arrays(self) -> list[GrowingArray]: ...
    @property
    def description(self) -> dict[str, Any]: ...
    def write(
        self, state: dict[str, Any], staging: Staging, progress: Progress | None, lock: Lock
    ) -> ColumnProfile | None: ...
    def publish(self) -> None: ...


@with_options(SourceOptions, given=True)
def append(
    source: Any,
    store: str | AnyPath,
    *,
    time: str | date | datetime | None = None,
    again: bool = False,
    worker_memory: int | None = None,
    progress: Progress | None = None,
    **options: Unpack[SourceKeywords],
) -> AppendReport:
    """Append rows to a store, as a new segment of it.

    Parameters
    ----------
    source : str, path, DataFrame, Dataset or AnnData
        What `dsel.ingest` reads.
    store : str or path
        A store that `dsel.ingest` wrote, a path or a URL.
    time : str, date or datetime, optional
        The time that the rows are from, ISO 8601, by which `rows: {time: ...}` of a job finds them. By default now.
    again : bool
        Append a file that was appended before, and has not changed since. By default nothing happens.
    worker_memory : int, optional
        The rows of a row of chunks take at most a quarter of this many bytes of memory. 1 GiB by default.
    progress : callable, optional
        Called as ``progress(rows_done, rows)`` after each row of chunks.
    **options
        As for `dsel.ingest`. By default, except for `y`, those with which the store was ingested.

    Returns
    -------
    AppendReport
        How many rows were appended, what they hold, and the shape of the store.

    Raises
    ------
    DataError
        If labels or types do not match. The error lists all differences: columns that are missing, new, renamed, or of
        another type, and categories that the store has no column for.
    MissingInputError, OptionError, MissingExtraError
        If the source or the store cannot be read, or an option does not apply.
    OutputError, CapacityError
        If the store cannot be written, or another process writes to it.

    Notes
    -----
    Columns match by label, in any order; where neither side has labels, by position. Readers see the old rows until one
    last write publishes the new ones. If a call on a file is interrupted, the same call continues after the last
    complete row of chunks. If it was interrupted after that last write, it finds that the file is in the store already.
    The new rows fill the last row of chunks, so small appends do not make small chunks. The cost is that of the new
    rows, and of the last row of chunks, which is written again.

    Examples
    --------
    >>> import tempfile
    >>> import pandas as pd
    >>> import dsel
    >>> monday = pd.DataFrame({"size": [1.5, 2.0, 3.5], "price": [1.0, 2.0, 3.0]})
    >>> tuesday = pd.DataFrame({"price": [2.5], "size": [3.0]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report = dsel.ingest(monday, f"{folder}/data.zarr", target="price")
    ...     report = dsel.append(tuesday, f"{folder}/data.zarr")
    >>> report.rows, report.shape, report.segments
    (1, (4, 1), 2)
    """
    began = clock.perf_counter()
    path = as_path(store).absolute()
    opened_store = _growing_store(path)
    request = _request(options, opened_store)
    opened = open_any(source, request)
    memory = DEFAULT_WORKER_MEMORY if worker_memory is None else worker_memory
    if isinstance(opened, SparseSource) != isinstance(opened_store, SparseStore):
        kinds = {True: "sparse", False: "dense"}
        raise DataError(
            f"{opened.name} has a {kinds[isinstance(opened, SparseSource)]} X, and that of {path} is "
            f"{kinds[isinstance(opened_store, SparseStore)]}.",
            "Append rows of the same kind.",
        )
    moment = _moment(time)

    def new_rows(there: Store | SparseStore) -> NewRows:
        if isinstance(opened, SparseSource):
            assert isinstance(there, SparseStore)
            return SparseRows.of(opened, there)
        assert isinstance(there, Store)
        complete = without_missing_values(opened, request.missing, request.scanned)
        return DenseRows.of(complete, there, max(1, memory // 4))

    new_rows(opened_store)  # differences show before anything is written
    staging = staging_of(path)
    with output_errors(path), staging.locked() as lock:
        _require_no_ingest(staging)
        there = _growing_store(path)  # another process may have appended meanwhile
        rows = new_rows(there)
        key = _digest(rows.description)
        if not again and key in _keys(there):
            staging.progress_file.unlink(missing_ok=True)
            return AppendReport(
                0, there.shape, len(there.segments), already=f"{opened.name} was appended to {path} before"
            )
        resumed, profile = _append(rows, there, staging, lock, key, moment, opened.name, progress)
    now = _growing_store(path)
    notes = list(rows.source.notes)
    details = {} if profile is None else profile_of(profile, now.features)
    return AppendReport(
        rows.rows, now.shape, len(now.segments), rows.nbytes, clock.perf_counter() - began, resumed, notes=notes,
        **details,
    )  # fmt: skip


def _append(
    rows: NewRows, there: Store | SparseStore, staging: Staging, lock: Lock, key: str, moment: str | None, name: str,
    progress: Progress | None,
) -> tuple[int, ColumnProfile | None]:  # fmt: skip
    """Write and publish the rows; return how many of them an interrupted call had written, and what they hold."""
    path, m = there.path, there.shape[0]
    _check_disk(path, rows)
    work = {"append": key, "after": m, "source": rows.description}
    state = staging.state()
    remove_temporary(path)
    for array in rows.arrays:
        remove_temporary(array.folder)
    if state.get("key") != json.loads(json.dumps(work)):
        state = {"key": work, "rows": 0}
        for array in rows.arrays:
            array.remove_unpublished()
        begin_append(path, m)
        staging.save(work, 0)
    resumed = int(state["rows"])
    profile = rows.write(state, staging, progress, lock)
    if _digest(rows.description) != key:
        staging.progress_file.unlink(missing_ok=True)
        raise DataError(f"{name} changed while it was read.", "Start again when nothing writes to it.")
    lock.require()
    rows.publish()
    publish_append(path, m + rows.rows, time=moment, source=name, key=key)
    staging.progress_file.unlink(missing_ok=True)
    return resumed, profile


def _growing_store(path: AnyPath) -> Store | SparseStore:
    """Open a store that may grow. Raises OptionError for one that another program wrote."""
    found = open_sparse(path) if is_sparse(path) else open_store(path)
    if not is_complete(path):
        raise OptionError(
            f"{path} was not written by dsel.",
            "Append to it with the program that wrote it, or make a store of it with dsel ingest.",
        )
    return found


def _request(given: SourceKeywords, store: Store | SparseStore) -> SourceOptions:
    """Return the options that were given, and for the others those of the ingest."""
    recorded = read_attributes(store.path).get(schema.ATTR_OPTIONS, {})
    known = {option.name: recorded.get(option.name) for option in fields(SourceOptions)}
    return SourceOptions.of(**known | {name: value for name, value in given.items() if value is not None})


def _moment(time: str | date | datetime | None) -> str | None:
    """Return a time as text, ISO 8601. Raises OptionError."""
    if time is None:
        return None
    if isinstance(time, date):  # a datetime is one
        return time.isoformat()
    try:
        datetime.fromisoformat(time)
    except ValueError:
        raise OptionError(f"time is {time!r}.", "Write it as 2026-08-01 or 2026-08-01T02:00:00+00:00.") from None
    return time


def _digest(description: Mapping[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(description, sort_keys=True).encode(), digest_size=12).hexdigest()


def _keys(store: Store | SparseStore) -> set[str]:
    """Return what the segments of a store were made from."""
    return {key for segment in store.segments for key in segment.keys}


def _require_no_ingest(staging: Staging) -> None:
    """Raise OutputError if an ingest that replaces the store was interrupted."""
    key = staging.state().get("key")
    if isinstance(key, dict) and "append" not in key:
        raise OutputError(
            f"An ingest that replaces {staging.store} was interrupted.",
            f"Finish it first, or remove {staging.progress_file}.",
        )


def _check_disk(path: AnyPath, rows: NewRows) -> None:
    if isinstance(path, ObjectPath):
        return
    free = shutil.disk_usage(path).free
    if rows.nbytes > free:
        raise CapacityError(
            f"{path} needs about {format_bytes(rows.nbytes)} more on a disk with {format_bytes(free)} free.",
            "Free some space, or move the store to another disk.",
        )


#: Segments that `dsel compact` leaves, unless it is told otherwise.
LEFT = 32


def compact_store(store: str | AnyPath, most: int = LEFT) -> tuple[Segment, ...]:
    """Merge neighbouring segments of a store, those with the fewest rows first, and return those that are left.

    Parameters
    ----------
    store : str or path
        The store, a path or a URL.
    most : int
        How many segments are left at most.

    Raises
    ------
    MissingInputError
        If there is no store.
    OutputError
        If another process writes to it.

    Notes
    -----
    No rows are moved or read. The next run reads the rows of a merged segment once.
    """
    path = as_path(store)
    with output_errors(path), staging_of(path).locked():
        rows = (open_sparse(path) if is_sparse(path) else open_store(path)).shape[0]
        return compact(path, rows, most)

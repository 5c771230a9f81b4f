"""Append the rows of a file, or of an object in memory, to a store with a dense or a sparse X.

While rows are appended, they are written beyond what readers see, and published at the end.

The order of an append, under the lock that keeps other writers out:

1. The list of segments records that an append has begun.
2. The chunks are written. The last one that holds old rows is replaced as a whole, and its old rows stay as they are.
3. The arrays get their new lengths.
4. The list of segments gets the new one. This write, of the metadata of the group, publishes the rows.

Readers take the number of rows from the list of segments. So before step 4 they see the old rows, and afterwards all.
What an append wrote that did not reach step 4 lies beyond these rows, and the next append replaces it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time as clock
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import date, datetime
from typing import Any, Unpack

from dsel._lib.byte_sizes import format_bytes
from dsel._lib.text import counted, noun, shorten
from dsel.config.ingest_request import Progress, SourceKeywords, SourceOptions, with_options
from dsel.data import schema
from dsel.data.append.matching import require_values
from dsel.data.append.new_rows import DenseRows, SparseRows
from dsel.data.formats.missing import without_missing_values
from dsel.data.formats.source import OPTIONS, Format, SparseSource
from dsel.data.ingest import format_of, open_any, split_arrays
from dsel.data.ingest_report import ColumnProfile, WriteReport, profile_of, shown_counts
from dsel.data.schema import DEFAULT_WORKER_MEMORY
from dsel.data.store.array import is_complete, read_attributes
from dsel.data.store.reader import Store
from dsel.data.store.segments import Segment, begin_append, compact, publish_append
from dsel.data.store.sparse import SparseStore, open_any_store
from dsel.data.store.staging import Staging, output_errors, staging_of
from dsel.errors import CapacityError, DataError, DselError, OptionError, OutputError
from dsel.storage.locks import Lock
from dsel.storage.paths import AnyPath, ObjectPath, as_path


@dataclass(frozen=True, kw_only=True)
class AppendReport(WriteReport):
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
    missing, missing_targets : dict of str to int
        The missing values of each column of the source, and of each target, in the new rows, where there are any.
    infinite : dict of str to int
        The infinite values of each column of X in the new rows, where there are any.
    constant : list of str
        The columns of X that have one value only in the new rows.
    categories : dict of str to int
        How many columns of X each category of the store has.
    classes : dict of str to list of str
        The classes of each target of the store that became several columns.
    already : str
        Why nothing was appended; else empty.
    notes : list of str
        What else was done.
    """

    rows: int
    segments: int
    already: str = ""

    def lines(self) -> list[str]:
        """Return the report as text, one fact per line."""
        m, n = self.shape
        store = f"the store has {m:,} rows x {n:,} {noun(n, 'feature')} in {counted(self.segments, 'segment')}"
        if self.already:
            return [f"{self.already}: nothing to do; {store}"]
        rows = f"{self.rows:,} {noun(self.rows, 'row')} appended"
        text = [f"{rows}, {format_bytes(self.bytes_written)} in {self.seconds:.1f} s; {store}"]
        if self.resumed_rows:
            text.append(f"continued after row {self.resumed_rows:,} of an interrupted append")
        if self.missing:
            text.append(self._missing_values(" of the new rows"))
        if self.missing_targets:
            missing = f"missing targets in the new rows: {shown_counts(self.missing_targets)}"
            remedy = "ingest all rows into a new store with missing=rows (--missing rows), which leaves these rows out"
            text.append(f"{missing}; no selection takes them: {remedy}")
        if self.infinite:
            text.append(f"infinite values, which no selection takes: {shorten(self.infinite, 8)}")
        if self.constant and self.rows > 1:
            text.append(f"constant in the new rows: {shorten(self.constant, 8)}")
        return [*text, *self.notes]


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
    source : str, path, DataFrame, array, sparse matrix, Dataset or AnnData
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
    rows, and of the last row of chunks, which is written again. Where the store may not hold all values of the dtypes
    of a source, the source is read once more before.

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
    arrays, named = split_arrays(options)
    request = _request(named, opened_store, arrays, format_of(source, not arrays))
    try:
        opened = open_any(source, request, **arrays)
    except DselError as error:
        raise _with_origin(error, named) from error
    memory = DEFAULT_WORKER_MEMORY if worker_memory is None else worker_memory
    if isinstance(opened, SparseSource) != isinstance(opened_store, SparseStore):
        kinds = {True: "sparse", False: "dense"}
        raise DataError(
            f"{opened.name} has a {kinds[isinstance(opened, SparseSource)]} X, and that of {path} is "
            f"{kinds[isinstance(opened_store, SparseStore)]}.",
            "Append rows of the same kind.",
        )
    moment = _moment(time)

    def new_rows(there: Store | SparseStore) -> DenseRows | SparseRows:
        if isinstance(opened, SparseSource):
            assert isinstance(there, SparseStore)
            return SparseRows.of(opened, there)
        assert isinstance(there, Store)
        complete = without_missing_values(opened, request.missing, request.scanned)
        return DenseRows.of(complete, there, max(1, memory // 4))

    require_values(new_rows(opened_store).source)  # differences show before anything is written
    staging = staging_of(path)
    with output_errors(path), staging.locked() as lock:
        interrupted = staging.state().get("key")
        if isinstance(interrupted, dict) and "append" not in interrupted:
            raise OutputError(
                f"An ingest that replaces {path} was interrupted.",
                f"Finish it first, or remove {staging.progress_file}.",
            )
        there = _growing_store(path)  # another process may have appended meanwhile
        rows = new_rows(there)
        key = _digest(rows.description)
        if not again and any(key in segment.keys for segment in there.segments):
            staging.progress_file.unlink(missing_ok=True)
            already = f"{opened.name} was appended to {path} before"
            return AppendReport(rows=0, shape=there.shape, segments=len(there.segments), already=already)
        resumed, profile = _append(rows, there, staging, lock, key, moment, opened.name, progress)
    now = _growing_store(path)
    notes = list(rows.source.notes)
    classes, details = now.attributes.get(schema.ATTR_CLASSES, {}), {}
    if profile is not None and isinstance(now, Store):
        details = profile_of(profile, now.features, now.sources, rows.source.targets, classes)
    return AppendReport(
        rows=rows.source.shape[0], shape=now.shape, segments=len(now.segments), bytes_written=rows.nbytes,
        seconds=clock.perf_counter() - began, resumed_rows=resumed, categories=_categories(now), notes=notes,
        classes=classes, **details,
    )  # fmt: skip


def _append(
    rows: DenseRows | SparseRows, there: Store | SparseStore, staging: Staging, lock: Lock, key: str,
    moment: str | None, name: str, progress: Progress | None,
) -> tuple[int, ColumnProfile | None]:  # fmt: skip
    """Write and publish the rows; return how many of them an interrupted call had written, and what they hold."""
    path, m = there.path, there.shape[0]
    free = rows.nbytes if isinstance(path, ObjectPath) else shutil.disk_usage(path).free
    if rows.nbytes > free:
        raise CapacityError(
            f"{path} needs about {format_bytes(rows.nbytes)} more on a disk with {format_bytes(free)} free.",
            "Free some space, or move the store to another disk.",
        )
    work = {"append": key, "after": m, "source": rows.description}
    state = staging.state()
    remove_temporary(path)
    for array in rows.arrays:
        remove_temporary(array.folder)
    if state.get("key") != json.loads(json.dumps(work)) or not rows.first_state.keys() <= state.keys():
        state = {"key": work, **rows.first_state}
        for array in rows.arrays:
            array.remove_unpublished()
        begin_append(path, m)
        staging.save(**state)
    resumed = int(state["rows"])
    profile = rows.write(state, staging, progress, lock)
    if _digest(rows.description) != key:
        staging.progress_file.unlink(missing_ok=True)
        raise DataError(f"{name} changed while it was read.", "Start again when nothing writes to it.")
    lock.require()
    for array in rows.arrays:
        array.publish()
    if isinstance(rows, SparseRows):
        rows.publish_shape()
    missing = {} if profile is None or isinstance(there, SparseStore) else _missing(profile, there)
    publish_append(path, m + rows.source.shape[0], time=moment, source=name, key=key, attributes=missing)
    staging.progress_file.unlink(missing_ok=True)
    return resumed, profile


def _missing(new: ColumnProfile, there: Store) -> dict[str, int]:
    """Return the attributes that say how many values of a store are missing, with the new rows."""
    sources = None if there.sources is None else there.sources.tolist()
    counts = {schema.ATTR_MISSING: new.missing_once(sources)}
    if schema.ATTR_MISSING_CELLS in there.attributes:
        counts = {schema.ATTR_MISSING_CELLS: int(new.missing.sum())}
    counts[schema.ATTR_MISSING_TARGETS] = int(new.missing_targets.sum())
    return {name: count + int(there.attributes.get(name, 0)) for name, count in counts.items() if count}


def _categories(there: Store | SparseStore) -> dict[str, int]:
    """Return how many columns of X each category of a store has."""
    if isinstance(there, SparseStore) or there.sources is None:
        return {}
    named = zip(there.features, there.sources.tolist(), strict=True)
    return dict(Counter(source for label, source in named if label != source))  # asdict cannot copy a Counter


def _growing_store(path: AnyPath) -> Store | SparseStore:
    """Open a store that may grow. Raises OptionError for one that another program wrote."""
    found = open_any_store(path)
    if not is_complete(path):
        raise OptionError(
            f"{path} was not written by dsel.",
            "Append to it with the program that wrote it, or make a store of it with dsel ingest.",
        )
    return found


def _request(
    given: Mapping[str, Any], store: Store | SparseStore, arrays: Mapping[str, Any], kind: Format | None
) -> SourceOptions:
    """Return the options that were given, and for the others those of the ingest.

    Those that arrays replace are left out, and those that the format of the source does not take.
    """
    recorded = read_attributes(store.path).get(schema.ATTR_OPTIONS, {})
    replaced = {"target" if name == "y" else name for name in arrays}
    replaced |= set() if kind is None else set(OPTIONS) - kind.takes
    if kind is not None and "separator" in kind.takes:  # text does not say what the type of a column has said
        recorded = {**recorded, "categorical": (*recorded.get("categorical", ()), *_categories(store))}
    known = {option.name: recorded.get(option.name) for option in fields(SourceOptions) if option.name not in replaced}
    return SourceOptions.of(**known | {name: value for name, value in given.items() if value is not None})


def _with_origin(error: DselError, given: Mapping[str, Any]) -> DselError:
    """Return an error about a source, whose remedy says if an option is that of the ingest and was not given."""
    name = error.what.partition("=")[0]
    if name in SourceKeywords.__annotations__ and given.get(name) is None:
        origin = f"This {name} is that with which the store was ingested: give that of this file."
        return type(error)(error.what, f"{error.remedy} {origin}")
    return error


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
        rows = open_any_store(path).shape[0]
        return compact(path, rows, most)


def remove_temporary(folder: AnyPath) -> None:
    """Remove temporary files on disk, below an array or directly in a group, that a killed writer left."""
    if isinstance(folder, ObjectPath):
        return
    for left in (*folder.glob(f".{schema.METADATA_FILE}-*"), *folder.glob("c/**/*.partial")):
        left.unlink(missing_ok=True)

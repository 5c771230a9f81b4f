"""The segments of a store: the row ranges that were written together, one per append.

The attribute `dsel_segments` of the group lists them. It also says how many rows readers see: the arrays may be longer
while an append runs. A store without the attribute is one segment of all rows. A segment has one fingerprint per
variable, so that what was computed for its rows is used again as long as they are unchanged.

An append publishes a new segment in three steps, under the lock that keeps other writers out:

1. `begin_append` marks the last row of chunks of each array as being rewritten. From now on the fingerprints of the
   segments do not depend on it, and readers see the old rows.
2. The chunks are written. A chunk that holds old rows is replaced as a whole, with the old rows unchanged. Then the
   arrays get their new shape.
3. `publish_append` replaces the metadata of the group by one write: readers see the new rows. The old segments keep
   their fingerprints.

An append that is interrupted before step 3 begins again with step 1. Rows of a segment that were changed in any other
way give it another fingerprint.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import accumulate, pairwise, product
from typing import Any, Final

import numpy as np

from dsel.data import schema
from dsel.data.store.array import REMEDY, chunk_key, open_array, read_attributes
from dsel.errors import DataError
from dsel.storage.paths import AnyPath, as_path, list_names, walk, write_bytes

#: Variables over the samples that statistics depend on.
ROW_VARIABLES: Final = (schema.X, schema.Y, schema.WEIGHT)
#: The same of a sparse store: values and their columns, and the ends of the rows.
_VALUES: Final = ("X/data", "X/indices")
_INDPTR: Final = "X/indptr"
#: Beyond this many segments an append merges small ones.
MOST_SEGMENTS: Final = 128


@dataclass(frozen=True)
class Segment:
    """Rows [start, stop) of a store that were written together.

    Parameters
    ----------
    start, stop : int
        The rows.
    time : str
        When they were written, ISO 8601, UTC; empty if unknown.
    known : dict of str to str
        For each variable what its rows are known by. It changes if the rows were changed other than by an append.
    source : str
        The name of what was appended; empty if unknown.
    keys : tuple of str
        Digests of what was appended: several after small segments were merged.
    appends : tuple of (int, str)
        The rows and the time of each append that was merged into the segment. Empty for one append.

    Examples
    --------
    >>> segment = Segment(0, 1000, "2026-08-01T02:00:00+00:00", {"X": "5a1f", "Y": "77c0"})
    >>> segment.rows, segment.fingerprint("X") == segment.fingerprint("X", "Y")
    (1000, False)
    """

    start: int
    stop: int
    time: str
    known: dict[str, str]
    source: str = ""
    keys: tuple[str, ...] = ()
    appends: tuple[tuple[int, str], ...] = ()

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return self.stop - self.start

    def part(self, start: int, stop: int) -> Segment:
        """Return the rows of this segment that are in [start, stop), known by their place in it."""
        a, b = max(self.start, start), min(self.stop, stop)
        if (a, b) == (self.start, self.stop):
            return self
        place = f"[{a - self.start}:{b - self.start}]"
        return replace(self, start=a, stop=b, known={name: known + place for name, known in self.known.items()})

    def moved(self, by: int) -> Segment:
        """Return the same rows with other numbers."""
        return replace(self, start=self.start + by, stop=self.stop + by)

    def fingerprint(self, *variables: str) -> str:
        """Return a digest that changes with the rows of these variables, by default of all that are known."""
        names = variables or tuple(sorted(self.known))
        text = json.dumps([self.rows, *((name, self.known[name]) for name in names)])
        return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def visible_rows(path: AnyPath) -> int | None:
    """Return how many rows readers see, or None for all rows of the arrays. Reads the metadata of the group."""
    recorded = _recorded(path)
    return None if recorded is None else int(recorded["segments"][-1]["stop"])


def segment_ranges(path: AnyPath) -> tuple[tuple[int, int], ...] | None:
    """Return the rows [start, stop) of each segment, or None if none are listed. Lists no files."""
    recorded = _recorded(path)
    return None if recorded is None else tuple((int(one["start"]), int(one["stop"])) for one in recorded["segments"])


def read_appends(path: AnyPath, rows: int) -> tuple[tuple[int, int, str], ...]:
    """Return the rows [start, stop) and the time of each append, whether merged or not. Lists no files.

    Parameters
    ----------
    path : Path or ObjectPath
        The store.
    rows : int
        The rows that are read. Later appends are left out.

    Notes
    -----
    An older version of dsel merged segments without a record of their appends. Such a segment counts as one append.
    """
    recorded = _recorded(path)
    if recorded is None:
        return ((0, rows, str(read_attributes(path).get(schema.ATTR_CREATED, ""))),)
    listed = [
        (int(count), str(time))
        for one in recorded["segments"]
        for count, time in one.get("appends") or [(one["stop"] - one["start"], one["time"])]
    ]
    edges = list(accumulate((count for count, _ in listed), initial=0))
    found = ((start, stop, time) for (start, stop), (_, time) in zip(pairwise(edges), listed, strict=True))
    return tuple(one for one in found if one[0] < rows)


def read_segments(path: AnyPath, rows: int) -> tuple[Segment, ...]:
    """Return the segments of a store in the order of their rows.

    Parameters
    ----------
    path : Path or ObjectPath
        The store.
    rows : int
        The rows of X, for a store that has no list of segments.

    Raises
    ------
    DataError
        If the list of segments is damaged.

    Notes
    -----
    Lists the files of the arrays, and reads no values.
    """
    recorded = _recorded(path)
    files = _files(path)
    if recorded is None:
        known = {name: one.digest(0, rows) for name, one in files.items()}
        return (Segment(0, rows, str(read_attributes(path).get(schema.ATTR_CREATED, "")), known),)
    last = int(recorded["segments"][-1]["stop"]) if recorded["appending"] else None
    return tuple(_resolve(one, files, last) for one in recorded["segments"])


def begin_append(path: str | AnyPath, rows: int) -> tuple[Segment, ...]:
    """Record that the last row of chunks is about to be rewritten with more rows, and return the segments.

    Parameters
    ----------
    path : str or path
        The store, whose lock the caller holds.
    rows : int
        The rows that readers see now.
    """
    path = as_path(path)
    segments = read_segments(path, rows)
    _write(path, segments, appending=True)
    return segments


def publish_append(
    path: str | AnyPath, stop: int, *, time: str | None = None, source: str = "", key: str = "",
    most: int = MOST_SEGMENTS, attributes: Mapping[str, Any] | None = None,
) -> tuple[Segment, ...]:  # fmt: skip
    """Make the rows up to `stop` visible as a new segment, and return all segments.

    Parameters
    ----------
    path : str or path
        The store. `begin_append` was called, and all chunks are written.
    stop : int
        The rows that readers see from now on.
    time : str, optional
        When the rows were written, ISO 8601. By default now.
    source, key : str
        The name of what was appended, and a digest of it.
    most : int
        Beyond this many segments, small ones are merged.
    attributes : dict, optional
        Attributes of the store that the new rows change.
    """
    path = as_path(path)
    before = read_segments(path, 0)
    time = time or datetime.now(UTC).isoformat(timespec="seconds")
    start, files = before[-1].stop, _files(path)
    known = {name: one.digest(start, stop) for name, one in files.items()}
    new = Segment(start, stop, time, known, source, (key,) if key else ())
    segments = _merged((*before, new), files, most)
    _write(path, segments, appending=False, attributes=attributes)
    return segments


def compact(path: str | AnyPath, rows: int, most: int) -> tuple[Segment, ...]:
    """Merge small segments until at most `most` are left, and return them. The caller holds the lock of the store.

    Notes
    -----
    No rows are moved. A merged segment is a new one: the next run reads its rows once. What is saved for the others
    stays.
    """
    path = as_path(path)
    segments = read_segments(path, rows)
    if len(segments) > max(1, most):
        recorded = _recorded(path)
        segments = _merged(segments, _files(path), max(1, most))
        _write(path, segments, appending=recorded is not None and recorded["appending"])
    return segments


def merge_plan(rows: Sequence[int], most: int) -> list[tuple[int, int]]:
    """Return which segments [first, last) become one so that at most `most` are left.

    Of all neighbours, those with the fewest rows together are merged first, and the older ones if several have as few.

    Examples
    --------
    >>> merge_plan([1000, 10, 10, 10, 300], 3)
    [(0, 1), (1, 4), (4, 5)]
    """
    groups, sizes = [(i, i + 1) for i in range(len(rows))], list(rows)
    while len(groups) > most:
        pairs = [a + b for a, b in pairwise(sizes)]
        i = pairs.index(min(pairs))
        groups[i : i + 2] = [(groups[i][0], groups[i + 1][1])]
        sizes[i : i + 2] = [pairs[i]]
    return groups


def _merged(segments: Sequence[Segment], files: dict[str, _RowFiles], most: int) -> tuple[Segment, ...]:
    merged: list[Segment] = []
    for first, last in merge_plan([segment.rows for segment in segments], most):
        group = list(segments[first:last])
        start, stop = group[0].start, group[-1].stop
        if len(group) > 1:
            known = {name: files_of.digest(start, stop) for name, files_of in files.items()}
            keys = tuple(key for segment in group for key in segment.keys)
            appends = tuple(one for segment in group for one in segment.appends or ((segment.rows, segment.time),))
            group = [replace(group[-1], start=start, known=known, keys=keys, appends=appends)]
        merged += group
    return tuple(merged)


@dataclass(frozen=True)
class _RowFiles:
    """The files of one variable: what they are now."""

    array: Any
    rows: int  # of one file
    present: dict[str, str]
    ends: Any = None  # of the values of a sparse X: the number of values before each row

    def digest(self, start: int, stop: int, tail: int | None = None) -> str:
        """Return a digest of the files with rows [start, stop). Files with rows from `tail` on are left out."""
        digest = hashlib.blake2b(self._metadata, digest_size=12)
        if self.ends is not None:
            start, stop = int(self.ends[start]), int(self.ends[stop])
            tail = None if tail is None else int(self.ends[tail])
        first, last = start // self.rows, -(-stop // self.rows)
        if tail is not None:
            last = min(last, tail // self.rows)
        across = 1 if self.array.ndim == 1 else -(-self.array.shape[1] // (self.array.shards or self.array.chunks)[1])
        for index in product(range(first, last), range(across)):
            key = chunk_key(self.array, index)
            digest.update(f"{key}\0{self.present.get(key, 'absent')}\n".encode())
        return digest.hexdigest()

    @cached_property
    def _metadata(self) -> bytes:
        """Return the metadata of the array without the number of rows."""
        metadata = self.array.metadata.to_dict()
        shape = list(metadata.pop("shape"))[1:]
        metadata.pop("attributes", None)
        return json.dumps([shape, metadata], sort_keys=True, default=str).encode()


def _files(path: AnyPath) -> dict[str, _RowFiles]:
    """Return the files of the variables over the samples that exist."""
    found = {}
    names: tuple[str, ...] = ROW_VARIABLES
    ends = None
    if read_attributes(path / schema.X).get("encoding-type") == "csr_matrix":
        columns = sorted(list_names(path / "obs") - {"_index"})  # files of metadata have no arrays below them
        names = (*_VALUES, _INDPTR, *(f"obs/{name}" for name in columns))
        ends = np.asarray(open_array(str(path), _INDPTR).array[...])
    for name in names:
        if not (path / name / schema.METADATA_FILE).is_file():
            continue
        handle = open_array(str(path), name)
        present = {entry.key: f"{entry.size} {entry.tag}" for entry in walk(path / name)}
        found[name] = _RowFiles(handle.array, handle.files[0], present, ends if name in _VALUES else None)
    return found


def _resolve(one: dict[str, Any], files: dict[str, _RowFiles], tail: int | None) -> Segment:
    """Return a recorded segment: a variable whose files are as recorded is known by its old name."""
    start, stop = int(one["start"]), int(one["stop"])
    known = {}
    for name, files_of in files.items():
        before, was = one["variables"].get(name, ("", ""))
        now = files_of.digest(start, stop, tail)
        known[name] = before if now == was else files_of.digest(start, stop)
    keys = tuple(str(key) for key in one.get("keys", ()))
    appends = tuple((int(count), str(time)) for count, time in one.get("appends", ()))
    return Segment(start, stop, str(one["time"]), known, str(one.get("source", "")), keys, appends)


def _recorded(path: AnyPath) -> dict[str, Any] | None:
    """Return the list of segments as it is in the attributes, or None. Raises DataError."""
    recorded = read_attributes(path).get(schema.ATTR_SEGMENTS)
    if recorded is None:
        return None
    try:
        edges = [(int(one["start"]), int(one["stop"])) for one in recorded["segments"]]
        whole = all(isinstance(one["variables"], dict) and one["time"] is not None for one in recorded["segments"])
        merged = [one.get("appends", ()) for one in recorded["segments"]]
        whole &= all(sum(rows for rows, _ in of) in (0, b - a) for of, (a, b) in zip(merged, edges, strict=True))
        appending = bool(recorded["appending"])
    except (LookupError, TypeError, ValueError):
        edges, whole, appending = [], False, False
    if (
        not whole
        or not edges
        or edges[0][0]
        or any(a >= b for a, b in edges)
        or any(before[1] != after[0] for before, after in pairwise(edges))
    ):
        raise DataError(f"The list of segments of {path} is damaged.", REMEDY)
    return {"appending": appending, "segments": recorded["segments"]}


def _write(
    path: AnyPath, segments: Sequence[Segment], *, appending: bool, attributes: Mapping[str, Any] | None = None
) -> None:
    """Replace the list of segments and some attributes in the metadata of the group, by one write."""
    files, tail = _files(path), segments[-1].stop if appending else None
    listed = [
        {
            "start": one.start, "stop": one.stop, "time": one.time, "source": one.source, "keys": list(one.keys),
            **({"appends": one.appends} if one.appends else {}),
            "variables": {name: (known, files[name].digest(one.start, one.stop, tail))
                          for name, known in one.known.items() if name in files},
        }
        for one in segments
    ]  # fmt: skip
    file = path / schema.METADATA_FILE
    metadata = json.loads(file.read_text())
    now = {**metadata.get("attributes", {}), **(attributes or {})}
    now[schema.ATTR_SEGMENTS] = {"appending": appending, "segments": listed}
    write_bytes(file, json.dumps({**metadata, "attributes": now}, indent=2).encode())

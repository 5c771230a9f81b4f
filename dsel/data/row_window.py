"""Some consecutive rows of a store as a separate dataset. No data are copied."""

from __future__ import annotations

import json
from bisect import bisect_left
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel._lib.text import shorten
from dsel.data.blocks import Block, cut_block
from dsel.data.dataset import Dataset
from dsel.data.store.array import metadata_file, open_array, read_attributes
from dsel.data.store.segments import read_segments
from dsel.data.store.sparse import ObsColumns, SparseRows, SparseStore
from dsel.errors import DataError, OptionError
from dsel.storage.paths import list_names


def select_rows(dataset: Dataset, rows: dict[str, Any] | None) -> Dataset:
    """Return the rows of a store that `rows` names, numbered from 0.

    Parameters
    ----------
    dataset : Dataset
        The data.
    rows : dict or None
        ``{"last": 90}``: the last 90 segments; ``{"last": 0.2}``: the last fifth of the rows; ``{"first": ...}``
        likewise; ``{"time": [from, to]}``: rows whose value of a variable over the samples is at least `from` and less
        than `to`, where None is an open end. Without a variable `time`, it is the time of each segment. None: all rows.

    Raises
    ------
    OptionError
        If the data are not in a store, there is no such variable, or no row is left.
    DataError
        If the rows are not in the order of the variable.

    Notes
    -----
    Reads the variable, and no values of X and Y.
    """
    if rows is None:
        return dataset
    if dataset.store is None:
        raise OptionError(
            f"rows is {json.dumps(rows)}, and the data are not in a store.", "Give the rows of X instead."
        )
    ((name, wanted),) = rows.items()
    start, stop = 0, dataset.m
    if name == "last":
        start = _edge(dataset, -wanted)
    elif name == "first":
        stop = _edge(dataset, wanted)
    else:
        start, stop = _between(dataset, name, wanted)
    if start >= stop:
        raise OptionError(f"rows: no row of {dataset.name} has {json.dumps(rows)}.", "Choose a wider window.")
    return _window(dataset, start, stop, json.dumps(rows))


def _edge(dataset: Dataset, wanted: Any) -> int:
    """Return where the first `wanted` segments, or this share of the rows, end; if negative, where the last begin."""
    if isinstance(wanted, float):
        rows = max(1, round(abs(wanted) * dataset.m))
        return int(dataset.m - rows if wanted < 0 else rows)
    ranges = dataset.row_ranges
    if abs(wanted) >= len(ranges):
        return 0 if wanted < 0 else dataset.m
    return int(ranges[wanted][0])


def _between(dataset: Dataset, name: str, ends: list[Any]) -> tuple[int, int]:
    """Return the rows whose value of a variable is at least the first end and less than the second."""
    if name == "time" and _has_no(dataset, name):
        return _by_time_of_segment(dataset, ends)
    values = _coordinate(dataset, name)
    if values.dtype.kind in "Mm":
        ends = [None if end is None else _moment(name, end) for end in ends]
    else:
        _require_kind(dataset, name, values, ends)
    wrong = _first_unordered(values)
    if wrong is not None:
        raise DataError(
            f"rows: {name} of {dataset.name} is not in ascending order: row {wrong} has {values[wrong]} after "
            f"{values[wrong - 1]}.",
            "Append rows in the order of this variable, or choose segments with last.",
        )
    low, high = (None if end is None else bisect_left(values, end) for end in ends)
    return low or 0, dataset.m if high is None else high


def _require_kind(dataset: Dataset, name: str, values: NDArray[Any], ends: list[Any]) -> None:
    """Raise OptionError for text where the variable has numbers, and the other way round."""
    kind = "text" if values.dtype.kind == "O" else "numbers"
    for end in ends:
        if end is not None and isinstance(end, str) != (kind == "text"):
            raise OptionError(f"rows: {name} of {dataset.name} has {kind}, and {end!r} is not.", f"Give {kind}.")


def _first_unordered(values: NDArray[Any]) -> int | None:
    """Return the first row whose value is less than the one before, or that has none; None if there is no such row."""
    wrong = np.flatnonzero(~np.asarray(values[1:] >= values[:-1], bool))
    return int(wrong[0]) + 1 if wrong.size else None


def _moment(name: str, end: Any) -> np.datetime64:
    """Return a time as UTC."""
    try:
        found = datetime.fromisoformat(str(end))
    except ValueError:
        raise OptionError(
            f"rows: {end!r} is not a time for {name}.", "Write it as 2026-08-01 or 2026-08-01T06:00."
        ) from None
    return np.datetime64(found if found.tzinfo is None else found.astimezone(UTC).replace(tzinfo=None), "ns")


def _by_time_of_segment(dataset: Dataset, ends: list[Any]) -> tuple[int, int]:
    """Return the rows of the segments whose time is at least the first end and less than the second."""
    assert dataset.store is not None
    low, high = (None if end is None else _moment("time", end) for end in ends)
    segments = [one for one in read_segments(dataset.store.path, dataset.m) if one.time]
    times = [_moment("time", one.time) for one in segments]
    inside = [i for i, time in enumerate(times) if (low is None or time >= low) and (high is None or time < high)]
    if not inside:
        return 0, 0
    if inside[-1] - inside[0] >= len(inside):
        raise DataError(
            f"rows: the segments of {dataset.name} are not in the order of their times.", "Choose them with last."
        )
    return segments[inside[0]].start, segments[inside[-1]].stop


def _has_no(dataset: Dataset, name: str) -> bool:
    """Return whether the store has no variable of this name."""
    store = dataset.store
    assert store is not None
    return metadata_file(store.path / (f"obs/{name}" if isinstance(store, SparseStore) else name)) is None


def _coordinate(dataset: Dataset, name: str) -> NDArray[Any]:
    """Return the values of a variable over the samples: numbers, times, or an object array of text."""
    store = dataset.store
    assert store is not None
    folder = f"obs/{name}" if isinstance(store, SparseStore) else name
    if _has_no(dataset, name):
        known = sorted(part for part in list_names(store.path / "obs" if isinstance(store, SparseStore) else store.path)
                       if "." not in part)  # fmt: skip
        raise OptionError(f"rows: {store.path} has no variable {name!r}.", f"It has {shorten(known)}.")
    array = open_array(str(store.path), folder).array
    if len(array.shape) != 1 or array.shape[0] < dataset.m:
        raise OptionError(f"rows: {name} of {store.path} has shape {array.shape}.", "Name one value for each sample.")
    values = np.asarray(array[: dataset.m])
    attributes = read_attributes(store.path / folder)
    units = str(attributes.get("units", ""))
    if values.dtype.kind in "iuf" and " since " in units:
        from xarray.coding.times import decode_cf_datetime

        return np.asarray(decode_cf_datetime(values, units, attributes.get("calendar")))
    if values.dtype.kind in "iufbMm":
        return values
    return np.array([str(value) for value in values.tolist()], dtype=object)


def _window(dataset: Dataset, start: int, stop: int, asked: str) -> Dataset:
    blocks = tuple(
        _renumbered(_cut(dataset, block, max(start, block.start), min(stop, block.stop)), start)
        for block in dataset.blocks
        if block.start < stop and block.stop > start
    )
    share = (stop - start) / dataset.m
    return replace(
        dataset, m=stop - start, blocks=blocks, x_bytes=round(dataset.x_bytes * share),
        y_bytes=round(dataset.y_bytes * share), window=asked, first_row=dataset.first_row + start,
    )  # fmt: skip


def _renumbered(block: Block, first: int) -> Block:
    return replace(block, start=block.start - first, stop=block.stop - first)


def _cut(dataset: Dataset, block: Block, start: int, stop: int) -> Block:
    if not isinstance(block.x, SparseRows) or (start, stop) == (block.start, block.stop):
        return cut_block(block, start, stop)
    assert isinstance(dataset.store, SparseStore)
    first, last = dataset.store.ends_at([start, stop])
    x = replace(block.x, start=start, stop=stop, first=first, last=last)
    y = replace(block.y, start=start, stop=stop) if isinstance(block.y, ObsColumns) else block.y
    cut = cut_block(replace(block, x=None, y=None), start, stop)
    return replace(cut, x=x, y=y)

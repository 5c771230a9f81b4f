"""Divide the rows of a dataset: into folds, by groups of rows, or into rows to train on and held-out rows.

Or take some consecutive rows of a store as a separate dataset (`select_rows`). No data are copied.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast, get_args

import numpy as np
from numpy.typing import NDArray

from dsel._lib.text import counted, shorten
from dsel._lib.types import Ints
from dsel.config.size_rule import RowSplit
from dsel.data.blocks import PartWeights, load_weights
from dsel.data.dataset import Dataset
from dsel.data.row_partition import HELD_OUT_PARTS, RowPartition
from dsel.data.store.array import metadata_file, open_array, read_attributes, read_labels
from dsel.data.store.reader import Store
from dsel.data.store.segments import read_appends
from dsel.data.store.sparse import SparseStore
from dsel.data.weights import ADD_VARIABLE
from dsel.errors import DataError, OptionError
from dsel.storage.paths import AnyPath, list_names


def partition_rows(
    dataset: Dataset, *, folds: int = 5, split: Any = "random", row_groups: Any = None, repeats: int = 1,
    held_out: float | None = None, seed: int = 0, argument: str = "folds", gap: int = 0,
) -> RowPartition:  # fmt: skip
    """Return the division of the rows of a dataset into folds, or into rows to train on and held-out rows.

    argument: what errors call the number of folds. split, gap: as for
    `dsel.config.size_rule.SizeRule`. Errors: OptionError for too few rows or groups; DataError if the groups are not
    one label for each row.
    """
    m, counting = dataset.m, dataset.counting
    if not isinstance(split, str):
        return _given_splits(dataset, split, row_groups)
    if split not in get_args(RowSplit):
        raise OptionError(f"split is {split!r}, a description.", "Give the splitter, or the pairs of row numbers.")
    parts = folds if held_out is None else 1 + min(HELD_OUT_PARTS, max(2, round(held_out * counting)))
    if split == "forward" and held_out is None:
        parts = folds + 1
    if counting < max(parts, 4) or (held_out is not None and not 2 <= round(held_out * counting) <= counting - 2):
        wanted = f"{folds} {argument}" if held_out is None else f"held_out {held_out:g}"
        remedy = "Take fewer folds, or leave-one-out." if argument == "folds" else f"Take fewer {argument}."
        remedy = remedy if held_out is None else f"Hold out at least 2 rows, and at most {counting - 2}."
        remedy = remedy if counting >= 4 else "Give at least 4 rows."
        raise OptionError(f"{counting} rows are too few for {wanted}.", remedy)
    if gap:
        whole = RowPartition(m, parts, "forward" if split == "forward" else "blocks")
        words = f"{whole.description}, with a gap of {gap} row{'s' * (gap > 1)}"
        try:
            return RowPartition.of_splits(m, _with_gap(whole, gap), words)
        except ValueError as error:
            raise OptionError(f"gap is {gap}: {error}.", f"Take a smaller gap, or fewer {argument}.") from error
    labels = None
    if row_groups is not None:
        labels = _parts_of_groups(group_codes(dataset, row_groups), parts, seed, repeats, held_out, argument)
    whole = RowPartition(m, parts, cast(RowSplit, split), seed, repeats, held_out, labels)
    return whole if counting == m or labels is not None else _by_counting_rows(dataset, whole)


def _by_counting_rows(dataset: Dataset, partition: RowPartition) -> RowPartition:
    """Return the division in which the rows with weight are divided as if there were no others."""
    weights = [load_weights(block.w) for block in dataset.blocks]
    there = np.concatenate([w > 0.0 for w in weights if w is not None])
    few = replace(partition, m=int(there.sum()))
    labels = np.zeros((partition.repeats, partition.m), np.min_scalar_type(partition.parts))
    for repetition in range(partition.repeats):
        labels[repetition, there] = few.of_rows(0, few.m, repetition)
    return replace(partition, labels=labels, words=few.description)


def _with_gap(partition: RowPartition, gap: int) -> Iterator[tuple[Ints, Ints]]:
    """Yield the rows of each split into blocks, without training rows that are closer than the gap to a tested one."""
    rows = np.arange(partition.m)
    block = partition.of_rows(0, partition.m)
    for model in partition.tests():
        test = rows[block == model.test[0][1]]
        near = (rows >= test[0] - gap) & (rows <= test[-1] + gap)
        yield rows[np.isin(block, [part for _, part in model.train]) & ~near], test


def _given_splits(dataset: Dataset, split: Any, row_groups: Any) -> RowPartition:
    """Return the division by a splitter of scikit-learn, or by pairs of row numbers."""
    if not hasattr(split, "split"):
        splits, words = split, counted(len(split), "given split")
    else:
        groups = None if row_groups is None else group_codes(dataset, row_groups)
        if not (row_groups is None or isinstance(row_groups, str)):
            # scikit-learn breaks ties by the order of the labels
            groups = np.asarray(dataset.in_order(row_groups, "row_groups"))
        y = None
        if "Stratified" in type(split).__name__:
            from dsel.data.criterion_data import ColumnData  # it imports this module

            y = ColumnData(dataset).Y[:, 0] if dataset.n_targets else None
        words = f"the splits of {split}"
        try:
            splits = list(split.split(np.zeros((dataset.m, 1)), y, groups))
        except (TypeError, ValueError) as error:
            lacks_groups = groups is None and "'groups'" in str(error)
            raise OptionError(
                f"{split} does not divide these rows: {str(error).rstrip('.')}.",
                "Give row_groups (groups in fit of a selector)." if lacks_groups else "Change its parameters.",
            ) from error
    try:
        return RowPartition.of_splits(dataset.m, splits, words)
    except ValueError as error:
        raise OptionError(f"split: {error}.", "Give disjoint rows to train and to test on.") from error


def group_codes(dataset: Dataset, row_groups: Any) -> Ints:
    """Return (m,) the number of the group of each row. Groups are numbered in the order of their labels."""
    labels = row_groups
    where = "row_groups"
    if isinstance(row_groups, str):
        labels, where = _stored_groups(dataset, row_groups), f"row_groups {row_groups!r}"
    labels = np.asarray(dataset.in_order(labels, "row_groups"))
    if labels.shape != (dataset.m,):
        raise DataError(
            f"{where} has shape {labels.shape}, and X has {dataset.m} rows.", "Give one label for each row."
        )
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise DataError(
            f"{where} has NaN: {int(np.isnan(labels).sum())} rows have no group.", "Give every row a group."
        )
    if labels.dtype.kind == "O":
        labels = labels.astype(str)
    values, codes = np.unique(labels, return_inverse=True)
    order = np.argsort(np.array([str(value) for value in values.tolist()]), kind="stable")  # as text, as in a store
    rank = np.empty(order.size, np.int64)
    rank[order] = np.arange(order.size)
    return rank[codes.reshape(-1)]


def _stored_groups(dataset: Dataset, name: str) -> NDArray[Any]:
    """Return the values of a variable over the samples of a store."""
    store = dataset.store
    if isinstance(store, SparseStore):
        return store.column(name, "row_groups").read(dataset.first_row, dataset.first_row + dataset.m)
    if not isinstance(store, Store):
        raise OptionError(f"row_groups is {name!r}.", "For data in memory it is one label for each row.")
    found = read_labels(store.path, name, store.shape[0]) if "/" not in name else None
    if found is None:
        there = sorted(part for part in list_names(store.path) if "." not in part)
        raise OptionError(
            f"row_groups: {store.path} has no variable {name!r}.",
            f"It has {shorten(there)}. Name one over the samples, or {ADD_VARIABLE}.",
        )
    return found[dataset.first_row : dataset.first_row + dataset.m]


def _parts_of_groups(
    codes: Ints, parts: int, seed: int, repeats: int, held_out: float | None, argument: str
) -> NDArray[Any]:  # fmt: skip
    """Return (repeats, m) the part of each row: the largest groups first, each to the part with the fewest rows."""
    counts = np.bincount(codes)
    if counts.size < (parts if held_out is None else 2):
        wanted = f"{parts} {argument}" if held_out is None else "held-out groups"
        raise OptionError(f"The rows are in {counts.size} groups, too few for {wanted}.", f"Take fewer {argument}.")
    labels = np.empty((repeats, codes.size), np.uint8 if parts <= 256 else np.uint16)
    for repetition in range(repeats):
        shuffled = np.random.default_rng((seed, repetition)).permutation(counts.size)
        of_group = np.zeros(counts.size, np.int64)
        if held_out is None:
            _balance(of_group, shuffled, counts, range(parts))
        else:
            before = np.cumsum(counts[shuffled]) - counts[shuffled]
            held = before < held_out * counts.sum()  # groups with about this share of the rows go to parts 1 and up
            held[-1] = False  # at least one group stays
            _balance(of_group, shuffled[held], counts, range(1, parts))
        labels[repetition] = of_group[codes]
    return labels


def _balance(of_group: Ints, groups: Ints, counts: Ints, parts: range) -> None:
    """Give each of the groups to the part that has the fewest rows, the largest group first."""
    rows = np.zeros(len(parts))
    for group in groups[np.argsort(-counts[groups], kind="stable")].tolist():
        least = int(np.argmin(rows))
        of_group[group] = parts[least]
        rows[least] += counts[group]


def split_held_out(dataset: Dataset, partition: RowPartition) -> tuple[Dataset, Dataset]:
    """Return the rows to train on and the held-out rows as two datasets: in each, the other rows have weight 0."""

    def part(held_out: bool) -> Dataset:
        blocks = tuple(replace(b, w=PartWeights(b.w, partition, held_out, b.start, b.stop)) for b in dataset.blocks)
        return replace(dataset, blocks=blocks, row_part=partition, held_out=held_out)

    return part(False), part(True)


def select_rows(dataset: Dataset, rows: dict[str, Any] | None) -> Dataset:
    """Return the rows of a store that `rows` names, numbered from 0.

    Parameters
    ----------
    dataset : Dataset
        The data.
    rows : dict or None
        ``{"last": 90}``: the last 90 appends; ``{"last": 0.2}``: the last fifth of the rows; ``{"first": ...}``
        likewise; ``{"time": [from, to]}``: rows whose value of a variable over the samples is at least `from` and less
        than `to`, where None is an open end. Without a variable `time`, it is the time of each append. None: all rows.

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
    """Return where the first `wanted` appends, or this share of the rows, end; if negative, where the last begin."""
    if isinstance(wanted, float):
        rows = max(1, round(abs(wanted) * dataset.m))
        return int(dataset.m - rows if wanted < 0 else rows)
    assert dataset.store is not None
    appends = read_appends(dataset.store.path, dataset.m)
    if abs(wanted) >= len(appends):
        return 0 if wanted < 0 else dataset.m
    return int(appends[wanted][0])


def _between(dataset: Dataset, name: str, ends: list[Any]) -> tuple[int, int]:
    """Return the rows whose value of a variable is at least the first end and less than the second."""
    if name == "time" and metadata_file(_folder_of(dataset) / name) is None:
        return _by_time_of_segment(dataset, ends)
    values = _row_values(dataset, name)
    if values.dtype.kind in "Mm":
        ends = [None if end is None else _moment(name, end) for end in ends]
    else:
        kind = "text" if values.dtype.kind == "O" else "numbers"
        for end in ends:
            if end is not None and isinstance(end, str) != (kind == "text"):
                raise OptionError(f"rows: {name} of {dataset.name} has {kind}, and {end!r} is not.", f"Give {kind}.")
    unordered = np.flatnonzero(~np.asarray(values[1:] >= values[:-1], bool))  # also a row without a value
    if unordered.size:
        wrong = int(unordered[0]) + 1
        raise DataError(
            f"rows: {name} of {dataset.name} is not in ascending order: row {wrong} has {values[wrong]} after "
            f"{values[wrong - 1]}.",
            "Append rows in the order of this variable, or choose appends with last.",
        )
    low, high = (None if end is None else bisect_left(values, end) for end in ends)
    return low or 0, dataset.m if high is None else high


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
    """Return the rows of the appends whose time is at least the first end and less than the second."""
    assert dataset.store is not None
    low, high = (None if end is None else _moment("time", end) for end in ends)
    appends = [one for one in read_appends(dataset.store.path, dataset.m) if one[2]]
    times = [_moment("time", time) for _, _, time in appends]
    inside = [i for i, time in enumerate(times) if (low is None or time >= low) and (high is None or time < high)]
    if not inside:
        return 0, 0
    if inside[-1] - inside[0] >= len(inside):
        raise DataError(
            f"rows: the appends to {dataset.name} are not in the order of their times.", "Choose them with last."
        )
    return appends[inside[0]][0], appends[inside[-1]][1]


def _folder_of(dataset: Dataset) -> AnyPath:
    """Return where the variables over the samples are."""
    store = dataset.store
    assert store is not None
    return store.path / "obs" if isinstance(store, SparseStore) else store.path


def _row_values(dataset: Dataset, name: str) -> NDArray[Any]:
    """Return the values of a variable over the samples: numbers, times, or an object array of text."""
    assert dataset.store is not None
    path, folder = dataset.store.path, _folder_of(dataset)
    if metadata_file(folder / name) is None:
        known = sorted(part for part in list_names(folder) if "." not in part)
        raise OptionError(f"rows: {path} has no variable {name!r}.", f"It has {shorten(known)}.")
    array = open_array(str(path), f"obs/{name}" if folder != path else name).array
    if len(array.shape) != 1 or array.shape[0] < dataset.m:
        raise OptionError(f"rows: {name} of {path} has shape {array.shape}.", "Name one value for each sample.")
    values = np.asarray(array[: dataset.m])
    attributes = read_attributes(folder / name)
    units = str(attributes.get("units", ""))
    if values.dtype.kind in "iuf" and " since " in units:
        from xarray.coding.times import decode_cf_datetime

        return np.asarray(decode_cf_datetime(values, units, attributes.get("calendar")))
    if values.dtype.kind in "iufbMm":
        return values
    return np.array([str(value) for value in values.tolist()], dtype=object)


def _window(dataset: Dataset, start: int, stop: int, asked: str) -> Dataset:
    blocks = tuple(
        replace(block, start=block.start - start, stop=block.stop - start) for block in dataset.rows(start, stop)
    )
    share = (stop - start) / dataset.m
    weights = None if dataset.weights is None else dataset.weights.window(start, stop)
    return replace(
        dataset, m=stop - start, blocks=blocks, weights=weights, x_bytes=round(dataset.x_bytes * share),
        y_bytes=round(dataset.y_bytes * share), window=asked, first_row=dataset.first_row + start,
    )  # fmt: skip

"""Divide the rows of a dataset: into folds, by groups of rows, or into rows to train on and held-out rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel._lib.text import shorten
from dsel._lib.types import Ints
from dsel.config.size_rule import RowSplit
from dsel.data.blocks import PartWeights
from dsel.data.dataset import Dataset
from dsel.data.row_partition import RowPartition
from dsel.data.store.array import StoredArray, read_labels
from dsel.data.store.reader import Store
from dsel.data.store.sparse import SparseStore
from dsel.errors import DataError, OptionError
from dsel.storage.paths import list_names

#: Held-out rows are in this many parts, so that their error has a standard error.
HELD_OUT_PARTS = 5


def partition_rows(
    dataset: Dataset, *, folds: int = 5, split: RowSplit = "random", row_groups: Any = None, repeats: int = 1,
    held_out: float | None = None, seed: int = 0, argument: str = "folds",
) -> RowPartition:  # fmt: skip
    """Return the division of the rows of a dataset into folds, or into rows to train on and held-out rows.

    argument: what errors call the number of folds. Errors: OptionError for too few rows or groups; DataError if the
    groups are not one label for each row.
    """
    m = dataset.m
    parts = folds if held_out is None else 1 + min(HELD_OUT_PARTS, max(2, round(held_out * m)))
    if split == "forward" and held_out is None:
        parts = folds + 1
    if m < max(parts, 4) or (held_out is not None and not 2 <= round(held_out * m) <= m - 2):
        wanted = f"{folds} {argument}" if held_out is None else f"held_out {held_out:g}"
        raise OptionError(f"{m} rows are too few for {wanted}.", "Take fewer folds, or leave-one-out.")
    labels = None
    if row_groups is not None:
        labels = _parts_of_groups(group_codes(dataset, row_groups), parts, seed, repeats, held_out)
    return RowPartition(m, parts, split, seed, repeats, held_out, labels)


def group_codes(dataset: Dataset, row_groups: Any) -> Ints:
    """Return (m,) the number of the group of each row. Groups are numbered in the order of their labels."""
    labels = row_groups
    where = "row_groups"
    if isinstance(row_groups, str):
        labels, where = _stored_groups(dataset, row_groups), f"row_groups {row_groups!r}"
    labels = np.asarray(labels)
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
        if name not in store.obs:
            raise OptionError(
                f"row_groups: {store.path} has no column {name!r} in obs.", f"It has {shorten(store.obs)}."
            )
        array = StoredArray(str(store.path), store.column(name, "row_groups").variable)
        return array.read(dataset.first_row, dataset.first_row + dataset.m)
    if not isinstance(store, Store):
        raise OptionError(f"row_groups is {name!r}.", "For data in memory it is one label for each row.")
    found = read_labels(store.path, name, store.shape[0]) if "/" not in name else None
    if found is None:
        there = sorted(part for part in list_names(store.path) if "." not in part)
        raise OptionError(f"row_groups: {store.path} has no variable {name!r}.", f"It has {shorten(there)}.")
    return found[dataset.first_row : dataset.first_row + dataset.m]


def _parts_of_groups(codes: Ints, parts: int, seed: int, repeats: int, held_out: float | None) -> NDArray[Any]:
    """Return (repeats, m) the part of each row: the largest groups first, each to the part with the fewest rows."""
    counts = np.bincount(codes)
    if counts.size < (parts if held_out is None else 2):
        wanted = f"{parts} folds" if held_out is None else "held-out groups"
        raise OptionError(f"The rows are in {counts.size} groups, too few for {wanted}.", "Take fewer folds.")
    labels = np.empty((repeats, codes.size), np.uint8 if parts <= 256 else np.uint16)
    for repetition in range(repeats):
        shuffled = np.random.default_rng((seed, repetition)).permutation(counts.size)
        of_group = np.zeros(counts.size, np.int64)
        if held_out is None:
            _balance(of_group, shuffled, counts, range(parts))
        else:
            _hold_out(of_group, shuffled, counts, parts, held_out)
        labels[repetition] = of_group[codes]
    return labels


def _balance(of_group: Ints, groups: Ints, counts: Ints, parts: range) -> None:
    """Give each of the groups to the part that has the fewest rows, the largest group first."""
    rows = np.zeros(len(parts))
    for group in groups[np.argsort(-counts[groups], kind="stable")].tolist():
        least = int(np.argmin(rows))
        of_group[group] = parts[least]
        rows[least] += counts[group]


def _hold_out(of_group: Ints, shuffled: Ints, counts: Ints, parts: int, share: float) -> None:
    """Give random groups with about this share of the rows to parts 1 and up."""
    before = np.cumsum(counts[shuffled]) - counts[shuffled]
    held = before < share * counts.sum()
    held[-1] = False  # at least one group stays
    _balance(of_group, shuffled[held], counts, range(1, parts))


def split_held_out(dataset: Dataset, partition: RowPartition) -> tuple[Dataset, Dataset]:
    """Return the rows to train on and the held-out rows as two datasets: in each, the other rows have weight 0."""

    def part(held_out: bool) -> Dataset:
        blocks = tuple(replace(b, w=PartWeights(b.w, partition, held_out, b.start, b.stop)) for b in dataset.blocks)
        return replace(dataset, blocks=blocks, row_part=partition, held_out=held_out)

    return part(False), part(True)

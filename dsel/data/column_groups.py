"""Groups of columns that are chosen together: from a mapping, from lists, or from a coordinate of the features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsel._lib.text import shorten, suggest
from dsel._lib.types import Ints
from dsel.data.dataset import Dataset
from dsel.data.labels import Labels, resolve_labels
from dsel.data.store.array import read_labels
from dsel.data.store.reader import Store
from dsel.data.store.sparse import SparseStore
from dsel.errors import OptionError


@dataclass(frozen=True, eq=False)
class ColumnGroups:
    """A division of all n columns into groups. A column without a group forms one by itself.

    Parameters
    ----------
    names : tuple of str
        The names of the groups, in the order of their first columns.
    of_column : (n,) array of int
        The group of each column.
    numbered : frozenset of str
        Names of groups that are columns of a frame whose columns whole numbers name.
    """

    names: tuple[str, ...]
    of_column: Ints
    numbered: frozenset[str] = frozenset()
    noun = "groups of columns"
    keeps_dependent = True  # a chosen group has all of its columns in the answer

    @property
    def size(self) -> int:
        """How many groups there are."""
        return len(self.names)

    @property
    def sizes(self) -> Ints:
        """How many columns each group has."""
        return np.bincount(self.of_column, minlength=len(self.names))

    def of(self, columns: Iterable[int]) -> list[int]:
        """Return the groups of some columns, each once, in the order of the columns."""
        return list(dict.fromkeys(int(self.of_column[j]) for j in columns))

    def count(self, columns: Iterable[int]) -> int:
        """Return how many groups some columns have."""
        return len(self.of(columns))

    def columns(self, groups: Iterable[int]) -> Ints:
        """Return the ascending columns of some groups."""
        return np.flatnonzero(np.isin(self.of_column, list(groups)))

    def local(self, columns: Ints) -> tuple[Ints, ...]:
        """Return the places in `columns` of the members of each group that has any, in the order of the groups."""
        groups = self.of_column[columns]
        return tuple(np.flatnonzero(groups == group) for group in np.unique(groups))

    def most_columns(self, k: int) -> int:
        """Return how many columns k groups have at most."""
        return int(np.sort(self.sizes)[::-1][:k].sum())

    def label(self, j: int, labels: Sequence[str | int]) -> str | int:
        """Return the name of the group of a column, as the data have it. labels: of all columns."""
        name = self.names[int(self.of_column[j])]
        return int(name) if name in self.numbered else name

    def by_name(self, S: Ints) -> dict[str, tuple[int, ...]]:
        """Return the columns of each group in S, in the order of their first columns."""
        return {self.names[group]: tuple(int(j) for j in S if self.of_column[j] == group) for group in self.of(S)}

    def order(self, S: Ints) -> Ints:
        """Return the order of columns by groups, these in the order of their first columns."""
        place = {group: i for i, group in enumerate(self.of(S))}
        return np.argsort([place[int(self.of_column[j])] for j in S], kind="stable").astype(np.int64)

    def keep_together(self, sources: Labels) -> bool:
        """Return whether all columns with the same source, such as those of a category, are in the same group."""
        return len(set(zip(sources, self.of_column.tolist(), strict=True))) == len(set(sources))

    def as_mapping(self, labels: Labels) -> dict[str, list[int]]:
        """Return the columns of each group by its name, without columns that form a group by themselves."""
        found = {name: np.flatnonzero(self.of_column == i).tolist() for i, name in enumerate(self.names)}
        return {name: S for name, S in found.items() if len(S) > 1 or name != str(labels[S[0]])}

    def resolve(self, wanted: Sequence[str | int], labels: Labels, argument: str) -> Ints:
        """Return the columns of the groups that are named, or that the named columns belong to."""
        known = set(labels.tolist())
        number = {name: i for i, name in enumerate(self.names) if name not in known}
        groups = [number[name] for name in wanted if isinstance(name, str) and name in number]
        rest = [name for name in wanted if not (isinstance(name, str) and name in number)]
        if rest:
            groups += self.of(resolve_labels(rest, labels, "feature or group", argument, number).tolist())
        return self.columns(groups)


@dataclass(frozen=True, eq=False)
class SingleColumns:
    """The columns one by one, each a group of one, with the same methods as `ColumnGroups`.

    Parameters
    ----------
    size : int
        How many columns there are.
    """

    size: int
    noun = "columns"
    keeps_dependent = False

    def of(self, columns: Iterable[int]) -> list[int]:
        """Return the columns as they are."""
        return [int(j) for j in columns]

    def count(self, columns: Iterable[int]) -> int:
        """Return how many columns these are."""
        return len(self.of(columns))

    def local(self, columns: Ints) -> None:
        """Return None: no columns belong together."""

    def most_columns(self, k: int) -> int:
        """Return k: how many columns k of them have."""
        return k

    def label(self, j: int, labels: Sequence[str | int]) -> str | int:
        """Return the label of a column. labels: of all columns."""
        return labels[j]

    def by_name(self, S: Ints) -> dict[str, tuple[int, ...]]:
        """Return nothing: columns are in no named group."""
        return {}

    def order(self, S: Ints) -> Ints:
        """Return the order in which the columns are."""
        return np.arange(S.size)

    def resolve(self, wanted: Sequence[str | int], labels: Labels, argument: str) -> Ints:
        """Return the columns of these labels or numbers."""
        return resolve_labels(wanted, labels, "feature", argument)


Items = ColumnGroups | SingleColumns


def column_groups(dataset: Dataset, given: Any, categories: bool = True) -> ColumnGroups:
    """Return the groups of the columns of a dataset.

    given: a mapping from names to lists of columns; lists of columns; or the name of a coordinate of the features.
    Columns are labels or indices. categories: whether the indicator columns of a category that these lists do not name
    form a group, too; the name of a category stands for all of them. Errors: OptionError for what does not fit the
    data.
    """
    if isinstance(given, str):
        return _by_coordinate(dataset, given)
    if isinstance(given, Mapping):
        named = [(str(name), list(columns)) for name, columns in given.items()]
    else:
        named = [("", list(columns)) for columns in given]
    indicators = _indicators(dataset)
    of_column, names = np.full(dataset.n, -1, np.int64), []
    for number, (name, columns) in enumerate(named):
        if not columns:
            raise OptionError(f"groups: {f'group {name!r}' if name else f'group {number + 1}'} has no columns.")
        single = [label for column in columns for label in indicators.get(column, (column,))]
        members = resolve_labels(single, dataset.features, "feature", "groups", map(str, indicators))
        taken = members[of_column[members] >= 0]
        if taken.size:
            raise OptionError(f"groups: column {dataset.features[taken[0]]!r} is in two groups.", "Name it once.")
        of_column[members] = number
        written = [column if isinstance(column, str) else str(dataset.features[column]) for column in columns]
        names.append(name or "+".join(written[:3]) + ("+..." if len(written) > 3 else ""))
    for source, labels in indicators.items() if categories else ():
        members = resolve_labels(labels, dataset.features, "feature", "groups")
        if (of_column[members] < 0).all():
            of_column[members] = len(names)
            names.append(str(source))
    return _completed(dataset, names, of_column)


def named_columns(dataset: Dataset, items: Items, wanted: Sequence[str | int], argument: str) -> Ints:
    """Return the columns that labels, numbers, and names of groups or categories stand for, with their whole groups.

    Errors: OptionError for a column that does not exist, or that is named twice.
    """
    indicators = _indicators(dataset)
    groups = items.names if isinstance(items, ColumnGroups) else ()
    single = [label for one in wanted for label in ((one,) if one in groups else indicators.get(one, (one,)))]
    return items.resolve(single, dataset.features, argument)


def grouped_categories(dataset: Dataset, exclude: Sequence[str | int]) -> list[str]:
    """Return the categories of several indicator columns, without those that labels exclude as a whole."""
    names = {one for one in exclude if isinstance(one, str)}
    return [
        str(source)
        for source, labels in _indicators(dataset).items()
        if len(labels) > 1 and str(source) not in names and not names.issuperset(labels)
    ]


def divided_groups(dataset: Dataset, items: Items, wanted: Sequence[str | int]) -> list[str]:
    """Return the names of the groups of which columns are named, but neither all of these nor the group."""
    if isinstance(items, SingleColumns):
        return []
    indicators = _indicators(dataset)
    whole = {str(one) for one in wanted if one in items.names or one in indicators}
    rest = [one for one in wanted if str(one) not in whole and one not in dataset.left_out]
    columns = resolve_labels(rest, dataset.features, "feature", "groups").tolist()
    named = np.bincount(items.of_column[columns], minlength=items.size)
    partly = np.flatnonzero((named > 0) & (named < items.sizes))
    return [items.names[group] for group in partly if items.names[group] not in whole]


def _indicators(dataset: Dataset) -> Mapping[str | int, list[str]]:
    """Return the labels of the indicator columns of each category."""
    found: dict[str | int, list[str]] = {}
    for label, source in zip(dataset.features, () if dataset.categories is None else dataset.categories, strict=False):
        if label != source:
            found.setdefault(str(source), []).append(str(label))
    return found


def _by_coordinate(dataset: Dataset, name: str) -> ColumnGroups:
    """Return groups of columns with the same value of a coordinate. An empty value is none."""
    values = _coordinate(dataset, name).tolist()
    number = {value: i for i, value in enumerate(dict.fromkeys(value for value in values if value))}
    return _completed(dataset, list(number), np.array([number.get(value, -1) for value in values], np.int64))


def _coordinate(dataset: Dataset, name: str) -> Labels:
    """Return a label for each column."""
    store, found, known = dataset.store, dataset.coordinates.get(name), sorted(dataset.coordinates)
    if isinstance(store, Store) and found is None and "/" not in name:
        found = read_labels(store.path, name, dataset.n)
    if isinstance(store, SparseStore):
        found = read_labels(store.path, f"var/{name}", dataset.n) if name in store.var else None
        known = list(store.var)
    if found is None:
        where = "X" if store is None else str(store.path)
        raise OptionError(
            f"groups: {where} has no coordinate {name!r} of the features.",
            suggest(name, known) if known else "Give a mapping from columns to names, or lists of columns.",
        )
    return found


def _completed(dataset: Dataset, names: list[str], of_column: Ints) -> ColumnGroups:
    """Return the groups in the order of their first columns, with a group for each column that has none."""
    labels = [str(label) for label in dataset.features]
    repeated = {name for name in names if names.count(name) > 1}
    own = {labels[j] for j in np.flatnonzero(of_column < 0)}
    clash = sorted((own & set(names)) | repeated)
    if clash:
        raise OptionError(f"groups: {shorten(clash)} names a group and another column or group.", "Rename the group.")
    # A column without a group gets a number beyond those of the groups.
    own_numbers = np.where(of_column < 0, len(names) + np.arange(dataset.n), of_column)
    numbers, first, members = np.unique(own_numbers, return_index=True, return_inverse=True)
    order = np.argsort(first)
    ordered = tuple(names[i] if i < len(names) else labels[i - len(names)] for i in numbers[order].tolist())
    numbered = frozenset(map(str, dataset.sources)) if dataset.numbered else frozenset[str]()
    return ColumnGroups(ordered, np.argsort(order)[members], numbered)

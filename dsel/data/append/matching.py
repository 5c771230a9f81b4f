"""Whether a source has the columns of a store, and the same columns in the order of the store."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from dsel._lib.text import FIRST_ROW, shorten
from dsel._lib.types import Ints
from dsel.data.append.exact_values import ExactValues, kept_dtype
from dsel.data.formats.missing import CompleteRows
from dsel.data.formats.source import Array, DerivedSource, Rows, Source, SparseBlock, SparseSource, buffers
from dsel.data.labels import column_of, default_labels
from dsel.data.store.sparse import SparseStore
from dsel.errors import DataError

#: Place of a column that the source does not have: a category that does not occur.
ABSENT: Final = -1
_SIMILAR = 0.7
_LISTED = 8


@dataclass(frozen=True)
class StoreColumns:
    """What rows must have to be appended to a store.

    Parameters
    ----------
    name : str
        What messages call the store.
    features : list of str
        The labels of the columns of X.
    named : bool
        Whether the store has these labels. If not, they are x0, x1 and so on, and columns match by position.
    dtype : dtype
        That of X.
    targets : list of str
        The labels of the columns of Y.
    targets_named : bool
        Whether the store has the labels of the targets.
    y_dtype, w_dtype : dtype, optional
        Those of Y and of the weights; None if the store has none.
    has_samples : bool
        Whether the rows of the store have labels.
    sources : list of str, optional
        For each column of X the column of the source that it was made from.
    classes : dict of str to sequence of str
        The classes of targets that became one column for each class.
    """

    name: str
    features: Sequence[str]
    named: bool
    dtype: np.dtype[Any]
    targets: Sequence[str] = ()
    targets_named: bool = True
    y_dtype: np.dtype[Any] | None = None
    w_dtype: np.dtype[Any] | None = None
    has_samples: bool = False
    sources: Sequence[str] | None = None
    classes: Mapping[str, Sequence[str]] | None = None

    def feature_families(self) -> dict[str, str]:
        """Return the column of the source for each column of X that stands for a category."""
        pairs = zip(self.features, self.sources or (), strict=False)
        return {label: column for label, column in pairs if label != column}

    def target_families(self) -> dict[str, str]:
        """Return the target for each column of Y that stands for a class."""
        return {f"{name}={level}": name for name, found in (self.classes or {}).items() for level in found}


def match_source(source: Source, columns: StoreColumns) -> Source:
    """Return the source with the columns of the store in their order.

    Columns match by label; where neither side has labels, by position. A category of the store that the source does not
    have becomes a column of zeros. Raises DataError, which lists all differences.
    """
    found: list[str] = []
    x = _feature_places(source, source.shape[1], columns, found)
    y = _target_places(source, columns, found)
    if source.w_dtype is not None and columns.w_dtype is None:
        found.append("the source has weights, and the store has none (option weight)")
    for is_there, wanted, what, option in (
        (source.w_dtype is not None, columns.w_dtype is not None, "weights", "weight"),
        (source.has_samples, columns.has_samples, "labels of the samples", "index"),
    ):
        if wanted and not is_there:
            found.append(f"the store has {what}, and the source has none (option {option})")
    require_no_differences(found, source.name, columns.name)
    families = _siblings(x, columns.features, columns.feature_families())
    matched = MatchedSource(
        source, columns, x, y, families, _siblings(y, columns.targets, columns.target_families())
    )  # fmt: skip
    is_same = np.array_equal(x, np.arange(source.shape[1])) and np.array_equal(y, np.arange(source.n_targets))
    is_same = is_same and source.has_samples == columns.has_samples
    return source if is_same and not matched.converts else matched


def match_sparse(source: SparseSource, n: int, columns: StoreColumns, wanted: Mapping[str, np.dtype[Any]]) -> Ints:
    """Return the place in the store of each of n columns of a source. Raises DataError, which lists all differences.

    wanted: the columns over the samples that the store has.
    """
    found: list[str] = []
    obs = source.columns
    places = _feature_places(source, n, columns, found)
    families = columns.target_families()
    missing = [label for label in wanted if label not in obs and label not in families]
    extra = [label for label in obs if label not in wanted]
    found += list(_named("target or weight", missing, extra, families))
    require_no_differences(found, source.name, columns.name)
    of_source = np.full(n, ABSENT, np.int64)
    of_source[places[places != ABSENT]] = np.flatnonzero(places != ABSENT)
    return of_source


def require_no_differences(found: Sequence[str], source: str, store: str) -> None:
    """Raise DataError if there are differences."""
    if found:
        raise DataError(
            f"{source} does not fit {store}: {'; '.join(found)}.",
            "Correct the source, or the options that name its columns, or ingest all rows into a new store.",
        )


def _feature_places(source: Source | SparseSource, count: int, columns: StoreColumns, found: list[str]) -> Ints:
    """Return the place in the source of each column of X of the store. Add differences to `found`."""
    n, labels = len(columns.features), source.features
    if labels is None or not columns.named:
        if count != n:
            found.append(f"X has {count} columns, and {n} in the store")
        elif labels is not None and list(labels) != default_labels("x", n):
            found.append(f"X has labels ({shorten(labels)}), and the store has none")
        return np.arange(n)
    return _by_label("column", labels, columns.features, columns.feature_families(), found)


def _target_places(source: Source, columns: StoreColumns, found: list[str]) -> Ints:
    wanted, count, labels = columns.targets, source.n_targets, source.targets
    if bool(count) != bool(wanted):
        there, not_there = ("the source", "the store") if count else ("the store", "the source")
        names = shorten((labels if count else wanted) or ["Y"])
        found.append(f"{there} has targets ({names}), and {not_there} has none")
        return np.arange(len(wanted))
    if labels is None or not columns.targets_named:
        if count != len(wanted):
            found.append(f"Y has {count} columns, and {len(wanted)} in the store")
        return np.arange(len(wanted))
    return _by_label("target", labels, wanted, columns.target_families(), found)


def _by_label(
    kind: str, labels: Sequence[str], wanted: Sequence[str], families: Mapping[str, str], found: list[str]
) -> Ints:
    place = {label: i for i, label in enumerate(labels)}
    categories = set(families.values())
    there = {column for label in labels if (column := column_of(label, categories)) != label}
    missing = [w for w in wanted if w not in place and families.get(w) not in there]
    extra = [label for label in labels if label not in set(wanted)]
    found += list(_named(kind, missing, extra, families))
    return np.array([place.get(w, ABSENT) for w in wanted], np.int64)


def _named(kind: str, missing: list[str], extra: list[str], families: Mapping[str, str]) -> Iterator[str]:
    """Yield what differs: categories that are new, columns that changed their kind, renamed, missing and extra ones."""
    new = [label for label in extra if column_of(label, set(families.values())) != label]
    extra = [label for label in extra if label not in new]
    if new:
        yield f"new categories, for which the store has no column: {shorten(new, _LISTED)}"
    changed = {column_of(label, missing) for label in extra} & set(missing)
    for name in sorted(changed):
        yield f"{kind} {name!r} has words, and numbers in the store"
    words = {families[label] for label in missing if label in families} & set(extra)
    for name in sorted(words):
        yield f"{kind} {name!r} has numbers, and categories in the store"
    missing = [label for label in missing if label not in changed and families.get(label) not in words]
    extra = [label for label in extra if column_of(label, changed) not in changed and label not in words]
    for old, renamed in _renamed(missing, extra):
        yield f"{kind} {old!r} is missing and {renamed!r} is new: perhaps it was renamed"
        missing.remove(old)
        extra.remove(renamed)
    if missing:
        yield f"missing: {shorten(map(repr, missing), _LISTED)}"
    if extra:
        yield f"not in the store: {shorten(map(repr, extra), _LISTED)}"


def _renamed(missing: list[str], extra: list[str]) -> list[tuple[str, str]]:
    """Return missing labels, each with a similar extra one."""
    left, pairs = {label.strip().lower(): label for label in reversed(extra)}, []
    for old in missing[:_LISTED]:
        close = get_close_matches(old.strip().lower(), left, n=1, cutoff=_SIMILAR)
        if close:
            pairs.append((old, left.pop(close[0])))
    return pairs


def _siblings(places: Ints, labels: Sequence[str], families: Mapping[str, str]) -> dict[int, int]:
    """Return for each absent category the place in the source of another one of the same column."""
    found: dict[str, int] = {}
    for label, place in zip(labels, places.tolist(), strict=True):
        if place != ABSENT and label in families:
            found.setdefault(families[label], place)
    absent = [(i, label) for i, label in enumerate(labels) if places[i] == ABSENT]
    return {i: found[families[label]] for i, label in absent}


class MatchedSource(DerivedSource):
    """A source with its columns in the order of a store, and in dtypes that are stored there."""

    def __init__(
        self, source: Source, columns: StoreColumns, x: Ints, y: Ints, siblings_x: dict[int, int],
        siblings_y: dict[int, int],
    ) -> None:  # fmt: skip
        super().__init__(source)
        self.x, self.y, self.siblings_x, self.siblings_y = x, y, siblings_x, siblings_y
        self.shape, self.n_targets = (source.shape[0], len(x)), len(y)
        self.features, self.targets = list(columns.features), list(columns.targets) or None
        self.sources = columns.sources
        absent = [str(columns.features[i]) for i in siblings_x] + [str(columns.targets[i]) for i in siblings_y]
        if absent:
            self.notes = (*self.notes, f"categories that do not occur: {shorten(absent, _LISTED)}")
        if source.has_samples and not columns.has_samples:
            self.has_samples = False
            self.notes = (*self.notes, "the labels of the samples are left out: the store has none")
        counting = (
            f"{FIRST_ROW}; rows with missing values are left out before"
            if isinstance(source, CompleteRows)
            else FIRST_ROW
        )
        self._exact = ExactValues(source.name, columns.name, counting)
        self.dtype = kept_dtype(source.dtype, columns.dtype)
        if source.y_dtype is not None and columns.y_dtype is not None:
            self.y_dtype = kept_dtype(source.y_dtype, columns.y_dtype)
        if source.w_dtype is not None and columns.w_dtype is not None:
            self.w_dtype = kept_dtype(source.w_dtype, columns.w_dtype)

    @property
    def converts(self) -> bool:
        """Whether values get another dtype, which may not hold them."""
        dtypes = self.source.dtype, self.source.y_dtype, self.source.w_dtype
        return dtypes != (self.dtype, self.y_dtype, self.w_dtype)

    def pieces(self, start: int, scratch: Path) -> Generator[Rows, None, None]:
        exact, source = self._exact, self.source
        features = source.features or default_labels("x", source.shape[1])
        targets = source.targets or default_labels("y", source.n_targets)
        for found in buffers(source, start, scratch):
            rows = replace(Rows.of(self, len(found)), samples=found.samples if self.has_samples else None)
            _move(exact.of(found.x, self.dtype, "X", features, start), rows.x, self.x, self.siblings_x)
            if found.y is not None and rows.y is not None:
                y = exact.of(found.y, rows.y.dtype, "Y", targets, start)
                _move(y, rows.y, self.y, self.siblings_y)
            if found.w is not None and rows.w is not None:
                rows.w[:, None] = exact.of(found.w[:, None], rows.w.dtype, "the weights", [""], start)
            yield rows
            start += len(found)


def _move(found: Array, out: Array, places: Ints, siblings: Mapping[int, int]) -> None:
    """Copy columns to their places. An absent category is 0, or missing where the others of its column are."""
    there = np.flatnonzero(places != ABSENT)
    out[:, there] = found[:, places[there]]
    for column, sibling in siblings.items():
        values = found[:, sibling]
        out[:, column] = np.where(np.isnan(values), np.nan, 0.0) if values.dtype.kind == "f" else 0


class MatchedSparse(SparseSource):
    """A sparse source with the columns of a store, and in dtypes that are stored there."""

    def __init__(
        self, source: SparseSource, store: SparseStore, places: Ints, obs: Mapping[str, np.dtype[Any]]
    ) -> None:
        self.take_over(source)
        self._source, self._places, self._obs = source, places, obs
        self._labels = source.features or store.features.tolist()
        self.shape, self.features = (source.shape[0], store.shape[1]), store.features.tolist()
        self.dtype = kept_dtype(source.dtype, store.dtype)
        self._exact = ExactValues(source.name, str(store.path))

    @property
    def converts(self) -> bool:
        """Whether values get another dtype, which may not hold them."""
        found = self._source.columns
        safe = (np.can_cast(found[name], dtype, "safe") for name, dtype in self._obs.items() if name in found)
        return self.dtype != self._source.dtype or not all(safe)

    def identity(self) -> dict[str, Any]:
        return self._source.identity()

    def blocks(self, start: int) -> Iterator[SparseBlock]:
        from scipy.sparse import csr_matrix

        for block in self._source.blocks(start):
            found, r = block.rows, block.rows.shape[0]
            data = self._exact.of_sparse(found, self.dtype, self._labels, block.start)
            rows = csr_matrix((data, self._places[found.indices], found.indptr), shape=(r, self.shape[1]))
            rows.sort_indices()
            columns = {name: self._column(block, name, dtype) for name, dtype in self._obs.items()}
            yield SparseBlock(block.start, block.first, rows, columns, block.samples)

    def _column(self, block: SparseBlock, name: str, dtype: np.dtype[Any]) -> Array:
        """Return a column of obs; that of a class that does not occur is 0."""
        found = block.columns.get(name)
        if found is None:
            return np.zeros(block.rows.shape[0], dtype)
        part = f"the column {name!r} of obs"
        return self._exact.of(found[:, None], kept_dtype(found.dtype, dtype), part, [name], block.start)[:, 0]


def require_values(source: Source | SparseSource) -> None:
    """Raise DataError for a value that the dtypes of the store do not hold. Reads the rows, if some may not fit."""
    if isinstance(source, MatchedSource | MatchedSparse) and source.converts:
        with TemporaryDirectory() as scratch:
            pieces = source.blocks(0) if isinstance(source, MatchedSparse) else source.pieces(0, Path(scratch))
            for _ in pieces:
                pass

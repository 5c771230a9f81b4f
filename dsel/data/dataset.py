"""One interface to all data: a store, arrays in memory, Dask or xarray arrays, sparse matrices.

A `Dataset` lists the data as row blocks, always the same blocks in the same order. So every pass adds the same partial
sums, whoever computes them.

Notation: X is the data matrix, m samples by n features; Y holds the N targets. N = 0 stands for Y = X.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dsel._lib.text import counted
from dsel.config.request import SelectionRequest
from dsel.data import in_memory
from dsel.data.blocks import Block, StoredRows, cut_block, part_bytes
from dsel.data.labels import Labels, as_labels
from dsel.data.row_partition import RowPartition
from dsel.data.schema import ATTR_MISSING, ATTR_MISSING_CELLS, METADATA_FILE, SAMPLE, SOURCE
from dsel.data.store.array import StoredArray, group_tag, read_labels
from dsel.data.store.reader import Store, open_store
from dsel.data.store.segments import Segment, segment_ranges
from dsel.data.store.sparse import SAMPLES, SparseStore
from dsel.data.weights import Weights
from dsel.errors import DataError, MissingInputError
from dsel.storage.object_store import listed_once

#: How the digest of targets begins that were given next to a store.
GIVEN_TARGETS: Final = "-y:"


@dataclass(frozen=True)
class Dataset:
    """Data as row blocks. Call `as_dataset` to make one.

    Parameters
    ----------
    name : str
        What messages call the data: the path of the store, or "X".
    m, n, n_targets : int
        The numbers of samples, of features, and of targets (N; 0 for Y = X).
    features, targets : ndarray of str, shapes (n,) and (N,)
        The labels of the columns of X and Y.
    blocks : tuple of Block
        The row blocks, in ascending order and without gaps.
    x_bytes, y_bytes : int
        The bytes that one pass over X or Y reads, uncompressed.
    store : Store or SparseStore, optional
        The store that the data are in.
    target_columns : ndarray of int, optional
        The columns of Y in the store, if not all are used.
    weights : Weights, optional
        The weights of the samples; None if all are 1.
    flat_target : bool
        Whether Y was given with one dimension.
    row_part : RowPartition, optional
        The division of which only some rows count, by the weights of the blocks.
    held_out : bool
        Whether these are the held-out rows of that division. If not, they are the others.
    digest : str, optional
        A digest of data that are not in a store, for a cache of their statistics. Of targets in memory next to a store
        it begins with `GIVEN_TARGETS`.
    tag : str
        The tag of a store in object storage when it was opened; empty for other data.
    coordinates : dict of str to ndarray of str
        Further labels of the features by name: of data in memory, and `source` of a store.
    window : str
        Which rows of the store these are, as they were asked for; empty for all.
    first_row : int
        The number in the store of the first of these rows.
    classes : dict of str to list of str
        The classes of each target in memory that became columns of zeros and ones.
    notes : tuple of str
        What the user should know about the columns of a frame.
    left_out : tuple of str
        Columns of a frame that were excluded before their conversion, because they hold no numbers.
    columns : tuple of str
        The labels of the columns of the frame that the features come from, also of those in `left_out`. Targets,
        weights and offsets are none of them. Empty for other data.
    numbered : bool
        Whether whole numbers name all columns of the frame that the features come from. `features` holds them as text.
    whole : tuple of str
        Columns of integers of 8 bytes in a frame that is computed later.
    also_read : tuple of str
        Further variables of a store that the request reads, such as offsets. The fingerprint covers them.
    dtype, y_dtype : dtype, optional
        The dtypes of X and Y that are in memory or computed later.
    row_labels : DataFrame or DataArray, optional
        The labels of the rows of data in memory, as `in_memory.row_labels` returns them.
    """

    name: str
    m: int
    n: int
    n_targets: int
    features: Labels
    targets: Labels
    blocks: tuple[Block, ...]
    x_bytes: int
    y_bytes: int
    store: Store | SparseStore | None = None
    target_columns: NDArray[np.int64] | None = None
    weights: Weights | None = None
    flat_target: bool = False
    row_part: RowPartition | None = None
    held_out: bool = False
    digest: str | None = None
    tag: str = ""
    coordinates: dict[str, Labels] = field(default_factory=dict)
    window: str = ""
    first_row: int = 0
    classes: dict[str, list[str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    numbered: bool = False
    whole: tuple[str, ...] = ()
    also_read: tuple[str, ...] = ()
    dtype: np.dtype[Any] | None = None
    y_dtype: np.dtype[Any] | None = None
    row_labels: Any = field(default=None, compare=False, repr=False)

    @property
    def long_integers(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which columns of X and of Y are integers of 8 bytes, of which float64 holds all up to 2^53."""
        x, y = self.dtype, self.y_dtype
        if isinstance(self.store, Store):
            stored = self.store.y if self.n_targets and not self.has_given_targets else None
            x, y = self.store.dtype, y if stored is None else stored.dtype
        return self._integers_of(self.features, x), self._integers_of(self.targets, y)

    def _integers_of(self, labels: Labels, dtype: np.dtype[Any] | None) -> NDArray[np.bool_]:
        if self.whole:
            return np.isin(labels.astype(str), self.whole) | _is_long(dtype)
        return np.full(labels.size, _is_long(dtype))

    @cached_property
    def names(self) -> list[Any]:
        """The labels of the features as the user writes them: text, or whole numbers but for values of a category."""
        if not self.numbered:
            return [str(label) for label in self.features.tolist()]
        made = [label != source for label, source in zip(self.features, self.sources, strict=True)]
        return [str(label) if new else int(label) for label, new in zip(self.features, made, strict=True)]

    @property
    def sources(self) -> Labels:
        """For each feature the column of the frame that it was made from, or itself."""
        return self.features if self.categories is None else self.categories

    @cached_property
    def column_numbers(self) -> NDArray[np.int64] | None:
        """For each feature the number of the column of the frame that it was made from; None if all are these columns.

        Data other than frames have None.
        """
        if not self.columns or self.columns == tuple(self.features.tolist()):
            return None
        number = {name: i for i, name in enumerate(self.columns)}
        return np.array([number[name] for name in self.coordinates.get(SOURCE, self.features).tolist()], np.int64)

    def named(self, request: SelectionRequest) -> SelectionRequest:
        """Return a request with the label of each column of a frame that a number names; for other data as it is.

        Numbers are labels where they name all columns, and else positions. Errors: OptionError for a position that the
        frame does not have.
        """
        if self.numbered:
            return request.by_name()
        return request.by_name(self.columns) if self.columns else request

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The rows of each append to the store, in order. Data that are not in a dense store have none.

        Of a segment that begins before the window or ends after it, it is the part inside.
        """
        found = self.store.segments if isinstance(self.store, Store) else ()
        inside = (one.part(self.first_row, self.first_row + self.m) for one in found)
        return tuple(one.moved(-self.first_row) for one in inside if one.rows > 0)

    @property
    def row_ranges(self) -> tuple[tuple[int, int], ...]:
        """The rows [start, stop) of each segment; all rows where there are none. Lists no files."""
        store = self.store
        found = store.row_ranges if isinstance(store, Store) else None if store is None else segment_ranges(store.path)
        first, last = self.first_row, self.first_row + self.m
        inside = ((max(a, first) - first, min(b, last) - first) for a, b in found or ((first, last),))
        return tuple((a, b) for a, b in inside if a < b)

    def rows(self, start: int, stop: int) -> tuple[Block, ...]:
        """Return the row blocks with rows [start, stop), the first and the last one cut."""
        return tuple(
            cut_block(block, max(start, block.start), min(stop, block.stop))
            for block in self.blocks
            if block.start < stop and block.stop > start
        )

    @cached_property
    def categories(self) -> Labels | None:
        """For each feature the column that it was made from, where categories became columns of zeros and ones."""
        sources = self.coordinates.get(SOURCE)
        if sources is None:
            return None
        made = [
            str(label).startswith(f"{one}=") for label, one in zip(self.features, sources, strict=True) if label != one
        ]
        return sources if made and all(made) else None

    def whole_categories(self, columns: Collection[int]) -> tuple[str, ...]:
        """Return the categories of a frame all of whose columns of zeros and ones are among these columns."""
        sources, chosen = self.categories, set(columns)
        if sources is None:
            return ()
        rest = {sources[j] for j in range(self.n) if j not in chosen}
        made = dict.fromkeys(str(sources[j]) for j in columns if sources[j] != self.features[j])
        return tuple(name for name in made if name not in rest)

    def in_order(self, values: Any, name: str) -> Any:
        """Return labelled values, one for each row, in the order of the rows; others as they are.

        Errors: DataError for other labels than those of the rows, and for those of a frame in another order.
        """
        if self.store is None:
            return in_memory.matched(self.row_labels, values, name)
        return in_memory.matched_by_text(self._stored_labels, values, name)

    def _stored_labels(self) -> Labels | None:
        """Return the labels of the rows of a store; None without."""
        assert self.store is not None
        variable = SAMPLES if isinstance(self.store, SparseStore) else SAMPLE
        labels = read_labels(self.store.path, variable, self.store.shape[0])
        return None if labels is None else labels[self.first_row : self.first_row + self.m]

    @property
    def has_given_targets(self) -> bool:
        """Whether targets in memory were given next to a store."""
        return self.store is not None and self.y_dtype is not None

    @property
    def weighted(self) -> bool:
        """Whether rows have weights, perhaps 0 for those that do not count."""
        return self.weights is not None or self.row_part is not None

    @property
    def counting(self) -> int:
        """How many rows count: those whose weight is not 0."""
        return self.m if self.weights is None else self.weights.positive

    def require_unchanged(self) -> None:
        """Raise DataError if a store in object storage was replaced: a pass may have read parts of both.

        On disk a store is replaced as a whole, and each read notices that.
        """
        if self.tag and group_tag(self.name) != self.tag and not self._only_appended():
            raise DataError(f"{self.name} was replaced while it was read.", "Start again when nothing writes to it.")

    def _only_appended(self) -> bool:
        """Return whether the store still has the segments that it had, perhaps followed by others."""
        known = self.store.__dict__.get("segments") if isinstance(self.store, Store) else None
        if known is None:
            return False
        try:
            now = open_store(self.name).segments
        except (DataError, MissingInputError):
            return False
        return [one.fingerprint() for one in now[: len(known)]] == [one.fingerprint() for one in known]

    def recorded(self, name: str) -> int:
        """Return a count that the ingest of a store recorded, by the name of the attribute; 0 without it."""
        return int(self.store.attributes.get(name, 0)) if isinstance(self.store, Store) else 0

    def missing_when_written(self) -> str:
        """Return how many values of X were missing when a store was written, in words; "" for none.

        Older stores count the cells of X, so that a category with a missing value counts several times.
        """
        counts = {word: self.recorded(name) for name, word in ((ATTR_MISSING, "value"), (ATTR_MISSING_CELLS, "cell"))}
        return next((counted(count, f"missing {word}") for word, count in counts.items() if count), "")

    @property
    def in_memory(self) -> bool:
        """Whether the data are in the memory of this process, so that no cluster is needed."""
        return self.store is None and not any(block.lazy or isinstance(block.x, StoredRows) for block in self.blocks)

    @property
    def nbytes(self) -> int:
        """Bytes of one pass over X, Y and the weights."""
        return self.x_bytes + self.y_bytes + self.w_bytes

    @property
    def w_bytes(self) -> int:
        """Bytes of the weights."""
        return 0 if self.weights is None else self.m * self.weights.itemsize

    def bytes_of_pass(self, columns: NDArray[np.int64] | None = None) -> int:
        """Return the bytes that one pass reads, or a pass over the ascending `columns` of X, in whole chunks."""
        if any(block.lazy for block in self.blocks):
            return self.nbytes
        parts = [(part_bytes(b.x, columns), part_bytes(b.y, self.target_columns), part_bytes(b.w)) for b in self.blocks]
        return sum(map(sum, parts))

    @cached_property
    def fingerprint(self) -> str | None:
        """A digest that changes with the stored data and with the choice of targets and weights; else `digest`."""
        if self.store is None:
            return None if self.digest is None else self.digest + self._part_digest
        with listed_once(self.store.path):
            return self._stored_fingerprint(self.store) + (self.digest or "") + self._part_digest

    def with_rows(self, name: str, w: NDArray[np.float64], y: NDArray[np.float64] | None = None) -> Dataset:
        """Return the data with other weights (m,) of this name, and with other targets (m, N) where they are given."""
        digest = None  # of data in memory that have none
        if self.store is not None or self.digest is not None:
            digest = (self.digest or "") + "".join(f"-{array_digest(one)}" for one in (w, y) if one is not None)
        blocks = tuple(replace(b, w=w[b.start : b.stop]) for b in self.blocks)
        data = replace(self, blocks=blocks, weights=Weights(name, w, int(np.count_nonzero(w))), digest=digest)
        if y is None:
            return data
        blocks = tuple(replace(b, y=y[b.start : b.stop], offset=None) for b in blocks)
        targets = as_labels([f"output {i}" for i in range(y.shape[1])])
        return replace(
            data, blocks=blocks, targets=targets, n_targets=y.shape[1], target_columns=None, y_bytes=8 * y.size
        )

    @property
    def _part_digest(self) -> str:
        window = f"-rows:{self.first_row}:{self.first_row + self.m}" if self.window else ""
        if self.row_part is None:
            return window
        return f"{window}-{'held-out' if self.held_out else 'training'}:{json.dumps(self.row_part.key, sort_keys=True)}"

    def _stored_fingerprint(self, store: Store | SparseStore) -> str:
        chosen = "" if self.target_columns is None else "-" + "-".join(map(str, self.target_columns.tolist()))
        stored = self.weights is not None and isinstance(self.weights.values, StoredArray)
        weight = self.weights.name if self.weights is not None and stored else ""  # others are in `digest`
        if isinstance(store, SparseStore):
            columns = [name for name in (*self.targets.tolist(), weight, *self.also_read) if name in store.obs]
            return f"{store.fingerprint(*columns)}-{len(self.targets)}{'-weight' if weight else ''}"
        weighted = f"-weight:{weight}" if weight else "-unweighted" if store.has_weight else ""
        targets = "-unsupervised" if not self.n_targets else chosen
        more = [name for name in self.also_read if (store.path / name / METADATA_FILE).is_file()]
        return store.fingerprint(*([weight] if weight else []), *more) + targets + weighted


def _is_long(dtype: np.dtype[Any] | None) -> bool:
    return dtype is not None and dtype.kind in "iu" and dtype.itemsize == 8


def array_digest(values: NDArray[Any]) -> str:
    """Return a digest of the values of an array."""
    return hashlib.blake2b(np.ascontiguousarray(values).data, digest_size=16).hexdigest()

"""Stores with a sparse X, as AnnData writes them: CSR in Zarr format 2 or 3, labels in `var`, columns in `obs`.

    variable     kind                      meaning
    X            group, csr_matrix         data, indices, indptr; attribute shape (m, n)
    var          group, attribute _index   optional: the name of its array with the labels of the columns of X
    obs          group                     optional: columns over the samples, some of which may be targets or weights

A row block is read as a CSR matrix; X is never dense as a whole. Other groups are ignored.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dsel._lib.text import shorten
from dsel.data import schema
from dsel.data.store.array import REMEDY, StoredArray, forget_tag, metadata_file, open_array, read_attributes
from dsel.data.store.reader import AnyStore, Store, column_labels, files_of, open_store
from dsel.data.store.segments import visible_rows
from dsel.errors import DataError, MissingInputError, OptionError
from dsel.storage.paths import AnyPath, add_files, as_path, list_names

#: A row block has about this many bytes of values and column numbers, or one chunk of them if that is more.
BLOCK_BYTES: Final = 32 << 20

#: The arrays of a store: values, their columns, the ends of the rows, and labels of the rows.
DATA, INDICES, INDPTR, SAMPLES = "X/data", "X/indices", "X/indptr", "obs/_index"
#: Files of a group that are not its members.
_METADATA: Final = (schema.METADATA_FILE, ".zgroup", ".zattrs")


@dataclass(frozen=True)
class SparseRows:
    """Rows [start, stop) of a stored CSR matrix: its values [first, last)."""

    path: str
    start: int
    stop: int
    first: int
    last: int
    n: int

    def read(self, columns: NDArray[np.int64] | None = None) -> Any:
        """Return the rows as a CSR matrix of scipy, or only the ascending `columns` of them. Raises DataError."""
        from scipy.sparse import csr_matrix

        data, indices = (StoredArray(self.path, name).read(self.first, self.last) for name in (DATA, INDICES))
        indptr = StoredArray(self.path, INDPTR).read(self.start, self.stop + 1).astype(np.int64) - self.first
        where = f"X of {self.path}, rows {self.start} to {self.stop - 1}"
        if indptr[0] != 0 or indptr[-1] != data.size or (np.diff(indptr) < 0).any():
            raise DataError(f"{where}: indptr does not increase from {self.first} to {self.last}.", REMEDY)
        if indices.size and (int(indices.min()) < 0 or int(indices.max()) >= self.n):
            raise DataError(
                f"{where}: column numbers from {indices.min()} to {indices.max()}, and X has {self.n} columns.", REMEDY
            )
        rows = csr_matrix((data, indices, indptr), shape=(self.stop - self.start, self.n))
        return rows if columns is None else rows[:, columns]

    def bytes_read(self, columns: NDArray[np.int64] | None = None) -> int:
        """Return the uncompressed bytes of values, column numbers and row ends: all are read for any columns."""
        sizes = (open_array(self.path, name).array.dtype.itemsize for name in (DATA, INDICES, INDPTR))
        value, index, pointer = (int(size) for size in sizes)
        return (self.last - self.first) * (value + index) + (self.stop - self.start + 1) * pointer

    def __getitem__(self, rows: slice) -> SparseRows:
        """Return some of the rows."""
        start, stop = self.start + rows.start, self.start + rows.stop
        first, last = (int(StoredArray(self.path, INDPTR).read(row, row + 1)[0]) for row in (start, stop))
        return replace(self, start=start, stop=stop, first=first, last=last)


@dataclass(frozen=True)
class ObsColumns:
    """Columns of `obs`, read together as Y."""

    path: str
    variables: tuple[str, ...]
    start: int
    stop: int

    def read(self, columns: NDArray[np.int64] | None = None) -> NDArray[Any]:
        """Return the rows of the columns, shape (r, N), or only the ascending `columns` of them."""
        wanted = self.variables if columns is None else [self.variables[int(j)] for j in columns]
        parts = [StoredArray(self.path, name).read(self.start, self.stop) for name in wanted]
        return np.column_stack(parts)

    def bytes_read(self, columns: NDArray[np.int64] | None = None) -> int:
        """Return the uncompressed bytes of these rows of all columns."""
        sizes = (open_array(self.path, name).array.dtype.itemsize for name in self.variables)
        return (self.stop - self.start) * sum(int(size) for size in sizes)

    def __getitem__(self, rows: slice) -> ObsColumns:
        """Return some of the rows."""
        return replace(self, start=self.start + rows.start, stop=self.start + rows.stop)


@dataclass(frozen=True)
class SparseStore(AnyStore):
    """A data set on disk with a CSR matrix X (m x n) that has `stored` values."""

    stored: int
    ends: list[int]  # the number of values before each of the row bounds

    @property
    def has_weight(self) -> bool:
        """Whether dsel wrote weights. Elsewhere a column of obs called weight may mean anything."""
        return schema.ATTR_WEIGHT in self.attributes

    @property
    def default_targets(self) -> list[str]:
        """The columns of obs that are targets unless others are named; dsel records them when it writes a store."""
        return [str(name) for name in self.attributes.get(schema.ATTR_TARGETS, [])]

    @property
    def column_bounds(self) -> list[int]:
        """0 and n: row blocks are full rows."""
        return [0, self.shape[1]]

    @cached_property
    def obs(self) -> tuple[str, ...]:
        """Names of the columns over the samples, without the labels."""
        return self._columns("obs")

    @cached_property
    def var(self) -> tuple[str, ...]:
        """Names of the columns over the features, without the labels."""
        return self._columns("var")

    def _columns(self, table: str) -> tuple[str, ...]:
        label = read_attributes(self.path / table).get("_index")
        return tuple(sorted(list_names(self.path / table) - {label, *_METADATA}))

    def blocks(self) -> list[SparseRows]:
        """Return the row blocks."""
        path, n, edges = str(self.path), self.shape[1], zip(pairwise(self.row_bounds), pairwise(self.ends), strict=True)
        return [SparseRows(path, a, b, first, last, n) for (a, b), (first, last) in edges]

    def ends_at(self, rows: Sequence[int]) -> list[int]:
        """Return the number of values before each of these rows."""
        ends = StoredArray(str(self.path), INDPTR).read(0, self.shape[0] + 1)
        return [int(ends[row]) for row in rows]

    def column(self, name: str, argument: str) -> StoredArray:
        """Return a column of obs. Raises OptionError if it does not exist, DataError if it has no numbers."""
        if name not in self.obs:
            raise OptionError(
                f"{argument}: {self.path} has no column {name!r} in obs.", f"It has {shorten(self.obs) or 'none'}."
            )
        kind = read_attributes(self.path / "obs" / name).get("encoding-type", "array")
        array = None if kind != "array" else open_array(str(self.path), f"obs/{name}").array
        m = self.shape[0]
        fits = array is not None and (array.shape == (m,) or (array.shape > (m,) and visible_rows(self.path) == m))
        if array is None or not fits or schema.stored_dtype(np.dtype(array.dtype)) is None:
            raise DataError(
                f"{argument}: the column {name!r} in obs of {self.path} is not one number per sample ({kind}).",
                "Write it as numbers (codes, or a column of 0 and 1 for each category).",
            )
        return StoredArray(str(self.path), f"obs/{name}")

    def fingerprint(self, *columns: str) -> str:
        """Return a digest that changes when X, the labels or these columns of obs are written to."""
        digest = hashlib.blake2b(digest_size=16)
        label = read_attributes(self.path / "var").get("_index", "_index")
        for name in ("X", DATA, INDICES, INDPTR, f"var/{label}", *(f"obs/{column}" for column in columns)):
            folder = self.path / name
            digest.update(name.encode() + b"\0" + json.dumps(read_attributes(folder), sort_keys=True).encode())
            add_files(digest, files_of(folder) if name != "X" else ())
        return digest.hexdigest()


def is_sparse(path: AnyPath) -> bool:
    """Return whether X of the store is a sparse matrix as AnnData writes it."""
    return str(read_attributes(path / "X").get("encoding-type", "")) in ("csr_matrix", "csc_matrix")


def open_any_store(path: AnyPath) -> Store | SparseStore:
    """Open a store with a dense or a sparse X."""
    return open_sparse(path) if is_sparse(path) else open_store(path)


def open_sparse(path: str | AnyPath) -> SparseStore:
    """Open a store whose X `is_sparse`. Reads the row ends and the labels of the columns.

    Raises DataError if X is stored by columns (its rows cannot be read without all of it), if parts are missing or do
    not fit each other, or if values are not real numbers.
    """
    path = as_path(path).absolute()
    forget_tag(path)
    found = read_attributes(path / "X")
    where = f"X of {path}"
    if found["encoding-type"] == "csc_matrix":
        raise DataError(
            f"{where} is stored by columns (csc_matrix): no block of rows can be read without reading all of it.",
            "Write it by rows: adata.X = adata.X.tocsr(); adata.write_zarr(...).",
        )
    for name in (DATA, INDICES, INDPTR):
        if metadata_file(path / name) is None:
            raise MissingInputError(f"{path} has no array {name}.", REMEDY)
    m, n = (int(size) for size in found.get("shape", (0, 0)))
    values, indices, indptr = (open_array(str(path), name).array for name in (DATA, INDICES, INDPTR))
    visible = visible_rows(path)
    m = m if visible is None else visible
    if not m or not n:
        raise DataError(f"{where} is empty: its shape is {(m, n)}.", "It needs rows and columns.")
    if values.dtype.kind not in "fiub" or values.dtype.itemsize > 8:
        raise DataError(f"{where} has dtype {values.dtype}.", "It must be real numbers of at most 8 bytes.")
    fits = indptr.shape[0] > m if visible else values.shape == indices.shape and indptr.shape == (m + 1,)
    if not fits:
        raise DataError(
            f"{where}, {m} rows, has {values.shape[0]} values, {indices.shape[0]} column numbers and "
            f"{indptr.shape[0]} row ends.",
            REMEDY,
        )
    ends = StoredArray(str(path), INDPTR).read(0, m + 1).astype(np.int64)
    stored = int(ends[-1])
    fits = stored <= min(values.shape[0], indices.shape[0]) if visible else stored == values.shape[0]
    if ends[0] != 0 or not fits or (np.diff(ends) < 0).any():
        raise DataError(f"{where}: indptr does not increase from 0 to the {values.shape[0]} values.", REMEDY)
    most = max(BLOCK_BYTES // (values.dtype.itemsize + indices.dtype.itemsize), values.chunks[0], indices.chunks[0])
    row_bounds = _divide_rows(ends, most, n)
    label = read_attributes(path / "var").get("_index", "_index")
    features = column_labels(path, f"var/{label}", "feature", "x", n)
    return SparseStore(path, (m, n), np.dtype(values.dtype), features, row_bounds, stored, ends[row_bounds].tolist())


def _divide_rows(ends: NDArray[np.int64], most: int, n: int) -> list[int]:
    """Return row blocks of at most `most` values, or one row, and of at most 64 * `most` elements with the zeros."""
    m, edges = ends.size - 1, [0]
    tall = max(1, 64 * most // n)
    while edges[-1] < m:
        start = edges[-1]
        stop = int(np.searchsorted(ends, ends[start] + most, side="right")) - 1
        edges.append(min(max(stop, start + 1), start + tall, m))
    return edges

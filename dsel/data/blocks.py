"""Row blocks: the parts in which a pass reads the data, and how one is loaded and read in pieces."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel._lib.termination import stop_zarr_at_exit
from dsel._lib.types import Floats
from dsel.data.row_partition import RowPartition
from dsel.data.store.array import StoredArray
from dsel.data.store.sparse import ObsColumns, SparseRows
from dsel.data.weights import as_weights
from dsel.errors import DataError

#: A block is processed in pieces of about this many bytes of float64.
PIECE_BYTES = 16 << 20
#: Pieces of at least this many rows, for the speed of BLAS, have at most about _CACHED values.
PIECE_ROWS = 512
_CACHED = 1 << 19


@dataclass(frozen=True)
class StoredRows:
    """Rows [start, stop) of a stored array, read where they are needed."""

    array: StoredArray
    start: int
    stop: int

    def read(self, columns: NDArray[np.int64] | None = None) -> NDArray[Any]:
        """Return the rows, or only the ascending `columns` of them."""
        return self.array.read(self.start, self.stop, columns)

    def bytes_read(self, columns: NDArray[np.int64] | None = None) -> int:
        """Return the uncompressed bytes of the chunks that this reads."""
        return self.array.bytes_read(self.start, self.stop, columns)

    def __getitem__(self, rows: slice) -> StoredRows:
        """Return some of the rows."""
        return replace(self, start=self.start + rows.start, stop=self.start + rows.stop)


@dataclass(frozen=True)
class TransposedRows:
    """Rows [start, stop) of a .npy file that has them as its columns, read where they are needed.

    n: the rows of the file, which are the columns here. itemsize: the bytes of a value.
    """

    path: str
    start: int
    stop: int
    n: int
    itemsize: int

    def read(self, columns: NDArray[np.int64] | None = None) -> NDArray[Any]:
        """Return the rows, or only the ascending `columns` of them: a new array in C order."""
        try:
            file = np.load(self.path, mmap_mode="r")
        except (OSError, ValueError) as error:
            raise DataError(f"A copy of the data cannot be read: {error}.", "Start again: it is made again.") from error
        return np.array(file[slice(None) if columns is None else columns, self.start : self.stop].T, order="C")

    def bytes_read(self, columns: NDArray[np.int64] | None = None) -> int:
        """Return the bytes that this reads."""
        return (self.stop - self.start) * (self.n if columns is None else len(columns)) * self.itemsize

    def __getitem__(self, rows: slice) -> TransposedRows:
        """Return some of the rows."""
        return replace(self, start=self.start + rows.start, stop=self.start + rows.stop)


@dataclass(frozen=True)
class PartWeights:
    """The weights of rows [start, stop): 0 for held-out rows, or with `held_out` for all others."""

    weights: Any
    partition: RowPartition
    held_out: bool
    start: int
    stop: int

    def read(self) -> NDArray[np.float64]:
        """Return the weights. Without weights of the data they are 1 and 0."""
        there = (self.partition.of_rows(self.start, self.stop) > 0) == self.held_out
        weights = load_weights(self.weights)
        return there.astype(np.float64) if weights is None else np.where(there, weights, 0.0)

    def bytes_read(self, columns: NDArray[np.int64] | None = None) -> int:
        """Return the uncompressed bytes of the weights of the data."""
        return part_bytes(self.weights)

    def __getitem__(self, rows: slice) -> PartWeights:
        """Return some of the rows."""
        weights = None if self.weights is None else self.weights[rows]
        return replace(self, weights=weights, start=self.start + rows.start, stop=self.start + rows.stop)


@dataclass(frozen=True)
class Block:
    """Rows [start, stop) of X, Y, the weights and the offsets of a loss.

    x and y are StoredRows, arrays, sparse matrices, or with `lazy` Dask delayed arrays. y is None if there are no
    targets apart from X itself. w is None if all weights are 1, and offset if there is none. A function that gets a
    loaded block sees arrays.
    """

    start: int
    stop: int
    x: Any
    y: Any
    lazy: bool = False
    w: Any = None
    offset: Any = None


def cut_block(block: Block, start: int, stop: int) -> Block:
    """Return rows [start, stop) of a block that is not loaded."""
    if (start, stop) == (block.start, block.stop):
        return block
    rows = slice(start - block.start, stop - block.start)
    parts = (block.x, block.y, block.w, block.offset)
    x, y, w, offset = (None if part is None else part[rows] for part in parts)
    return replace(block, start=start, stop=stop, x=x, y=y, w=w, offset=offset)


def load_block(part: Any, columns: NDArray[np.int64] | None = None) -> Any:
    """Return x or y of a block as a dense array or a sparse matrix, or only the ascending `columns` of it."""
    if isinstance(part, StoredRows | TransposedRows | SparseRows | ObsColumns):
        part, columns = part.read(columns), None
    stop_zarr_at_exit()
    if columns is None:
        return part
    if hasattr(part, "tocsc"):
        return part.tocsc()[:, columns].tocsr()
    return np.ascontiguousarray(part[:, columns])


def load_weights(part: Any) -> NDArray[np.float64] | None:
    """Return w of a block, or None if all weights are 1."""
    if part is None:
        return None
    return as_weights(part.read() if isinstance(part, StoredRows | PartWeights) else part)


def part_bytes(part: Any, columns: NDArray[np.int64] | None = None) -> int:
    """Return the bytes that loading x, y or w reads: uncompressed, in whole chunks; of data in memory all of it."""
    if part is None:
        return 0
    return int(part.bytes_read(columns)) if hasattr(part, "bytes_read") else array_bytes(part)


def array_bytes(data: Any) -> int:
    """Return the bytes of a dense array or of the values and column numbers of a sparse matrix."""
    return int(data.data.nbytes + data.indices.nbytes if hasattr(data, "tocsr") else data.nbytes)


def missing_values(blocks: Iterable[Block], n: int) -> NDArray[np.int64] | None:
    """Return how many values of each column of X (n,) are NaN; None for blocks that are not in memory."""
    counts = np.zeros(n, np.int64)
    for block in blocks:
        if block.lazy or hasattr(block.x, "bytes_read"):
            return None
        if hasattr(block.x, "tocsr"):
            counts += np.bincount(block.x.indices[np.isnan(block.x.data)], minlength=n)
        else:
            counts += np.isnan(block.x).sum(axis=0)
    return counts


def filled_columns(blocks: Iterable[Block], n: int, mean: bool) -> NDArray[np.bool_]:
    """Return the columns of X (n,) that may have missing values which their means replace. mean: whether means do."""
    counts = missing_values(blocks, n) if mean else np.zeros(n, np.int64)
    return np.ones(n, np.bool_) if counts is None else counts > 0


def row_pieces(rows: int, width: int, most: float = math.inf) -> list[tuple[int, int]]:
    """Return the edges of pieces that fit into PIECE_BYTES, of at most `most` rows."""
    width = max(width, 1)
    step = max(1, int(min(rows, most, PIECE_BYTES // (8 * width), max(PIECE_ROWS, _CACHED // width))))
    edges = [*range(0, rows, step), rows]
    return list(pairwise(edges))


def dense_rows(block: Any, start: int, stop: int, fill: Floats | None = None, dtype: Any = np.float64) -> Any:
    """Return rows [start, stop) of a loaded x or y as a new array (float64 by default), with `fill` in place of NaN."""
    rows = block[start:stop]
    if hasattr(rows, "toarray"):
        rows = rows.toarray()
    dense = np.array(rows, dtype=dtype, order="C")
    fill_missing(dense, fill)
    return dense


def fill_missing(z: Any, fill: Floats | None) -> None:
    """Replace NaN in each column of z by the column's value in `fill`, if there is any."""
    if fill is not None:
        rows, columns = np.nonzero(np.isnan(z))
        z[rows, columns] = fill[columns]

"""Where the numbers come from, as row blocks: a store, arrays in memory, Dask or xarray arrays, sparse matrices.

Whatever it is, a `Dataset` lists the same row blocks in the same order, so that every pass over the data adds up the
same partial sums whoever computes them.
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel.data.schema import default_labels, require_unique, shorten
from dsel.data.store.array import StoredArray
from dsel.data.store.reader import Store, open_store
from dsel.data.store.sparse import ObsColumns, SparseRows, SparseStore, is_sparse, open_sparse
from dsel.data.weights import Weights, as_weights, find_weights, given_weights, named
from dsel.errors import DataError, OptionError
from dsel.storage.paths import AnyPath, as_path

Labels = NDArray[np.object_]

#: Arrays in memory are cut into blocks of about this size where they have no chunks of their own.
BLOCK_BYTES = 64 << 20


@dataclass(frozen=True)
class StoredRows:
    """Rows [start, stop) of a stored array, read where they are needed."""

    array: StoredArray
    start: int
    stop: int

    def read(self, columns: NDArray[np.int64] | None = None) -> NDArray[Any]:
        """The rows, or of these only the ascending `columns`."""
        return self.array.read(self.start, self.stop, columns)

    def bytes_read(self, columns: NDArray[np.int64] | None = None) -> int:
        """Bytes of the chunks that this takes."""
        return self.array.bytes_read(self.start, self.stop, columns)


@dataclass(frozen=True)
class Block:
    """Rows [start, stop): x and y are StoredRows, arrays, sparse matrices, or Dask delayed arrays (then `lazy`).

    y is None where there are no targets apart from X itself. w: weights of the rows, None where all are 1; for a
    function of a loaded block, an array.
    """

    start: int
    stop: int
    x: Any
    y: Any
    lazy: bool = False
    w: Any = None


@dataclass(frozen=True)
class Dataset:
    """A data set as row blocks. m x n matrix X; N targets, N = 0 where Y = X."""

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
    target_columns: NDArray[np.int64] | None = None  # of Y in the store, where not all are used
    weights: Weights | None = None

    @property
    def in_memory(self) -> bool:
        """Whether the numbers are here already, so that no cluster is needed."""
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
        """Bytes that one pass reads, as `part_bytes` counts them; of lazy arrays by their shapes."""
        if any(block.lazy for block in self.blocks):
            return self.nbytes
        parts = [(part_bytes(b.x, columns), part_bytes(b.y, self.target_columns), part_bytes(b.w)) for b in self.blocks]
        return sum(map(sum, parts))

    @cached_property
    def fingerprint(self) -> str | None:
        """What names these data among all others, None for data in memory."""
        if self.store is None:
            return None
        chosen = "" if self.target_columns is None else "-" + "-".join(map(str, self.target_columns.tolist()))
        name = "" if self.weights is None else self.weights.name
        if isinstance(self.store, SparseStore):
            columns = [*self.targets.tolist(), *([name] if name else [])]
            return f"{self.store.fingerprint(*columns)}-{len(self.targets)}{'-weight' if name else ''}"
        weighted = f"-weight:{name}" if name else "-unweighted" if self.store.has_weight else ""
        targets = "-unsupervised" if not self.n_targets else chosen
        return self.store.fingerprint(*([name] if name else [])) + targets + weighted


def load_block(part: Any, columns: NDArray[np.int64] | None = None) -> Any:
    """The rows of one block: a dense array, or a sparse matrix; all columns, or the ascending `columns`."""
    if isinstance(part, StoredRows | SparseRows | ObsColumns):
        return part.read(columns)
    if columns is None:
        return part
    if hasattr(part, "tocsc"):
        return part.tocsc()[:, columns].tocsr()
    return np.ascontiguousarray(part[:, columns])


def part_bytes(part: Any, columns: NDArray[np.int64] | None = None) -> int:
    """Bytes that loading a part of a block reads, uncompressed and in whole chunks; of data in memory all of it."""
    if part is None:
        return 0
    if isinstance(part, StoredRows):
        return part.bytes_read(columns)
    if isinstance(part, SparseRows | ObsColumns):
        return part.bytes_read()
    return _size(part)


def load_weights(part: Any) -> NDArray[np.float64] | None:
    """The weights of the rows of one block; None where there are none, or all are 1."""
    if part is None:
        return None
    return as_weights(part.read() if isinstance(part, StoredRows) else part)


def dense_rows(block: Any, start: int, stop: int) -> NDArray[np.float64]:
    """Rows [start, stop) of a block as a fresh float64 array."""
    rows = block[start:stop]
    if hasattr(rows, "toarray"):
        rows = rows.toarray()
    return np.array(rows, dtype=np.float64, order="C")


def as_dataset(
    X: Any, Y: Any = None, *, targets: Sequence[str | int] | None = None, unsupervised: bool = False,
    sample_weight: Any = None,
) -> Dataset:  # fmt: skip
    """A Dataset from a store's path, or from numpy, scipy sparse, pandas, Dask or xarray data.

    Y None: a store or Dataset brings its own Y if it has one (unless `unsupervised`); otherwise Y = X. `targets` picks
    some of them by label or index; they stay in the order that Y has them in. sample_weight: (m,) numbers >= 0 for data
    in memory; for a store or Dataset the name of a variable, by default `weight` where there is one, False for none.

    Errors: OptionError for targets that are not there, DataError naming what X or Y is and should be.
    """
    targets = None if targets is None else as_columns(targets, "targets")
    if isinstance(X, str | AnyPath):
        if Y is not None:
            raise OptionError("A store holds its own Y.", "Leave Y out, or open the store and pass arrays.")
        if is_sparse(as_path(X)):
            return _sparse_source(open_sparse(X), targets, unsupervised, sample_weight)
        store = open_store(X)
        return _weighted(_from_store(store, targets, unsupervised), find_weights(store, sample_weight))
    if _is(X, "xarray", "Dataset"):
        if Y is None and "Y" in X and not unsupervised:
            Y = X["Y"]
        if "X" not in X:
            raise DataError(
                f"The Dataset has no variable X, only {shorten(map(str, X.variables))}.",
                "Rename the data matrix to X, or pass it alone.",
            )
        sample_weight = _weights_of_xarray(X, sample_weight)
        X = X["X"]
    if unsupervised:
        Y = None
    dataset = _from_arrays(X, Y)
    if targets is not None:
        dataset = _pick_targets(dataset, targets)
    if sample_weight is None or sample_weight is False:
        return dataset
    if _is_pandas(X) and _is_pandas(sample_weight):
        _require_same_index(X, sample_weight, "sample_weight")
    return _weighted(dataset, given_weights(sample_weight, dataset.m))


def _weights_of_xarray(dataset: Any, asked: Any) -> Any:
    """Weights of an xarray Dataset: its variable `weight`, or the one named."""
    name = named(asked, "weight" in dataset) if asked is None or isinstance(asked, str | bool) else None
    if name is None:
        return asked
    if name not in dataset:
        raise DataError(f"The Dataset has no variable {name}, only {shorten(map(str, dataset.variables))}.")
    return dataset[name].data


def _weighted(dataset: Dataset, weights: Weights | None) -> Dataset:
    if weights is None:
        return dataset

    def part(block: Block) -> Any:
        values = weights.values
        if isinstance(values, StoredArray):
            return StoredRows(values, block.start, block.stop)
        return values[block.start : block.stop]

    blocks = tuple(replace(block, w=part(block)) for block in dataset.blocks)
    return replace(dataset, blocks=blocks, weights=weights)


def _is(value: Any, module: str, name: str) -> bool:
    kind = type(value)
    return kind.__name__ == name and kind.__module__.split(".")[0] == module


def as_columns(wanted: Any, argument: str) -> tuple[Any, ...]:
    """The columns that an argument lists; OptionError for a bare label or number."""
    try:
        if not isinstance(wanted, str | bytes):
            return tuple(wanted)
    except TypeError:
        pass
    raise OptionError(f"{argument} is {wanted!r}.", f"Give a list of labels or indices, such as [{wanted!r}].")


def resolve_labels(wanted: Sequence[str | int], labels: Labels, what: str, argument: str) -> NDArray[np.int64]:
    """Indices of columns named by label or by 0-based index; OptionError names the nearest for what is not there."""
    by_label = {str(label): i for i, label in enumerate(labels)}
    found = []
    for one in as_columns(wanted, argument):
        if isinstance(one, bool) or not isinstance(one, str | numbers.Integral):
            raise OptionError(f"{argument}: {one!r} names no {what}.", "Give its label, or its index from 0.")
        if isinstance(one, str) and one in by_label:
            found.append(by_label[one])
        elif not isinstance(one, str) and 0 <= int(one) < len(labels):
            found.append(int(one))
        else:
            raise OptionError(
                f"{argument}: there is no {what} {one!r} among {len(labels)}.", nearest(str(one), by_label)
            )
    if len(set(found)) < len(found):
        raise OptionError(f"{argument}: a {what} is named twice in {list(wanted)}.")
    return np.asarray(found, np.int64)


def _resolve_targets(targets: Sequence[str | int], labels: Labels) -> NDArray[np.int64]:
    """Ascending, as they are read."""
    if not targets:
        raise OptionError("targets is empty.", "Name at least one, or leave it out to use all.")
    return np.sort(resolve_labels(targets, labels, "target", "targets"))


def nearest(word: str, known: Sequence[str] | dict[str, Any]) -> str:
    """A sentence with the known words nearest to one that is not known."""
    from difflib import get_close_matches

    close = get_close_matches(word, list(known), n=3, cutoff=0.4)
    return f"Nearest: {', '.join(close)}." if close else f"Known: {', '.join(list(known)[:8])}."


def _from_store(store: Store, targets: Sequence[str | int] | None, unsupervised: bool) -> Dataset:
    m, n = store.shape
    y = None if unsupervised else store.y
    chosen = None
    labels = store.targets if y is not None else np.empty(0, object)
    if y is not None and targets is not None:
        chosen = _resolve_targets(targets, labels)
        labels = labels[chosen]
    elif targets is not None:
        raise OptionError(f"{store.path} has no targets to choose {list(targets)} from.")
    edges = store.row_bounds
    blocks = tuple(
        Block(a, b, StoredRows(store.x, a, b), None if y is None else StoredRows(y, a, b)) for a, b in pairwise(edges)
    )
    N = len(labels)
    return Dataset(
        name=str(store.path), m=m, n=n, n_targets=N, features=store.features, targets=labels, blocks=blocks,
        x_bytes=store.nbytes, y_bytes=8 * m * N, store=store, target_columns=chosen,
    )  # fmt: skip


def _sparse_source(
    store: SparseStore, targets: Sequence[str | int] | None, unsupervised: bool, sample_weight: Any
) -> Dataset:
    """Targets are columns of obs, by their names; without any, Y = X."""
    m, n = store.shape
    chosen: list[str] = []
    for name in () if unsupervised or targets is None else targets:
        if not isinstance(name, str):
            raise OptionError(f"targets: {name!r} names no column of obs.", f"Known: {', '.join(store.obs[:8])}.")
        chosen.append(name)
    require_unique(chosen, "target", "targets", "Name each one once.")
    variables = tuple(store.column(name, "targets").variable for name in chosen)
    places = store.blocks()
    blocks = tuple(
        Block(p.start, p.stop, p, ObsColumns(p.path, variables, p.start, p.stop) if chosen else None) for p in places
    )
    dataset = Dataset(
        name=str(store.path), m=m, n=n, n_targets=len(chosen), features=store.features,
        targets=np.array(chosen, dtype=object), blocks=blocks, x_bytes=sum(p.bytes_read() for p in places),
        y_bytes=sum(block.y.bytes_read() for block in blocks) if chosen else 0, store=store,
    )  # fmt: skip
    return _weighted(dataset, find_weights(store, sample_weight))


def _pick_targets(dataset: Dataset, targets: Sequence[str | int]) -> Dataset:
    if not dataset.n_targets:
        raise OptionError(f"There is no Y to choose {list(targets)} from.")
    chosen = _resolve_targets(targets, dataset.targets)
    return replace(dataset, n_targets=len(chosen), targets=dataset.targets[chosen], target_columns=chosen)


def _labels_of(data: Any, prefix: str, count: int) -> Labels:
    names: Any = None
    what, where = ("feature", "X") if prefix == "x" else ("target", "Y")
    if _is(data, "pandas", "DataFrame"):
        names = [str(c) for c in data.columns]
    elif _is(data, "xarray", "DataArray") and data.ndim == 2 and data.dims[1] in data.coords:
        names = [str(c) for c in data.coords[data.dims[1]].values.tolist()]
    if names is None:
        names = default_labels(prefix, count)
    require_unique(names, what, where, "Give every column a name of its own.")
    return np.array(names, dtype=object)


def _matrix(data: Any, what: str) -> Any:
    """A two-dimensional numeric numpy, Dask or CSR matrix, NaN where it was masked; a one-dimensional Y becomes one
    column."""
    if hasattr(data, "to_dask_array"):
        raise DataError(f"{what} is a Dask {type(data).__name__}.", "Pass its .to_dask_array(lengths=True).")
    if _is_pandas(data):
        data = data.to_numpy()
    if _is(data, "xarray", "DataArray"):
        if data.ndim == 2 and tuple(data.dims) in (("feature", "sample"), ("target", "sample")):
            raise DataError(f"{what} has dimensions {data.dims}.", "Transpose it: samples come first.")
        data = data.data
    sparse, lazy = hasattr(data, "tocsr"), _is(data, "dask", "Array")
    if sparse and what == "Y":
        data, sparse = _plain(data), False
    if not (sparse or lazy):
        try:
            data = np.asanyarray(data)
        except ValueError as error:
            raise DataError(
                f"{what} is no matrix: {error}", "Give rows of one length (of an AnnData: its X)."
            ) from error
    if lazy and np.isnan(data.shape).any():
        raise DataError(f"{what} is a Dask array of unknown chunk sizes.", "Call compute_chunk_sizes() on it first.")
    if data.ndim == 1 and what == "Y":
        data = data[:, None]
    if data.ndim != 2:
        columns = "targets" if what == "Y" else "features"
        raise DataError(f"{what} has shape {data.shape}.", f"It must have two dimensions: samples x {columns}.")
    if data.dtype.kind not in "fiub" or data.dtype.itemsize > 8:
        raise DataError(f"{what} has dtype {data.dtype}.", "It must be real numbers of at most 8 bytes.")
    if lazy:  # what is in a block shows only when it is there
        return data.map_blocks(_plain, dtype=data.dtype, meta=np.empty((0, 0), data.dtype))
    return data.tocsr() if sparse else _plain(data)


def _is_pandas(data: Any) -> bool:
    return _is(data, "pandas", "DataFrame") or _is(data, "pandas", "Series")


def _plain(data: Any) -> NDArray[Any]:
    """A dense, unmasked array: what is masked is missing, and so NaN."""
    for dense in ("toarray", "todense"):
        if hasattr(data, dense):
            data = getattr(data, dense)()
            break
    if isinstance(data, np.ma.MaskedArray):
        data = data.astype(np.float64) if data.dtype.kind != "f" else data
        data = data.filled(np.nan)
    return np.asarray(data)


def _from_arrays(X: Any, Y: Any) -> Dataset:
    x = _matrix(X, "X")
    y = None if Y is None else _matrix(Y, "Y")
    m, n = (int(size) for size in x.shape)
    if not m or not n:
        raise DataError(f"X is empty: its shape is {x.shape}.", "It needs rows and columns.")
    if y is not None and y.shape[0] != m:
        raise DataError(f"X has {m} rows and Y has {y.shape[0]}.", "Y needs one row for each sample of X.")
    if _is_pandas(X) and _is_pandas(Y):
        _require_same_index(X, Y, "Y")
    N = 0 if y is None else int(y.shape[1])
    if y is not None and not N:
        raise DataError("Y has no columns.", "Leave Y out to have Y = X.")
    return Dataset(
        name="X", m=m, n=n, n_targets=N, features=_labels_of(X, "x", n), targets=_labels_of(Y, "y", N),
        blocks=_array_blocks(x, y), x_bytes=_size(x), y_bytes=0 if y is None else _size(y),
    )  # fmt: skip


def _require_same_index(X: Any, other: Any, name: str) -> None:
    if len(other) != len(X) or other.index.equals(X.index):
        return
    pairs = enumerate(zip(X.index, other.index, strict=True))
    at = next((i for i, (a, b) in pairs if repr(a) != repr(b)), 0)
    raise DataError(
        f"The indexes of X and {name} differ: row {at} is {X.index[at]!r} in X and {other.index[at]!r} in {name}.",
        f"Give them the same order ({name}.loc[X.index]), or pass {name}.to_numpy() if the rows belong together as "
        "they are.",
    )


def _size(data: Any) -> int:
    return int(data.data.nbytes + data.indices.nbytes if hasattr(data, "tocsr") else data.nbytes)


def _array_blocks(x: Any, y: Any) -> tuple[Block, ...]:
    if _is(x, "dask", "Array"):
        return _dask_blocks(x, y)
    if _is(y, "dask", "Array"):
        y = np.asarray(y.compute())
    m = x.shape[0]
    rows = max(1, BLOCK_BYTES // max(1, 8 * x.shape[1]))
    edges = [*range(0, m, rows), m]
    return tuple(Block(a, b, x[a:b], None if y is None else y[a:b]) for a, b in pairwise(edges))


def _dask_blocks(x: Any, y: Any) -> tuple[Block, ...]:
    import dask.array as da

    x = x.rechunk({1: -1})
    if y is not None:
        y = y if _is(y, "dask", "Array") else da.from_array(y)  # type: ignore[no-untyped-call]
        y = y.rechunk((x.chunks[0], -1))
    edges = np.concatenate([[0], np.cumsum(x.chunks[0])]).tolist()
    xs = x.to_delayed().ravel().tolist()
    ys = [None] * len(xs) if y is None else y.to_delayed().ravel().tolist()
    rows = zip(pairwise(edges), xs, ys, strict=True)
    return tuple(Block(a, b, part, targets, lazy=True) for (a, b), part, targets in rows if a < b)

"""Datasets of stores, of data in memory, and of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from dsel._lib.text import shorten
from dsel.config.ingest_request import Dates
from dsel.config.request import Categories, Missing
from dsel.data import frames, in_memory
from dsel.data.blocks import Block, StoredRows, array_bytes
from dsel.data.classes import stored_targets
from dsel.data.dataset import GIVEN_TARGETS, Dataset, array_digest
from dsel.data.frame_numbers import numbers_of, targets_of
from dsel.data.icechunk_snapshot import is_snapshot, open_snapshot
from dsel.data.labels import Labels, as_labels, column_list, require_unique, target_places
from dsel.data.schema import ATTR_CLASSES, SOURCE
from dsel.data.store.array import StoredArray, group_tag
from dsel.data.store.reader import Store, open_store
from dsel.data.store.sparse import ObsColumns, SparseStore, is_sparse, open_sparse
from dsel.data.weights import Weights, array_weights, store_weights
from dsel.errors import DataError, OptionError
from dsel.storage.object_store import listed_once
from dsel.storage.paths import AnyPath, as_path


def as_dataset(
    X: Any, Y: Any = None, *, targets: Sequence[str | int] | None = None, unsupervised: bool = False,
    sample_weight: Any = None, categories: Categories = "groups", dates: Dates = "refuse",
    exclude: Sequence[str | int] = (), missing: Missing = "refuse",
) -> Dataset:  # fmt: skip
    """Return a Dataset of a store, or of data in memory.

    Parameters
    ----------
    X : str, Path, ObjectPath, array, sparse matrix, DataFrame, DataArray, xarray Dataset, icechunk.Session or Sums
        The path of a store, or the data matrix, shape (m, n). An xarray Dataset has a variable X. Sums of rows
        (`dsel.open_sums`) are returned as they are.
    Y : array, DataFrame, Series, DataArray, str or list of str, optional
        The targets, shape (m, N) or (m,), or the names of the columns of a frame X that are the targets. By default a
        store or an xarray Dataset provides its own Y if it has one. Values next to a store replace its own. Without any
        targets, Y = X.
    targets : sequence of str or int, optional
        The targets to use, by label or index. They keep the order that they have in Y. Without Y, they are columns of a
        frame X.
    unsupervised : bool
        Whether to ignore the Y of a store or an xarray Dataset.
    sample_weight : array of shape (m,), str or False, optional
        Numbers >= 0 for data in memory. For a store or an xarray Dataset the name of a variable, by default `weight`
        if there is one, False for none. For a frame, the name of a column.
    categories : {"groups", "columns", "refuse"}
        Whether text and categories in a frame become columns of zeros and ones; `groups` says the same here.
    dates : {"refuse", "days"}
        Whether dates in a frame become numbers of days.
    exclude : sequence of str or int
        Columns of a frame, by label or position, that are left out if they hold no numbers. Others stay.
    missing : {"refuse", "mean"}
        Whether missing values will be refused. An error that lists the problems of a frame then lists them, too.

    Returns
    -------
    Dataset
        The data as row blocks.

    Raises
    ------
    OptionError
        If a target does not exist, or arguments exclude each other.
    DataError
        If X, Y or the weights cannot be used; the message says what they are and what they should be.
    MissingInputError
        If there is no store.

    Notes
    -----
    Reads no values of X and Y from a store, only labels and weights.

    Examples
    --------
    >>> import numpy as np
    >>> dataset = as_dataset(np.eye(4, 3), np.arange(4.0))
    >>> dataset.m, dataset.n, dataset.n_targets, dataset.features.tolist()
    (4, 3, 1, ['x0', 'x1', 'x2'])
    """
    targets = None if targets is None else column_list(targets, "targets")
    X = frames.collected(X)
    Y = None if unsupervised else Y
    if isinstance(X, Dataset):
        as_it_is = Y is None and targets is None and not unsupervised
        if not as_it_is or not (sample_weight is None or sample_weight is False):
            raise OptionError("Sums hold their own targets and weights.", "Sum other targets or weights at each site.")
        return X
    if is_snapshot(X):
        snapshot = open_snapshot(X)
        _require_values(Y, snapshot.name, targets)
        dataset = as_dataset(
            snapshot.dataset(), Y, targets=targets, unsupervised=unsupervised, sample_weight=sample_weight,
            categories=categories, dates=dates, exclude=exclude, missing=missing,
        )  # fmt: skip
        return replace(dataset, name=snapshot.name, digest=snapshot.digest(Y, targets, unsupervised, sample_weight))
    if isinstance(X, str | AnyPath):
        used = None if Y is not None else targets
        with listed_once(as_path(X)):
            if is_sparse(as_path(X)):
                dataset = _from_sparse_store(open_sparse(X), used, unsupervised or Y is not None, sample_weight)
            else:
                dataset = _from_store(open_store(X), used, unsupervised or Y is not None, sample_weight)
            _require_values(Y, X, targets)
            return dataset if Y is None else _with_targets(dataset, Y, dates)
    unused: list[str] = []
    if Y is None and targets and not unsupervised and frames.may_name(X, targets):
        frames.refuse_positions(X, targets)
        Y, targets = str(targets[0]) if len(targets) == 1 else [str(target) for target in targets], None
    if in_memory.is_xarray_dataset(X):
        X, Y, sample_weight, unused = in_memory.xarray_variables(X, Y, unsupervised, sample_weight)
    X, Y, sample_weight, features = frames.opened(X, Y, sample_weight)
    given = X
    X, Y, sample_weight = in_memory.align(X, Y, sample_weight)
    dataset = _from_arrays(X, Y, features, categories, dates, exclude, missing)
    notes = [*in_memory.other_dates(given, X, [Y, sample_weight])]
    if unused:
        notes.append(
            f"the Dataset has variables that are not used: {shorten(unused)}; name the targets among them with target"
        )
    dataset = replace(dataset, notes=(*dataset.notes, *notes), row_labels=in_memory.row_labels(X))
    if targets is not None:
        if not dataset.n_targets:
            raise OptionError(
                f"There is no Y to choose {list(targets)} from.",
                "Give the targets as Y, and X without them: for column j of an array V, Y=V[:, j] and "
                "X=numpy.delete(V, j, axis=1).",
            )
        chosen = target_places(frames.named_targets(targets, Y, dataset.classes), dataset.targets)
        labels = dataset.targets[chosen]
        dataset = replace(dataset, n_targets=len(chosen), targets=labels, target_columns=chosen)
    if sample_weight is None or sample_weight is False:
        return dataset
    return _with_weights(dataset, array_weights(sample_weight, dataset.m))


def _require_values(Y: Any, store: Any, targets: Sequence[str | int] | None) -> None:
    """Raise OptionError where Y next to a store names columns, and where `targets` is given, too."""
    if frames.names_columns(Y):
        other = "Name targets of the store by targets. Give classes as an array: numpy.array(Y)."
        remedy = frames.targets_of_store(Y) or other
        raise OptionError(f"Y is text, and X is the store {store}.", remedy)
    if Y is not None and targets is not None:
        remedy = "Leave Y out to choose targets of the store, or give as Y those that you want."
        raise OptionError(f"targets is given next to Y, and X is the store {store}.", remedy)


def _with_targets(dataset: Dataset, Y: Any, dates: Dates) -> Dataset:
    """Return the data of a store with targets in memory: a row for each of the store, in the order of its labels."""
    Y = dataset.in_order(frames.opened(None, Y, None)[1], "Y")
    rows = np.broadcast_to(np.float64(0.0), (dataset.m, 1))  # they stand for X, which is not read
    found = _from_arrays(rows, Y, None, "refuse", dates, (), "refuse")
    y = np.concatenate([block.y for block in found.blocks])
    return replace(
        dataset, blocks=tuple(replace(b, y=y[b.start : b.stop]) for b in dataset.blocks), n_targets=found.n_targets,
        targets=found.targets, y_bytes=y.nbytes, y_dtype=y.dtype, flat_target=found.flat_target, classes=found.classes,
        notes=found.notes, digest=f"{GIVEN_TARGETS}{y.dtype}:{array_digest(y)}",
    )  # fmt: skip


def _from_arrays(
    X: Any,
    Y: Any,
    features: Labels | None,
    categories: Categories,
    dates: Dates,
    exclude: Sequence[str | int],
    missing: Missing,
) -> Dataset:
    numbered = features is None and frames.numbered(X)
    left_out = tuple(map(str, exclude)) if numbered else exclude  # numbers are labels, as in `SelectionRequest.by_name`
    found, classes = numbers_of(X, "X", categories, dates, left_out, missing), targets_of(Y, dates)
    x = in_memory.as_matrix(found.values, "X")
    of_targets = numbers_of(classes.Y, "Y", "refuse", dates)
    y = None if Y is None else in_memory.as_matrix(of_targets.values, "Y")
    m, n = (int(size) for size in x.shape)
    if not m or not n:
        raise DataError(f"X is empty: its shape is {x.shape}.", "It needs rows and columns.")
    if y is not None and y.shape[0] != m:
        taken, remedy = "", f"Y needs one row for each sample of X.{frames.as_list(X, Y)}"
        if in_memory.is_data_array(X):
            taken = f": its samples are along the dimension {X.dims[0]!r}"
            remedy = "Make Y a DataArray with the dimension of the samples, or transpose X so that it is the first one."
        raise DataError(f"X has {m} rows and Y has {y.shape[0]}{taken}.", remedy)
    N = 0 if y is None else int(y.shape[1])
    if y is not None and not N:
        raise DataError("Y has no columns.", "Leave Y out to have Y = X.")
    given = found.labels if features is None else features.tolist()
    labels = in_memory.column_labels(X, "x", n, given)
    flat = classes.Y if classes.labels else Y
    return Dataset(
        name="X", m=m, n=n, n_targets=N, features=labels,
        targets=in_memory.column_labels(Y, "y", N, classes.labels), blocks=in_memory.row_blocks(x, y),
        x_bytes=array_bytes(x), y_bytes=0 if y is None else array_bytes(y),
        coordinates={**in_memory.feature_coordinates(X), **found.coordinates},
        flat_target=y is not None and (flat.ndim if hasattr(flat, "ndim") else np.ndim(flat)) == 1,
        classes=classes.classes, notes=(*found.notes, *of_targets.notes), left_out=found.left_out,
        columns=tuple(frames.frame_labels(X) or ()), numbered=numbered,
        dtype=np.dtype(x.dtype), y_dtype=None if y is None else np.dtype(y.dtype),
        whole=found.whole + of_targets.whole,
    )  # fmt: skip


def _from_store(store: Store, targets: Sequence[str | int] | None, unsupervised: bool, sample_weight: Any) -> Dataset:
    m, n = store.shape
    y = None if unsupervised else store.y
    if y is None and targets is not None:
        raise OptionError(f"{store.path} has no targets to choose {list(targets)} from.")
    labels, chosen = np.empty(0, object), None
    classes: dict[str, list[str]] = {}
    if y is not None:
        chosen, classes = stored_targets(store.targets, store.attributes.get(ATTR_CLASSES, {}), targets)
        labels = store.targets if chosen is None else store.targets[chosen]
    blocks = tuple(
        Block(a, b, StoredRows(store.x, a, b), None if y is None else StoredRows(y, a, b))
        for a, b in pairwise(store.row_bounds)
    )
    N = len(labels)
    dataset = Dataset(
        name=str(store.path), m=m, n=n, n_targets=N, features=store.features, targets=labels, blocks=blocks,
        x_bytes=store.nbytes, y_bytes=8 * m * N, store=store, target_columns=chosen, tag=group_tag(str(store.path)),
        coordinates={} if (sources := store.sources) is None else {SOURCE: sources}, classes=classes,
    )  # fmt: skip
    return _with_weights(dataset, store_weights(store, sample_weight))


def _from_sparse_store(
    store: SparseStore, targets: Sequence[str | int] | None, unsupervised: bool, sample_weight: Any
) -> Dataset:
    """Targets are columns of obs, given by name, by default those that dsel recorded; without any, Y = X."""
    m, n = store.shape
    stored, asked = store.attributes.get(ATTR_CLASSES, {}), []
    for name in () if unsupervised else store.default_targets if targets is None else targets:
        if not isinstance(name, str):
            raise OptionError(f"targets: {name!r} names no column of obs.", f"Known: {shorten(store.obs, 8)}.")
        asked += [f"{name}={level}" for level in stored.get(name, ())] or [name]
    require_unique(asked, "target", "targets", "Name each one once.")
    places, classes = stored_targets(as_labels(asked), stored, None)
    chosen = asked if places is None else [asked[place] for place in places]
    variables = tuple(store.column(name, "targets").variable for name in chosen)
    parts = store.blocks()
    blocks = tuple(
        Block(p.start, p.stop, p, ObsColumns(p.path, variables, p.start, p.stop) if chosen else None) for p in parts
    )
    dataset = Dataset(
        name=str(store.path), m=m, n=n, n_targets=len(chosen), features=store.features, targets=as_labels(chosen),
        blocks=blocks, x_bytes=sum(p.bytes_read() for p in parts),
        y_bytes=sum(block.y.bytes_read() for block in blocks) if chosen else 0, store=store,
        tag=group_tag(str(store.path)), classes=classes,
    )  # fmt: skip
    return _with_weights(dataset, store_weights(store, sample_weight))


def _with_weights(dataset: Dataset, weights: Weights | None) -> Dataset:
    if weights is None:
        return dataset

    values = weights.values
    rows = StoredRows(values, 0, dataset.m) if isinstance(values, StoredArray) else values
    blocks = tuple(replace(block, w=rows[block.start : block.stop]) for block in dataset.blocks)
    return replace(dataset, blocks=blocks, weights=weights)

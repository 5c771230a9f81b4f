"""AnnData: .h5ad files and Zarr stores, read by anndata.

A sparse X by rows becomes a sparse store, a dense X a dense one. Targets and weights are columns of obs. The labels
are the names of obs and var.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Final
from uuid import uuid4

import numpy as np

from dsel._lib.text import suggest
from dsel.data.formats.lazy_arrays import (
    LazyArray,
    LazySource,
    Parts,
    Targets,
    hdf5_file,
    target_columns,
    tree_identity,
)
from dsel.data.formats.source import (
    BLOCK_VALUES,
    Array,
    Format,
    Source,
    SourceOptions,
    SparseBlock,
    SparseSource,
    import_extra,
    wanted_dtype,
)
from dsel.errors import DataError, OptionError
from dsel.storage.paths import AnyPath, zarr_store

WEIGHT: Final = "weight"
TAKES: Final = frozenset(("target", "index", "weight", "variable"))
INSTEAD: Final = "Targets and weights are columns of obs; variable names X, a layer (layers/NAME) or raw/X."


def open_h5ad(path: AnyPath, options: SourceOptions) -> Source | SparseSource:
    """Open an .h5ad file."""
    return _open(partial(hdf5_file, path), path, options)


def open_zarr(path: AnyPath, options: SourceOptions) -> Source | SparseSource:
    """Open an AnnData object in a Zarr store."""

    @contextmanager
    def group() -> Iterator[Any]:
        import zarr

        yield zarr.open_group(zarr_store(path), mode="r")

    return _open(group, path, options)


def open_object(data: Any, options: SourceOptions) -> Source | SparseSource:
    """Open an AnnData object in memory."""

    @contextmanager
    def opened() -> Iterator[_Annotated]:
        name = options.variable or "X"
        folder, _, layer = name.partition("/")
        if folder not in ("X", "layers") or (folder == "layers" and layer not in data.layers):
            raise OptionError(f"variable={name!r}: the AnnData object has no such matrix.", INSTEAD)
        x = data.X if folder == "X" else data.layers[layer]
        yield _Annotated(x, data.obs, data.var.index, "the AnnData object")

    return _source(opened, "anndata", {"object": uuid4().hex}, options)


def _open(
    group: Callable[[], AbstractContextManager[Any]], path: AnyPath, options: SourceOptions
) -> Source | SparseSource:
    @contextmanager
    def opened() -> Iterator[_Annotated]:
        with group() as found:
            yield _read_annotated(found, str(path), options)

    chosen = [options.variable, list(options.target), options.index, options.weight]
    return _source(opened, path.name, {**tree_identity(path), "parts": chosen}, options)


class _Annotated:
    """A matrix with a table over its rows and the names of its columns."""

    def __init__(self, x: Any, obs: Any, names: Any, where: str) -> None:
        self.x, self.obs, self.where = x, obs, where
        self.features = [str(name) for name in names]

    def column(self, name: str | int, option: str) -> Array:
        """Return a column of obs: numbers, or text where it holds categories."""
        if str(name) not in self.obs.columns:
            known = [str(column) for column in self.obs.columns]
            raise OptionError(f"{option}={name!r}: obs of {self.where} has no such column.", suggest(str(name), known))
        column = self.obs[str(name)]
        missing = int(column.isna().sum())
        if missing:
            raise DataError(f"{option}={name!r}: {missing} values of obs of {self.where} are missing.", "Fill them in.")
        values = column.to_numpy()
        return values if values.dtype.kind in "biuf" else np.array([str(value) for value in values], dtype=object)

    def targets(self, options: SourceOptions) -> Targets:
        names = [str(name) for name in options.target]
        return target_columns([self.column(name, "target") for name in names], names, f"obs of {self.where}")

    def weights(self, options: SourceOptions) -> Array | None:
        if options.weight is None:
            return None
        values = self.column(options.weight, "weight")
        return values.astype(wanted_dtype(None, values.dtype, f"weight={options.weight!r} of {self.where}"), copy=False)

    def samples(self, options: SourceOptions) -> list[str]:
        labels = self.obs.index if options.index is None else self.column(options.index, "index")
        return [str(label) for label in labels]


def _read_annotated(group: Any, where: str, options: SourceOptions) -> _Annotated:
    anndata_io = import_extra("anndata.io", "anndata", "anndata", where)
    name = (options.variable or "X").strip("/")
    if name not in group:
        raise OptionError(f"variable={name!r}: {where} has no such matrix.", INSTEAD)
    found = group[name]
    x = anndata_io.sparse_dataset(found) if hasattr(found, "keys") else found
    var = anndata_io.read_elem(group["raw/var" if name.startswith("raw/") else "var"])
    return _Annotated(x, anndata_io.read_elem(group["obs"]), var.index, where)


def _source(
    opened: Callable[[], AbstractContextManager[_Annotated]], name: str, identity: dict[str, Any],
    options: SourceOptions,
) -> Source | SparseSource:  # fmt: skip
    with opened() as found:
        is_sparse = hasattr(found.x, "format") or hasattr(found.x, "tocsr")
    if is_sparse:
        return AnnotatedSparseSource(opened, name, identity, options)

    @contextmanager
    def parts() -> Iterator[Parts]:
        with opened() as found:
            y, targets, classes = found.targets(options)
            w = found.weights(options)
            samples = found.samples(options)
            yield Parts(
                LazyArray.of(found.x, f"X of {found.where}"), y,
                None if w is None else LazyArray.of(w, f"weight of {found.where}"), found.features, targets,
                lambda start, stop: samples[start:stop], classes,
            )  # fmt: skip

    return LazySource(parts, name, identity, options.dtype)


class AnnotatedSparseSource(SparseSource):
    """An AnnData object with a sparse X by rows."""

    def __init__(
        self, opened: Callable[[], AbstractContextManager[_Annotated]], name: str, identity: dict[str, Any],
        options: SourceOptions,
    ) -> None:  # fmt: skip
        self.name, self._opened, self._identity, self._options = name, opened, identity, options
        with opened() as found:
            x = found.x
            if getattr(x, "format", "csr") != "csr":
                raise DataError(
                    f"X of {found.where} is stored by columns ({x.format}): no block of rows can be read without all "
                    "of it.",
                    "Write it by rows: adata.X = adata.X.tocsr().",
                )
            self.shape, self.features = (int(x.shape[0]), int(x.shape[1])), found.features
            self.dtype = wanted_dtype(options.dtype, np.dtype(x.dtype), f"X of {found.where}")
            indptr = x.indptr if getattr(x, "group", None) is None else x.group["indptr"][...]
            self._ends = np.asarray(indptr, np.int64)  # the number of stored values before each row, and all of them
            self.stored = int(self._ends[-1])
            y, targets, classes = found.targets(options)
            w = found.weights(options)
            self.targets = tuple(
                label.replace("/", "_") for label in targets or ()
            )  # a slash would be a folder of Zarr
            self.classes = classes
            self.weight = None if w is None else WEIGHT
            self.columns = {} if y is None else dict.fromkeys(self.targets, wanted_dtype(None, y.dtype, y.where))
            if w is not None:
                self.columns[WEIGHT] = w.dtype

    def identity(self) -> dict[str, Any]:
        return {**self._identity, "dtype": str(self.dtype)}

    def blocks(self, start: int) -> Iterator[SparseBlock]:
        with self._opened() as found:
            y, _, _ = found.targets(self._options)
            w, samples = found.weights(self._options), found.samples(self._options)
            m, ends = self.shape[0], self._ends
            while start < m:
                stop = int(np.searchsorted(ends, ends[start] + BLOCK_VALUES, side="right")) - 1
                stop = min(max(stop, start + 1), m)
                rows = found.x[start:stop].tocsr().astype(self.dtype)
                columns = {} if y is None else dict(zip(self.targets, y.read(start, stop).T, strict=True))
                if w is not None:
                    columns[WEIGHT] = w[start:stop]
                yield SparseBlock(start, int(ends[start]), rows, columns, samples[start:stop])
                start = stop


def is_annotated(data: Any) -> bool:
    """Return whether `data` is an AnnData object."""
    return type(data).__name__ == "AnnData" and hasattr(data, "obs")


H5AD = Format("anndata", (".h5ad",), open_h5ad, TAKES, INSTEAD)

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

from dsel.data.formats.lazy_arrays import LazyArray, LazySource, Parts, hdf5_file, named, target_columns, tree_identity
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
    def opened() -> Iterator[tuple[Any, Parts]]:
        name = options.variable or "X"
        folder, _, layer = name.partition("/")
        if folder not in ("X", "layers") or (folder == "layers" and layer not in data.layers):
            raise OptionError(f"variable={name!r}: the AnnData object has no such matrix.", INSTEAD)
        x = data.X if folder == "X" else data.layers[layer]
        yield x, _parts(x, data.obs, data.var.index, "the AnnData object", options)

    return _source(opened, "anndata", {"object": uuid4().hex}, options)


def _open(
    group: Callable[[], AbstractContextManager[Any]], path: AnyPath, options: SourceOptions
) -> Source | SparseSource:
    where = str(path)

    @contextmanager
    def opened() -> Iterator[tuple[Any, Parts]]:
        with group() as found:
            anndata_io = import_extra("anndata.io", "anndata", "anndata", where)
            name = (options.variable or "X").strip("/")
            if name not in found:
                raise OptionError(f"variable={name!r}: {where} has no such matrix.", INSTEAD)
            x = anndata_io.sparse_dataset(found[name]) if hasattr(found[name], "keys") else found[name]
            var = anndata_io.read_elem(found["raw/var" if name.startswith("raw/") else "var"])
            yield x, _parts(x, anndata_io.read_elem(found["obs"]), var.index, where, options)

    chosen = [options.variable, list(options.target), options.index, options.weight]
    return _source(opened, path.name, {**tree_identity(path), "parts": chosen}, options)


def _parts(x: Any, obs: Any, names: Any, where: str, options: SourceOptions) -> Parts:
    """Return a matrix, of which rows can be read if it is dense, with the columns of obs that the options name."""

    def column(name: str | int, option: str) -> Array:
        """Return a column of obs: numbers, or text where it holds categories."""
        named([str(label) for label in obs.columns], str(name), option, f"obs of {where}", "column")
        missing = int(obs[str(name)].isna().sum())
        if missing:
            raise DataError(f"{option}={name!r}: {missing} values of obs of {where} are missing.", "Fill them in.")
        values = obs[str(name)].to_numpy()
        return values if values.dtype.kind in "biuf" else np.array([str(value) for value in values], dtype=object)

    targets = [str(name) for name in options.target]
    y, labels, classes = target_columns([column(name, "target") for name in targets], targets, f"obs of {where}")
    weight = options.weight
    w = None if weight is None else LazyArray.of(column(weight, "weight"), f"weight={weight!r} of {where}")
    index = obs.index if options.index is None else column(options.index, "index")
    samples = [str(label) for label in index]
    return Parts(
        LazyArray.of(x, f"X of {where}"), y, w, [str(name) for name in names], labels,
        lambda start, stop: samples[start:stop], classes, (f"targets are {', '.join(labels)}",) if labels else (),
    )  # fmt: skip


def _source(
    opened: Callable[[], AbstractContextManager[tuple[Any, Parts]]], name: str, identity: dict[str, Any],
    options: SourceOptions,
) -> Source | SparseSource:  # fmt: skip
    with opened() as (x, _):
        is_sparse = hasattr(x, "format") or hasattr(x, "tocsr")
    if is_sparse:
        return AnnotatedSparseSource(opened, name, identity, options)

    @contextmanager
    def parts() -> Iterator[Parts]:
        with opened() as (_, found):
            yield found

    return LazySource(parts, name, identity, options.dtype)


class AnnotatedSparseSource(SparseSource):
    """An AnnData object with a sparse X by rows."""

    def __init__(
        self, opened: Callable[[], AbstractContextManager[tuple[Any, Parts]]], name: str, identity: dict[str, Any],
        options: SourceOptions,
    ) -> None:  # fmt: skip
        self.name, self._opened, self._identity = name, opened, identity
        with opened() as (x, parts):
            where, y, w = parts.x.where, parts.y, parts.w
            if getattr(x, "format", "csr") != "csr":
                raise DataError(
                    f"{where} is stored by columns ({x.format}): no block of rows can be read without all of it.",
                    "Write it by rows: adata.X = adata.X.tocsr().",
                )
            self.shape, self.features = parts.x.shape, parts.features
            self.dtype = wanted_dtype(options.dtype, parts.x.dtype, where)
            indptr = x.indptr if getattr(x, "group", None) is None else x.group["indptr"][...]
            self._ends = np.asarray(indptr, np.int64)  # the number of stored values before each row, and all of them
            self.stored = int(self._ends[-1])
            self.targets = tuple(map(_name_of_array, parts.targets or ()))
            self.classes = {_name_of_array(name): [*map(_name_of_array, of)] for name, of in parts.classes.items()}
            self.weight = None if w is None else WEIGHT
            self.columns = {} if y is None else dict.fromkeys(self.targets, wanted_dtype(None, y.dtype, y.where))
            if w is not None:
                self.columns[WEIGHT] = wanted_dtype(None, w.dtype, w.where)

    def identity(self) -> dict[str, Any]:
        return {**self._identity, "dtype": str(self.dtype)}

    def blocks(self, start: int) -> Iterator[SparseBlock]:
        with self._opened() as (x, parts):
            y, w = parts.y, parts.w
            m, ends = self.shape[0], self._ends
            while start < m:
                stop = int(np.searchsorted(ends, ends[start] + BLOCK_VALUES, side="right")) - 1
                stop = min(max(stop, start + 1), m)
                rows = x[start:stop].tocsr().astype(self.dtype)
                columns = {} if y is None else dict(zip(self.targets, y.read(start, stop).T, strict=True))
                if w is not None:
                    columns[WEIGHT] = w.read(start, stop)[:, 0]
                samples = None if parts.samples is None else parts.samples(start, stop)
                yield SparseBlock(start, int(ends[start]), rows, columns, samples)
                start = stop


def _name_of_array(label: str) -> str:
    """Return a label as the name of an array. A slash would be a folder of Zarr."""
    return label.replace("/", "_")


def is_annotated(data: Any) -> bool:
    """Return whether `data` is an AnnData object."""
    return type(data).__name__ == "AnnData" and hasattr(data, "obs")


H5AD = Format("anndata", (".h5ad",), open_h5ad, TAKES, INSTEAD)

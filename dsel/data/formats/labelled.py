"""Arrays with named dimensions, read by xarray: NetCDF files and Zarr stores.

X is one variable. One of its dimensions is that of the samples; the others together are the features. A data set
without such a variable is a table whose columns are its variables of one dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import numpy as np

from dsel._lib.text import shorten, suggest
from dsel.data import schema
from dsel.data.classes import stored_targets
from dsel.data.formats.lazy_arrays import (
    LazyArray,
    LazySource,
    Parts,
    Targets,
    named,
    parts_of,
    target_columns,
    tree_identity,
)
from dsel.data.formats.source import Array, Format, Source, SourceOptions, SparseSource
from dsel.data.labels import as_labels, coordinate_values
from dsel.data.store.array import read_attributes
from dsel.errors import DataError, MissingExtraError, OptionError
from dsel.storage.paths import AnyPath, zarr_store

#: Dimensions that are taken for that of the samples; otherwise it is the first one.
SAMPLES: Final = ("sample", "samples", "obs", "observation", "observations", "row", "rows", "time")

#: Calendars of times that xarray decodes without cftime.
_WITHOUT_CFTIME: Final = ("", "standard", "gregorian", "proleptic_gregorian")

_TAKES: Final = frozenset(("target", "index", "weight", "drop", "variable", "dimension"))
_INSTEAD: Final = "Variables are named by variable (X), target (Y), weight and index (the labels of the samples)."


def open_netcdf(path: AnyPath, options: SourceOptions) -> Source:
    """Open a NetCDF file by xarray."""
    return _source(partial(_netcdf, path, options.drop), str(path), path.name, _identity(path, options), options)


def open_zarr(path: AnyPath, options: SourceOptions) -> Source | SparseSource:
    """Open a Zarr store of any dimension names by xarray, or its arrays if its dimensions have no names."""
    is_annotated = read_attributes(path).get("encoding-type") == "anndata"
    if is_annotated or "encoding-type" in read_attributes(path / "X"):
        from dsel.data.formats.annotated import open_zarr as open_annotated

        return open_annotated(path, options)
    try:
        return _source(partial(_zarr, path, options.drop), str(path), path.name, _identity(path, options), options)
    except _NoDimensions:
        return LazySource(partial(_zarr_parts, path, options), path.name, _identity(path, options), options.dtype)


def open_dataset(dataset: Any, options: SourceOptions) -> Source:
    """Open an xarray Dataset in memory."""
    return _source(lambda: nullcontext(dataset), "the Dataset", "dataset", {"object": uuid4().hex}, options)


def _source(
    opened: Callable[[], AbstractContextManager[Any]], where: str, name: str, identity: dict[str, Any],
    options: SourceOptions,
) -> Source:  # fmt: skip
    @contextmanager
    def parts() -> Iterator[Parts]:
        with opened() as dataset:
            yield dataset_parts(dataset, where, options)

    return LazySource(parts, name, identity, options.dtype)


def _identity(path: AnyPath, options: SourceOptions) -> dict[str, Any]:
    chosen = [options.variable, options.dimension, list(options.target), options.index, options.weight]
    return {**tree_identity(path), "parts": [*chosen, list(options.drop)]}


class _NoDimensions(Exception):
    """A Zarr store that xarray cannot open, since its dimensions have no names."""


@contextmanager
def _netcdf(path: AnyPath, dropped: Sequence[Any]) -> Iterator[Any]:
    import xarray as xr

    with path.open("rb") as file:
        if not file.read(4).startswith((b"CDF", b"\x89HDF")):
            raise DataError(f"{path} is not a NetCDF file.", "Copy or write the file again.")

    def opened(**options: Any) -> Any:
        return xr.open_dataset(
            path if isinstance(path, Path) else path.open("rb"), chunks=None, cache=False, **options
        )  # fmt: skip

    try:
        dataset = _decoded(opened, path, dropped)
    except (ValueError, OSError, TypeError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # such as a lock
            raise
        if isinstance(error, ValueError) and ("backend" in str(error) or "engine" in str(error)):
            raise MissingExtraError(
                f"Reading {path} needs a package for NetCDF, such as h5netcdf.", "pip install 'dsel[netcdf]'"
            ) from error
        raise DataError(f"{path} cannot be read as a NetCDF file: {error}.", "Copy or write the file again.") from error
    with dataset:
        yield dataset


def _decoded(opened: Callable[..., Any], path: AnyPath, dropped: Sequence[Any]) -> Any:
    """Return what `opened` returns, a Dataset. Times that cannot be decoded stay numbers if they are dropped.

    Raises DataError or MissingExtraError for other times that cannot be decoded.
    """
    import xarray as xr

    try:
        return opened()
    except (ValueError, OverflowError):
        try:
            raw = opened(decode_times=False)
        except Exception:  # the times are not the reason
            raw = None
        names = [] if raw is None else [str(name) for name in raw.variables if not _has_times(raw, name)]
        if raw is None or not names:
            raise
    if not set(names) <= set(map(str, dropped)):
        name = names[0]
        units, calendar = (raw[name].attrs.get(key, "") for key in ("units", "calendar"))
        what = f"{path}: the times {name!r} are {units!r}" + (f" in the calendar {calendar!r}" if calendar else "")
        leave = "or leave them out with drop"
        if calendar not in _WITHOUT_CFTIME and not _has_cftime():
            raise MissingExtraError(f"{what}, which needs cftime.", f"pip install cftime, {leave}.")
        raise DataError(f"{what}, which cannot be decoded.", f"Correct their units and calendar, {leave}.")
    others = xr.decode_cf(raw.drop_vars(names), mask_and_scale=False)
    return others.assign_coords({name: raw[name] for name in names})


def _has_cftime() -> bool:
    try:
        import_module("cftime")
    except ImportError:
        return False
    return True


def _has_times(raw: Any, name: Any) -> bool:
    """Return whether the times of a variable can be decoded; True where it holds none."""
    import xarray as xr

    try:
        xr.decode_cf(raw[[name]].drop_vars(set(raw[[name]].variables) - {name}))
    except (ValueError, OverflowError):
        return False
    return True


@contextmanager
def _zarr(path: AnyPath, dropped: Sequence[Any]) -> Iterator[Any]:
    import xarray as xr

    try:
        dataset = _decoded(partial(xr.open_zarr, zarr_store(path), consolidated=False, chunks=None), path, dropped)
    except (KeyError, AttributeError, ValueError, TypeError) as error:  # xarray has no special error for this
        raise _NoDimensions from error
    if not dataset.variables:
        raise _NoDimensions
    with dataset:
        yield dataset


@contextmanager
def _zarr_parts(path: AnyPath, options: SourceOptions) -> Iterator[Parts]:
    import zarr

    if options.dimension is not None:
        raise OptionError(f"{path} has no names of dimensions.", "Leave dimension out: the first one is the samples.")
    try:
        found = zarr.open(zarr_store(path), mode="r")
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{path} cannot be read as a Zarr store: {error}.", "Check the path and the codecs.") from error
    members = [("X", found)] if isinstance(found, zarr.Array) else found.members(max_depth=None)
    yield parts_of({name: item for name, item in members if hasattr(item, "shape")}, str(path), options)


def dataset_parts(dataset: Any, where: str, options: SourceOptions) -> Parts:
    """Return what the variables of a Dataset are.

    Raises OptionError for a name that does not exist, DataError if X cannot be told from the other variables.
    """
    known = [str(name) for name in dataset.variables]
    names = [named(known, str(name), "target", where, "variable") for name in options.target]
    weight = None if options.weight is None else named(known, str(options.weight), "weight", where, "variable")
    dropped = [named(known, str(name), "drop", where, "variable") for name in options.drop]
    dataset = dataset.drop_vars(set(dropped) - {*names, weight})  # also as labels
    known = [str(name) for name in dataset.variables]
    x = _choose_x(dataset, {*names, weight, *dropped}, where, options)
    sample = _sample_dimension(dataset, x, where, options)
    if not names and x is not None and schema.Y in dataset and x != schema.Y and sample in dataset[schema.Y].dims:
        names = [schema.Y]
    if weight is None and x and schema.WEIGHT in dataset and dataset[schema.WEIGHT].dims == (sample,):
        weight = schema.WEIGHT
    index = sample if options.index is None else named(known, str(options.index), "index", where, "variable")
    y, targets, classes = _targets(dataset, names, sample, where)
    features: list[str] | None
    if x is None:
        columns = _columns(dataset, sample, {*names, weight, index, *dropped}, where)
        matrix, features = _table(dataset, columns, sample, where), columns
    else:
        matrix, features = _matrix(dataset[x], sample, f"{x} of {where}"), _feature_labels(dataset[x], sample)
    labels = dataset[index] if index in dataset.variables else None
    weights = None if weight is None else _matrix(dataset[weight], sample, f"{weight} of {where}")
    return Parts(
        matrix, y, weights, features, targets,
        None if labels is None else lambda start, stop: coordinate_values(labels[start:stop], whole=False), classes,
        (f"samples are along the dimension {sample}",),
    )  # fmt: skip


def _choose_x(
    dataset: Any, other: set[Any], where: str, options: SourceOptions, remedy: str = "Name one with variable."
) -> str | None:
    """Return the variable that is X; None if the data set is a table of variables of one dimension.

    remedy: where several may be X; {} stands for the first of them.
    """
    if options.variable is not None:
        return named([str(name) for name in dataset.variables], options.variable, "variable", where, "variable")
    if schema.X in dataset:
        return schema.X
    numeric = {str(name): array for name, array in dataset.data_vars.items() if array.dtype.kind in "biuf"}
    wide = [name for name, array in numeric.items() if array.ndim > 1 and name not in other]
    if len(wide) > 1:
        shown = shorten((f"{name} {dataset[name].dims}" for name in wide), 8)
        raise DataError(f"{where} has {len(wide)} variables that may be X: {shown}.", remedy.format(wide[0]))
    if not wide and not numeric:
        raise DataError(f"{where} has no variables of numbers, only {shorten(map(str, dataset.variables))}.")
    return wide[0] if wide else None


def _sample_dimension(dataset: Any, x: str | None, where: str, options: SourceOptions) -> str:
    dims = [str(dim) for dim in (dataset[x].dims if x is not None else dataset.sizes)]
    if options.dimension is not None:
        if options.dimension not in dims:
            raise OptionError(
                f"dimension={options.dimension!r}: {x or 'the table'} of {where} has {', '.join(dims)}.",
                suggest(options.dimension, dims),
            )
        return options.dimension
    if x is None and len(dims) > 1:
        raise DataError(
            f"{where} has no matrix, and its variables have the dimensions {', '.join(dims)}.",
            "Name that of the samples with dimension.",
        )
    return next((name for name in SAMPLES if name in dims), dims[0])


def _matrix(array: Any, sample: str, where: str) -> LazyArray:
    """Return a variable with the samples first and all other dimensions together."""
    if sample not in array.dims:
        raise DataError(f"{where} has dimensions {array.dims}.", f"One must be {sample}, that of the samples.")
    others = [dim for dim in array.dims if dim != sample]
    m = array.sizes[sample]
    n = int(np.prod([array.sizes[dim] for dim in others], dtype=object))

    def read(start: int, stop: int) -> Array:
        part = array.isel({sample: slice(start, stop)}).transpose(sample, *others)
        return np.asarray(part.values).reshape(stop - start, n)

    chunks = array.encoding.get("chunks") or array.encoding.get("chunksizes")
    rows = chunks[array.dims.index(sample)] if chunks else 1
    return LazyArray(where, (m, n), np.dtype(array.dtype), read, int(rows))


def _feature_labels(array: Any, sample: str) -> list[str] | None:
    others = [dim for dim in array.dims if dim != sample]
    if len(others) == 1:
        return None if others[0] not in array.coords else [*map(str, coordinate_values(array[others[0]]))]
    values = [
        coordinate_values(array[dim]) if dim in array.coords else range(array.sizes[dim]) for dim in others
    ]  # fmt: skip
    return [
        ",".join(f"{dim}={value}" for dim, value in zip(others, point, strict=True)) for point in product(*values)
    ]  # fmt: skip


def flattened(array: Any, samples: Sequence[str] = ()) -> Any:
    """Return a DataArray of three or more dimensions as a matrix, lazy if it is: all but the samples become features.

    samples: dimensions that are preferred as that of the samples, such as those of Y.
    """
    dims = [str(dim) for dim in array.dims]
    sample = next((name for name in (*samples, *SAMPLES) if name in dims), dims[0])
    moved = array.transpose(sample, ...)
    coordinates = {"feature": _feature_labels(moved, sample)}
    if sample in array.coords:
        coordinates[sample] = array[sample].values
    return type(array)(moved.data.reshape(moved.shape[0], -1), coords=coordinates, dims=(sample, "feature"))


def matrix_variable(dataset: Any, other: set[Any]) -> Any:
    """Return the variable of a Dataset in memory that is X, or its variables of one dimension as a matrix.

    other: variables that are something else. Errors: DataError where it is not clear which one is X.
    """
    options = SourceOptions()
    x = _choose_x(dataset, other, "the Dataset", options, 'Give one of them as X, such as dataset["{}"].')
    if x is not None:
        return dataset[x]
    sample = _sample_dimension(dataset, None, "the Dataset", options)
    columns = _columns(dataset, sample, {*other, sample}, "the Dataset")
    return dataset[columns].to_array("feature").transpose(sample, "feature")


def own_targets(dataset: Any, names: Sequence[str]) -> Any:
    """Return the columns of the variable Y with these labels, samples first; None if Y does not have them all.

    The name of a target that holds classes stands for its columns. Names of variables are no labels of Y.
    """
    dim, labels, classes = labels_of_targets(dataset)
    if not names or any(name in dataset for name in names) or not set(names) <= {*labels, *classes}:
        return None
    chosen, _ = stored_targets(as_labels(labels), classes, names)
    return dataset[schema.Y].isel({dim: chosen}).transpose(..., dim)


def labels_of_targets(dataset: Any) -> tuple[Any, list[str], dict[str, list[str]]]:
    """Return the dimension along which text names the columns of the variable Y, the names, and targets with classes.

    The dimension is None where there is none.
    """
    Y = dataset.get(schema.Y)
    dims = () if Y is None or Y.ndim != 2 else Y.dims
    dim = next((dim for dim in dims if dim in Y.coords and Y[dim].dtype.kind in "OUT"), None)
    if dim is None:
        return None, [], {}
    return dim, [str(label) for label in Y[dim].values.tolist()], dataset.attrs.get(schema.ATTR_CLASSES, {})


def _targets(dataset: Any, names: Sequence[str], sample: str, where: str) -> Targets:
    if len(names) == 1 and dataset[names[0]].dtype.kind in "biuf":
        array = dataset[names[0]]
        y = _matrix(array, sample, f"{names[0]} of {where}")
        return y, _feature_labels(array, sample) if array.ndim > 1 else [names[0]], {}
    return target_columns([np.asarray(dataset[name].transpose(sample, ...).values) for name in names], names, where)


def _columns(dataset: Any, sample: str, other: set[Any], where: str) -> list[str]:
    """Return the variables over the samples. Raises DataError that names those that are not numbers."""
    found = [str(name) for name, array in dataset.data_vars.items() if array.dims == (sample,) and name not in other]
    bad = [f"{name} ({dataset[name].dtype})" for name in found if dataset[name].dtype.kind not in "biuf"]
    if bad or not found:
        raise DataError(
            f"{where}: {len(bad)} variables are not numbers: {shorten(bad, 20)}." if bad else f"{where} has no X.",
            "Name each one under drop, or as a target or the index.",
        )
    return found


def _table(dataset: Any, columns: Sequence[str], sample: str, where: str) -> LazyArray:
    def read(start: int, stop: int) -> Array:
        return np.column_stack([dataset[name][start:stop].values for name in columns])

    dtype = np.result_type(*(dataset[name].dtype for name in columns))
    return LazyArray(where, (dataset.sizes[sample], len(columns)), dtype, read)


NETCDF = Format("netcdf", (".nc", ".nc4", ".cdf", ".netcdf"), open_netcdf, _TAKES, _INSTEAD)
ZARR = Format(
    "zarr", (".zarr",), open_zarr, _TAKES,
    f"{_INSTEAD} A single array takes targets in Python: dsel.ingest(zarr.open_array(PATH), STORE, y=Y).", folders=True,
)  # fmt: skip

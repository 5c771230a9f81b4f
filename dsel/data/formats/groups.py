"""Groups of named arrays: HDF5 files, and Zarr groups whose dimensions have no names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from dsel._lib.text import shorten, suggest
from dsel.data.formats.base import Array, Format, Source, SourceOptions
from dsel.data.formats.lazy_arrays import LazyArray, LazySource, Parts, target_columns, tree_identity
from dsel.data.schema import stored_dtype
from dsel.errors import DataError, MissingExtraError, OptionError
from dsel.storage.paths import AnyPath

#: Arrays that are found without being named.
_X, _Y, _FEATURES, _TARGETS, _SAMPLES = "X", ("Y", "y"), "feature_names", "target_names", "sample_names"
TAKES: Final = frozenset(("target", "index", "weight", "variable"))
INSTEAD: Final = "Arrays are named by variable (X), target (Y), weight and index (the labels of the samples)."


def open_hdf5(path: AnyPath, options: SourceOptions) -> Source:
    """Open an HDF5 file by h5py."""
    return LazySource(
        partial(_hdf5_parts, path, options), path.name,
        {**tree_identity(path), "parts": [options.variable, list(options.target), options.index, options.weight]},
        options.dtype,
    )  # fmt: skip


@contextmanager
def hdf5_file(path: AnyPath) -> Iterator[Any]:
    """Open an HDF5 file for reading. Raises DataError if it is none, MissingExtraError without h5py."""
    try:
        import h5py
    except ImportError as error:
        raise MissingExtraError(
            f"Reading {path} needs h5py, which is not installed.", "pip install 'dsel[hdf5]'"
        ) from error
    with ExitStack() as stack:
        source = path if isinstance(path, Path) else stack.enter_context(path.open("rb"))
        try:
            file = stack.enter_context(h5py.File(source, "r"))
        except OSError as error:
            raise DataError(f"{path} is not an HDF5 file: {error}.", "Copy or write the file again.") from error
        yield file


@contextmanager
def _hdf5_parts(path: AnyPath, options: SourceOptions) -> Iterator[Parts]:
    with hdf5_file(path) as file:
        found: dict[str, Any] = {}

        def collect(name: str, item: Any) -> None:
            if "pandas_type" in item.attrs:
                raise DataError(f"{path} was written by pandas.", "Write the table with to_parquet instead of to_hdf.")
            if hasattr(item, "shape"):
                found[name] = item

        file.visititems(collect)
        yield parts_of(found, str(path), options)


def parts_of(arrays: dict[str, Any], where: str, options: SourceOptions) -> Parts:
    """Return what the named arrays are. Raises OptionError for names that do not exist, DataError if X is unclear."""
    x = _choose_x(arrays, where, options)
    folder = x.rpartition("/")[0]
    near = {name[len(folder) + 1 if folder else 0 :]: name for name in arrays if name.startswith(folder)}
    matrix = LazyArray.of(arrays[x], f"{x} of {where}")
    names = [_named(arrays, str(name), "target", where) for name in options.target]
    if not names:
        names = [near[name] for name in _Y if name in near and near[name] != x][:1]
    y: LazyArray | None = None
    targets: list[str] | None = None
    classes: dict[str, list[str]] = {}
    if names:
        y, targets, classes = _targets(arrays, names, matrix.shape[0], where)
        if not options.target and not classes:
            targets = _labels(arrays.get(near.get(_TARGETS, "")), y.shape[1])
    weight = None if options.weight is None else _named(arrays, str(options.weight), "weight", where)
    index = near.get(_SAMPLES) if options.index is None else _named(arrays, str(options.index), "index", where)
    return Parts(
        matrix, y, None if weight is None else LazyArray.of(arrays[weight], f"{weight} of {where}"),
        _labels(arrays.get(near.get(_FEATURES, "")), matrix.shape[1]), targets,
        None if index is None else lambda start, stop: words(arrays[index], start, stop), classes,
    )  # fmt: skip


def words(array: Any, start: int, stop: int) -> list[str]:
    """Return values as text; HDF5 may hold text as bytes."""
    values = np.asarray(array[start:stop]).ravel().tolist()
    return [value.decode() if isinstance(value, bytes) else str(value) for value in values]


def _targets(arrays: dict[str, Any], names: list[str], rows: int, where: str) -> tuple[LazyArray, Any, Any]:
    """Return one numeric target as it is, so that it is read by rows, and others in memory."""
    wrong = [f"{name} {arrays[name].shape}" for name in names if arrays[name].shape[:1] != (rows,)]
    if wrong:
        raise DataError(
            f"{where}: X has {rows} rows, and the targets have shapes {', '.join(wrong)}.",
            "Y needs one row for each sample of X.",
        )
    if len(names) == 1 and stored_dtype(np.dtype(arrays[names[0]].dtype)) is not None:
        y = LazyArray.of(arrays[names[0]], f"{names[0]} of {where}")
        return y, [names[0]] if y.shape[1] == 1 else None, {}
    values = [_in_memory(arrays[name]) for name in names]
    return target_columns(values, names, where)


def _in_memory(array: Any) -> Array:
    if np.dtype(array.dtype).kind in "OST":
        return np.array(words(array, 0, array.shape[0]), dtype=object)
    return np.asarray(array[...])


def _choose_x(arrays: dict[str, Any], where: str, options: SourceOptions) -> str:
    if options.variable is not None:
        return _named(arrays, options.variable, "variable", where)
    if _X in arrays:
        return _X
    matrices = [
        name for name, array in arrays.items()
        if len(array.shape) == 2 and stored_dtype(np.dtype(array.dtype)) is not None and name not in options.target
    ]  # fmt: skip
    if len(matrices) == 1:
        return matrices[0]
    shown = shorten((f"{name} {arrays[name].shape}" for name in sorted(matrices or arrays)), 8)
    raise DataError(
        f"{where} has {len(matrices)} matrices of numbers: {shown or 'it holds no arrays'}.",
        "Name the one that is X with variable.",
    )


def _named(arrays: dict[str, Any], name: str, option: str, where: str) -> str:
    if name.strip("/") in arrays:
        return name.strip("/")
    raise OptionError(f"{option}={name!r}: {where} has no such array.", suggest(name, sorted(arrays), listed=8))


def _labels(array: Any, count: int) -> list[str] | None:
    return None if array is None or array.shape != (count,) else words(array, 0, count)


FORMAT = Format("hdf5", (".h5", ".hdf5", ".hdf", ".he5"), open_hdf5, TAKES, INSTEAD)

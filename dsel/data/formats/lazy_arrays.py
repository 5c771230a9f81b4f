"""Arrays that another library reads by rows: HDF5, NetCDF, Zarr, AnnData."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dsel._lib.text import shorten
from dsel.data.formats.base import Array, Reader, Rows, Source, file_identity, put, wanted_dtype
from dsel.errors import DataError
from dsel.storage.paths import AnyPath, walk

PIECE_BYTES: Final = 8_000_000


@dataclass(frozen=True)
class LazyArray:
    """A matrix of which rows can be read.

    Parameters
    ----------
    where : str
        What messages call it.
    shape : tuple of int
        Rows and columns.
    dtype : dtype
        The dtype of the values.
    read : callable
        ``read(start, stop)`` returns these rows, shape (stop - start, columns).
    chunk_rows : int
        Rows of a chunk, which is read as a whole.
    """

    where: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    read: Callable[[int, int], Array]
    chunk_rows: int = 1

    @classmethod
    def of(cls, array: Any, where: str) -> LazyArray:
        """Return an array of h5py or Zarr, or of numpy; one of one dimension becomes one column."""
        if len(array.shape) not in (1, 2):
            raise DataError(f"{where} has shape {array.shape}.", "It must have two dimensions: (samples, features).")
        columns = array.shape[1] if len(array.shape) == 2 else 1

        def read(start: int, stop: int) -> Array:
            return np.asarray(array[start:stop]).reshape(stop - start, columns)

        chunks = getattr(array, "chunks", None)
        return cls(where, (array.shape[0], columns), np.dtype(array.dtype), read, chunks[0] if chunks else 1)

    @property
    def step(self) -> int:
        """Rows that are read at once: a few megabytes, in whole chunks if they are not larger."""
        rows = max(1, PIECE_BYTES // max(1, self.shape[1] * self.dtype.itemsize))
        return rows - rows % self.chunk_rows if rows > self.chunk_rows else rows


@dataclass(frozen=True)
class Parts:
    """The arrays of one data set. `types` and `classes` are as in `Source`."""

    x: LazyArray
    y: LazyArray | None = None
    w: LazyArray | None = None
    features: Sequence[str] | None = None
    targets: Sequence[str] | None = None
    samples: Callable[[int, int], Sequence[Any]] | None = None
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class LazySource(Source):
    """Arrays in a file that is opened by another library.

    Parameters
    ----------
    open_parts : callable
        Opens the file and returns a context manager with its `Parts`. It is called again for every reader.
    name : str
        The name of the file, recorded in the store.
    identity : dict
        What the values depend on.
    dtype : str, optional
        The dtype in which X is stored; by default its own.
    """

    def __init__(
        self, open_parts: Callable[[], AbstractContextManager[Parts]], name: str, identity: dict[str, Any],
        dtype: str | None,
    ) -> None:  # fmt: skip
        self.name, self._open, self._identity = name, open_parts, identity
        with open_parts() as parts:
            x, y, w = parts.x, parts.y, parts.w
            self.shape, self.dtype = x.shape, wanted_dtype(dtype, x.dtype, x.where)
            for part in (y, w):
                if part is not None and part.shape[0] != x.shape[0]:
                    raise DataError(
                        f"{part.where} has {part.shape[0]} rows and {x.where} has {x.shape[0]}.",
                        "It needs one row for each sample of X.",
                    )
            if y is not None:
                self.n_targets, self.y_dtype = y.shape[1], wanted_dtype(None, y.dtype, y.where)
            if w is not None:
                self.w_dtype = wanted_dtype(None, w.dtype, w.where)
            self.features, self.targets, self.classes = parts.features, parts.targets, parts.classes
            self.has_samples, self.notes = parts.samples is not None, parts.notes
            self.types = {str(x.dtype): x.shape[1]}

    def identity(self) -> dict[str, Any]:
        return self._identity

    def open(self, start: int, scratch: Path) -> Reader:
        return _LazyReader(self._open, start)


class _LazyReader(Reader):
    def __init__(self, open_parts: Callable[[], AbstractContextManager[Parts]], start: int) -> None:
        self._stack, self._row = ExitStack(), start
        self._parts = self._stack.enter_context(open_parts())

    def fill(self, rows: Rows) -> None:
        parts, first = self._parts, self._row
        last = first + len(rows)
        outs = ((parts.x, rows.x), (parts.y, rows.y), (parts.w, None if rows.w is None else rows.w[:, None]))
        for array, out in outs:
            if array is not None and out is not None:
                for start, stop in _pieces(first, last, array.step):
                    put(out[start - first : stop - first], _read(array, start, stop), array.where, start)
        if rows.samples is not None and parts.samples is not None:
            rows.samples[:] = [str(label) for label in parts.samples(first, last)]
        self._row = last

    def close(self) -> None:
        self._stack.close()


def _pieces(first: int, last: int, step: int) -> list[tuple[int, int]]:
    """Return the pieces of rows [first, last) that end at multiples of `step`."""
    edges = [first, *range(first - first % step + step, last, step), last]
    return list(pairwise(edges))


def _read(array: LazyArray, start: int, stop: int) -> Array:
    try:
        return array.read(start, stop)
    except OSError:
        raise
    except (RuntimeError, ValueError, KeyError) as error:  # of h5py and zarr, for damaged chunks
        raise DataError(
            f"{array.where} cannot be read at row {start} and after: {error}.", "Copy or write the file again."
        ) from error


def tree_identity(path: AnyPath) -> dict[str, Any]:
    """Return what the content of a file, or of all the files of a folder, depends on."""
    if path.is_file():
        return {"files": [file_identity(path)]}
    import hashlib

    digest = hashlib.blake2b(digest_size=16)
    for entry in sorted(walk(path), key=lambda entry: entry.key):
        digest.update(f"{entry.key}\0{entry.size}\0{entry.tag}\n".encode())
    return {"folder": str(path.resolve()), "digest": digest.hexdigest()}


def target_columns(
    values: Sequence[Array], names: Sequence[str], where: str
) -> tuple[LazyArray, list[str], dict[str, list[str]]]:
    """Return targets in memory as Y with labels; targets of text become a column of zeros and ones for each class."""
    parts: list[NDArray[Any]] = []
    labels: list[str] = []
    classes: dict[str, list[str]] = {}
    for column, name in zip(values, names, strict=True):
        if column.ndim > 1:
            parts.append(column)
            labels += [f"{name}{j}" for j in range(column.shape[1])] if column.shape[1] > 1 else [name]
        elif column.dtype.kind in "OUST":
            words = np.array([str(value) for value in column], dtype=object)
            classes[name] = sorted(set(words.tolist()))
            parts.append((words[:, None] == np.array(classes[name], dtype=object)).astype(np.uint8))
            labels += [f"{name}={level}" for level in classes[name]]
        else:
            parts.append(column[:, None])
            labels.append(name)
    stacked = np.concatenate(parts, axis=1)
    return LazyArray.of(stacked, f"{shorten(names)} of {where}"), labels, classes

"""What a file format is: a name, the suffixes of its files, and a function that opens a file as a `Source`.

To add a format, write one module that ends with one `Format`, and list it in `dsel.data.formats.registry`. A format in
a separate package is listed under the entry-point group ``dsel.formats`` of that package instead, by its name:

    [project.entry-points."dsel.formats"]
    matlab = "my_package.matlab:FORMAT"

`dsel ingest` then reads such files. A format whose files fit into memory takes a few lines:

    import scipy.io
    from dsel.data.formats.arrays import ArraySource
    from dsel.data.formats.base import Format

    def open_matlab(path, options):
        with path.open("rb") as file:
            arrays = scipy.io.loadmat(file)
        return ArraySource(arrays["X"], arrays.get("Y"), name=path.name, files=[path], dtype=options.dtype)

    FORMAT = Format("matlab", (".mat",), open_matlab)

A format for large files returns its own `Source`, which opens a `Reader`; `npy.py` is an example.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from dsel.config.ingest_request import Missing, SourceOptions
from dsel.storage.paths import AnyPath, stat

if TYPE_CHECKING:
    from dsel.data.formats.sparse import SparseSource

__all__ = ["OPTIONS", "Array", "Format", "Missing", "Reader", "Rows", "Source", "SourceOptions", "file_identity"]

Array = NDArray[Any]

#: The options of `SourceOptions` that a format takes only if it lists them.
OPTIONS: Final = tuple(
    o.name for o in fields(SourceOptions) if "help" in o.metadata and o.name not in ("missing", "dtype")
)


@dataclass(frozen=True)
class Format:
    """A file format.

    Parameters
    ----------
    name : str
        The name, which is also the name of the entry point.
    suffixes : tuple of str
        The suffixes of its files in lower case, such as ``(".npy",)``. A suffix may have two dots.
    open : callable
        ``open(path, options)`` returns a `Source`, or a `SparseSource` for a sparse X. It reads what it needs to know
        the shape, and no more.
    takes : frozenset of str
        The options that the format takes, out of the names in `OPTIONS`. dsel refuses the others.
    instead : str
        What to do in place of an option that is refused: one sentence.
    folders : bool
        Whether a source of this format may be a folder.
    """

    name: str
    suffixes: tuple[str, ...]
    open: Callable[[AnyPath, SourceOptions], Source | SparseSource]
    takes: frozenset[str] = frozenset()
    instead: str = ""
    folders: bool = False


@dataclass
class Rows:
    """Arrays that a reader fills with consecutive rows.

    Parameters
    ----------
    x : ndarray, shape (r, n)
        Rows of X.
    y : ndarray, shape (r, n_targets), optional
        Rows of Y, if the source has targets.
    w : ndarray, shape (r,), optional
        Weights, if the source has any.
    samples : ndarray of str, shape (r,), optional
        Labels of the rows, if the source has any.
    """

    x: Array
    y: Array | None = None
    w: Array | None = None
    samples: Array | None = None

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: slice) -> Rows:
        """Return views of some of the rows."""
        parts = (None if part is None else part[rows] for part in (self.y, self.w, self.samples))
        return Rows(self.x[rows], *parts)


class Reader(ABC):
    """Reads the rows of a source in order, from one row on."""

    @abstractmethod
    def fill(self, rows: Rows) -> None:
        """Fill `rows` with the next ``len(rows)`` rows.

        The arrays may be memory maps far larger than memory, so handle a few megabytes at a time. Use
        `dsel.data.formats.values.put` to convert values, so that a value that does not fit is refused.

        Raises
        ------
        DataError
            If a value cannot be used; it names the file, the row, the column and the value.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the file."""


class Source(ABC):
    """An opened file. All attributes are known without reading the values.

    Attributes
    ----------
    name : str
        The name of the file, recorded in the store.
    shape : tuple of int
        The shape of X, (m, n).
    dtype : dtype
        The dtype in which X is stored (see `dsel.data.formats.values.wanted_dtype`).
    n_targets : int
        The number of columns of Y; 0 if there is no Y.
    y_dtype, w_dtype : dtype, optional
        The dtypes of Y and of the weights; None if there are none.
    features, targets : sequence of str, optional
        Labels of the columns of X and of Y.
    has_samples : bool
        Whether the rows have labels.
    sources : sequence of str, optional
        For each column of X the column of the source that it comes from, if some became several columns.
    classes : dict of str to list of str
        The classes of each target that became one column for each class, in the order of these columns.
    types : dict of str to int
        The number of columns of the source by type, for the report.
    notes : tuple of str
        Sentences for the report.
    """

    name: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    n_targets: int = 0
    y_dtype: np.dtype[Any] | None = None
    w_dtype: np.dtype[Any] | None = None
    features: Sequence[str] | None = None
    targets: Sequence[str] | None = None
    has_samples: bool = False
    sources: Sequence[str] | None = None
    classes: Mapping[str, Sequence[str]] = MappingProxyType({})
    types: Mapping[str, int] = MappingProxyType({})
    notes: tuple[str, ...] = ()

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return what the values depend on, as JSON: two equal identities mean equal values (see `file_identity`)."""

    @abstractmethod
    def open(self, start: int, scratch: Path) -> Reader:
        """Return a reader that begins at row `start`; `scratch` is a folder for temporary files."""


def file_identity(path: AnyPath) -> dict[str, Any]:
    """Return the path, the size and the tag of a file. They change if the file does."""
    found = stat(path)
    return {"path": str(path.resolve()), "size": found.size, "tag": found.tag}

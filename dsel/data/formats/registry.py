"""The file formats by name: those of dsel, and those of installed packages (entry-point group ``dsel.formats``)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dsel._lib.plugins import Registry
from dsel._lib.text import shorten
from dsel.data.formats import annotated, labelled, lazy_arrays, npy, svmlight
from dsel.data.formats.source import OPTIONS, Format, Source, SourceOptions, SparseSource
from dsel.data.formats.tables import arrow, delimited
from dsel.errors import DataError, MissingInputError, OptionError
from dsel.storage.paths import AnyPath, ObjectPath, list_names, walk

FORMATS: Registry[Format] = Registry(
    "format", Format, "dsel.formats",
    (
        npy.FORMAT, npy.NPZ, delimited.CSV, delimited.TSV, arrow.PARQUET, arrow.FORMAT, lazy_arrays.HDF5,
        labelled.NETCDF, labelled.ZARR, annotated.H5AD, svmlight.FORMAT,
    ),
)  # fmt: skip

#: Files that show that a folder is a Zarr store.
_ZARR_FILES = {"zarr.json", ".zgroup", ".zarray"}


def find_format(path: AnyPath) -> Format | None:
    """Return the format of a file by its suffix, or None. Formats of dsel come first, then the longest suffix."""
    found = _by_suffix(path, FORMATS.own.values())
    return found or _by_suffix(path, (FORMATS[name] for name in FORMATS if name not in FORMATS.own))


def _plain_suffixes(kind: Format) -> list[str]:
    """Return the suffixes of a format without those of compressed files."""
    return [s for s in kind.suffixes if not any(s != p and s.startswith(p + ".") for p in kind.suffixes)]


def _by_suffix(path: AnyPath, formats: Iterable[Format]) -> Format | None:
    name = path.name.lower()
    found = [(suffix, kind) for kind in formats for suffix in kind.suffixes if name.endswith(suffix)]
    return max(found, key=lambda pair: len(pair[0]))[1] if found else None


def find_folder_format(path: AnyPath) -> Format | None:
    """Return the format of a folder by what is in it, or None."""
    if _ZARR_FILES & list_names(path):
        return labelled.ZARR
    found = (find_format(path / entry.key) for entry in walk(path))
    return next((kind for kind in found if kind is not None and kind.folders), None)


def format_of(path: AnyPath) -> Format | None:
    """Return the format of a file by its suffix, or of a folder by what is in it, or None."""
    is_folder = not path.is_file() and (path.is_dir() if isinstance(path, Path) else path.exists())
    return find_folder_format(path) if is_folder else find_format(path)


def open_source(path: AnyPath, options: SourceOptions | None = None) -> Source | SparseSource:
    """Open a file by its suffix, or a folder by its content.

    The format reads the header. A table is read as a whole, so that all its problems are found at once.

    Parameters
    ----------
    path : AnyPath
        The file or folder.
    options : SourceOptions, optional
        Which parts of the file are the targets, the labels and the weights, and the dtype.

    Returns
    -------
    Source or SparseSource
        The opened file.

    Raises
    ------
    MissingInputError
        If the file does not exist or cannot be read, or no installed format has its suffix.
    OptionError
        If the format does not take an option, or a column does not exist.
    DataError
        If the file is not what its suffix says, or contains values that are not numbers.
    MissingExtraError
        If a package that the format needs is not installed.
    """
    options = options or SourceOptions()
    is_file = path.is_file()
    is_folder = not is_file and (path.is_dir() if isinstance(path, Path) else path.exists())
    found = find_folder_format(path) if is_folder else find_format(path)
    if found is None:
        known = ", ".join(f"{name} ({', '.join(_plain_suffixes(FORMATS[name]))})" for name in FORMATS)
        raise MissingInputError(
            f"Cannot tell the format of the folder {path} from its files."
            if is_folder
            else f"Cannot tell the format of {path} from its suffix {path.suffix!r}.",
            f"Installed formats: {known}.",
        )
    if not is_file and not is_folder:
        what = "is no regular file" if path.exists() else "does not exist"
        raise MissingInputError(f"There is no file {path}: it {what}.", "Check the path.")
    if options.y is not None and not options.y.is_file():
        raise MissingInputError(f"There is no file {options.y}.", "Check the path.")
    require_options(found, options, f"{path}: files of format {found.name}")
    try:
        return found.open(path, options)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and (error.errno is not None or isinstance(path, ObjectPath)):
            remedy = "Check its permissions and the disk, and that no other process writes to it."
            raise MissingInputError(f"Cannot read {path}: {error}.", remedy) from error
        # What NumPy, SciPy, Arrow and codecs raise for a file that is damaged, or of another format.
        raise DataError(
            f"{path} cannot be read as a file of format {found.name}: {error}.", "Check the file."
        ) from error


def require_options(kind: Format, options: SourceOptions, what: str) -> None:
    """Raise OptionError for an option that a format does not take; `what` is in the plural."""
    default = SourceOptions()
    for name in OPTIONS:
        if getattr(options, name) != getattr(default, name) and name not in kind.takes:
            others = [other.name for other in FORMATS.own.values() if name in other.takes]
            remedy = (
                kind.instead if name in _ROLES else f"Leave it out: it is for {shorten(others, len(others))} files."
            )
            raise OptionError(f"{what} do not take the option {name}.", remedy)


#: The options that say which parts of a source are Y, labels and weights. Each format has its own way.
_ROLES = ("target", "index", "weight", "y")

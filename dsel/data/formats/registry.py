"""The file formats by name: those of dsel, and those of installed packages (entry-point group ``dsel.formats``)."""

from __future__ import annotations

from collections.abc import Iterable

from dsel._lib.plugins import Registry
from dsel.data.formats import delimited, npy, npz, parquet
from dsel.data.formats.base import Format, Source, SourceOptions
from dsel.errors import MissingInputError, OptionError
from dsel.storage.paths import AnyPath

FORMATS: Registry[Format] = Registry(
    "format", Format, "dsel.formats", (npy.FORMAT, npz.FORMAT, delimited.CSV, delimited.TSV, parquet.FORMAT)
)


def find_format(path: AnyPath) -> Format | None:
    """Return the format of a file by its suffix, or None. Formats of dsel come first, then the longest suffix."""
    found = _by_suffix(path, FORMATS.own.values())
    return found or _by_suffix(path, (FORMATS[name] for name in FORMATS if name not in FORMATS.own))


def _by_suffix(path: AnyPath, formats: Iterable[Format]) -> Format | None:
    name = path.name.lower()
    found = [(suffix, kind) for kind in formats for suffix in kind.suffixes if name.endswith(suffix)]
    return max(found, key=lambda pair: len(pair[0]))[1] if found else None


def open_source(path: AnyPath, options: SourceOptions | None = None) -> Source:
    """Open a file by its suffix. The format reads the header, and checks what it can without reading all values.

    Parameters
    ----------
    path : AnyPath
        The file.
    options : SourceOptions, optional
        Which parts of the file are the targets, the labels and the weights, and the dtype.

    Returns
    -------
    Source
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
    found = find_format(path)
    if found is None:
        known = ", ".join(f"{name} ({', '.join(FORMATS[name].suffixes)})" for name in FORMATS)
        raise MissingInputError(
            f"Cannot tell the format of {path} from its suffix {path.suffix!r}.",
            f"Installed formats: {known}. A Zarr store needs no ingest.",
        )
    for file in (path, options.y):
        if file is not None and not file.is_file():
            raise MissingInputError(f"There is no file {file}.", "Check the path.")
    given = {"y": options.y, "target": options.target or None, "index": options.index, "weight": options.weight}
    for name, value in given.items():
        if value is not None and name not in found.takes:
            raise OptionError(f"{path}: a {found.name} file does not take the option {name}.", found.instead)
    try:
        return found.open(path, options)
    except OSError as error:
        raise MissingInputError(f"Cannot read {path}: {error}.", "Check its permissions and the disk.") from error

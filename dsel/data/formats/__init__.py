"""Files that a store can be made from: .npy, .npz, .csv, .tsv and .parquet, each read in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dsel._lib.text import shorten
from dsel.data.formats.base import Reader, Source
from dsel.errors import MissingInputError, OptionError
from dsel.storage.paths import AnyPath, as_path

__all__ = ["SUFFIXES", "Reader", "Source", "open_source"]

SUFFIXES: Final = (".npy", ".npz", ".csv", ".tsv", ".parquet")


def open_source(
    path: AnyPath,
    *,
    y: AnyPath | None = None,
    target: Sequence[str | int] = (),
    index: str | int | None = None,
    dtype: str | None = None,
    weight: str | int | None = None,
) -> Source:
    """Open the file `path` by its suffix, read its header and check what can be checked without reading it
    all.

    `y`: a second .npy file with the targets, for an .npy source only. `target` and `index`: the columns of a
    table (csv, tsv, parquet) that become Y, and the one that holds sample labels. `dtype`: of X; by default
    that of the source, float64 for text. Y keeps its own. `weight`: the column, the array of the .npz or the .npy
    file with weights of the rows; they are then the last column of Y.

    Errors: MissingInputError for an absent file or an unknown suffix, OptionError for options that the format
    does not have, DataError for a file that is not what its name says or holds values that are not numbers,
    MissingExtraError for parquet without pyarrow.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise MissingInputError(
            f"Cannot tell the format of {path} from its suffix {path.suffix!r}.",
            f"Use one of {', '.join(SUFFIXES)}; a Zarr store needs no ingest.",
        )
    for file in (path, y):
        if file is not None and not file.is_file():
            raise MissingInputError(f"There is no file {file}.", "Check the path.")
    is_table = suffix in (".csv", ".tsv", ".parquet")
    if y is not None and suffix != ".npy":
        raise OptionError(
            f"A separate file of targets ({y}) goes with an .npy source, not with {path}.",
            "Name the target columns instead." if is_table else "Put the array Y into the same .npz file.",
        )
    if not is_table and (target or index is not None):
        raise OptionError(
            f"{path} has no named columns, so none can be the target or the index.",
            "Give Y as an array of its own (y=FILE.npy, or Y in the .npz).",
        )
    try:
        if weight is None:
            return _open(path, suffix, y, target, index, dtype)
        return _open_weighted(path, suffix, y, target, index, dtype, weight)
    except OSError as error:
        raise MissingInputError(f"Cannot read {path}: {error}.", "Check its permissions and the disk.") from error


def _open_weighted(
    path: AnyPath, suffix: str, y: AnyPath | None, target: Sequence[str | int], index: str | int | None,
    dtype: str | None, weight: str | int,
) -> Source:  # fmt: skip
    from dsel.data.formats.npy import read_header
    from dsel.data.formats.weighted import WeightedSource

    if suffix == ".npy":
        file = as_path(str(weight))
        if not file.is_file():
            raise MissingInputError(f"There is no file {file} of weights.", "Check the path.")
        return WeightedSource(_open(path, suffix, y, (), None, dtype), read_header(file))
    if suffix == ".npz":
        from dsel.data.formats.npz import members

        found = members(path)
        if str(weight) not in found:
            raise OptionError(f"weight={weight!r}: {path} has no such array.", f"It has {shorten(found)}.")
        return WeightedSource(_open(path, suffix, None, (), None, dtype), read_header(path, found[str(weight)]))
    try:
        return WeightedSource(_open(path, suffix, None, (*target, weight), index, dtype), None)
    except OptionError as error:
        asked = f"target={weight!r}"
        raise OptionError(error.what.replace(asked, f"weight={weight!r}"), error.remedy) from error


def _open(
    path: AnyPath,
    suffix: str,
    y: AnyPath | None,
    target: Sequence[str | int],
    index: str | int | None,
    dtype: str | None,
) -> Source:
    if suffix == ".npy":
        from dsel.data.formats.npy import NpySource

        return NpySource(path, y, dtype)
    if suffix == ".npz":
        from dsel.data.formats.npz import NpzSource

        return NpzSource(path, dtype)
    if suffix == ".parquet":
        from dsel.data.formats.parquet import ParquetSource

        return ParquetSource(path, target, index, dtype)
    from dsel.data.formats.delimited import DelimitedSource

    return DelimitedSource(path, "\t" if suffix == ".tsv" else ",", target, index, dtype)

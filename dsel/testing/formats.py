"""Check a file format: what it says about a file, the rows that it reads, and how it refuses a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from dsel._lib.types import Floats
from dsel.data.as_dataset import as_dataset
from dsel.data.criterion_data import ColumnData
from dsel.data.formats.registry import FORMATS, find_folder_format, find_format, open_source
from dsel.data.formats.source import OPTIONS, Format, Rows, Source, SourceOptions, SparseSource
from dsel.data.ingest import ingest
from dsel.errors import DselError, OptionError
from dsel.testing.problems import require


def check_format(
    file_format: Format, path: str | Path, X: Any = None, Y: Any = None, *, features: Sequence[str] | None = None,
    **options: Any,
) -> None:  # fmt: skip
    """Check that a file format keeps the contract of `dsel.data.formats.source.Format`.

    Parameters
    ----------
    file_format : Format
        The format. It need not be installed.
    path : str or Path
        A file or folder of the format, with at least three rows. It stays as it is.
    X, Y : array-like, optional
        The values that the file holds, to compare with.
    features : sequence of str, optional
        The labels of the columns of X, to compare with.
    **options
        Fields of `SourceOptions` with which the file is read, such as ``target``.

    Raises
    ------
    AssertionError
        The format breaks the contract. The message says how.

    Notes
    -----
    These statements are checked:

    - the suffixes are in lower case, and the options that it takes exist; other options are refused;
    - the identity of a file is JSON, and the same for an unchanged file;
    - the rows are the same in pieces of any size, and from any row on;
    - values and labels are those that were given here;
    - an ingest that is interrupted and continued gives the same store;
    - a file of zero bytes, or of random ones, is an error of dsel.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from dsel.data.formats.npy import FORMAT
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/x.npy", np.eye(4))
    ...     check_format(FORMAT, f"{folder}/x.npy", np.eye(4))
    """
    path = Path(path)
    _check_declaration(file_format)
    with FORMATS.including(file_format), TemporaryDirectory() as scratch:
        _check_suffix(file_format, path)
        read = SourceOptions(**options)
        _check_refused_options(file_format, path, read)
        source = file_format.open(path, read)
        _check_identity(file_format, source, file_format.open(path, read))
        whole = _rows(source, 0, source.shape[0], Path(scratch))
        _check_pieces(file_format.name, source, whole, Path(scratch))
        _check_values(file_format.name, source, whole, X, Y, features)
        _check_continued(file_format.name, path, whole.x, Path(scratch), options)
        if path.is_file():
            _check_damage(file_format.name, path, Path(scratch), options)


def _check_declaration(file_format: Format) -> None:
    name = file_format.name
    for suffix in file_format.suffixes:
        require(suffix.startswith(".") and suffix == suffix.lower(), f"{name}: the suffix {suffix!r} is not valid.")
    require(file_format.takes <= set(OPTIONS), f"{name} takes {sorted(file_format.takes - set(OPTIONS))}: no options.")


def _check_suffix(file_format: Format, path: Path) -> None:
    """Check that dsel takes the file for one of this format."""
    kind = find_format(path) if path.is_file() else find_folder_format(path)
    name = kind.name if kind is not None else "no format"
    require(kind is file_format, f"dsel reads {path.name} as {name}, and not as {file_format.name}.")


def _check_refused_options(file_format: Format, path: Path, read: SourceOptions) -> None:
    """Check that an option that is not taken is refused, and says what to do instead."""
    others = [name for name in ("decimal", "dimension", "variable", "drop") if name not in file_format.takes]
    for name in others[:1]:
        value: Any = ("no_such_column",) if name == "drop" else "no_such_value"
        try:
            open_source(path, SourceOptions(**{name: value}))
        except OptionError as error:
            require(name in str(error), f"{file_format.name}: the error about {name} does not name it: {error}")
        else:
            raise AssertionError(f"{file_format.name} does not take {name}, and does not refuse it.")


def _check_identity(file_format: Format, first: Source | SparseSource, second: Source | SparseSource) -> None:
    name, m, n = file_format.name, *first.shape
    require(m >= 3 and n >= 1, f"{name}: the file has the shape {first.shape}. Give one with three rows or more.")
    require(json.loads(json.dumps(first.identity())), f"{name}: the identity of the file is empty.")
    require(first.identity() == second.identity(), f"{name}: the identity of an unchanged file changes.")
    labels = first.features
    if labels is not None:
        require(len(labels) == n == len(set(labels)), f"{name}: {n} columns have the labels {list(labels)}.")


def _rows(source: Source | SparseSource, start: int, stop: int, scratch: Path, piece: int | None = None) -> Rows:
    """Return rows of a source, read in pieces."""
    if isinstance(source, SparseSource):
        blocks = list(source.blocks(start))
        values = np.vstack([block.rows.toarray() for block in blocks])[start - blocks[0].start :][: stop - start]
        targets = [np.concatenate([block.columns[name] for block in blocks]) for name in source.targets]
        y = np.column_stack(targets)[start - blocks[0].start :][: stop - start] if targets else None
        return Rows(values, y)
    r = stop - start
    rows = Rows.of(source, r, np.zeros)
    reader = source.open(start, scratch)
    try:
        for first in range(0, r, piece or max(r, 1)):
            reader.fill(rows[first : first + (piece or r)])
    finally:
        reader.close()
    return rows


def _check_pieces(name: str, source: Source | SparseSource, whole: Rows, scratch: Path) -> None:
    m = source.shape[0]
    for start, piece in ((0, 1), (0, 2), (1, m), (m // 2, 1), (m - 1, 1)):
        rows = _rows(source, start, m, scratch, piece)
        for values, expected in zip(_arrays(rows), _arrays(whole[start:]), strict=True):
            same = np.array_equal(values, expected, equal_nan=values.dtype.kind == "f")
            require(same, f"{name}: the rows from {start} on, {piece} at a time, differ from those of the whole file.")


def _arrays(rows: Rows) -> list[Any]:
    return [values for values in (rows.x, rows.y, rows.w, rows.samples) if values is not None]


def _check_values(
    name: str, source: Source | SparseSource, whole: Rows, X: Any, Y: Any, features: Sequence[str] | None
) -> None:
    for what, stored, expected in (("X", whole.x, X), ("Y", whole.y, Y)):
        if expected is not None:
            require(stored is not None, f"{name}: the file has no {what}.")
            values = np.asarray(expected, float).reshape(len(whole), -1)
            same = np.array_equal(np.asarray(stored, float), values, equal_nan=True)
            require(same, f"{name}: {what} is not what the file holds.")
    if features is not None:
        require(source.features is not None, f"{name}: the columns have no labels.")
        assert source.features is not None
        stated = [str(label) for label in source.features]
        require(stated == list(features), f"{name}: the labels are {stated}, not {list(features)}.")


def _check_continued(name: str, path: Path, X: Floats, scratch: Path, options: dict[str, Any]) -> None:
    """Check that an interrupted ingest continues to the same store."""
    store = scratch / "store.zarr"

    def stop(done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    sparse = isinstance(open_source(path, SourceOptions(**options)), SparseSource)
    chunks = None if sparse else (1, X.shape[1])
    try:
        ingest(path, store, progress=stop, chunks=chunks, **options)
    except KeyboardInterrupt:
        ingest(path, store, chunks=chunks, **options)
    values = ColumnData(as_dataset(store)).columns(range(X.shape[1]))
    same = np.array_equal(np.asarray(values, float), np.asarray(X, float), equal_nan=True)
    require(same, f"{name}: an ingest that is interrupted and continued stores other values.")


def _check_damage(name: str, path: Path, scratch: Path, options: dict[str, Any]) -> None:
    damaged = scratch / f"damaged-{path.name}"
    for what, content in (("no bytes", b""), ("random bytes", np.random.default_rng(0).bytes(300))):
        damaged.write_bytes(content)
        try:
            ingest(damaged, scratch / "damaged.zarr", overwrite=True, **options)
        except DselError:
            continue
        except Exception as error:
            raise AssertionError(f"{name}: a file of {what} raises {error!r}, and not a DataError.") from error
        raise AssertionError(f"{name} accepts a file of {what}.")

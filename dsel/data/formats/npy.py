"""Arrays in .npy layout: in a file, or as a member of an .npz archive, uncompressed or deflated.

In C order the rows are a stream. They are read in order, one piece at a time, and the checksum of a zip member is
verified. In Fortran order a row is scattered over the whole array, so the array is memory mapped. A deflated member, or
an object in object storage, is copied into a temporary file first.

.npz archives: arrays X and Y, and optionally feature_names, target_names and sample_names.
"""

from __future__ import annotations

import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfileobj
from typing import IO, Any, Final

import numpy as np

from dsel._lib.npz import open_npz, parser_lock
from dsel._lib.text import shorten
from dsel.data.formats.source import (
    Array,
    Format,
    Reader,
    Rows,
    Source,
    SourceOptions,
    file_identity,
    put,
    require_real,
    wanted_dtype,
)
from dsel.errors import DataError, MissingInputError, OptionError
from dsel.storage.paths import AnyPath, as_path, stat

PIECE_BYTES: Final = 8_000_000


@dataclass(frozen=True)
class NpyArray:
    """The header of one array: where its values begin, and their order. A vector counts as one column."""

    path: AnyPath
    member: str | None  # of the zip archive; None when the file is the array
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    header_bytes: int

    @property
    def where(self) -> str:
        name = "" if self.member is None else f"array {self.member.removesuffix('.npy')} of "
        return f"{name}{self.path}"

    @property
    def rows(self) -> int:
        return self.shape[0]

    @property
    def columns(self) -> int:
        return self.shape[1] if len(self.shape) == 2 else 1


def read_header(path: AnyPath, member: str | None = None) -> NpyArray:
    """Read the header of a .npy file, or of a member of a zip archive, and check that all values are there.

    Raises DataError if the layout is not .npy, if it holds Python objects, or if it is shorter than its header says.
    """
    with ExitStack() as stack:
        unknown = NpyArray(path, member, (), np.dtype("u1"), False, 0)
        size = stat(path).size if member is None else _archive(path, stack).getinfo(member).file_size
        file, where = _stream(unknown, stack), unknown.where
        try:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            with parser_lock:
                shape, fortran, dtype = read(file)
        except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise DataError(f"{where} is not an array in .npy format: {error}.", "Save it with numpy.save.") from error
        array = NpyArray(path, member, shape, dtype, fortran and len(shape) > 1, file.tell())
    if dtype.hasobject:
        require_real(np.dtype(object), where)
    expected = array.header_bytes + int(np.prod(shape, dtype=object)) * dtype.itemsize
    if size < expected:
        raise DataError(
            f"{where} is cut off: it has {size} bytes, and {expected} by its header (shape {shape}, {dtype}).",
            "Copy or save the file again.",
        )
    return array


class NpyRows:
    """Reads the rows of one array in order: `pieces`, and at the end `close`."""

    def __init__(self, array: NpyArray, start: int, scratch: Path) -> None:
        self.array = array
        self.row = start
        self._stack = ExitStack()
        try:
            if array.fortran:
                self._file, self._offset = _mappable(array, scratch, self._stack)
            else:
                self._file = _stream(array, self._stack)
                self._file.seek(array.header_bytes + start * array.columns * array.dtype.itemsize)
        except (zipfile.BadZipFile, zlib.error) as error:
            self._stack.close()
            raise _broken(array, start, error) from error

    def pieces(self, rows: int) -> Iterator[tuple[slice, slice, Array]]:
        """Yield the next `rows` rows in pieces of a few megabytes: rows relative to the first, columns, values."""
        array, first = self.array, self.row
        self.row += rows
        if array.fortran:
            width = max(1, PIECE_BYTES // (max(1, rows) * array.dtype.itemsize))
            for column in range(0, array.columns, width):
                yield slice(0, rows), slice(column, column + width), self._strip(first, rows, column, width)
            return
        height = max(1, PIECE_BYTES // max(1, array.columns * array.dtype.itemsize))
        for row in range(0, rows, height):
            count = min(height, rows - row)
            yield slice(row, row + count), slice(None), self._next(first + row, count)

    def _next(self, first: int, count: int) -> Array:
        values = np.empty((count, self.array.columns), self.array.dtype)
        rest = values.reshape(-1).view(np.uint8).data
        try:
            while rest:
                count_read = self._file.readinto(rest)  # type: ignore[attr-defined]
                if not count_read:
                    raise EOFError("the file ends early")
                rest = rest[count_read:]
        except (EOFError, OSError, zipfile.BadZipFile, zlib.error) as error:
            raise _broken(self.array, first, error) from error
        return values

    def _strip(self, first: int, rows: int, column: int, width: int) -> Array:
        # Map it again for each strip: the pages of a long-lived map would count as memory of this process.
        shape = (self.array.rows, self.array.columns)
        whole = np.memmap(self._file, self.array.dtype, "r", self._offset, shape, "F")
        return np.array(whole[first : first + rows, column : column + width])

    def close(self) -> None:
        self._stack.close()


class NpyReader(Reader):
    """Reads X, Y, weights and sample labels from arrays in .npy layout."""

    def __init__(self, arrays: Sequence[NpyArray | None], start: int, scratch: Path) -> None:
        self._arrays = [None if array is None else NpyRows(array, start, scratch) for array in arrays]

    def fill(self, rows: Rows) -> None:
        *numbers, samples = self._arrays
        for source, out in zip(numbers, (rows.x, rows.y, None if rows.w is None else rows.w[:, None]), strict=True):
            if source is not None and out is not None:
                first = source.row
                for at, columns, values in source.pieces(len(out)):
                    put(out[at, columns], values, source.array.where, first + at.start)
        if samples is not None and rows.samples is not None:
            for at, _, values in samples.pieces(len(rows)):
                rows.samples[at] = [str(label) for label in values[:, 0]]

    def close(self) -> None:
        for source in self._arrays:
            if source is not None:
                source.close()


class NpySource(Source):
    """Arrays in .npy layout: X (m x n), and optionally Y (m x N or m), weights (m) and sample labels (m)."""

    def __init__(
        self, x: NpyArray, y: NpyArray | None, w: NpyArray | None, samples: NpyArray | None, dtype: str | None
    ) -> None:
        self.name = x.path.name
        self._arrays = (x, y, w, samples)
        if len(x.shape) != 2:
            raise DataError(
                f"{x.where} has shape {x.shape}.", "X must have two dimensions: (samples, features). Use reshape."
            )
        self.shape = (x.rows, x.columns)
        if y is not None:
            if len(y.shape) not in (1, 2) or not y.columns:
                raise DataError(
                    f"{y.where} has shape {y.shape}.", "Y must be (samples, targets), or (samples,) for one."
                )
            if y.rows != x.rows:
                raise DataError(
                    f"{y.where} has {y.rows} rows and {x.where} has {x.rows}.",
                    "Y needs one row for each sample of X.",
                )
            self.n_targets = y.columns
        self.dtype = wanted_dtype(dtype, x.dtype, x.where)
        self.y_dtype = None if y is None else wanted_dtype(None, y.dtype, y.where)
        if w is not None:
            if w.columns != 1 or w.rows != x.rows:
                raise DataError(
                    f"{w.where} has shape {w.shape} and X {x.rows} rows.", "Weights are one number for each sample."
                )
            self.w_dtype = wanted_dtype(None, w.dtype, w.where)
        self.has_samples = samples is not None

    def identity(self) -> dict[str, Any]:
        paths = dict.fromkeys(array.path for array in self._arrays if array is not None)
        w = self._arrays[2]
        return {
            "files": [file_identity(path) for path in paths],
            "weight": None if w is None else [str(w.path), w.member],
        }

    def open(self, start: int, scratch: Path) -> Reader:
        return NpyReader(self._arrays, start, scratch)


def open_npy(path: AnyPath, options: SourceOptions) -> NpySource:
    """Open X in one .npy file, Y and the weights optionally in others."""
    w = None if options.weight is None else as_path(str(options.weight))
    if w is not None and not w.is_file():
        raise MissingInputError(f"There is no file {w} of weights.", "Check the path.")
    y, weights = (None if file is None else read_header(file) for file in (options.y, w))
    return NpySource(read_header(path), y, weights, None, options.dtype)


def _stream(array: NpyArray, stack: ExitStack) -> IO[bytes]:
    """Return the open file or zip member."""
    if array.member is None:
        return stack.enter_context(array.path.open("rb"))
    return stack.enter_context(_archive(array.path, stack).open(array.member))


def _mappable(array: NpyArray, scratch: Path, stack: ExitStack) -> tuple[IO[bytes], int]:
    """Return a file that can be mapped, and the offset of the values in it."""
    if isinstance(array.path, Path):
        file = stack.enter_context(array.path.open("rb"))
        if array.member is None:
            return file, array.header_bytes
        info = _archive(array.path, stack).getinfo(array.member)
        if info.compress_type == zipfile.ZIP_STORED:
            file.seek(info.header_offset + 26)  # bytes 26 to 30 of the local header are two lengths
            name_bytes, extra_bytes = struct.unpack("<HH", file.read(4))
            return file, info.header_offset + 30 + name_bytes + extra_bytes + array.header_bytes
    copy: IO[bytes] = stack.enter_context(tempfile.TemporaryFile(dir=scratch))  # noqa: SIM115
    copyfileobj(_stream(array, stack), copy, PIECE_BYTES)
    copy.flush()
    return copy, array.header_bytes


def _archive(path: AnyPath, stack: ExitStack) -> zipfile.ZipFile:
    return stack.enter_context(zipfile.ZipFile(stack.enter_context(path.open("rb"))))


def _broken(array: NpyArray, row: int, error: Exception) -> DataError:
    return DataError(f"{array.where} cannot be read at row {row} and after: {error}.", "Copy or save the file again.")


FORMAT = Format(
    "npy", (".npy",), open_npy, frozenset(("y", "weight")),
    "An array has no named columns: give Y as a second .npy file (y).",
)  # fmt: skip


class NpzSource(NpySource):
    """Array X (m x n), optional Y (m x N or m) and weights; the members are streamed, never loaded as a whole."""

    def __init__(self, path: AnyPath, options: SourceOptions) -> None:
        try:
            with path.open("rb") as file, zipfile.ZipFile(file) as archive:
                found = {name.removesuffix(".npy"): name for name in archive.namelist()}
        except zipfile.BadZipFile as error:
            raise DataError(f"{path} is not an .npz archive: {error}.", "Save it with numpy.savez.") from error
        if "X" not in found:
            raise DataError(
                f"{path} has no array X; it has {shorten(found)}.", "Save it as numpy.savez(FILE, X=..., Y=...)."
            )
        weight = None if options.weight is None else str(options.weight)
        if weight is not None and weight not in found:
            raise OptionError(f"weight={weight!r}: {path} has no such array.", f"It has {shorten(found)}.")
        x, y, w, samples = (
            read_header(path, found[name]) if name in found else None for name in ("X", "Y", weight, "sample_names")
        )
        assert x is not None
        super().__init__(x, y, w, samples, options.dtype)
        if samples is not None:
            _check_labels(samples, x.rows, "rows of X")
        self.features = _labels(path, found, "feature_names", self.shape[1], "columns of X")
        self.targets = _labels(path, found, "target_names", self.n_targets, "columns of Y")


def _labels(path: AnyPath, members: dict[str, str], name: str, count: int, of: str) -> list[str] | None:
    if name not in members or not count:
        return None
    _check_labels(read_header(path, members[name]), count, of)
    with path.open("rb") as file, open_npz(file) as archive:
        return [str(label) for label in archive[name]]


def _check_labels(header: NpyArray, count: int, of: str) -> None:
    if header.dtype.kind not in "Uiu":
        raise DataError(f"{header.where} has dtype {header.dtype}.", "Labels must be strings: use astype(str).")
    if header.shape != (count,):
        raise DataError(f"{header.where} has shape {header.shape}.", f"It must have one label for the {count} {of}.")


NPZ = Format(
    "npz", (".npz",), NpzSource, frozenset(("weight",)), "Put the arrays X, Y and sample_names into the .npz file."
)

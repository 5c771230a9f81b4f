"""Arrays in .npy layout: a file of their own or, uncompressed or deflated, a member of an .npz.

In C order the rows are a stream, read in order with plain reads: memory stays at one piece, and a zip
member's checksum is verified on the way. In Fortran order a row is scattered over the whole array, so the
array is memory mapped (a deflated member, or an object in a bucket, is first copied into a temporary file).
"""

from __future__ import annotations

import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfileobj
from typing import IO, Any, Final

import numpy as np

from dsel.data.formats.base import Array, Reader, file_identity, put, require_real, wanted_dtype
from dsel.errors import DataError
from dsel.storage.paths import AnyPath, stat

PIECE_BYTES: Final = 8_000_000


@dataclass(frozen=True)
class NpyArray:
    """The header of one array: where its values begin and how they lie. `columns` is 1 for a vector."""

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
    """Read the header of a .npy file, or of a `member` of a zip archive, and check that the values are all
    there.

    Errors: DataError when it is no .npy layout, holds Python objects, or is shorter than its header says.
    """
    with ExitStack() as stack:
        if member is None:
            file: IO[bytes] = stack.enter_context(path.open("rb"))
            size = stat(path).size
        else:
            archive = _archive(path, stack)
            file = stack.enter_context(archive.open(member))
            size = archive.getinfo(member).file_size
        where = NpyArray(path, member, (), np.dtype("u1"), False, 0).where
        try:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = read(file)
        except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise DataError(f"{where} is not an array in .npy format: {error}.", "Save it with numpy.save.") from error
        array = NpyArray(path, member, shape, dtype, fortran and len(shape) > 1, file.tell())
    if dtype.hasobject:
        require_real(np.dtype(object), where)
    expected = array.header_bytes + int(np.prod(shape, dtype=object)) * dtype.itemsize
    if size < expected:
        raise DataError(
            f"{where} is cut off: {size} bytes, and its header (shape {shape}, {dtype}) asks for {expected}.",
            "Copy or save the file again.",
        )
    return array


class NpyRows:
    """Reads the rows of one array in order. Use `pieces`, then `close`."""

    def __init__(self, array: NpyArray, start: int, scratch: Path) -> None:
        self.array = array
        self.row = start
        self._stack = ExitStack()
        try:
            if array.fortran:
                self._file, self._offset = _mappable(array, scratch, self._stack)
            else:
                self._file, base = _stream(array, self._stack)
                self._file.seek(base + start * array.columns * array.dtype.itemsize)
        except (zipfile.BadZipFile, zlib.error) as error:
            self._stack.close()
            raise _broken(array, start, error) from error

    def pieces(self, rows: int) -> Iterator[tuple[slice, slice, Array]]:
        """The next `rows` rows in pieces of a few megabytes: (rows of the band, columns, values r x c)."""
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
        room = values.reshape(-1).view(np.uint8).data
        try:
            while room:
                got = self._file.readinto(room)  # type: ignore[attr-defined]
                if not got:
                    raise EOFError("the file ends early")
                room = room[got:]
        except (EOFError, OSError, zipfile.BadZipFile, zlib.error) as error:
            raise _broken(self.array, first, error) from error
        return values

    def _strip(self, first: int, rows: int, column: int, width: int) -> Array:
        # Mapped anew for each strip: the pages of a long-lived map would count as this process's memory.
        shape = (self.array.rows, self.array.columns)
        whole = np.memmap(self._file, self.array.dtype, "r", self._offset, shape, "F")
        return np.array(whole[first : first + rows, column : column + width])

    def close(self) -> None:
        self._stack.close()


class NpyReader:
    """Reader of X and, beside it, Y and sample labels from arrays in .npy layout."""

    def __init__(self, x: NpyArray, y: NpyArray | None, samples: NpyArray | None, start: int, scratch: Path) -> None:
        self._x = NpyRows(x, start, scratch)
        self._y = None if y is None else NpyRows(y, start, scratch)
        self._samples = None if samples is None else NpyRows(samples, start, scratch)

    def fill(self, x: Array, y: Array | None, samples: Array | None) -> None:
        for rows, out in ((self._x, x), (self._y, y)):
            if rows is not None and out is not None:
                first = rows.row
                for at, columns, values in rows.pieces(len(out)):
                    put(out[at, columns], values, rows.array.where, first + at.start)
        if self._samples is not None and samples is not None:
            for at, _, values in self._samples.pieces(len(samples)):
                samples[at] = [str(label) for label in values[:, 0]]

    def close(self) -> None:
        for rows in (self._x, self._y, self._samples):
            if rows is not None:
                rows.close()


class NpySource:
    """X in one .npy file (m x n), Y optionally in a second one (m x N, or a vector of length m)."""

    features: list[str] | None = None
    targets: list[str] | None = None
    has_samples = False

    def __init__(self, path: AnyPath, y: AnyPath | None, dtype: str | None) -> None:
        self.name = path.name
        self._x = read_header(path)
        self._y = None if y is None else read_header(y)
        self._files = [path] if y is None else [path, y]
        self.shape, self.y_shape = check_shapes(self._x, self._y)
        self.dtype = wanted_dtype(dtype, self._x.dtype, self._x.where)
        self.y_dtype = None if self._y is None else wanted_dtype(None, self._y.dtype, self._y.where)

    def identity(self) -> dict[str, Any]:
        return {"files": [file_identity(file) for file in self._files]}

    def open(self, start: int, scratch: Path) -> Reader:
        return NpyReader(self._x, self._y, None, start, scratch)


def check_shapes(x: NpyArray, y: NpyArray | None) -> tuple[tuple[int, int], tuple[int, int] | None]:
    """The shapes m x n and m x N of X and Y; DataError when they are not that or do not go together."""
    if len(x.shape) != 2:
        raise DataError(
            f"{x.where} has shape {x.shape}.", "X must have two dimensions: (samples, features). Use reshape."
        )
    shape = (x.shape[0], x.shape[1])
    if y is None:
        return shape, None
    if len(y.shape) not in (1, 2):
        raise DataError(f"{y.where} has shape {y.shape}.", "Y must be (samples, targets), or (samples,) for one.")
    if y.rows != x.rows:
        raise DataError(
            f"{y.where} has {y.rows} rows and {x.where} has {x.rows}.",
            "Y needs one row for each sample of X.",
        )
    return shape, (y.rows, y.columns)


def _stream(array: NpyArray, stack: ExitStack) -> tuple[IO[bytes], int]:
    """The open file or zip member, and the offset of the values in it."""
    if array.member is None:
        return stack.enter_context(array.path.open("rb")), array.header_bytes
    archive = _archive(array.path, stack)
    return stack.enter_context(archive.open(array.member)), array.header_bytes


def _mappable(array: NpyArray, scratch: Path, stack: ExitStack) -> tuple[IO[bytes], int]:
    """A real file that holds the values as they lie in memory, and their offset in it."""
    is_local = isinstance(array.path, Path)
    if array.member is None:
        file, offset = _stream(array, stack)
        return (file if is_local else _copied(file, scratch, stack)), offset
    archive = _archive(array.path, stack)
    info = archive.getinfo(array.member)
    if info.compress_type == zipfile.ZIP_STORED and is_local:
        file = stack.enter_context(array.path.open("rb"))
        file.seek(info.header_offset + 26)  # the local header: 30 bytes, of which 26 to 30 are two lengths
        name_bytes, extra_bytes = struct.unpack("<HH", file.read(4))
        return file, info.header_offset + 30 + name_bytes + extra_bytes + array.header_bytes
    with archive.open(array.member) as packed:
        return _copied(packed, scratch, stack), array.header_bytes


def _archive(path: AnyPath, stack: ExitStack) -> zipfile.ZipFile:
    return stack.enter_context(zipfile.ZipFile(stack.enter_context(path.open("rb"))))


def _copied(file: IO[bytes], scratch: Path, stack: ExitStack) -> IO[bytes]:
    """All of `file` in a temporary one."""
    copy: IO[bytes] = stack.enter_context(tempfile.TemporaryFile(dir=scratch))  # noqa: SIM115
    copyfileobj(file, copy, PIECE_BYTES)
    copy.flush()
    return copy


def _broken(array: NpyArray, row: int, error: Exception) -> DataError:
    return DataError(f"{array.where} cannot be read at row {row} and after: {error}.", "Copy or save the file again.")

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
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shutil import copyfileobj
from typing import IO, Any, Final

import numpy as np

from dsel._lib.npz import parser_lock
from dsel._lib.text import FIRST_ROW, shorten
from dsel.data.formats.lazy_arrays import PIECE_BYTES, LazyArray, LazyReader, LazySource, Parts
from dsel.data.formats.source import Array, Format, Reader, SourceOptions, file_identity, require_real
from dsel.errors import DataError, MissingInputError, OptionError
from dsel.storage.paths import AnyPath, as_path, stat

#: What a damaged archive raises.
_DAMAGES: Final = (zipfile.BadZipFile, zlib.error)


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


def _lazy(array: NpyArray, scratch: Path, stack: ExitStack) -> LazyArray:
    """Return an array whose file is opened at the first read, and closed with the stack."""
    shape = (array.shape[0], array.columns)

    @cache
    def opened() -> tuple[IO[bytes], int]:
        return _mappable(array, scratch, stack) if array.fortran else (_stream(array, stack), array.header_bytes)

    def read(start: int, stop: int) -> Array:
        values = np.empty((stop - start, array.columns), array.dtype)
        rest = values.reshape(-1).view(np.uint8).data
        try:
            file, offset = opened()
            file.seek(offset + start * array.columns * array.dtype.itemsize)
            while rest:
                count = file.readinto(rest)  # type: ignore[attr-defined]
                if not count:
                    raise EOFError("the file ends early")
                rest = rest[count:]
        except (EOFError, OSError, *_DAMAGES) as error:
            raise _broken(array, start, error) from error
        return values

    def strip(start: int, stop: int, columns: slice) -> Array:
        try:
            file, offset = opened()
        except _DAMAGES as error:
            raise _broken(array, start, error) from error
        # Map it again for each strip: the pages of a long-lived map would count as memory of this process.
        return np.array(np.memmap(file, array.dtype, "r", offset, shape, "F")[start:stop, columns])

    return LazyArray(array.where, shape, array.dtype, read, strip=strip if array.fortran else None)


class NpySource(LazySource):
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
        if y is not None and (len(y.shape) not in (1, 2) or not y.columns):
            raise DataError(f"{y.where} has shape {y.shape}.", "Y must be (samples, targets), or (samples,) for one.")
        if w is not None and (w.columns != 1 or w.shape[0] != x.shape[0]):
            raise DataError(
                f"{w.where} has shape {w.shape} and X {x.shape[0]} rows.", "Weights are one number for each sample."
            )
        self.describe(self._parts(Path(), ExitStack()), dtype)

    def identity(self) -> dict[str, Any]:
        paths = dict.fromkeys(array.path for array in self._arrays if array is not None)
        w = self._arrays[2]
        return {
            "files": [file_identity(path) for path in paths],
            "weight": None if w is None else [str(w.path), w.member],
        }

    def open(self, start: int, scratch: Path) -> Reader:
        @contextmanager
        def opened() -> Iterator[Parts]:
            with ExitStack() as stack:
                yield self._parts(scratch, stack)

        return LazyReader(opened, start)

    def _parts(self, scratch: Path, stack: ExitStack) -> Parts:
        x, y, w, samples = (None if array is None else _lazy(array, scratch, stack) for array in self._arrays)
        assert x is not None
        return Parts(x, y, w, samples=None if samples is None else lambda *rows: samples.read(*rows)[:, 0].tolist())


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
    return DataError(
        f"{array.where} cannot be read at row {row} and after ({FIRST_ROW}): {error}.", "Copy or save the file again."
    )


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
                f"{path} has no array X; it has {shorten(found) or 'none'}.",
                "Save it as numpy.savez(FILE, X=..., Y=...).",
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
            _check_labels(samples, x.shape[0], "rows of X")
        self.features = _labels(path, found, "feature_names", self.shape[1], "columns of X")
        self.targets = _labels(path, found, "target_names", self.n_targets, "columns of Y")


def _labels(path: AnyPath, members: dict[str, str], name: str, count: int, of: str) -> list[str] | None:
    if name not in members or not count:
        return None
    header = read_header(path, members[name])
    _check_labels(header, count, of)
    with ExitStack() as stack:
        return [str(label) for label in _lazy(header, Path(), stack).read(0, count)[:, 0].tolist()]


def _check_labels(header: NpyArray, count: int, of: str) -> None:
    if header.dtype.kind not in "Uiu":
        raise DataError(f"{header.where} has dtype {header.dtype}.", "Labels must be strings: use astype(str).")
    if header.shape != (count,):
        raise DataError(f"{header.where} has shape {header.shape}.", f"It must have one label for the {count} {of}.")


NPZ = Format(
    "npz", (".npz",), NpzSource, frozenset(("weight",)), "Put the arrays X, Y and sample_names into the .npz file."
)

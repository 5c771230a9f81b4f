"""Archives of arrays (.npz): packed with a checksum of each array, and read in several threads."""

from __future__ import annotations

import errno
import io
import sys
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from threading import RLock
from typing import IO, Any
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray

from dsel._lib.damage import DamagedFileError
from dsel.errors import DselError

# NumPy parses the header of each array with `ast`. Before Python 3.11.8 and 3.12.2 that can raise SystemError ("AST
# constructor recursion depth mismatch") while another thread parses, too: https://github.com/python/cpython/issues/106905
_PARSER_IS_SHARED = sys.version_info < (3, 11, 8) or (3, 12) <= sys.version_info < (3, 12, 2)

parser_lock: AbstractContextManager[object] = RLock() if _PARSER_IS_SHARED else nullcontext()
"""Must be held while a header, or a signature of `inspect`, is parsed."""


def pack_npz(arrays: Mapping[str, Any], *, compressed: bool = False) -> bytes:
    """Return an archive of arrays. It has the CRC-32 of each, by which `read_npz` notices a changed bit."""
    out = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(out, **arrays)
    return out.getvalue()


def read_npz(file: IO[bytes], names: Collection[str] | None = None) -> dict[str, NDArray[Any]]:
    """Return the arrays of an archive by name: all of them, or those in `names`.

    Raises
    ------
    DamagedFileError
        If the archive is not what was written.
    OSError, DselError
        If the file cannot be read.
    """
    try:
        with parser_lock, ZipFile(file) as archive:
            present = [name.removesuffix(".npy") for name in archive.namelist()]
            return {name: _read_member(archive, f"{name}.npy") for name in (present if names is None else names)}
    except DselError:
        raise
    except Exception as error:  # damaged bytes make the libraries raise nearly anything
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):  # EINVAL: a seek to before the start
            raise
        raise DamagedFileError(f"{type(error).__name__}: {error}".rstrip(": ")) from error


def _read_member(archive: ZipFile, name: str) -> NDArray[Any]:
    with archive.open(name) as member:
        array: NDArray[Any] = np.lib.format.read_array(member, allow_pickle=False)
        if member.read(1):  # the checksum is compared at the end of the member
            raise DamagedFileError(f"{name} is longer than its header says")
    return array

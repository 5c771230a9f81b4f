"""Rows of a matrix that stay at one address for good: in memory up to a limit, beyond it in a file that is mapped."""

from __future__ import annotations

import mmap
import os
import tempfile

import numpy as np

from dsel._lib.types import Floats
from dsel.errors import CapacityError

#: The file grows by about so many bytes at a time.
_SEGMENT_BYTES = 256 << 20


class KeptRows:
    """Rows (n,) of float64. What is beyond `most_bytes` lies in a temporary file without a name (in $TMPDIR), which the
    system brings into memory as it is used and takes out again; it is gone with this object, or with the process."""

    def __init__(self, n: int, most_bytes: int) -> None:
        self.n = n
        self.in_memory = 0
        self.on_disk = 0
        self._most = most_bytes
        self._free: list[Floats] = []

    def keep(self, values: Floats) -> Floats:
        """A copy of a row, that stays where it is as long as it is held. Errors: CapacityError: the disk is full."""
        if self.in_memory + 8 * self.n <= self._most:
            self.in_memory += 8 * self.n
            return np.array(values, np.float64)
        if not self._free:
            self._free = self._mapped(max(1, _SEGMENT_BYTES // (8 * self.n)))
        own = self._free.pop()
        own[:] = values
        self.on_disk += 8 * self.n
        return own

    def _mapped(self, rows: int) -> list[Floats]:
        """So many rows of a new file, whose room on the disk is taken before anything is written."""
        size = 8 * self.n * rows
        try:
            with tempfile.TemporaryFile() as file:
                os.posix_fallocate(file.fileno(), 0, size)
                whole = np.frombuffer(mmap.mmap(file.fileno(), size), np.float64).reshape(rows, self.n)
        except OSError as error:
            raise CapacityError(
                f"Gram rows need {size / 2**30:.2f} GiB more of disk in {tempfile.gettempdir()}: {error.strerror}.",
                "Set TMPDIR to a folder with room, or allow this process more memory.",
            ) from error
        return list(whole[::-1])

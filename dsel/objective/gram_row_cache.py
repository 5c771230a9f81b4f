"""Rows of a matrix that keep their address: in memory up to a limit, beyond it in a memory-mapped file."""

from __future__ import annotations

import mmap
import os
import tempfile

import numpy as np

from dsel._lib.byte_sizes import format_bytes
from dsel._lib.types import Floats
from dsel.errors import CapacityError

#: The file grows by about this many bytes at a time.
_SEGMENT_BYTES = 256 << 20


class GramRowCache:
    """Stores rows (n,) of float64.

    Rows beyond `memory_limit` bytes lie in an unnamed temporary file (in $TMPDIR), which the system pages in and out.
    The file disappears with this object, or with the process.
    """

    def __init__(self, n: int, memory_limit: int) -> None:
        self.n = n
        self.bytes_in_memory = 0
        self.bytes_on_disk = 0
        self._memory_limit = memory_limit
        self._free: list[Floats] = []

    def store(self, values: Floats) -> Floats:
        """Return a copy of a row that keeps its address while it is referenced. Errors: CapacityError (disk full)."""
        if self.bytes_in_memory + 8 * self.n <= self._memory_limit:
            self.bytes_in_memory += 8 * self.n
            return np.array(values, np.float64)
        if not self._free:
            self._free = self._map_rows(max(1, _SEGMENT_BYTES // (8 * self.n)))
        row = self._free.pop()
        row[:] = values
        self.bytes_on_disk += 8 * self.n
        return row

    def _map_rows(self, count: int) -> list[Floats]:
        """Return rows of a new file. Its space on the disk is reserved before anything is written."""
        size = 8 * self.n * count
        try:
            with tempfile.TemporaryFile() as file:
                os.posix_fallocate(file.fileno(), 0, size)
                rows = np.frombuffer(mmap.mmap(file.fileno(), size), np.float64).reshape(count, self.n)
        except OSError as error:
            raise CapacityError(
                f"Gram rows need {format_bytes(size)} more of disk in {tempfile.gettempdir()}: {error.strerror}.",
                "Set TMPDIR to a folder with room, or allow this process more memory.",
            ) from error
        return list(rows[::-1])

"""The chunks of a new array: of the size that reads fastest, and full rows if they fit."""

from __future__ import annotations

from math import ceil
from typing import Final

from dsel.errors import OptionError

TARGET_BYTES: Final = 40_000_000  # measured: chunks of 40 MB are read twice as fast as chunks of 200 MB
DEFAULT_WORKER_MEMORY: Final = 1 << 30
CHUNKS_PER_WORKER: Final = 16  # a worker holds several blocks and their products at once
FEWEST_FULL_ROWS: Final = 512  # with fewer rows x.T @ x of a block does not reach the speed of BLAS-3
WIDE_ROWS: Final = 4096


def choose_chunks(shape: tuple[int, int], itemsize: int, *, worker_memory: int) -> tuple[int, int]:
    """Return the rows and columns of a chunk for an m x n array of `itemsize` bytes per element.

    A chunk has at most 40 MB, and at most 1/16 of `worker_memory` (bytes). If 512 full rows (or all rows) fit into
    that, a chunk consists of full rows. Otherwise it is divided by columns as well, and has 512 rows if m >= n, up to
    4096 if n > m, where passes go over the columns. The chunks of each dimension are about equal, so that the last one
    is not much smaller. Raises OptionError for an empty shape or sizes that are not positive.
    """
    m, n = shape
    if min(m, n, itemsize, worker_memory) < 1:
        raise OptionError(
            f"No chunks for {m} x {n} elements of {itemsize} bytes and workers of {worker_memory} bytes.",
            "All of them must be at least 1.",
        )
    elements = max(1, min(TARGET_BYTES, worker_memory // CHUNKS_PER_WORKER) // itemsize)
    full_rows = elements // n
    if full_rows >= min(m, FEWEST_FULL_ROWS):
        return _even(m, full_rows), n
    rows = _even(m, min(WIDE_ROWS if n > m else FEWEST_FULL_ROWS, elements))
    return rows, _even(n, elements // rows)


def bounds(size: int, step: int) -> list[int]:
    """Return the boundaries of the chunks of a dimension: 0, step, 2 step, ..., size."""
    return [*range(0, size, step), size]


def _even(size: int, limit: int) -> int:
    """Return the length of the longest piece if `size` is divided into the fewest even pieces of at most `limit`."""
    return ceil(size / ceil(size / max(1, min(size, limit))))

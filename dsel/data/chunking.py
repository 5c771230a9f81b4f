"""Which chunks a new array gets: the size that reads fastest, and full rows wherever they fit."""

from __future__ import annotations

from math import ceil
from typing import Final

from dsel.errors import OptionError

TARGET_BYTES: Final = 40_000_000  # measured: 40 MB chunks are read twice as fast as 200 MB ones
DEFAULT_WORKER_MEMORY: Final = 1 << 30
CHUNKS_PER_WORKER: Final = 16  # a worker holds several blocks and their products at once
FEWEST_FULL_ROWS: Final = 512  # fewer rows than this and a block's x.T @ x does not reach the speed of BLAS-3
WIDE_ROWS: Final = 4096


def choose_chunks(shape: tuple[int, int], itemsize: int, *, worker_memory: int) -> tuple[int, int]:
    """Rows and columns of a chunk for an m x n array of `itemsize` bytes an element.

    A chunk has at most 40 MB, and at most 1/16 of `worker_memory` (bytes). When 512 full rows (or all of
    them) fit in that, a chunk is full rows. Otherwise it is cut in columns too: 512 rows when m >= n, and up
    to 4096 when n > m, where passes go over the columns. The pieces of each dimension are about equal, so
    that no sliver is left at the end.

    Errors: OptionError for an empty shape or sizes that are not positive.
    """
    m, n = shape
    if min(m, n, itemsize, worker_memory) < 1:
        raise OptionError(
            f"No chunks for {m} x {n} elements of {itemsize} bytes and workers of {worker_memory} bytes.",
            "All of them have to be at least 1.",
        )
    elements = max(1, min(TARGET_BYTES, worker_memory // CHUNKS_PER_WORKER) // itemsize)
    full_rows = elements // n
    if full_rows >= min(m, FEWEST_FULL_ROWS):
        return _even(m, full_rows), n
    rows = _even(m, min(WIDE_ROWS if n > m else FEWEST_FULL_ROWS, elements))
    return rows, _even(n, elements // rows)


def bounds(size: int, step: int) -> list[int]:
    """The chunk boundaries of a dimension: 0, step, 2 step, ..., size."""
    return [*range(0, size, step), size]


def _even(size: int, limit: int) -> int:
    """The length of the longest piece when `size` is cut into the fewest even pieces of at most `limit`."""
    return ceil(size / ceil(size / max(1, min(size, limit))))

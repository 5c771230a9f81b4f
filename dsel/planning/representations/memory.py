"""The memory of workers: what they hold besides numbers, and the limit that they need."""

from __future__ import annotations

import math

#: Bytes of a worker's interpreter with the libraries it needs.
INTERPRETER = 192 << 20
#: Bytes of compiled code on a worker (numba; measured 50 MiB).
COMPILED = 64 << 20
#: Bytes of xarray, pandas and icechunk on a worker that reads a snapshot of Icechunk (measured 100 MiB).
SNAPSHOT_LIBRARIES = 112 << 20
#: Bytes of smaller arrays that tasks on column blocks need.
SMALL_ARRAYS = 64 << 20
#: Bytes of a manifest and the headers of saved arrays.
HEADER = 4096
#: Share of its limit up to which a worker gets tasks, and up to which it keeps results without spilling.
TASK_SHARE, KEEP_SHARE = 0.9, 0.7


def worker_limit(size: float) -> int:
    """Return the memory limit of a worker that holds `size` bytes of numbers."""
    return math.ceil((size + INTERPRETER) / TASK_SHARE)

"""The memory of this machine, and the share of a worker."""

from __future__ import annotations

import psutil

from dsel._lib.blas import usable_cores
from dsel._lib.byte_sizes import parse_bytes
from dsel.errors import OptionError

#: Less is a forgotten unit.
_LEAST_BYTES = 1 << 20


def machine_memory() -> int:
    """Return the bytes of memory that this process may use."""
    from distributed.system import MEMORY_LIMIT

    return int(min(MEMORY_LIMIT or psutil.virtual_memory().total, psutil.virtual_memory().total))


def worker_memory(workers: int | None = None, memory: str | int | None = None) -> int:
    """Return the memory limit of each worker in bytes, by default an equal share of 80 % of the memory."""
    if memory is None:
        return int(0.8 * machine_memory()) // (workers or usable_cores())
    try:
        limit = int(parse_bytes(memory))
    except ValueError:
        limit = 0
    if limit < _LEAST_BYTES:
        raise OptionError(f"memory is {memory!r}.", "Write it as 1GiB or 800MB.")
    return limit

"""How many threads this process may use, and how many the linear algebra uses."""

from __future__ import annotations

import os
from contextlib import nullcontext
from functools import lru_cache
from typing import Any


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@lru_cache(maxsize=1)
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


#: With matrices of more rows and columns, several threads of BLAS pay.
_LARGE = 512


def one_blas_thread(size: int = 0) -> Any:
    """Limit BLAS to one thread during the block, unless the matrices have a `size` for which more threads pay.

    More threads compete with other workers, change the last bits of results, and do not pay on small matrices.

    The setting belongs to the process: contexts of several threads must not overlap.
    """
    return nullcontext() if size > _LARGE else _blas().limit(limits=1, user_api="blas")

"""How many threads the linear algebra uses."""

from __future__ import annotations

from functools import lru_cache
from typing import Any


@lru_cache(maxsize=1)
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def one_blas_thread() -> Any:
    """Limit BLAS to one thread during the block.

    More threads compete with other workers, change the last bits of results, and do not pay on small matrices.

    The setting belongs to the process: contexts of several threads must not overlap.
    """
    return _blas().limit(limits=1, user_api="blas")

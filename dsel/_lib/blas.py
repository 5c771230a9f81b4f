"""How many threads the linear algebra uses."""

from __future__ import annotations

from functools import lru_cache
from typing import Any


@lru_cache(maxsize=1)
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def one_blas_thread() -> Any:
    """A context in which BLAS uses one thread: more would fight the worker next door, and change the last bits; and on
    small matrices they cost more than they bring.

    The setting belongs to the process: contexts of several threads must not overlap.
    """
    return _blas().limit(limits=1, user_api="blas")

"""A digest of data that are not in a store, so that searches of parameters compute their statistics once.

Arrays in memory are hashed. A Dask array has a name that follows from its graph. Two graphs may read different values
under equal names, if a file was written to between them; so the objects at the leaves of the graph count, too.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Arrays are hashed in pieces of this many bytes, on all cores.
_PIECE = 16 << 20

_numbers = itertools.count()
#: The number of each leaf, by the id of its object.
_leaves: dict[int, tuple[weakref.ref[Any], int]] = {}


def data_digest(*parts: Any) -> str | None:
    """Return a digest of arrays, sparse matrices, frames and Dask arrays; None where there is none.

    Reads every byte of arrays in memory, and nothing of Dask arrays.
    """
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        token = _token(part)
        if token is None:
            return None
        digest.update(token)
    return digest.hexdigest()


def _token(part: Any) -> bytes | None:
    if part is None:
        return b"none"
    if hasattr(part, "dims") and hasattr(part, "data"):  # an xarray DataArray
        return _token(part.data)
    if hasattr(part, "__dask_graph__"):
        return _lazy_token(part)
    if hasattr(part, "tocsr"):
        return b"sparse" + str(part.shape).encode() + b"".join(map(_hash, (part.data, part.indices, part.indptr)))
    values = np.asarray(part)
    return None if values.dtype.kind == "O" else _hash(values)


def _hash(values: NDArray[Any]) -> bytes:
    """Return a hash of dtype, shape and values."""
    fortran = values.flags.f_contiguous and not values.flags.c_contiguous
    flat = np.ascontiguousarray(values.T if fortran else values).reshape(-1).view(np.uint8)
    pieces = [flat[i : i + _PIECE] for i in range(0, flat.size, _PIECE)]
    head = f"{values.dtype.str} {values.shape} {fortran}".encode()
    with ThreadPoolExecutor(max(1, min(len(pieces), os.cpu_count() or 1))) as pool:
        hashes = pool.map(lambda piece: hashlib.blake2b(piece, digest_size=16).digest(), pieces)
        return head + b"".join(hashes)


def _lazy_token(part: Any) -> bytes | None:
    """Return the name of a Dask array, and the numbers of the leaves of its graph."""
    graph = part.__dask_graph__()
    if not hasattr(graph, "layers") or not hasattr(part, "name"):
        return None
    numbers = sorted(_leaf_numbers(graph))
    return f"dask {part.name} {numbers}".encode()


def _leaf_numbers(graph: Any) -> Iterator[int]:
    for name, layer in graph.layers.items():
        if not graph.dependencies[name]:
            yield _leaf_number(layer)


def _leaf_number(layer: Any) -> int:
    """Return the number of a leaf. An object that is gone leaves no number behind for another at its address."""
    key = id(layer)
    found = _leaves.get(key)
    if found is not None and found[0]() is layer:
        return found[1]
    number = next(_numbers)
    _leaves[key] = weakref.ref(layer, lambda _: _leaves.pop(key, None)), number
    return number

"""Send a large value to workers in pieces of a few MiB, each a task in a small graph, rather than inside one graph.

The scheduler keeps the pieces as it keeps any task, so a piece that is lost with its worker is made again. A value that
is scattered would be lost.
"""

from __future__ import annotations

import pickle
from typing import Any
from uuid import uuid4

#: Bytes of values that are sent with a graph, at most, and of a piece.
MOST_WITH_GRAPH = 2 << 20


def send_in_pieces(client: Any, value: Any, name: str, kept: list[Any], of: int = 1) -> Any:
    """Return a delayed object with the value, which workers assemble from pieces that they have.

    Parameters
    ----------
    client : distributed.Client
        The client of the workers.
    value : Any
        What to send. It must be picklable.
    name : str
        The unique name of the delayed object.
    kept : list
        It gets the pieces. They must exist as long as the value is needed.
    of : int
        How many values of about this size one graph takes.
    """
    from dask.delayed import delayed

    outside: list[pickle.PickleBuffer] = []
    parts: list[Any] = [
        pickle.dumps(value, protocol=5, buffer_callback=outside.append),
        *(buffer.raw() for buffer in outside),
    ]
    if of * sum(map(len, parts)) <= MOST_WITH_GRAPH:
        return delayed(value, name=name, traverse=False)
    token, pieces = uuid4().hex[:8], []
    for i, part in enumerate(parts):
        whole = memoryview(part)
        cuts = [bytes(whole[at : at + MOST_WITH_GRAPH]) for at in range(0, len(whole), MOST_WITH_GRAPH)]
        of_part = [
            delayed(bytes, pure=False)(cut, dask_key_name=f"{name}-{token}-{i}-{j}") for j, cut in enumerate(cuts)
        ]
        pieces.append([client.persist(one) for one in of_part])  # one message each
    kept.extend(pieces)
    return delayed(_assembled, pure=False)(pieces, dask_key_name=name)


def _assembled(pieces: list[list[bytes]]) -> Any:
    first, *buffers = (bytearray().join(part) for part in pieces)  # arrays of a bytearray can be written
    return pickle.loads(first, buffers=buffers)

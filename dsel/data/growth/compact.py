"""Merge the small segments of a store."""

from __future__ import annotations

from dsel.data.store.reader import open_store
from dsel.data.store.segments import Segment, compact
from dsel.data.store.sparse import is_sparse, open_sparse
from dsel.data.store.staging import output_errors, staging_of
from dsel.storage.paths import AnyPath, as_path

#: Segments that `dsel compact` leaves, unless it is told otherwise.
LEFT = 32


def compact_store(store: str | AnyPath, most: int = LEFT) -> tuple[Segment, ...]:
    """Merge neighbouring segments of a store, those with the fewest rows first, and return those that are left.

    Parameters
    ----------
    store : str or path
        The store, a path or a URL.
    most : int
        How many segments are left at most.

    Raises
    ------
    MissingInputError
        If there is no store.
    OutputError
        If another process writes to it.

    Notes
    -----
    No rows are moved or read. The next run reads the rows of a merged segment once.
    """
    path = as_path(store)
    with output_errors(path), staging_of(path).locked():
        rows = (open_sparse(path) if is_sparse(path) else open_store(path)).shape[0]
        return compact(path, rows, most)

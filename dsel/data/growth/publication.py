"""The arrays of a store while rows are appended: written beyond what readers see, and published at the end.

The order of an append, under the lock that keeps other writers out:

1. The list of segments records that an append has begun.
2. The chunks are written. The last one that holds old rows is replaced as a whole, and its old rows stay as they are.
3. The arrays get their new lengths.
4. The list of segments gets the new one. This write, of the metadata of the group, publishes the rows.

Readers take the number of rows from the list of segments. So before step 4 they see the old rows, and afterwards all.
What an append wrote that did not reach step 4 lies beyond these rows, and the next append replaces it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from dsel.data import schema
from dsel.storage.paths import AnyPath, ObjectPath, walk, write_bytes, zarr_store


@dataclass(frozen=True)
class GrowingArray:
    """An array of a store to which rows are appended.

    Parameters
    ----------
    store : AnyPath
        The store.
    name : str
        The array in it, such as X or obs/weight.
    first, last : int
        Its length before and after the append.
    """

    store: AnyPath
    name: str
    first: int
    last: int

    @property
    def folder(self) -> AnyPath:
        return self.store / self.name

    @property
    def height(self) -> int:
        """Length of one file: a chunk, or a shard."""
        return int(self._metadata()["chunk_grid"]["configuration"]["chunk_shape"][0])

    def open(self) -> Any:
        """Return the array with its new length, for writing. Its metadata stay as they are."""
        import zarr

        metadata = json.dumps(self._metadata(self.last)).encode()
        array = zarr.open_array(zarr_store(self.folder, metadata=metadata), mode="r+")
        return array.with_config({"write_empty_chunks": True})

    def publish(self) -> None:
        """Write the new length."""
        write_metadata(self.folder, self._metadata(self.last))

    def remove_unpublished(self) -> None:
        """Remove chunks that lie beyond the old length, which another append wrote and did not publish."""
        beyond = ceil(self.first / self.height)
        for number, key in list(self._chunks()):
            if number >= beyond:
                (self.folder / key).unlink()

    def _chunks(self) -> Iterator[tuple[int, str]]:
        """Yield the row of chunks and the key of each file, such as c/3/0."""
        for entry in walk(self.folder):
            parts = entry.key.split("/")
            if parts[0] == "c" and len(parts) > 1 and all(part.isdigit() for part in parts[1:]):
                yield int(parts[1]), entry.key

    def _metadata(self, length: int | None = None) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / schema.METADATA_FILE).read_text())
        if length is not None:
            found["shape"][0] = length
        return found


def remove_temporary(folder: AnyPath) -> None:
    """Remove temporary files on disk, below an array or directly in a group, that a killed writer left."""
    if isinstance(folder, ObjectPath):
        return
    for left in (*folder.glob(f".{schema.METADATA_FILE}-*"), *folder.glob("c/**/*.partial")):
        left.unlink(missing_ok=True)


def write_metadata(folder: AnyPath, metadata: Mapping[str, Any]) -> None:
    """Replace the metadata of a group or an array; readers see the old or the new ones."""
    write_bytes(folder / schema.METADATA_FILE, json.dumps(metadata, indent=2).encode())

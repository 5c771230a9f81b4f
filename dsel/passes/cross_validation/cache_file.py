"""The cache of greedy RLS out of core: R, and rows of the vectors e, g, for a set of chosen columns, in Zarr.

    FOLDER/cache-SIZE-TOKEN/manifest.json   data, options, columns, number of updates since it was computed from X
    FOLDER/cache-SIZE-TOKEN/R, vectors      float64, with a checksum per chunk; each chunk is written by one task
    FOLDER/.TOKEN/                          a cache that is being written, renamed when it is complete

The cache can be deleted at any time. What is lost, damaged or of another job is computed again from the data.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from dsel._lib.types import Floats
from dsel.data import schema
from dsel.data.blocks import Block, StoredRows
from dsel.data.dataset import Dataset
from dsel.data.store.array import StoredArray
from dsel.data.store.staging import output_errors
from dsel.errors import CapacityError
from dsel.storage.json_files import read_json, write_json

#: Largest size of a chunk of R in bytes, about.
CHUNK_BYTES = 16 << 20

_FORMAT = 2
#: The arrays of a cache: R, and e, g and labels.
_ARRAYS = ("R", "vectors")
_MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Target:
    """A cache that is being written.

    path: its folder. rows: of a chunk. places: by the first row of each chunk, its place in the arrays. Each block of
    the dataset begins a new chunk, so no two blocks share a chunk. Blocks of columns begin new chunks, too.
    """

    path: str
    rows: int
    places: dict[int, int]

    def pieces(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return the rows [start, stop) of each chunk of a block with these rows."""
        return [(a, min(a + self.rows, stop)) for a in range(start, stop, self.rows)]

    def write(self, start: int, R: Floats, vectors: Floats | None = None, left: int = 0) -> None:
        """Write the chunk that begins with row `start` and column `left`; writing it again is harmless.

        Errors: CapacityError, OutputError.
        """
        place = self.places[start]
        with output_errors(Path(self.path)):
            _opened(self.path, _ARRAYS[0])[place : place + len(R), left : left + R.shape[1]] = R
            if vectors is not None:
                _opened(self.path, _ARRAYS[1])[place : place + len(vectors)] = vectors


@lru_cache(maxsize=8)
def _opened(path: str, variable: str) -> Any:
    import zarr

    return zarr.open_array(Path(path) / variable, mode="r+", zarr_format=3).with_config({"write_empty_chunks": True})


class CacheFile:
    """The cache of one search: one on disk, and two during a rewrite.

    folder: where it is written, and kept for a later run; None: a temporary folder of this process. width: columns
    besides R, 0 for none. key: what it depends on besides the chosen columns; None: a later run does not reuse it.
    columns: of a chunk of R, by default all.
    """

    def __init__(
        self, folder: Path | None, dataset: Dataset, width: int, key: dict[str, Any] | None, columns: int | None = None
    ) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="dsel-cache-") if folder is None else None
        self._folder = Path(self._temporary.name) if self._temporary is not None else folder
        self._dataset, self._width, self._chunk_columns = dataset, width, columns or dataset.n
        self._rows, self._stops = _layout(dataset, self._chunk_columns)
        self._places = {start: i * self._rows for i, start in enumerate(self._stops)}
        shape = {"format": _FORMAT, "rows": self._rows, "size": self.size, "width": width}
        shape |= {} if self._chunk_columns == dataset.n else {"columns": self._chunk_columns}
        self._key = None if key is None else {**key, **shape}
        self._path: Path | None = None
        self.columns: list[int] = []
        self.age = 0

    @property
    def size(self) -> int:
        """Return the number of rows, with the unused ones at the ends of blocks."""
        return len(self._places) * self._rows

    @property
    def nbytes(self) -> int:
        """Return the bytes of one cache on disk."""
        return cache_file_bytes(self._dataset, self._width, self._chunk_columns)

    def reuse(self) -> None:
        """Use the cache of an earlier run on the same data with the same options; remove all others."""
        assert self._folder is not None
        found = [*self._folder.glob("cache-*"), *self._folder.glob(".*")] if self._folder.is_dir() else []
        for path in found:
            manifest = read_json(path / _MANIFEST)
            ours = isinstance(manifest, dict) and self._key is not None and manifest.get("key") == self._key
            if ours and manifest is not None and len(manifest["columns"]) > len(self.columns):
                self.drop()
                self._path, self.columns, self.age = path, list(manifest["columns"]), int(manifest["age"])
            else:
                shutil.rmtree(path, ignore_errors=True)

    def rows(self) -> Dataset:
        """Return the rows as a dataset (R as X, the vectors as Y), one block per chunk of rows.

        Reading a chunk that is lost or damaged raises DataError.
        """
        path = str(self._path)
        arrays = [StoredArray(path, name) for name in (_ARRAYS if self._width else _ARRAYS[:1])]
        blocks = []
        for start, stop in self._stops.items():
            place = self._places[start]
            x, *y = (StoredRows(array, place, place + stop - start) for array in arrays)
            blocks.append(Block(start, stop, x, y[0] if y else None))
        m, n = self._dataset.m, self._dataset.n
        return replace(
            self._dataset, name=path, blocks=tuple(blocks), x_bytes=8 * m * n, y_bytes=8 * m * self._width, store=None,
            target_columns=None, n_targets=self._dataset.n_targets if self._width else 0,
        )  # fmt: skip

    def rewrite(self, columns: Sequence[int], age: int, fill: Callable[[Target], Floats]) -> Floats:
        """Write a new cache for `columns`, replace the last one by it, and return the result of `fill`.

        fill: a function that has every chunk written. Errors: CapacityError, OutputError; then the last cache stays.
        """
        assert self._folder is not None
        require_room(self._folder, self.nbytes, exists=self._path is not None)
        token = uuid4().hex[:8]
        staging = self._folder / f".{token}"
        path = self._folder / f"cache-{len(columns)}-{token}"
        with output_errors(path):
            self._folder.mkdir(parents=True, exist_ok=True)
        try:
            with output_errors(path):
                self._create(staging)
            found = fill(Target(str(staging), self._rows, self._places))
            write_json(staging / _MANIFEST, {"key": self._key, "columns": [int(j) for j in columns], "age": age})
            with output_errors(path):
                os.rename(staging, path)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        self.drop()
        self._path, self.columns, self.age = path, [int(j) for j in columns], age
        return found

    def _create(self, path: Path) -> None:
        import zarr
        from zarr.codecs import Crc32cCodec

        group = zarr.create_group(path, attributes={schema.ATTR_FORMAT: schema.FORMAT_VERSION})
        widths = ((self._dataset.n, self._chunk_columns), (self._width, self._width))
        for variable, (width, chunk) in zip(_ARRAYS, widths if self._width else widths[:1], strict=False):
            group.create_array(
                variable, shape=(self.size, width), chunks=(self._rows, chunk), dtype="float64",
                compressors=[Crc32cCodec()], filters=None, fill_value=np.nan,
            )  # fmt: skip

    def drop(self) -> None:
        """Remove the cache if there is one."""
        if self._path is not None:
            shutil.rmtree(self._path, ignore_errors=True)
        self._path, self.columns, self.age = None, [], 0

    def close(self) -> None:
        """Remove the cache and its folder."""
        self.drop()
        if self._temporary is not None:
            self._temporary.cleanup()
        elif self._folder is not None:
            with suppress(OSError):
                self._folder.rmdir()


def cache_file_bytes(dataset: Dataset, width: int, columns: int | None = None) -> int:
    """Return the bytes of the cache of a dataset on disk. width: columns besides R. columns: of a chunk of R."""
    rows, stops = _layout(dataset, columns or dataset.n)
    return 8 * len(stops) * rows * (dataset.n + width)


def require_room(folder: Path, nbytes: int, exists: bool | None = None) -> None:
    """Raise CapacityError unless two caches of `nbytes` fit the disk: the last one is removed after the next.

    exists: whether one is there already; None: look into the folder, where an earlier run may have left it.
    """
    need = nbytes if (any(folder.glob("cache-*")) if exists is None else exists) else 2 * nbytes
    existing = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    if need > free:
        raise CapacityError(
            f"The cache of greedy-rls needs {need / 1e9:.2f} GB in {existing}, where {free / 1e9:.2f} GB are free.",
            "Free some space, or set rewrite_every: never.",
        )


def _layout(dataset: Dataset, columns: int) -> tuple[int, dict[int, int]]:
    """Return the rows of a chunk at most, and the end of each chunk's rows by its first row."""
    largest = max(block.stop - block.start for block in dataset.blocks)
    most = max(16, CHUNK_BYTES // (8 * columns))
    rows = ceil(largest / ceil(largest / most))
    blocks = dataset.blocks
    return rows, {a: min(a + rows, b.stop) for b in blocks for a in range(b.start, b.stop, rows)}

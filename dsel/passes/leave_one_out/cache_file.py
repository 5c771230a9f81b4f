"""The cache of greedy RLS out of core: rows (R, e, g) for a set of chosen columns in Zarr, disposable at any time.

    FOLDER/cache-SIZE-TOKEN/manifest.json   what it is of: data, options, columns, how often it was worked forward
    FOLDER/cache-SIZE-TOKEN/R, aside        float64, a checksum a chunk; every chunk is written by one task alone
    FOLDER/.TOKEN/                          one being written: it gets its name when all is there

Nothing in it is needed: whatever is lost, damaged or of another job is computed again from the data.
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

#: Chunks of R have at most about so many bytes.
CHUNK_BYTES = 16 << 20

_FORMAT = 2
_MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Target:
    """A cache that is being written: its folder, the rows of a chunk, and by the first row of each chunk its place.

    Each block of the dataset begins a new chunk, so that no chunk is shared between blocks, whatever their sizes.
    """

    path: str
    rows: int
    places: dict[int, int]

    def pieces(self, block: Block) -> list[tuple[int, int]]:
        """Rows [start, stop) of a block that are one chunk each."""
        return [(a, min(a + self.rows, block.stop)) for a in range(block.start, block.stop, self.rows)]

    def write(self, start: int, R: Floats, aside: Floats) -> None:
        """Write the chunk that begins with row `start`; twice does no harm. Errors: CapacityError, OutputError."""
        place = self.places[start]
        with output_errors(Path(self.path)):
            for variable, rows in (("R", R), ("aside", aside)):
                _opened(self.path, variable)[place : place + len(rows)] = rows


@lru_cache(maxsize=8)
def _opened(path: str, variable: str) -> Any:
    import zarr

    return zarr.open_array(Path(path) / variable, mode="r+", zarr_format=3).with_config({"write_empty_chunks": True})


class CacheOnDisk:
    """The cache of one search over `dataset`: at most one, and during a rewrite two. width: columns of aside.

    folder: where it goes, kept for a later run; None: a temporary folder of this process. key: what it depends on
    beside the columns; None: it is not taken over by a later run.
    """

    def __init__(self, folder: Path | None, dataset: Dataset, width: int, key: dict[str, Any] | None) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="dsel-cache-") if folder is None else None
        self._folder = Path(self._temporary.name) if self._temporary is not None else folder
        self._dataset, self._width = dataset, width
        self._rows, self._stops = _layout(dataset)
        self._places = {start: i * self._rows for i, start in enumerate(self._stops)}
        shape = {"format": _FORMAT, "rows": self._rows, "size": self.size, "width": width}
        self._key = None if key is None else {**key, **shape}
        self._path: Path | None = None
        self.columns: list[int] = []
        self.age = 0

    @property
    def size(self) -> int:
        """Rows, those at the ends of blocks included that are never used."""
        return len(self._places) * self._rows

    @property
    def nbytes(self) -> int:
        """Bytes of one cache on disk."""
        return cache_file_bytes(self._dataset, self._width)

    def adopt(self) -> None:
        """Go on with what an earlier run left, if it is of the same data and options; remove everything else."""
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
        """The rows (R as X, aside as Y), a block a chunk. Reading one that is lost or damaged is a DataError."""
        path = str(self._path)
        arrays = StoredArray(path, "R"), StoredArray(path, "aside")
        blocks = []
        for start, stop in self._stops.items():
            place = self._places[start]
            x, y = (StoredRows(array, place, place + stop - start) for array in arrays)
            blocks.append(Block(start, stop, x, y))
        m, n = self._dataset.m, self._dataset.n
        return replace(
            self._dataset, name=path, blocks=tuple(blocks), x_bytes=8 * m * n, y_bytes=8 * m * self._width, store=None,
            target_columns=None,
        )  # fmt: skip

    def rewrite(self, columns: Sequence[int], age: int, fill: Callable[[Target], Floats]) -> Floats:
        """What `fill` gives, which has every chunk of a new cache for `columns` written; then it takes the last one's
        place. Errors: CapacityError, OutputError; the last one stays.
        """
        assert self._folder is not None
        require_room(self._folder, self.nbytes, held=self._path is not None)
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
        for variable, width in (("R", self._dataset.n), ("aside", self._width)):
            group.create_array(
                variable, shape=(self.size, width), chunks=(self._rows, width), dtype="float64",
                compressors=[Crc32cCodec()], filters=None, fill_value=np.nan,
            )  # fmt: skip

    def drop(self) -> None:
        """Remove the cache, if there is one."""
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


def cache_file_bytes(dataset: Dataset, width: int) -> int:
    """Bytes of the cache of a dataset on disk; width: columns beside R."""
    rows, stops = _layout(dataset)
    return 8 * len(stops) * rows * (dataset.n + width)


def require_room(folder: Path, nbytes: int, held: bool | None = None) -> None:
    """CapacityError unless two caches of so many bytes fit the disk: the last one goes when the next one is there.

    held: whether one is there already; None: look into the folder, where an earlier run may have left it.
    """
    need = nbytes if (any(folder.glob("cache-*")) if held is None else held) else 2 * nbytes
    there = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
    free = shutil.disk_usage(there).free
    if need > free:
        raise CapacityError(
            f"The cache of greedy-rls needs {need / 1e9:.2f} GB in {there}, where {free / 1e9:.2f} GB are free.",
            "Free some space, or fold_every: never.",
        )


def _layout(dataset: Dataset) -> tuple[int, dict[int, int]]:
    """Rows of a chunk at most, and the end of each chunk's rows by their start."""
    largest = max(block.stop - block.start for block in dataset.blocks)
    most = max(16, CHUNK_BYTES // (8 * dataset.n))
    rows = ceil(largest / ceil(largest / most))
    blocks = dataset.blocks
    return rows, {a: min(a + rows, b.stop) for b in blocks for a in range(b.start, b.stop, rows)}

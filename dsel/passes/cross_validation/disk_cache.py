"""Rounds of leave-one-out on rows out of core, with the paper's cache on disk, rewritten every few rounds.

The cost of rounds of leave-one-out with and without a cache on disk, and how often to rewrite it.

The cache holds R and rows of the vectors e, g, for a set of chosen columns, in Zarr.

    FOLDER/cache-SIZE-TOKEN/manifest.json   data, options, columns, number of updates since it was computed from X
    FOLDER/cache-SIZE-TOKEN/R, vectors      float64, with a checksum per chunk; each chunk is written by one task
    FOLDER/.TOKEN/                          a cache that is being written, renamed when it is complete

The cache can be deleted at any time. What is lost, damaged or of another job is computed again from the data.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import ceil
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import numpy as np

from dsel._lib.types import Floats
from dsel.data import schema
from dsel.data.blocks import Block, StoredRows
from dsel.data.dataset import Dataset
from dsel.data.store.array import StoredArray
from dsel.data.store.staging import output_errors
from dsel.errors import CapacityError, DataError, OutputError
from dsel.objective.cross_validation.leave_one_out import LooRound, n_errors
from dsel.objective.cross_validation.losses import Loss
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
        self._folder = folder or Path(self._temporary.name if self._temporary else "")
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
        require_room(self._folder, self.nbytes, exists=self._path is not None)
        token = uuid4().hex[:8]
        staging = self._folder / f".{token}"
        path = self._folder / f"cache-{len(columns)}-{token}"
        try:
            with output_errors(path):
                self._folder.mkdir(parents=True, exist_ok=True)
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
        else:
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


@dataclass(frozen=True)
class Speeds:
    """Bytes read and written, and multiplications and additions, per second of one worker.

    The defaults are those of one of two shared cores on warm files: uncompressed chunks read and written with their
    checksums, float64 products of tall blocks with OpenBLAS. Only their ratios matter, and the optimum is flat: with
    half or twice these values, a run takes at most a third longer (tests/passes/test_loo_cost_model.py).
    """

    read: float = 1.4e9
    write: float = 0.8e9
    flops: float = 2.5e10


def seconds_of_rounds(
    every: int | None, start: int, k: int, m: int, n: int, x_bytes: float, speeds: Speeds | None = None
) -> float:
    """Return the seconds of one worker for the passes of rounds with start, ..., k - 1 columns chosen (m x n data).

    A round reads X (x_bytes) and computes what the cache would hold: 2 s flops per element with s columns. With a cache
    that is rewritten every `every` rounds it reads the cache (8 bytes per element) and computes for the columns since.
    A rewrite reads the last cache (the first one X), updates it, and writes it. What every round costs in any case (the
    errors themselves) is left out. every None: no cache.
    """
    speeds = speeds or Speeds()
    elements = float(m) * n
    s = np.arange(start, k)
    if every is None:
        return float((x_bytes / speeds.read + 2.0 * s * elements / speeds.flops).sum())
    since = (s - start) % every
    cached = s - start >= every
    rewrite = cached & (since == 0)
    first = s - start == every
    read = np.where(cached & ~first, 8.0 * elements, x_bytes)
    recomputed = np.where(cached, since, s) + np.where(rewrite, np.where(first, s, every), 0)
    written = np.where(rewrite, 8.0 * elements, 0.0)
    return float((read / speeds.read + written / speeds.write + 2.0 * recomputed * elements / speeds.flops).sum())


def best_every(start: int, k: int, m: int, n: int, x_bytes: float, speeds: Speeds | None = None) -> int | None:
    """Return the rounds between rewrites that cost least; None if no cache costs less. O(k) evaluations of O(k)."""
    plain = seconds_of_rounds(None, start, k, m, n, x_bytes, speeds)
    if k - start < 2:
        return None
    # 1, 2, ..., k - start - 1, or at most 200 of them in geometric steps
    choices = np.unique(np.round(np.geomspace(1, k - start - 1, 200))).astype(np.int64)
    costs = [seconds_of_rounds(int(p), start, k, m, n, x_bytes, speeds) for p in choices]
    best = int(np.argmin(costs))
    return int(choices[best]) if costs[best] < plain else None


log = logging.getLogger("dsel")

#: After this many updates the cache is computed again from the data, so that rounding errors cannot add up.
REBUILD_AFTER = 64

#: A cache that is lost is computed again at most this often.
LOSSES = 3

FoldEvery = int | Literal["auto", "never"]


#: ``sweep(round, source, start, stop, target)`` returns the errors of a round, in one pass. It reads the rows of a
#: cache (`source`) for the first `start` columns of the round, or X without a cache. Where there is a target, it writes
#: the rows of the cache for the first `stop` columns.
Sweep = Callable[..., Floats]


class DiskCache:
    """The cache of a search, for rounds of insertions only.

    The cache is rewritten every p = `every` rounds: with s columns chosen it is that of the first
    first + p floor((s - first) / p), also after an interruption. A round that rewrites it reads the last cache, or X if
    there is none, and writes the new one in the same pass. A cache that cannot be read is computed again from X. A
    cache that cannot be written is an error, unless it is `optional`: then it is a warning, and the rounds continue
    without a cache.

    Parameters
    ----------
    dataset : Dataset
        The data.
    every : int
        Rounds between two rewrites.
    first : int
        The columns that are chosen before the first round.
    width : int
        Columns of the cache besides R.
    key : dict
        What the cache depends on besides the data, lam and the chosen columns.
    folder : Path, optional
        Where it is written, and kept for a later run; by default a temporary folder.
    optional : bool
        Whether the rounds continue where it cannot be written.
    columns : int, optional
        Columns of a chunk of R, by default all.
    """

    def __init__(
        self, dataset: Dataset, *, every: int, first: int, width: int, key: dict[str, Any], folder: Path | None = None,
        optional: bool = False, columns: int | None = None,
    ) -> None:  # fmt: skip
        self.every, self._first, self._optional = every, first, optional
        self._dataset, self._key = dataset, key
        self._new = partial(CacheFile, folder, dataset, width, columns=columns)
        self._disk: CacheFile | None = None
        self._losses = 0
        self.rewrites = 0
        self.bytes_read = 0
        self.bytes_written = 0

    def counts(self) -> dict[str, Any]:
        """Return what the cache cost."""
        return {
            "rewrite_every": self.every, "cache_rewrites": self.rewrites,
            "cache_bytes_read": self.bytes_read, "cache_bytes_written": self.bytes_written,
        }  # fmt: skip

    def close(self) -> None:
        """Remove the cache."""
        if self._disk is not None:
            self._disk.close()

    def errors(self, round: LooRound, sweep: Sweep, lam: float) -> Floats:
        """Return the errors of a round, in one pass over X or over the cache."""
        since = round.members.size - self._first
        size = round.members.size - since % self.every
        if since < self.every or self._losses > LOSSES:
            return sweep(round)
        try:
            return self._with_cache(self._open(lam), round, size, sweep)
        except (CapacityError, OutputError) as error:
            if not self._optional:
                raise
            log.warning("continuing without the cache of rows on disk: %s", error)
            self._losses = LOSSES + 1
            self.close()
            return sweep(round)

    def _open(self, lam: float) -> CacheFile:
        if self._disk is None:
            fingerprint = self._dataset.fingerprint
            key = None if fingerprint is None else {"input": fingerprint, **self._key, "lam": lam}
            self._disk = self._new(key)
            self._disk.reuse()
        return self._disk

    def _with_cache(self, disk: CacheFile, round: LooRound, size: int, sweep: Sweep) -> Floats:
        if disk.columns != round.members[:size].tolist():
            return self._rewritten(disk, round, size, sweep)
        try:
            return self._read(disk, round, sweep)
        except DataError as error:
            self._lost(disk, error)
            return self._rewritten(disk, round, size, sweep) if self._losses <= LOSSES else sweep(round)

    def _read(self, disk: CacheFile, round: LooRound, sweep: Sweep, **rewrite: Any) -> Floats:
        """Make a pass over the rows of the cache."""
        rows = disk.rows()
        errors = sweep(round, rows, len(disk.columns), **rewrite)
        self.bytes_read += rows.nbytes
        return _of_insertions(errors, round)

    def _rewritten(self, disk: CacheFile, round: LooRound, size: int, sweep: Sweep) -> Floats:
        """Return the errors of a round, from the pass that writes the cache for its first `size` columns."""
        members = round.members.tolist()
        before = len(disk.columns)
        forward = 0 < before < size and disk.columns == members[:before] and disk.age < REBUILD_AFTER

        def fill(target: Target) -> Floats:
            if forward:
                return self._read(disk, round, sweep, stop=size, target=target)
            return sweep(round, stop=size, target=target)

        try:
            errors = disk.rewrite(members[:size], disk.age + 1 if forward else 0, fill)
        except DataError as error:
            if not forward:  # it is the data that cannot be read
                raise
            self._lost(disk, error)
            return self._rewritten(disk, round, size, sweep)
        self.rewrites += 1
        self.bytes_written += disk.nbytes
        return _of_insertions(errors, round)

    def _lost(self, disk: CacheFile, error: DataError) -> None:
        self._losses += 1
        log.warning("the cache of rows on disk is lost and computed again from the data: %s", error)
        disk.drop()


def _of_insertions(errors: Floats, round: LooRound) -> Floats:
    """Return the errors of a round from those over rows of a cache, which has no errors of removals."""
    flat = np.zeros(n_errors(round))
    flat[: 1 + round.n] = errors[: 1 + round.n]
    return flat


def rounds_between_rewrites(
    asked: FoldEvery, dataset: Dataset, start: int, k: int, folder: Path | None, *, nbytes: int, direction: str
) -> int | None:
    """Return the rounds between rewrites of the cache: as asked, or by the cost model if there is a folder for it.

    nbytes: of the cache on disk. None: no cache. Errors: CapacityError where it is requested and does not fit the disk.
    """
    if asked == "never" or dataset.in_memory:
        return None
    if isinstance(asked, int):
        require_room(folder or Path(tempfile.gettempdir()), nbytes, exists=False if folder is None else None)
        return asked
    if folder is None or direction != "forward":
        return None
    every = best_every(start, k, dataset.m, dataset.n, dataset.nbytes)
    if every is None:
        return None
    try:
        require_room(folder, nbytes)
    except CapacityError as error:
        log.info("no cache of rows on disk, although it would save time: %s", error.what)
        return None
    return every


def cache_width(dataset: Dataset, loss: Loss, columns: int | None = None) -> int:
    """Return the columns of a cache besides R: e, g and, for the zero-one loss, labels.

    columns: of a chunk of R, where the rounds read blocks of columns. There R is alone.
    """
    return 0 if columns is not None else dataset.n_targets * (1 if loss == "squared" else 2) + 1

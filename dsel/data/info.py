"""What a store contains, and advice about it, as text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import ceil, prod
from typing import Any

from dsel._lib.console import console_text
from dsel._lib.text import counted, noun, printable, shorten
from dsel.data import schema
from dsel.data.schema import FEWEST_FULL_ROWS, TARGET_BYTES
from dsel.data.store.array import is_complete, open_array
from dsel.data.store.reader import Store, open_store
from dsel.data.store.sparse import SparseStore, is_sparse, open_sparse
from dsel.storage.paths import AnyPath, as_path, walk

SLOW_BYTES = 5 * TARGET_BYTES
TINY_BYTES = TARGET_BYTES // 40
#: Segments that are listed at either end of many.
_SHOWN = 5


@dataclass(frozen=True)
class VariableInfo:
    """How one array is stored."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    chunks: tuple[int, ...]
    shards: tuple[int, ...] | None
    n_chunks: int
    bytes_in_memory: int | None  # None for labels, which vary in length
    bytes_on_disk: int
    compression: str


@dataclass(frozen=True)
class StoreInfo:
    """A summary of a store.

    `absent` lists the chunk files that do not exist, and `notes` is advice. `segments` are the rows of each append:
    start, stop, time and fingerprint.
    """

    path: AnyPath
    variables: tuple[VariableInfo, ...]
    features: tuple[str, ...]
    attributes: dict[str, Any]
    notes: tuple[str, ...]
    targets: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    segments: tuple[dict[str, Any], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the summary, ready for JSON."""
        return {**asdict(self), "path": str(self.path)}


def describe(path: str | AnyPath) -> StoreInfo:
    """Return a summary of a store. Lists its files and reads no values. Raises the errors of `open_store`."""
    if is_sparse(as_path(path)):
        return _describe_sparse(open_sparse(path))
    store = open_store(path)
    variables = tuple(_variable(store.path, name) for name in store.variables())
    absent = tuple(store.absent_chunks())
    attributes = {key: value for key, value in store.attributes.items() if key != schema.ATTR_SEGMENTS}
    segments = tuple(
        {"start": s.start, "stop": s.stop, "time": s.time, "fingerprint": s.fingerprint()} for s in store.segments
    )
    return StoreInfo(
        store.path, variables, _first(store.features.tolist()), attributes,
        tuple(_notes(store, variables[0], absent)), _first(store.targets.tolist()), absent, segments,
    )  # fmt: skip


def render(info: StoreInfo, width: int | None = None) -> str:
    """Return the summary with a table of the arrays, for a terminal of this width. Control characters are escaped."""
    from rich.box import SIMPLE
    from rich.table import Table

    table = Table(box=SIMPLE, title=printable(info.path), title_justify="left")
    for heading in ("variable", "shape", "dtype", "chunks", "number", "in memory", "on disk", "compression"):
        table.add_column(heading, overflow="fold")
    for v in info.variables:
        memory = "" if v.bytes_in_memory is None else _size(v.bytes_in_memory)
        chunks = _times(v.chunks) + ("" if v.shards is None else f" in shards of {_times(v.shards)}")
        sizes = str(v.n_chunks), memory, _size(v.bytes_on_disk)
        table.add_row(v.name, _times(v.shape), v.dtype, chunks, *sizes, v.compression)
    text = [f"features: {', '.join(info.features)}"]
    if info.targets:
        text.append(f"targets: {', '.join(info.targets)}")
    text += [f"{key}: {_short(value)}" for key, value in info.attributes.items()]
    text += list(_segment_lines(info.segments))
    text += [f"note: {note}" for note in info.notes]
    return "\n".join([console_text([table], width).rstrip(), "", *map(printable, text)])


def _describe_sparse(store: SparseStore) -> StoreInfo:
    m, n = store.shape
    share = f"{store.stored:,} {noun(store.stored, 'value')} ({store.stored / (m * n):.2g} of the elements)"
    blocks = counted(len(store.row_bounds) - 1, "row block")
    parts = tuple(_variable(store.path, f"X/{name}") for name in ("data", "indices", "indptr"))
    attributes = {"X": f"{m} x {n} {store.dtype}, {share}, by rows, {blocks}", "obs": ", ".join(store.obs)}
    notes = ("targets and weights are columns of obs, by name",) if store.obs else ()
    return StoreInfo(store.path, parts, _first(store.features.tolist()), attributes, notes)


def _variable(path: AnyPath, name: str) -> VariableInfo:
    array = open_array(str(path), name).array
    codecs = [type(codec).__name__.removesuffix("Codec").lower() for codec in array.compressors]
    compression = [codec for codec in codecs if codec != "crc32c"] or ["uncompressed"]
    is_number = array.dtype.kind in "biufc"
    return VariableInfo(
        name=name,
        shape=array.shape,
        dtype=str(array.dtype) if is_number else "string",
        chunks=array.chunks,
        shards=array.shards,
        n_chunks=prod(ceil(size / step) for size, step in zip(array.shape, array.chunks, strict=True)),
        bytes_in_memory=prod(array.shape) * array.dtype.itemsize if is_number else None,
        bytes_on_disk=sum(entry.size for entry in walk(path / name)),
        compression=" ".join(compression) + (" with checksum" if "crc32c" in codecs else ""),
    )


def _notes(store: Store, x: VariableInfo, absent: tuple[str, ...]) -> list[str]:
    """Return advice: what makes this store slow or unsafe, and what to do about it."""
    notes = []
    if store.chunk_bytes > SLOW_BYTES:
        notes.append(f"chunks of {_size(store.chunk_bytes)} are slow to read and need memory: about 40 MB is best")
    if store.chunk_bytes < TINY_BYTES and store.nbytes > 4 * TARGET_BYTES:
        notes.append(f"chunks of {_size(store.chunk_bytes)} make many small tasks: about 40 MB is best")
    n_rows, is_cut = store.row_bounds[1], len(store.column_bounds) > 2
    if is_cut and FEWEST_FULL_ROWS * store.shape[1] * store.dtype.itemsize <= TARGET_BYTES:
        notes.append(f"chunks of {n_rows} rows are divided by columns: full rows are read several times faster")
    if "checksum" not in x.compression:
        notes.append("chunks have no checksum: a damaged chunk may be read as wrong numbers")
    if absent:
        lost = counted(len(absent), "chunk is absent and reads", "chunks are absent and read")
        notes.append(f"{lost} as fill values: {shorten(absent)}")
    if not is_complete(store.path):
        notes.append("not written by dsel: an absent chunk is read as fill values and not reported as lost")
    return notes


def _segment_lines(segments: tuple[dict[str, Any], ...]) -> Iterator[str]:
    """Yield a line for each segment, if there are several; of many only the first and the last ones."""
    if len(segments) < 2:
        return
    yield f"segments: {len(segments)}"
    shown = segments if len(segments) <= 2 * _SHOWN else (*segments[:_SHOWN], None, *segments[-_SHOWN:])
    for one in shown:
        yield "  ..." if one is None else "  rows {start} to {stop}, {time}, {fingerprint}".format(**one)


def _first(labels: list[str], limit: int = 8) -> tuple[str, ...]:
    more = len(labels) - limit
    return (*labels[:limit], f"... {more} more") if more > 0 else tuple(labels)


def _times(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _size(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def _short(value: Any, limit: int = 200) -> str:
    text = str(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."

"""The layout of a data set on disk, in one place.

A store is a Zarr v3 group that `xarray.open_zarr(store, consolidated=False)` opens as a Dataset:

    variable    dimensions           kind     meaning
    X           (sample, feature)    number   the data matrix, m x n
    Y           (sample, target)     number   optional: the targets, m x N
    feature     (feature,)           label    optional: names of the columns of X, all different
    target      (target,)            label    optional: names of the columns of Y, all different
    sample      (sample,)            label    optional: names of the rows
    weight      (sample,)            number   optional: how much each row counts, >= 0
    source      (feature,)           label    optional: the column of the source that a column of X was made from

A number is float16, float32, float64 or an integer of up to 8 bytes (bool is stored as uint8). dsel writes labels as
variable-length strings, the only string type of the Zarr v3 specification.

A store that dsel has written has `dsel_format` in the attributes of its group. Then *every* chunk exists as a file: an
absent chunk is lost, and is never read as fill values. In a store that another program has written, an absent chunk has
the meaning that Zarr defines: fill values.

A store that rows were appended to has `dsel_segments` in the attributes of its group (`dsel.data.store.segments`). Rows
beyond the last segment belong to an append that is not complete, and do not count.

The chunks of a new array: of the size that reads fastest, and full rows if they fit.
"""

from __future__ import annotations

from math import ceil
from typing import Final

import numpy as np

from dsel.errors import OptionError
from dsel.storage.paths import AnyPath

X: Final = "X"
Y: Final = "Y"
SAMPLE: Final = "sample"
FEATURE: Final = "feature"
TARGET: Final = "target"
WEIGHT: Final = "weight"
SOURCE: Final = "source"

DIMENSIONS: Final[dict[str, tuple[str, ...]]] = {
    X: (SAMPLE, FEATURE),
    Y: (SAMPLE, TARGET),
    FEATURE: (FEATURE,),
    TARGET: (TARGET,),
    SAMPLE: (SAMPLE,),
    WEIGHT: (SAMPLE,),
    SOURCE: (FEATURE,),
}

FORMAT_VERSION: Final = 1
ATTR_FORMAT: Final = "dsel_format"  # int, the version of this convention; if present, no chunk is absent
ATTR_VERSION: Final = "dsel_version"  # str, the release of dsel that wrote the store
ATTR_SOURCE: Final = "dsel_source"  # str, the name of the file that the data came from
ATTR_CREATED: Final = "dsel_created"  # str, ISO 8601, UTC
ATTR_GENERATOR: Final = "dsel_generator"  # dict, parameters and true model of generated data
ATTR_CLASSES: Final = "dsel_classes"  # dict, for each target that became columns its classes, in their order
ATTR_TARGETS: Final = "dsel_targets"  # list of str, of a sparse store: the columns of obs that are targets
ATTR_WEIGHT: Final = "dsel_weight"  # str, of a sparse store: the column of obs with the weights
ATTR_SEGMENTS: Final = "dsel_segments"  # dict, the rows of each append (dsel.data.store.segments)
ATTR_MISSING: Final = "dsel_missing_values"  # int, how many values of X were missing, one for a category; or absent
ATTR_MISSING_CELLS: Final = "dsel_missing"  # int, older stores have this: how many elements of X were missing
ATTR_MISSING_TARGETS: Final = "dsel_missing_targets"  # int, the same for the values of Y
ATTR_OPTIONS: Final = "dsel_options"  # dict, the options of the ingest, which an append takes over

METADATA_FILE: Final = "zarr.json"


def staging_path(store: AnyPath) -> AnyPath:
    """Return the folder next to `store` in which it is built; it exists only until the ingest is complete."""
    return store.with_name(store.name + ".ingesting")


def stored_dtype(dtype: np.dtype[np.generic]) -> np.dtype[np.generic] | None:
    """Return the native dtype that stores values of `dtype` without loss; None if they are not numbers."""
    if dtype.kind == "b":
        return np.dtype(np.uint8)
    if dtype.kind in "iu" or (dtype.kind == "f" and dtype.itemsize <= 8):
        return dtype.newbyteorder("=")
    return None


TARGET_BYTES: Final = 40_000_000  # measured: chunks of 40 MB are read twice as fast as chunks of 200 MB
DEFAULT_WORKER_MEMORY: Final = 1 << 30
CHUNKS_PER_WORKER: Final = 16  # a worker holds several blocks and their products at once
FEWEST_FULL_ROWS: Final = 512  # with fewer rows x.T @ x of a block does not reach the speed of BLAS-3
WIDE_ROWS: Final = 4096


def choose_chunks(shape: tuple[int, int], itemsize: int, *, worker_memory: int) -> tuple[int, int]:
    """Return the rows and columns of a chunk for an m x n array of `itemsize` bytes per element.

    A chunk has at most 40 MB, and at most 1/16 of `worker_memory` (bytes). If 512 full rows (or all rows) fit into
    that, a chunk consists of full rows. Otherwise it is divided by columns as well, and has 512 rows if m >= n, up to
    4096 if n > m, where passes go over the columns. The chunks of each dimension are about equal, so that the last one
    is not much smaller. Raises OptionError for an empty shape or sizes that are not positive.
    """
    m, n = shape
    if min(m, n, itemsize, worker_memory) < 1:
        raise OptionError(
            f"No chunks for {m} x {n} elements of {itemsize} bytes and workers of {worker_memory} bytes.",
            "All of them must be at least 1.",
        )
    elements = max(1, min(TARGET_BYTES, worker_memory // CHUNKS_PER_WORKER) // itemsize)
    full_rows = elements // n
    if full_rows >= min(m, FEWEST_FULL_ROWS):
        return _even(m, full_rows), n
    rows = _even(m, min(WIDE_ROWS if n > m else FEWEST_FULL_ROWS, elements))
    return rows, _even(n, elements // rows)


def bounds(size: int, step: int) -> list[int]:
    """Return the boundaries of the chunks of a dimension: 0, step, 2 step, ..., size."""
    return [*range(0, size, step), size]


def _even(size: int, limit: int) -> int:
    """Return the length of the longest piece if `size` is divided into the fewest even pieces of at most `limit`."""
    return ceil(size / ceil(size / max(1, min(size, limit))))

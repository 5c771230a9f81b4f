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
"""

from __future__ import annotations

from typing import Final

import numpy as np

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

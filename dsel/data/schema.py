"""What a data set is on disk, in one place.

A store is a Zarr v3 group that `xarray.open_zarr(store, consolidated=False)` opens as a Dataset:

    variable    dimensions           kind     meaning
    X           (sample, feature)    number   the data matrix, m x n
    Y           (sample, target)     number   optional: the targets, m x N
    feature     (feature,)           label    optional: names of the columns of X, each one once
    target      (target,)            label    optional: names of the columns of Y, each one once
    sample      (sample,)            label    optional: names of the rows
    weight      (sample,)            number   optional: how much each row counts, >= 0

A number is float16, float32, float64 or an integer of up to 8 bytes (bool is stored as uint8). Labels written
by dsel are variable-length strings, the one string type that the Zarr v3 specification has.

A store that dsel has written carries `dsel_format` in the attributes of its group, and then *every* chunk
exists as a file: one that is absent is lost, and is never read as fill values. In a store written by other
programs an absent chunk means what Zarr says it means, fill values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from dsel.errors import DataError
from dsel.storage.paths import AnyPath

X: Final = "X"
Y: Final = "Y"
SAMPLE: Final = "sample"
FEATURE: Final = "feature"
TARGET: Final = "target"
WEIGHT: Final = "weight"

DIMENSIONS: Final[dict[str, tuple[str, ...]]] = {
    X: (SAMPLE, FEATURE),
    Y: (SAMPLE, TARGET),
    FEATURE: (FEATURE,),
    TARGET: (TARGET,),
    SAMPLE: (SAMPLE,),
    WEIGHT: (SAMPLE,),
}

FORMAT_VERSION: Final = 1
ATTR_FORMAT: Final = "dsel_format"  # int, the version of this convention; its presence means "no chunk is absent"
ATTR_VERSION: Final = "dsel_version"  # str, the release of dsel that wrote the store
ATTR_SOURCE: Final = "dsel_source"  # str, the file name the data came from
ATTR_CREATED: Final = "dsel_created"  # str, ISO 8601, UTC
ATTR_GENERATOR: Final = "dsel_generator"  # dict, parameters and truth of generated data

METADATA_FILE: Final = "zarr.json"


def staging_path(store: AnyPath) -> AnyPath:
    """The folder beside `store` in which it is built: there only while an ingest runs or was interrupted."""
    return store.with_name(store.name + ".ingesting")


def stored_dtype(dtype: np.dtype[np.generic]) -> np.dtype[np.generic] | None:
    """The native dtype that stores values of `dtype` without loss; None when they are no numbers."""
    if dtype.kind == "b":
        return np.dtype(np.uint8)
    if dtype.kind in "iu" or (dtype.kind == "f" and dtype.itemsize <= 8):
        return dtype.newbyteorder("=")
    return None


def default_labels(prefix: str, count: int) -> list[str]:
    """`count` labels: x0, x1, ... for features, y0, y1, ... for targets."""
    return [f"{prefix}{i}" for i in range(count)]


def require_unique(labels: Sequence[str], what: str, where: str, remedy: str) -> None:
    """DataError naming the repeated labels, with how often each occurs, unless all `labels` are different."""
    if len(set(labels)) == len(labels):
        return
    repeated = [(label, times) for label, times in Counter(labels).most_common() if times > 1]
    shown = shorten(f"{label!r} ({times} times)" for label, times in repeated)
    raise DataError(f"{where}: {len(repeated)} {what} labels occur more than once: {shown}.", remedy)


def shorten(items: Iterable[str], limit: int = 5) -> str:
    """The first `limit` items, comma-separated, and how many more there are."""
    everything = list(items)
    rest = len(everything) - limit
    return ", ".join(everything[:limit]) + (f" and {rest} more" if rest > 0 else "")

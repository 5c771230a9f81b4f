"""The arrays and attributes of a selection, as selection.zarr and an xarray Dataset hold them.

A selection as a pandas DataFrame, as an xarray Dataset, and as a Zarr group.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dsel.selection.result import Selection

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr
    import zarr


def arrays_of(selection: Selection) -> dict[str, tuple[NDArray[Any], tuple[str, ...]]]:
    """Return the arrays of selection.zarr with their dimensions."""
    width = max((len(row.indices) for row in selection.front), default=1) or 1
    members = np.full((len(selection.front), width), -1, np.int64)
    for i, row in enumerate(selection.front):
        members[i, : len(row.indices)] = row.indices
    trace = np.array([[t.iteration, t.size, t.error] for t in selection.trace], np.float64).reshape(-1, 3)
    arrays: dict[str, tuple[NDArray[Any], tuple[str, ...]]] = {
        "selected": (np.array(selection.labels, dtype=object), ("selected",)),
        "indices": (np.asarray(selection.indices, np.int64), ("selected",)),
        "coefficients": (selection.coefficients, ("selected", "target")),
        "intercept": (selection.intercept, ("target",)),
        "front_size": (np.array([row.size for row in selection.front], np.int64), ("front",)),
        "front_error": (np.array([row.error for row in selection.front], np.float64), ("front",)),
        "front_r2": (np.array([row.r2 for row in selection.front], np.float64), ("front",)),
        "front_members": (members, ("front", "place")),
        "trace": (trace, ("improvement", "iteration_size_error")),
        **({} if selection.statistics is None else selection.statistics.arrays()),
    }
    if selection.targets:
        arrays["target"] = (np.array(selection.targets, dtype=object), ("target",))
    if selection.fill is not None:
        arrays["fill"] = (selection.fill, ("selected",))
    return arrays


def attributes_of(selection: Selection) -> dict[str, Any]:
    """Return what was asked and the main figures, as the attributes of selection.zarr.

    Returns
    -------
    dict
        JSON types.
    """
    return {
        "method": selection.method, "k": selection.k, "lam": selection.lam, "preprocess": selection.preprocess,
        "missing": selection.request.missing, "seed": selection.seed, "error": selection.error, "r2": selection.r2,
        "shape": list(selection.shape), "source": selection.source, "ended": selection.ended,
        "dsel_version": selection.versions.get("dsel", ""),
    }  # fmt: skip


#: Arrays by name, each with its dimensions.
Arrays = dict[str, tuple[NDArray[Any], tuple[str, ...]]]


def to_frame(selection: Selection) -> pd.DataFrame:
    """Return the chosen columns as a DataFrame, one row each. See `Selection.to_frame`."""
    import pandas as pd

    included = [index in selection.include for index in selection.indices]
    columns: dict[str, Any] = {"index": list(selection.indices), "included": included}
    if selection.statistics is not None:
        columns["gain"] = selection.statistics.gains
    if len(selection.targets) == 1:
        columns["coefficient"] = selection.coefficients[:, 0]
    for place, target in enumerate(selection.targets if len(selection.targets) > 1 else ()):
        columns[f"coefficient_{target}"] = selection.coefficients[:, place]
    return pd.DataFrame(columns, index=pd.Index(selection.labels, name="feature", dtype=object))


def to_xarray(selection: Selection) -> xr.Dataset:
    """Return the arrays of a selection as a Dataset. See `Selection.to_xarray`."""
    import xarray as xr

    variables = {name: (dims, array) for name, (array, dims) in arrays_of(selection).items()}
    coordinates = {name: variables.pop(name) for name in ("selected", "target") if name in variables}
    return xr.Dataset(variables, coordinates, attributes_of(selection))


def group_files(arrays: Arrays, attributes: dict[str, Any]) -> dict[str, bytes]:
    """Return the files of a Zarr group with these arrays, which xarray opens without a warning.

    Each chunk has a checksum. It is there, too, if it holds nothing but the fill value, so that an absent one is lost.
    Zarr asks for files before and after it writes one. In memory that costs nothing.
    """
    import zarr
    from zarr.codecs import Crc32cCodec, ZstdCodec
    from zarr.core.buffer import Buffer
    from zarr.storage import MemoryStore

    files: dict[str, Buffer] = {}
    store = MemoryStore(files)
    group = zarr.create_group(store, zarr_format=3, attributes=attributes)
    for name, (array, dims) in arrays.items():
        created = group.create_array(
            name, shape=array.shape, dtype="string" if array.dtype == object else array.dtype, dimension_names=dims,
            compressors=[ZstdCodec(), Crc32cCodec()], config={"write_empty_chunks": True},
        )  # fmt: skip
        created[...] = array
    consolidate(store)
    return {key: value.to_bytes() for key, value in files.items()}


def group_of(files: Mapping[str, bytes]) -> zarr.Group:
    """Return the Zarr group with these files, in memory."""
    import zarr
    from zarr.core.buffer import default_buffer_prototype
    from zarr.storage import MemoryStore

    as_buffer = default_buffer_prototype().buffer.from_bytes
    return zarr.open_group(MemoryStore({key: as_buffer(data) for key, data in files.items()}), mode="r")


def consolidate(store: Any) -> None:
    """Write the metadata of all arrays into those of the group, where xarray looks for them first."""
    import zarr

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the specification of version 3 does not have them yet
        zarr.consolidate_metadata(store, zarr_format=3)

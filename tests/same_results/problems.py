"""Small problems whose numbers float32 holds exactly, and the forms in which data come."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

#: Rows, columns, targets (0: Y = X), seed.
SHAPES = {
    "one": (60, 12, 1, 1), "several": (60, 12, 3, 2), "many": (60, 12, 10, 3), "itself": (40, 12, 0, 4),
    "short": (20, 30, 2, 5), "flat": (20, 30, 0, 6), "rest": (30, 12, 1, 7), "rest-several": (30, 12, 3, 8),
    "tiles": (90, 400, 2, 9), "tiles-itself": (90, 400, 0, 10), "wide": (24, 3000, 2, 11),
    "wide-many": (24, 3000, 10, 12), "wide-itself": (24, 4500, 0, 13), "huge-itself": (400, 12000, 0, 14),
    "square-itself": (2000, 4200, 0, 15), "wide-kept": (24, 4500, 2, 16),
}  # fmt: skip


@cache
def problem(name: str) -> tuple[Any, Any]:
    """X (m, n), and Y (m, N) or None. Columns are correlated, and five of them make the targets, with noise."""
    if name in VARIANTS:
        return VARIANTS[name]()
    m, n, N, seed = SHAPES[name]
    rng = np.random.default_rng(seed)
    X = rng.integers(-64, 64, size=(m, n)).astype(np.float64)
    X[:, 1:] += X[:, :-1] // 2
    X = X / 16 + rng.integers(-3, 4, size=n)
    if name.startswith(("wide", "huge", "square")):
        X *= np.where(np.arange(n) % 97 == 5, 4.0, 1.0)
    if not N:
        return X, None
    beta = rng.integers(-4, 5, size=(5, N)).astype(np.float64)
    places = np.linspace(0, n - 1, 5).astype(int)
    Y = X[:, places] @ beta + rng.integers(-64, 64, size=(m, N)) / 8
    return X, Y


def _labels() -> tuple[Any, Any]:
    X, Y = problem("one")
    return X, np.where(np.median(Y) < Y, 1.0, -1.0)


def _recoded() -> tuple[Any, Any]:
    X, Y = _labels()
    return X, (Y + 1) / 2


def _holes() -> tuple[Any, Any]:
    X, Y = problem("several")
    X = X.copy()
    X[3, 4] = X[7, 4] = X[20, 0] = np.nan
    return X, Y


def _holes_itself() -> tuple[Any, Any]:
    X = problem("itself")[0].copy()
    X[3, 4] = X[7, 4] = X[20, 0] = np.nan
    return X, None


def _wide_holes(name: str = "wide") -> tuple[Any, Any]:
    X, Y = problem(name)
    X = X.copy()
    X[3, 4] = X[7, 4] = X[20, 0] = X[5, 102] = np.nan
    return X, Y


def _trouble(name: str = "several") -> tuple[Any, Any]:
    """A constant column, a multiple of another, a sum of two, and one that is nearly another."""
    X, Y = problem(name)
    X = X.copy()
    X[:, 3] = 2.0
    X[:, 6] = -2 * X[:, 2]
    X[:, 8] = X[:, 0] + X[:, 1]
    X[:, 9] = X[:, 4] + 2.0**-11 * (np.arange(X.shape[0]) % 7)
    return X, Y


VARIANTS = {
    "labels": _labels, "recoded": _recoded, "holes": _holes, "holes-itself": _holes_itself, "trouble": _trouble,
    "wide-holes": _wide_holes, "wide-holes-itself": lambda: _wide_holes("wide-itself"),
    "trouble-itself": lambda: _trouble("itself"),
}  # fmt: skip


def weights(m: int) -> Any:
    """Weights of m rows, some of them 0."""
    return (np.arange(m) % 5) / 2


def store(
    folder: Path, name: str, chunks: tuple[int, int] | None = None, dtype: str = "float64", weighted: bool = False
) -> str:
    """The problem as a Zarr store, written with zarr alone."""
    import zarr

    X, Y = problem(name)
    path = folder / f"{name}-{chunks}-{dtype}-{weighted}.zarr".replace(" ", "")
    if path.exists():
        return str(path)
    group = zarr.open_group(str(path), mode="w", zarr_format=3)
    group.create_array("X", data=X.astype(dtype), chunks=chunks or X.shape, dimension_names=("sample", "feature"))
    if Y is not None:
        rows = (chunks or X.shape)[0]
        group.create_array("Y", data=Y, chunks=(rows, Y.shape[1]), dimension_names=("sample", "target"))
    if weighted:
        w = weights(X.shape[0])
        group.create_array("weight", data=w, chunks=w.shape, dimension_names=("sample",))
    return str(path)


def thin(X: Any) -> Any:
    """About a third of the entries, the others 0."""
    rows, columns = np.indices(X.shape)
    return np.where((3 * rows + 5 * columns) % 7 < 3, X, 0.0)


def sparse_store(folder: Path, name: str, zarr_format: int) -> str:
    """X and its first target as AnnData writes them: rows compressed, the target a column of obs."""
    import scipy.sparse
    import zarr

    X, Y = problem(name)
    path = folder / f"{name}-sparse-{zarr_format}.zarr"
    if path.exists():
        return str(path)
    matrix = scipy.sparse.csr_matrix(thin(X).astype(np.float32))
    root = zarr.open_group(str(path), mode="w", zarr_format=zarr_format)
    group = root.create_group("X", attributes={"encoding-type": "csr_matrix", "shape": list(matrix.shape)})
    for part in ("data", "indices", "indptr"):
        values = getattr(matrix, part)
        group.create_array(part, data=values, chunks=(min(50, values.size),))
    obs = root.create_group("obs", attributes={"encoding-type": "dataframe"})
    obs.create_array("y", data=Y[:, 0], chunks=(32,))
    obs.create_array("w", data=weights(X.shape[0]), chunks=(32,))
    return str(path)


def in_form(form: str, name: str, folder: Path) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of `dsel.select` for a problem in one of the forms."""
    import dask.array as da
    import pandas as pd
    import scipy.sparse
    import xarray as xr

    if form.startswith("store"):
        kinds: dict[str, dict[str, Any]] = {
            "store": {"chunks": (60, 12)}, "store-blocks": {"chunks": (13, 12)}, "store-columns": {"chunks": (60, 5)},
            "store-tiles": {"chunks": (13, 5)}, "store-float32": {"chunks": (13, 12), "dtype": "float32"},
            "store-weight": {"chunks": (13, 12), "weighted": True},
        }  # fmt: skip
        return (store(folder, name, **kinds[form]),), {}
    if form.startswith("sparse-store"):
        return (sparse_store(folder, name, int(form[-1])),), {"targets": ["y"]}
    X, Y = problem(name)
    if form.startswith(("csr", "csc")):
        kind = getattr(scipy.sparse, f"{form[:3]}_matrix")
        return (kind(thin(X).astype("float32" if form.endswith("32") else "float64")), Y), {}
    if form == "pandas":
        columns = [f"c{j}" for j in range(X.shape[1])]
        y = None if Y is None else pd.DataFrame(Y, columns=[f"t{j}" for j in range(Y.shape[1])])
        return (pd.DataFrame(X, columns=columns), y), {}
    if form in ("DataArray", "Dataset", "Dataset-weight"):
        labels = [f"c{j}" for j in range(X.shape[1])]
        x = xr.DataArray(X, dims=("sample", "feature"), coords={"feature": labels})
        y = xr.DataArray(Y, dims=("sample", "target"))
        if form == "DataArray":
            return (x, y), {}
        more = {"weight": ("sample", weights(X.shape[0]))} if form.endswith("weight") else {}
        return (xr.Dataset({"X": x, "Y": y, **more}),), {}
    if form == "masked":
        mask = np.zeros(X.shape, bool)
        mask[5, 2] = mask[9, 7] = True
        return (np.ma.MaskedArray(X, mask), Y), {"missing": "mean"}
    made = {
        "numpy": lambda: X, "fortran": lambda: np.asfortranarray(X), "float32": lambda: X.astype(np.float32),
        "integers": lambda: (16 * X).astype(np.int32), "dask": lambda: da.from_array(X, chunks=(13, X.shape[1])),
        "dask-tiles": lambda: da.from_array(X, chunks=(13, 5)),
        "dask-float32": lambda: da.from_array(X.astype(np.float32), chunks=(13, X.shape[1])),
    }  # fmt: skip
    return (made[form](), Y), {}

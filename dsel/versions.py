"""Versions of what a result depends on."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

_PACKAGES = ("dsel", "numpy", "scipy", "numba", "dask", "distributed", "zarr", "xarray")


def versions() -> dict[str, str]:
    """Name to version, of Python and of the libraries that compute or store."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found

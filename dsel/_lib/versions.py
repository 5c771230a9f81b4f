"""Versions of what a result depends on."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

_PACKAGES = ("numpy", "scipy", "numba", "dask", "distributed", "zarr", "xarray")


def versions() -> dict[str, str]:
    """Name to version, of dsel, of Python and of the libraries that compute or store."""
    return {
        "dsel": _version("dsel"),
        "python": platform.python_version(),
        **{name: _version(name) for name in _PACKAGES},
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"

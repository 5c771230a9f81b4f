"""Versions of what a result depends on, and when and where it was made."""

from __future__ import annotations

import functools
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

_PACKAGES = ("numpy", "scipy", "numba", "dask", "distributed", "zarr", "xarray")


def versions() -> dict[str, str]:
    """Name to version, of dsel, of Python and of the libraries that compute or store."""
    return {
        "dsel": _version("dsel"),
        "python": platform.python_version(),
        **{name: _version(name) for name in _PACKAGES},
    }


def now() -> str:
    """Return the time in UTC, in ISO 8601 to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def provenance(started: str) -> dict[str, str]:
    """Return when a run started and finished, and the name and the system of this host."""
    return {
        "started": started,
        "finished": now(),
        "host": platform.node(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


@functools.cache  # reading the metadata of packages takes milliseconds
def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"

"""Load the papers' data sets from NAME.npz in $DSEL_PAPERS_DATA, ../shared/data or tests/data."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from dsel._lib.types import Floats

_REPOSITORY = Path(__file__).resolve().parents[2]


def folders() -> list[Path]:
    """Return the folders to search, in order."""
    named = os.environ.get("DSEL_PAPERS_DATA")
    return [
        *([Path(named)] if named else []),
        _REPOSITORY.parent / "shared" / "data",
        _REPOSITORY / "tests" / "data",
    ]


def load(name: str) -> dict[str, Floats] | None:
    """Return the numeric arrays of a data set (X (m, n), Y (m, N) and more), or None if there is no file."""
    for folder in folders():
        path = folder / f"{name}.npz"
        if path.exists():
            with np.load(path, allow_pickle=False) as arrays:
                return {
                    key: np.asarray(arrays[key], np.float64) for key in arrays.files if arrays[key].dtype.kind in "fiub"
                }
    return None


def missing(name: str) -> str:
    """Return the message for a data set without a file."""
    places = ", ".join(str(folder) for folder in folders())
    return f"{name}: skipped; {name}.npz is not in {places}. Set DSEL_PAPERS_DATA to its folder."

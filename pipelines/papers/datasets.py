"""The papers' data sets, where there are any: NAME.npz in $DSEL_PAPERS_DATA, ../shared/data or tests/data."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from dsel._lib.types import Floats

_REPOSITORY = Path(__file__).resolve().parents[2]


def folders() -> list[Path]:
    """Where to look, in this order."""
    named = os.environ.get("DSEL_PAPERS_DATA")
    return [
        *([Path(named)] if named else []),
        _REPOSITORY.parent / "shared" / "data",
        _REPOSITORY / "tests" / "data",
    ]


def load(name: str) -> dict[str, Floats] | None:
    """The numeric arrays of a data set (X (m, n), Y (m, targets) and more), or None where it is nowhere."""
    for folder in folders():
        path = folder / f"{name}.npz"
        if path.exists():
            with np.load(path, allow_pickle=False) as arrays:
                return {
                    key: np.asarray(arrays[key], np.float64) for key in arrays.files if arrays[key].dtype.kind in "fiub"
                }
    return None


def missing(name: str) -> str:
    """What to print for a data set that is nowhere."""
    places = ", ".join(str(folder) for folder in folders())
    return f"{name}: skipped, there is no {name}.npz in {places} (set DSEL_PAPERS_DATA to its folder)"

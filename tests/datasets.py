"""The papers' data sets: the small ones lie in tests/data, the others in ../shared/data where there is one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dsel._lib.types import Floats

_ROOT = Path(__file__).resolve().parent.parent
_PLACES = (_ROOT / "tests" / "data", _ROOT.parent / "shared" / "data")


def load(name: str) -> tuple[Floats, Floats | None, np.lib.npyio.NpzFile]:
    """X (m, n), Y (m, N) or None, and the whole file; skips the test where the data set is not to be had."""
    for place in _PLACES:
        path = place / f"{name}.npz"
        if path.exists():
            npz = np.load(path, allow_pickle=False)
            X = np.asarray(npz["X"], np.float64)
            return X, np.asarray(npz["Y"], np.float64) if "Y" in npz else None, npz
    pytest.skip(f"the data set {name}.npz is in none of tests/data, ../shared/data (tests/data/SOURCES.md)")


def standardized(x: Floats) -> Floats:
    """Columns of mean 0 and variance 1 (ddof 0)."""
    centered = x - x.mean(axis=0)
    return np.asarray(centered / centered.std(axis=0))

"""Rows of coefficients or products: numbers (n,) for one target, vectors (n, N) for several."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dsel._lib.types import Floats


def squares(b: Floats) -> Floats:
    """Return the squared norm (n,) of each row."""
    return np.square(b) if b.ndim == 1 else np.asarray(np.einsum("ij,ij->i", b, b))


def sizes(b: Floats) -> Floats:
    """Return the norm (n,) of each row."""
    return np.abs(b) if b.ndim == 1 else np.sqrt(squares(b))


def nonzero(b: Floats) -> NDArray[np.bool_]:
    """Return which rows (n,) are not zero."""
    return np.asarray(b != 0.0 if b.ndim == 1 else (b != 0.0).any(axis=1))


def products(b: Floats) -> Floats:
    """Return the inner products (n, n) of the rows."""
    return np.outer(b, b) if b.ndim == 1 else b @ b.T


def inner(a: Floats, b: Floats) -> float:
    """Return the sum of the products of the elements."""
    return float(a @ b) if a.ndim == 1 else float(np.vdot(a, b))


def scaled(d: Floats, b: Floats) -> Floats:
    """Return each row times its factor in d (n,)."""
    return d * b if b.ndim == 1 else d[:, None] * b

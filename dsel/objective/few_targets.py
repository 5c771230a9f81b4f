"""Targets as few as the rank of their cross-moments."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.linalg

from dsel._lib.low_rank import eigenvectors_of
from dsel._lib.types import Floats
from dsel.objective.objective_interface import Objective

#: Eigenvalues of K or M of at most this share of the largest are rounding.
_ROUNDING = 1e-14
#: From this ratio of the largest to the smallest column on, rounding in the decomposition of K loses small columns.
_UNEQUAL = 1e3
#: Multiplications of a dense factorization in a second, at least, and those of an eigendecomposition over n^3.
_MULTIPLICATIONS_PER_SECOND, _EIGENVECTORS = 4e9, 10.0


def few_targets(objective: Objective, require_seconds: Callable[[float], None] | None = None) -> Floats:
    """Return B (n, r) with B B' = M, and r as small as the rank of M allows, to rounding.

    The targets descend by what single columns explain of them (of their squares if Y = X). `require_seconds` is called
    with the time that a large decomposition takes at most, and may raise.
    """
    norms = column_norms(np.diag(objective.K) + objective.lam)
    if objective.moments is not None:
        values, vectors = _eigenvectors(objective.moments / np.outer(norms, norms), require_seconds)
        real = (values > _ROUNDING * max(float(values[-1]), 0.0))[::-1]
        return np.asarray(norms[:, None] * vectors[:, ::-1][:, real] * np.sqrt(values[::-1][real]))
    if objective.cross is None and float(norms.max()) <= _UNEQUAL * float(norms.min()):
        values, vectors = _eigenvectors(objective.K, require_seconds)
        real = (np.abs(values) > _ROUNDING * float(np.abs(values).max(initial=0.0)))[::-1]
        return np.asarray(vectors[:, ::-1][:, real] * values[::-1][real])
    cross = objective.K if objective.cross is None else objective.cross
    if cross.shape[1] == 1:
        return cross
    if require_seconds is not None:
        require_seconds(dense_seconds(cross.shape[0] * cross.shape[1] ** 2 * _EIGENVECTORS))
    U, values, _ = scipy.linalg.svd(cross / norms[:, None], full_matrices=False)
    real = values > _ROUNDING * max(float(values[0]), 0.0)
    return np.asarray(norms[:, None] * U[:, real] * values[real]) if real.any() else cross[:, :1]


def _eigenvectors(K: Floats, require_seconds: Callable[[float], None] | None) -> tuple[Floats, Floats]:
    """Return the eigenvalues of K, ascending, and their eigenvectors; without those of 0 if K has a low rank."""
    found = eigenvectors_of(K)
    if found is not None:
        return found
    if require_seconds is not None:
        require_seconds(dense_seconds(K.shape[0] ** 3 * _EIGENVECTORS))
    values, vectors = scipy.linalg.eigh(K)
    return np.asarray(values), np.asarray(vectors)


def dense_seconds(multiplications: float) -> float:
    """Return about how long this many multiplications of a dense factorization take, at most."""
    return multiplications / _MULTIPLICATIONS_PER_SECOND


def column_norms(diagonal: Floats) -> Floats:
    """Return sqrt(K_jj), or 1 for a column of zeros. Rounding is judged after the columns are divided by them."""
    norms = np.sqrt(np.maximum(diagonal, 0.0))
    return np.where(norms > 0.0, norms, 1.0)

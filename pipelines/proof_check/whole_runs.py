"""Selections and certificates as users make them, of data of any scale, with weights, passes and included columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import dask.array as da
import numpy as np
from numpy.random import Generator

import dsel
from dsel._lib.types import Floats
from dsel.errors import DataError, OptionError
from dsel.search.exact.certificate import Certificate
from pipelines.proof_check.families import COLLINEAR, Problem

_METHODS = ("branch-and-bound", "astar", "forward", "exhaustive", "poss")
#: What an error says that refuses data because of their scale, or included columns that depend on each other.
_REFUSALS = ("out of float64's range", "depend on each other", "too large or too small for a penalty", "are constant")


def random_run(seed: int, index: int) -> Problem:
    """Return the data and the request of run number `index`."""
    rng = np.random.default_rng([seed, index, 3])
    name, make = COLLINEAR[int(rng.integers(len(COLLINEAR)))]
    m, n = int(rng.integers(6, 40)), int(rng.integers(3, 9))
    X, N, unsupervised = make(rng, m, n), int(rng.choice([1, 1, 3])), bool(rng.random() < 0.3)
    Y = X @ rng.standard_normal((n, N)) + 0.1 * np.std(X) * rng.standard_normal((m, N))
    preprocess = str(rng.choice(["none", "center", "standardize", "unit"]))
    scales, kind = _scales(rng, n)
    X, Y = X * scales, Y * 10.0 ** float(rng.choice([0.0, 0.0, -140.0, 90.0, 140.0]))
    weights = None
    if rng.random() < 0.3:
        weights = 10.0 ** rng.uniform(-6.0, 6.0, m) if rng.random() < 0.5 else np.r_[1e12, np.ones(m - 1)]
    lam = float(rng.choice([0.0, 0.0, 0.0, 1e-3]))
    include = tuple(sorted(int(j) for j in rng.choice(n, int(rng.choice([0, 0, 1, 2])), replace=False)))
    k = int(rng.integers(1, min(4, n - len(include)) + 1))
    return Problem(
        f"run {name}, {kind}, {preprocess}", X, X if unsupervised else Y, k, lam, unsupervised, include=include,
        weights=weights, preprocess=preprocess,
    )  # fmt: skip


def _scales(rng: Generator, n: int) -> tuple[Floats, str]:
    """Return by what the columns are multiplied, and what that is called."""
    kind = str(rng.choice(["usual", "usual", "huge", "tiny", "ratios"]))
    if kind == "usual":
        return np.ones(n), kind
    if kind == "ratios":
        return 10.0 ** rng.uniform(-140.0, 140.0, n), kind
    return np.full(n, 10.0 ** ((1 if kind == "huge" else -1) * rng.uniform(60.0, 145.0))), kind


def run_of(problem: Problem) -> tuple[Any, list[Certificate]]:
    """Select and certify; None if the data are refused with a clear error.

    The seed of the choices is the shape of the data: method, sizes, and whether the data are read in blocks of rows.
    """
    rng = np.random.default_rng([*problem.X.shape, problem.k])
    method, sizes = str(rng.choice(_METHODS)), str(rng.choice(["chosen", "all"]))
    X: Any = problem.X
    from_array: Any = da.from_array
    if rng.random() < 0.5:
        X = from_array(X, chunks=(max(X.shape[0] // 3, 1), X.shape[1]))
    Y = None if problem.unsupervised else problem.Y
    about: dict[str, Any] = {"sample_weight": problem.weights, "progress": False}
    asked: dict[str, Any] = {"preprocess": problem.preprocess, "method": method, "lam": problem.lam}
    limits: dict[str, Any] = {"sizes": sizes, "nodes": 20_000, "seconds": None}
    try:
        selection = dsel.select(
            X, Y, k=problem.k + len(problem.include), include=problem.include, **asked, **about
        )  # fmt: skip
        certified = dsel.certify(selection, X, Y, **limits, **about)
    except (DataError, OptionError) as error:
        if any(words in str(error) for words in _REFUSALS):
            return None, []
        raise
    return certified, [replace(Certificate.from_dict(row)) for row in certified.certificate]

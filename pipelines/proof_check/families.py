"""Random problems that are hard for bounds in floating point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.random import Generator

from dsel._lib.types import Floats
from dsel.errors import OptionError
from dsel.objective.dense import DenseObjective
from dsel.objective.objective_interface import Objective

Make = Callable[[Generator, int, int], Floats]


@dataclass(frozen=True, eq=False)
class Problem:
    """One random problem.

    name: what kind. X (m, n), Y (m, N): the data; rows are multiplied by the square roots of their weights.
    unsupervised: whether Y is X. planted: columns of which Y is a combination without noise, or none. include: columns
    that are always chosen, besides the k. weights (m,) and preprocess: what is left to do with the data.
    """

    name: str
    X: Floats
    Y: Floats
    k: int
    lam: float
    unsupervised: bool
    planted: tuple[int, ...] = ()
    include: tuple[int, ...] = ()
    weights: Floats | None = None
    preprocess: str = "none"

    @cached_property
    def objective(self) -> Objective:
        """The objective that the searches get, from the Gram matrix."""
        X, Y = self.X, self.Y
        cross = None if self.unsupervised else X.T @ Y
        whole = DenseObjective(X.T @ X, cross, float(np.square(Y).sum()), self.lam)
        return whole.condition(self.include)

    @property
    def others(self) -> list[int]:
        """The columns that are not included."""
        return [j for j in range(self.X.shape[1]) if j not in self.include]

    @cached_property
    def preprocessed(self) -> tuple[Any, Any]:
        """X and Y as they enter, in extended precision."""
        X = _preprocessed(self.X, self.weights, self.preprocess)
        return X, X if self.unsupervised else _preprocessed(self.Y, self.weights, self.preprocess)


def _plain(rng: Generator, m: int, n: int) -> Floats:
    return rng.standard_normal((m, n)) @ (np.eye(n) + rng.standard_normal((n, n)) / 2.0)


def _one_factor(rng: Generator, m: int, n: int) -> Floats:
    """Make columns that all correlate by about 0.9."""
    return 0.95 * rng.standard_normal((m, 1)) + 0.32 * rng.standard_normal((m, n))


def _few_factors(rng: Generator, m: int, n: int) -> Floats:
    return rng.standard_normal((m, 3)) @ rng.standard_normal((3, n)) + 0.05 * rng.standard_normal((m, n))


def _chain(rng: Generator, m: int, n: int) -> Floats:
    """Make columns of which each is the one before plus a little noise."""
    X = rng.standard_normal((m, n))
    share = 1.0 - 10.0 ** rng.uniform(-6, -1)
    for j in range(1, n):
        X[:, j] = share * X[:, j - 1] + np.sqrt(1.0 - share**2) * X[:, j]
    return X


def _near_duplicates(rng: Generator, m: int, n: int) -> Floats:
    """Make copies of a few columns, which differ by a share of 1e-8 to 1e-2."""
    own = rng.standard_normal((m, max(n // 3, 1)))
    trifle = 10.0 ** rng.uniform(-8, -2) * rng.standard_normal((m, n))
    return np.asarray(own[:, rng.integers(0, own.shape[1], n)] + trifle)


def _near_tolerance(rng: Generator, m: int, n: int) -> Floats:
    """Make columns that others determine but for a share of about the tolerance of dependence."""
    X = rng.standard_normal((m, n))
    for j in range(int(rng.integers(1, n))):
        others = rng.choice(n, min(int(rng.integers(1, 4)), n - 1), replace=False)
        if j not in others:
            trifle = 10.0 ** rng.uniform(-5, -2) * rng.standard_normal(m)
            X[:, j] = X[:, others] @ rng.standard_normal(others.size) + trifle
    return X[:, rng.permutation(n)]


def _unequal(rng: Generator, m: int, n: int) -> Floats:
    """Make columns whose scales differ by up to 16 orders of magnitude."""
    return _plain(rng, m, n) * 10.0 ** rng.uniform(-8, 8, n)


def _whole_numbers(rng: Generator, m: int, n: int) -> Floats:
    """Make columns of -1, 0 and 1: ties, copies, dependent and constant columns."""
    return rng.integers(-1, 2, (m, n)).astype(np.float64)


def _smooth(rng: Generator, m: int, n: int) -> Floats:
    """Make columns like the channels of a spectrum."""
    at, centres = np.linspace(0.0, 1.0, n), rng.uniform(0.0, 1.0, 6)
    shapes = np.exp(-np.square((at - centres[:, None]) / rng.uniform(0.05, 0.4)))
    return np.asarray(rng.standard_normal((m, 6)) @ shapes + 10.0 ** rng.uniform(-6, -1) * rng.standard_normal((m, n)))


def _one_direction(rng: Generator, m: int, n: int) -> Floats:
    """Make columns that are nearly multiples of one."""
    return np.asarray(rng.standard_normal((m, 1)) + 10.0 ** rng.uniform(-4.0, -1.0) * rng.standard_normal((m, n)))


def _near_copies(rng: Generator, m: int, n: int) -> Floats:
    """Make columns of which one or two have a copy that differs by 1e-7 to 1e-4."""
    X = _plain(rng, m, n)
    for _ in range(int(rng.integers(1, 3))):
        a, b = rng.choice(n, 2, replace=n < 2)
        X[:, a] = X[:, b] + 10.0 ** rng.uniform(-7.0, -4.0) * rng.standard_normal(m)
    return X


def _lags(rng: Generator, m: int, n: int) -> Floats:
    """Make lags of a random walk, and differences of these: dependent columns."""
    walk, half = np.cumsum(rng.standard_normal(m + n)), n // 2 + 1
    lags = np.array([walk[n - lag : n - lag + m] for lag in range(half)])
    return np.asarray(np.vstack([lags, lags[:-1] - lags[1:]])[:n].T)


def with_sums(X: Floats, rng: Generator) -> Floats:
    """Return columns of which some are sums, multiples or copies of others, also up to rounding, or constants."""
    X, n = np.round(X, 3), X.shape[1]
    for j in rng.permutation(n)[: int(rng.integers(1, max(n - 1, 2)))]:
        a, b, c = X[:, rng.choice([i for i in range(n) if i != j], 3)].T
        of_others = [
            a + b, 3.0 * a - 0.7 * b, a + b + c, -2.0 * a, a / 3.0, a, np.full(a.size, 2.5), np.zeros(a.size),
            np.where(np.arange(a.size) == a.size - 1, 1.0, 0.1),
        ]  # fmt: skip
        X[:, j] = of_others[int(rng.choice(9, p=[0.2, 0.15, 0.15, 0.1, 0.1, 0.1, 0.1, 0.05, 0.05]))]
    return X


FAMILIES: tuple[tuple[str, Make], ...] = (
    ("plain", _plain), ("one factor", _one_factor), ("few factors", _few_factors), ("chain", _chain),
    ("near duplicates", _near_duplicates), ("near the tolerance", _near_tolerance), ("unequal scales", _unequal),
    ("whole numbers", _whole_numbers), ("smooth", _smooth),
)  # fmt: skip
#: Families that are hard with included columns and with heavy rows.
COLLINEAR: tuple[tuple[str, Make], ...] = (
    ("one direction", _one_direction), ("near copies", _near_copies), ("lags", _lags), ("one factor", _one_factor),
    ("plain", _plain), ("near the tolerance", _near_tolerance), ("unequal scales", _unequal),
)  # fmt: skip


def random_problem(seed: int, index: int) -> Problem:
    """Return problem number `index`. Most are small enough to try all subsets; one in 500 is as large as n = 650.

    Every third has nearly collinear columns, with included columns or heavy rows.
    """
    return _collinear_problem(seed, index) if index % 3 == 0 else _general_problem(seed, index)


def _collinear_problem(seed: int, index: int) -> Problem:
    rng = np.random.default_rng([seed, index, 1])
    name, make = COLLINEAR[int(rng.integers(len(COLLINEAR)))]
    m, n = int(rng.integers(4, 30)), int(rng.integers(3, 11))
    X, unsupervised, N = make(rng, m, n), bool(rng.random() < 0.5), int(rng.choice([1, 1, 2, 12]))
    Y = _unit(X) @ rng.standard_normal((n, N)) + 10.0 ** rng.uniform(-6.0, 0.0) * rng.standard_normal((m, N))
    rows = rng.random()
    if rows < 0.25:  # one heavy row
        X, Y = (np.vstack([A[:1] * 10.0 ** rng.uniform(1.0, 6.0), A[1:]]) for A in (X, Y))
    elif rows < 0.5:
        weights = 10.0 ** rng.uniform(-3.0, 3.0, (m, 1))
        X, Y = weights * X, weights * Y
    lam = float(rng.choice([0.0, 0.0, 0.0, 1e-9, 1e-3])) * float(np.square(X).sum(axis=0).mean())
    k = int(rng.integers(1, min(4, n) + 1))
    problem = Problem(f"{name}, {'X' if unsupervised else 'Y'}", X, X if unsupervised else Y, k, lam, unsupervised)
    if not np.square(X).sum() or not np.square(problem.Y).sum():
        return _collinear_problem(seed + 1_000_003, index)
    return _including(rng, problem, int(rng.choice([0, 1, 1, 2])))


def _including(rng: Generator, problem: Problem, count: int) -> Problem:
    """Return the problem with some included columns, unless they depend on each other."""
    n = problem.X.shape[1]
    include = tuple(sorted(int(j) for j in rng.choice(n, min(count, n - 1), replace=False)))
    given = replace(problem, include=include, k=min(problem.k, n - len(include)))
    try:
        _ = given.objective
    except OptionError:
        return problem
    return given


def _general_problem(seed: int, index: int) -> Problem:
    rng = np.random.default_rng([seed, index])
    name, make = FAMILIES[index % len(FAMILIES)]
    m, n = _shape(rng, index)
    X = make(rng, m, n)
    k = int(rng.integers(1, min(5, n) + 1))
    kind = rng.choice(["noise", "planted", "cancelled", "X"], p=[0.3, 0.25, 0.2, 0.25])
    N = int(rng.choice([1, 1, 2, 3, 12]))
    planted = tuple(sorted(int(j) for j in rng.choice(n, k, replace=False)))
    Y = rng.standard_normal((m, N))
    if kind == "planted":
        Y = _unit(X)[:, planted] @ rng.standard_normal((k, N))
    if kind == "cancelled":  # what is left of a column given another: large coefficients of opposite signs
        U = _unit(X)
        a, b = rng.choice(n, 2, replace=n < 2)
        left = U[:, a] - U[:, b] * (U[:, a] @ U[:, b])
        Y = _unit(left[:, None]) @ rng.standard_normal((1, N)) + 0.1 * Y / np.sqrt(m)
    lam = float(rng.choice([0.0, 0.0, 0.0, 1e-12, 1e-6, 1e-2])) * float(np.square(X).sum(axis=0).mean())
    if rng.random() < 0.25:
        weights = np.sqrt(10.0 ** rng.uniform(-3, 3, (m, 1)))
        X, Y = weights * X, weights * Y
    if not np.square(X).sum() or (kind != "X" and not np.square(Y).sum()):
        return _general_problem(seed + 1_000_003, index)
    known = planted if kind == "planted" and lam == 0.0 else ()
    return Problem(f"{name}, {kind}", X, X if kind == "X" else Y, k, lam, bool(kind == "X"), known)


def _shape(rng: Generator, index: int) -> tuple[int, int]:
    if index % 500 == 499:
        return int(rng.integers(60, 150)), int(rng.integers(400, 651))
    if index % 20 == 19:
        return int(rng.integers(8, 40)), int(rng.integers(60, 200))
    n = int(rng.integers(3, 13))
    return int(rng.integers(2, 30)), n


def _unit(X: Floats) -> Floats:
    norms = np.sqrt(np.square(X).sum(axis=0))
    return np.asarray(X / np.where(norms > 0.0, norms, 1.0))


def _preprocessed(A: Floats, weights: Floats | None, preprocess: str) -> Any:
    A = np.asarray(A, np.longdouble)
    w = np.ones(A.shape[0], np.longdouble) if weights is None else np.asarray(weights, np.longdouble)
    if preprocess in ("standardize", "center"):
        mean = w @ A / w.sum()
        rounding = np.abs(A[w > 0] - mean).max(axis=0) <= 1e-15 * np.abs(mean)
        A = np.where(rounding, 0, A - mean)
    A = A * np.sqrt(w)[:, None]
    if preprocess in ("standardize", "unit"):
        norms = np.sqrt(np.square(A).sum(axis=0))
        A = A / np.where(norms > 0, norms, 1) * (np.sqrt(w.sum()) if preprocess == "standardize" else 1)
    return A

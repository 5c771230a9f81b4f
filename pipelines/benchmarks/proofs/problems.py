"""The problems of the comparison: those of the review, a grid of synthetic ones, and the papers' data sets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dsel._lib.types import Floats
from pipelines.papers.datasets import load
from pipelines.papers.preprocess import standardized

M = 1000
COLUMNS, CORRELATIONS, RATIOS, SIZES = (1000, 5000, 20_000, 100_000), (0.1, 0.5, 0.9), (1.0, 5.0), (5, 10, 15)
#: The small ridge penalty: a hundredth of the squared norm of a column.
SMALL = 0.01 * M
#: Data sets with one target, and how many of their rows are used at most.
REAL = (
    "australian", "colon-cancer", "dna", "eunite2001", "german.numer", "housing", "madelon", "mnist", "mushrooms",
    "a9a",
)  # fmt: skip
_ROWS = 10_000


@dataclass(frozen=True)
class Data:
    """X (m, n): a data set, or synthetic columns of which neighbours have correlation rho."""

    name: str
    n: int = 0
    rho: float = 0.0

    def columns(self) -> Floats | None:
        """Return X, standardized, or None if there is no file."""
        if self.n:
            return synthetic(self.n, self.rho)
        arrays = load(self.name)
        return None if arrays is None else standardized(arrays["X"][:_ROWS])

    def target(self, X: Floats, k: int, ratio: float, draw: int = 0) -> Floats:
        """Return y (m,), standardized: that of the data set, or k columns with noise.

        Draw 0 has columns at equal distances with equal weights. The others have random columns, with weights of .5 to
        1.5 and random signs.
        """
        if not self.n:
            arrays = load(self.name)
            assert arrays is not None
            return standardized(arrays["Y"][:_ROWS, :1])[:, 0]
        rng = np.random.default_rng([self.n, k, 1 + draw])  # not the numbers of a column
        true, weights = np.linspace(0.0, self.n - 1.0, k + 2).astype(np.int64)[1:-1], np.ones(k)
        if draw:
            true = np.sort(rng.choice(self.n, k, replace=False))
            weights = rng.uniform(0.5, 1.5, k) * rng.choice([-1.0, 1.0], k)
        signal = X[:, true] @ weights
        noise = rng.standard_normal(M)
        return standardized((signal + signal.std() / np.sqrt(ratio) * noise)[:, None])[:, 0]


@dataclass(frozen=True)
class Problem:
    """Choose k columns. ratio: signal to noise. lam: the ridge penalty. group: the row of the summary. draw: of y."""

    group: str
    data: Data
    k: int
    lam: float
    ratio: float = 0.0
    draw: int = 0

    @property
    def name(self) -> str:
        """Name the problem."""
        drawn = f" rho {self.data.rho:g} SNR {self.ratio:g}" if self.data.n else ""
        drawn += f" unequal {self.draw}" if self.draw else ""
        return f"{self.data.name}{drawn} k {self.k} lam {self.lam:g}"


def synthetic(n: int, rho: float) -> Floats:
    """Return (1000, n) standardized columns, of which neighbours have correlation rho (AR(1))."""
    rng = np.random.default_rng([n, round(100 * rho)])
    columns = rng.standard_normal((n, M))
    for j in range(1, n):
        columns[j] = rho * columns[j - 1] + np.sqrt(1.0 - rho**2) * columns[j]
    columns -= columns.mean(axis=1, keepdims=True)
    columns /= columns.std(axis=1, keepdims=True)
    return columns.T


def drawn(n: int, rho: float) -> Data:
    """Return synthetic data."""
    return Data(f"n={n}", n, rho)


def review() -> Iterator[Problem]:
    """Yield the problems of the first comparison."""
    for name, lam in (("sonar", 0.0), ("ionosphere", 0.0), ("coil2000", 0.0), ("clean1", 1.0), ("clean1", 0.0)):
        yield Problem("small sets", Data(name), 8, lam)
    for n, lam in ((400, 0.0), (600, 0.0), (800, 0.0), (1000, 10.0), (2000, 10.0)):
        yield Problem("n up to 2000", drawn(n, 0.5), 10, lam, 5.0)


def unequal(columns: tuple[int, ...] = (1000, 2000, 5000), draws: int = 3) -> Iterator[Problem]:
    """Yield problems with unequal coefficients."""
    for n in columns:
        for draw in range(1, draws + 1):
            for lam in (SMALL, 0.0):
                yield Problem("unequal", drawn(n, 0.5), 10, lam, 5.0, draw)


def grid() -> Iterator[Problem]:
    """Yield the grid of synthetic problems."""
    for n in COLUMNS:
        for rho in CORRELATIONS:
            for ratio in RATIOS:
                for k in SIZES:
                    for lam in (0.0, SMALL):
                        yield Problem(f"n={n}", drawn(n, rho), k, lam, ratio)


def real() -> Iterator[Problem]:
    """Yield the problems on the papers' data sets."""
    for name in REAL:
        for k in SIZES:
            for lam in (0.0, 1.0):
                yield Problem("real sets", Data(name), k, lam)


def quick() -> Iterator[Problem]:
    """Yield a few of the problems."""
    wanted = ("sonar", "ionosphere", "clean1", "n=600", "n=1000", "n=2000")
    yield from (p for p in review() if p.data.name in wanted)
    for rho, ratio, k in ((0.1, 5.0, 5), (0.5, 1.0, 5), (0.9, 5.0, 10)):
        yield Problem("n=1000", drawn(1000, rho), k, SMALL, ratio)
    yield Problem("n=5000", drawn(5000, 0.5), 5, SMALL, 5.0)
    yield from unequal(draws=1)


def everything() -> Iterator[Problem]:
    """Yield all problems."""
    first = [*review(), *unequal(), *real()]
    yield from first
    names = {problem.name for problem in first}
    yield from (problem for problem in grid() if problem.name not in names)

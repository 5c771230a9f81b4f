"""The selection problem of a certificate, summed from the data in extended precision.

Notation: K = X'X + lam I and B = X'Y of the preprocessed data, c = ||Y||^2, after the included columns are projected
out. f(S) = c - tr(B_S' K_SS^-1 B_S).
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel._lib.byte_sizes import format_bytes
from dsel._lib.tolerances import DEPENDENCE_TOLERANCE, EXACT_COPY, LIKELY_COPY, NEAR_COPY, same_norm
from dsel.config.request import SCALED, Missing, Preprocess
from dsel.data.blocks import Block, dense_rows
from dsel.data.dataset import Dataset
from dsel.engine.engine_protocol import Engine
from dsel.errors import CapacityError, DataError, OptionError
from dsel.passes.multiples import distances_to_multiples
from dsel.passes.reduce_blocks import RowPass

log = logging.getLogger("dsel")

Extended = NDArray[np.longdouble]
EXTENDED = np.longdouble
EPSILON = float(np.finfo(np.longdouble).eps)

#: Most rows that are converted to extended precision at a time, and most bytes of them; at least 64 rows.
_ROWS, _ROW_BYTES, _FEW_ROWS = 4096, 16 << 20, 64
#: The number of buffers of these rows next to the matrices.
_BUFFERS = 3
#: What smaller arrays add to these, as a factor.
_OTHERS = 1.01
#: Bytes of rows of a matrix that an elimination changes at a time.
STEP_BYTES = 4 << 20
#: Columns of X'Z that are multiplied at a time.
_COLUMNS = 256


@dataclass(frozen=True, eq=False)
class Problem:
    """A problem over n candidate columns and N targets in extended precision.

    Parameters
    ----------
    K : (n, n) array
        Gram matrix with the ridge penalty on its diagonal.
    B : (n, N) array
        Cross-Gram matrix.
    c : longdouble
        f of the empty set.
    total : longdouble
        ||Y||^2.
    floor : (n,) array
        A subset in which the others leave at most this of a column's square is dependent.
    groups : tuple of arrays of int, optional
        The columns of each group, in a proof about groups of columns.
    """

    K: Extended
    B: Extended
    c: Any
    total: Any
    floor: Extended
    groups: tuple[NDArray[np.int64], ...] | None = None

    @property
    def n_items(self) -> int:
        """The number of columns or groups that subsets consist of."""
        return self.n if self.groups is None else len(self.groups)

    def members(self, S: Sequence[int]) -> list[int]:
        """Return the columns of some columns or groups."""
        return list(S) if self.groups is None else [int(j) for g in S for j in self.groups[g]]

    def within(self, columns: Sequence[int]) -> list[int]:
        """Return the columns as they are, or the groups that have any of them."""
        if self.groups is None:
            return list(columns)
        return [g for g, group in enumerate(self.groups) if not set(columns).isdisjoint(group.tolist())]

    @property
    def n(self) -> int:
        """The number of candidate columns."""
        return int(self.K.shape[0])

    def digest(self) -> str:
        """Return a digest of all numbers."""
        found = hashlib.sha256(repr(self.groups and [group.tolist() for group in self.groups]).encode())
        for numbers in (self.K, self.B, self.c, self.total, self.floor):
            found.update(repr(np.shape(numbers)).encode())
            for part in _halves(np.atleast_1d(numbers)):
                found.update(part.tobytes())
        return found.hexdigest()


def _halves(numbers: Extended) -> Iterator[NDArray[np.float64]]:
    """Yield the rounded numbers, row by row, then what rounding left: some bytes of a longdouble have no meaning."""
    for row in numbers:
        yield np.asarray(row, np.float64)
    for row in numbers:
        yield np.asarray(row - np.asarray(row, np.float64), np.float64)


@dataclass(frozen=True, eq=False)
class Claim:
    """What the tree of a log claims: every subset of at most k columns has f of at least the threshold.

    problem: summed from the data. columns: those of the data that it is over, for messages. listed: subsets of k
    columns, ascending, that may be below the threshold. least: what smaller subsets are not below, where there
    is a list.
    """

    problem: Problem
    k: int
    threshold: float
    columns: Sequence[int]
    listed: frozenset[tuple[int, ...]] | None = None
    least: float = 0.0


@dataclass
class _Sums:
    """Sums over rows for the columns of X, followed by those of Y. present: the weight of the values that are there."""

    weight: Any
    values: Extended
    present: Extended
    low: NDArray[np.float64]
    high: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ExtendedSums:
    """Sums over all rows in extended precision, from which `problem` makes the problem of a certificate.

    constant: (n,) which columns of X explain nothing. targets: the places of the targets that vary in Z = [X, Y], which
    are those of X where Y = X. products: (n + 1, n + N) X'Z, and last the squares of the columns of Z. distances:
    returns for pairs of columns how far the second is from a multiple of the first, by a read of the data.
    """

    preprocess: Preprocess
    constant: NDArray[np.bool_]
    targets: NDArray[np.int64]
    weight: Any
    products: Extended
    distances: Callable[[Sequence[tuple[int, int]]], NDArray[np.float64]]

    def near_copies(self, columns: Sequence[int], others: Sequence[int], lam: float) -> dict[int, dict[int, float]]:
        """Return with which of the others some columns correlate by at least 1 - 1e-6, and how far they differ.

        With a penalty lam, columns that are not scaled need nearly the same norm, too. Without one, a multiple of
        another column has the same f in its place. The distance from it is a share of the norm. It is infinite for
        columns that are no multiples up to rounding.
        """
        n, any_scale = self.constant.size, lam == 0.0 or self.preprocess in SCALED
        norms = np.sqrt(self.products[n, :n])
        found: dict[int, dict[int, float]] = {}
        for j in columns:
            products, scales = np.abs(self.products[j, list(others)]), norms[list(others)]
            near = products >= (1 - 1.001 * NEAR_COPY) * norms[j] * scales
            near &= any_scale | same_norm(float(norms[j]), scales.astype(np.float64))
            likely = (products >= (1 - LIKELY_COPY) * norms[j] * scales) & (lam == 0.0)
            if near.any():
                found[int(j)] = {int(others[i]): 0.0 if likely[i] else np.inf for i in np.flatnonzero(near).tolist()}
        pairs = [(i, j) for j, near_ones in found.items() for i, apart in near_ones.items() if apart == 0.0]
        for (i, j), apart in zip(pairs, self.distances(pairs).tolist(), strict=True):
            found[j][i] = apart if apart <= EXACT_COPY else np.inf
        return found

    def problem(self, columns: Sequence[int], included: Sequence[int], lam: float) -> Problem:
        """Return the problem over these columns, in their order, given the included ones.

        Raises DataError if the included columns depend on each other.
        """
        n, used = self.constant.size, np.asarray([*columns, *included], np.int64)
        scale = _scales(self.products[n], self.weight, self.preprocess)
        total = (self.products[n] / scale**2)[self.targets].sum()
        if not (np.isfinite(self.products).all() and np.isfinite(total)):
            raise DataError("The data have values that are not finite.", "Run the job again: it names them.")

        def scaled(others: NDArray[np.int64]) -> Extended:
            found = self.products[np.ix_(used, others)]
            found /= scale[used, None]
            found /= scale[None, others]
            return found

        K = scaled(used)
        K[np.diag_indices_from(K)] += EXTENDED(lam)
        return _given(few_targets(scaled(self.targets)), K, total, len(columns))


def extended_sums(
    dataset: Dataset, preprocess: Preprocess, missing: Missing, engine: Engine, files: int = 1
) -> ExtendedSums:  # fmt: skip
    """Return the sums over the rows of a dataset, from two passes.

    Parameters
    ----------
    dataset : Dataset
        The data.
    preprocess, missing : str
        As in the request.
    engine : Engine
        Where the passes run.
    files : int
        The number of files that will be checked with the sums, for the memory that this takes.

    Returns
    -------
    ExtendedSums
        Means, and products about the means.

    Raises
    ------
    OptionError
        This machine has no precision beyond float64.
    CapacityError
        The sums do not fit in memory.
    DataError
        There are missing values, and the request refuses them.
    """
    if EPSILON > 1e-18:
        raise OptionError(
            "This machine has no floating-point numbers beyond float64.",
            "Verify on Linux with an x86-64 or ARM processor.",
        )
    _require_memory(dataset, min(files, engine.workers))
    n, size = dataset.n, dataset.n + dataset.n_targets
    what = "%d x %d products of columns over %d rows: %.1e multiplications in extended precision"
    log.info(what, n, size, dataset.m, dataset.m * n * (size - n / 2))
    sums: _Sums = RowPass("means to verify", dataset, _block_sums, _merge_sums, 64 * dataset.n).run(engine)
    raw = preprocess in ("unit", "none")
    means = sums.values / np.where(sums.present > 0, sums.present, 1)
    # A constant column becomes exactly 0.
    center = np.zeros_like(means) if raw else np.where(sums.low == sums.high, sums.low.astype(EXTENDED), means)
    products: Extended = RowPass(
        "sums to verify", dataset, _block_products, np.add, 16 * n * (n + dataset.n_targets), share=True
    ).run(engine, center=center, fill=means if missing == "mean" else None)
    distances = partial(
        distances_to_multiples, dataset, squares=products[n, :n], centers=None if raw else center[:n],
        fill=means[:n] if missing == "mean" else None, engine=engine,
    )  # fmt: skip
    constant = _nearly_constant(sums.low, sums.high, raw) | ~(sums.present > 0)
    first = n if dataset.n_targets else 0
    targets = first + np.flatnonzero(~constant[first:])
    return ExtendedSums(preprocess, constant[:n], targets, sums.weight, products, distances)


def memory_needed(m: int, n: int, targets: int, checked: int = 1) -> int:
    """Return about how many bytes a check takes: the sums, the problem, and an elimination of it for each file.

    m, n: the numbers of rows and of columns. targets: that of targets, 0 if Y = X. checked: the number of files that
    are checked at a time.
    """
    matrices = n * n + n * min(targets or n, n)
    width = n + targets
    rows = 16 * _BUFFERS * min(m, _step(width)) * width
    arrays = 16 * (n * width + (1 + checked) * matrices) + rows + checked * min(16 * n * n, STEP_BYTES)
    return int(_OTHERS * arrays)


def _require_memory(dataset: Dataset, checked: int) -> None:
    import psutil

    need = memory_needed(dataset.m, dataset.n, dataset.n_targets, checked)
    free = int(psutil.virtual_memory().available)
    if need > free:
        raise CapacityError(
            f"The check of {dataset.n} columns in extended precision needs {format_bytes(need)}; "
            f"{format_bytes(free)} are free.",
            "Verify on a machine with more memory.",
        )


def _block_sums(x: Any, y: Any, block: Block) -> _Sums:
    size = x.shape[1] + (0 if y is None else y.shape[1])
    w = np.ones(x.shape[0], EXTENDED) if block.w is None else block.w.astype(EXTENDED)
    nothing = np.zeros(size, EXTENDED)
    sums = _Sums(w.sum(), nothing, nothing.copy(), np.full(size, np.inf), np.full(size, -np.inf))
    step = _step(size)
    for start in range(0, x.shape[0], step):
        part = w[start : start + step]
        z, there = _rows(x, y, start, step)
        sums.values += part @ z
        sums.present += part @ there.astype(EXTENDED)
        real = there & (part > 0)[:, None]
        sums.low = np.minimum(sums.low, np.where(real, z, np.inf).min(axis=0).astype(np.float64))
        sums.high = np.maximum(sums.high, np.where(real, z, -np.inf).max(axis=0).astype(np.float64))
    return sums


def _step(width: int) -> int:
    """Return how many rows of this many numbers are converted at a time."""
    return max(min(_ROWS, _ROW_BYTES // (16 * width)), _FEW_ROWS)


def _rows(x: Any, y: Any, start: int, step: int) -> tuple[Extended, NDArray[np.bool_]]:
    """Return rows of x, with 0 in place of missing values, and of y; and which values are there."""
    z = dense_rows(x, start, start + step)
    there = ~np.isnan(z)
    z = np.where(there, z, 0.0)
    if y is not None:
        t = dense_rows(y, start, start + step)
        z, there = np.hstack([z, t]), np.hstack([there, np.ones(t.shape, np.bool_)])
    return z.astype(EXTENDED), there


def _merge_sums(a: _Sums, b: _Sums) -> _Sums:
    low, high = np.minimum(a.low, b.low), np.maximum(a.high, b.high)
    return _Sums(a.weight + b.weight, a.values + b.values, a.present + b.present, low, high)


def _block_products(x: Any, y: Any, block: Block, center: Extended, fill: Extended | None) -> Extended:
    """Return X'Z for Z = [X, Y], and last the squares of the columns of Z."""
    n = x.shape[1]
    products = np.zeros((n + 1, center.size), EXTENDED)
    step = _step(center.size)
    for start in range(0, x.shape[0], step):
        z, there = _rows(x, y, start, step)
        if fill is not None:
            z = np.where(there, z, fill)
        elif not there.all():
            raise DataError(f"X has missing values in rows {block.start + start} and after.", "Set missing: mean.")
        z -= center
        if block.w is not None:
            z *= np.sqrt(block.w[start : start + step].astype(EXTENDED))[:, None]
        columns = np.ascontiguousarray(z.T)  # products of rows of this array read memory in its order
        for j in range(0, n, _COLUMNS):  # X'X is symmetric: half of it is enough
            part = slice(j, min(j + _COLUMNS, n))
            products[part, j:] += columns[part] @ columns[j:].T
        z *= z
        products[n] += z.sum(axis=0)
    for j in range(0, n, _COLUMNS):
        part = slice(j, min(j + _COLUMNS, n))
        products[part.stop : n, part] = products[part, part.stop : n].T
    return products


def _nearly_constant(low: NDArray[np.float64], high: NDArray[np.float64], raw: bool) -> NDArray[np.bool_]:
    """Return which columns have one value only, up to rounding; without centering, that are 0."""
    largest = np.maximum(np.abs(low), np.abs(high))
    return largest == 0.0 if raw else high - low <= 8 * np.finfo(np.float64).eps * largest


def _scales(squares: Extended, weight: Any, preprocess: Preprocess) -> Extended:
    """Return what the columns are divided by."""
    if preprocess in ("center", "none"):
        return np.ones_like(squares)
    norm = np.sqrt(squares / (weight if preprocess == "standardize" else EXTENDED(1)))
    return np.where(norm > 0, norm, EXTENDED(1))


def few_targets(B: Extended) -> Extended:
    """Return F (n, min(n, N)) with F F' = B B', by Householder reflections of the targets."""
    n, N = B.shape
    if n >= N:
        return B
    B = B.copy()
    for a in range(n):
        v = B[a, a:].copy()
        norm = np.sqrt((v * v).sum())
        if not norm > 0:
            continue
        v[0] += norm if v[0] >= 0 else -norm
        B[a:, a:] -= np.outer(B[a:, a:] @ v, v) * (2 / (v * v).sum())
    return np.ascontiguousarray(B[:, :n])


def _given(B: Extended, K: Extended, total: Any, n: int) -> Problem:
    """Project the included columns, which come last, out of the others. K and B are overwritten."""
    floor = EXTENDED(DEPENDENCE_TOLERANCE) * np.diag(K)[:n]
    c = total
    for a in range(K.shape[0] - 1, n - 1, -1):
        d = K[a, a]
        if not d > 0:
            raise DataError("The included columns depend on each other.", "Include fewer columns.")
        u = K[:a, a] / d
        c = c - (B[a] * B[a]).sum() / d
        K[:a, :a] -= np.outer(u, K[a, :a])
        B[:a] -= np.outer(u, B[a])
    return Problem(np.ascontiguousarray(K[:n, :n]), np.ascontiguousarray(B[:n]), c, total, floor)

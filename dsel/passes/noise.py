"""Noise in sums of rows: the Gaussian mechanism, and what the noise may be worth in an error.

A row is u = (1, v). v has its values of X and Y in units that the user states, scaled down where its norm is above 1.
The sums are M = sum of u u'. One row more or less changes M by u u', whose Frobenius norm |u|^2 is at most 2. So M has
the sensitivity 2, the number of rows included, and noise of the analytic Gaussian mechanism (Balle and Wang 2018)
makes it (epsilon, delta)-differentially private. The noise is E = sigma (G + G') / 2 with a standard normal G: a
standard normal vector times sigma in an orthonormal basis of the symmetric matrices.

The norm of E: u'Eu over unit vectors u has increments of variance 2 - 2 (u'v)^2 <= 2 |u - v|^2, in units of sigma^2. By
Sudakov and Fernique its largest value is sqrt(2 p) at most in the mean, for p rows of M. It is a function of the normal
vector with Lipschitz constant 1. So |E| <= sigma (sqrt(2 p) + t), but for the probability 2 exp(-t^2 / 2).

M + E is projected onto the positive semidefinite matrices, and its first entry, the number of rows, is rounded up. Both
raise it, by r at most. So the result N has N - e I <= M <= N + |E| I with e = |E| + r. The residual sum of squares of a
target y with coefficients b, the intercept among them, is c'Mc for c = (-b, 1). On the rows it is at most
c'Nc + |E| (1 + |b|^2). For any columns T it is at least the least value of c'Nc - e (1 + |b|^2). Let f be that of
c'Nc, H the part of N for T, and b* = H^-1 N_Ty. A square is completed: b'Hb about b* less e |b|^2 is at least
-e b*'H (H - e)^-1 b*, which is at least -e b*'H b* / (l - e) for the least eigenvalue l > e of the part of N for 1 and
X. Since b*'H b* <= y'y, the rows leave at least f - e (1 + y'y / (l - e)). A ridge adds to H and changes nothing.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy
import scipy.linalg

from dsel._lib.text import shorten, suggest
from dsel._lib.types import Floats
from dsel.config.request import SCALED, Preprocess
from dsel.data.blocks import PIECE_BYTES, Block, dense_rows
from dsel.data.dataset import Dataset
from dsel.engine.engine_protocol import THREADS, Engine
from dsel.errors import OptionError
from dsel.passes.finite_values import naming_columns, require_finite
from dsel.passes.moments import Moments
from dsel.passes.reduce_blocks import RowPass

#: The Frobenius norm of what one row adds to the sums.
SENSITIVITY = 2.0
#: The probability with which a bound on the norm of the noise may fail.
CHANCE = 1e-6
#: The label that stands for all columns without a separate bound.
OTHERS = "*"
_KEYS = ("epsilon", "delta", "bounds", "row_norm")
_HALVINGS = 200


@dataclass(frozen=True)
class Noise:
    """What noise is asked for.

    Parameters
    ----------
    epsilon, delta : float
        The privacy of one row.
    units : (n + N,) array
        What counts as 1 in each column of X and Y. A row whose norm in these units is above 1 is scaled down.
    """

    epsilon: float
    delta: float
    units: Floats

    @classmethod
    def of(cls, asked: Mapping[str, Any], dataset: Dataset) -> Noise:
        """Return the noise that an option asks for. `dsel.sums` describes it. Errors: OptionError."""
        for name in asked:
            if name not in _KEYS:
                raise OptionError(f"noise has no key {name!r}.", suggest(str(name), _KEYS))
        missing = [name for name in _KEYS[:3] if name not in asked]
        if missing:
            raise OptionError(f"noise lacks {', '.join(missing)}.", "Give epsilon, delta and bounds.")
        epsilon, delta = (_number(asked[name], name) for name in ("epsilon", "delta"))
        if delta >= 1.0:
            raise OptionError(f"delta is {delta:g}.", "Give a number between 0 and 1, far below 1 / rows.")
        if dataset.weights is not None:
            raise OptionError("The rows have weights, and noise protects rows that count as 1.", "Leave weights out.")
        bounds = _bounds(asked["bounds"], [*map(str, dataset.features), *map(str, dataset.targets)])
        norm = asked.get("row_norm")
        return cls(epsilon, delta, bounds * (math.sqrt(bounds.size) if norm is None else _number(norm, "row_norm")))

    @property
    def sigma(self) -> float:
        """Return the least standard deviation of the noise, rounded up."""
        low, high = 1e-12 * SENSITIVITY, SENSITIVITY
        while leak(high, self.epsilon) > self.delta:
            high *= 2.0
        for _ in range(_HALVINGS):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if leak(middle, self.epsilon) > self.delta else (low, middle)
        return high


@dataclass(frozen=True)
class NoiseRecord:
    """The noise that sums have.

    Parameters
    ----------
    epsilon, delta : float
        The privacy of one row; of several parts, the largest ones.
    sigma : float
        The standard deviation of the noise.
    raised : float
        How far the projection, and the rounding of the number of rows, raised the sums at most.
    units : tuple of float
        The units of the columns of X and Y, see `Noise`.
    """

    epsilon: float
    delta: float
    sigma: float
    raised: float
    units: tuple[float, ...]

    @classmethod
    def together(cls, records: Iterable[Mapping[str, Any]]) -> NoiseRecord:
        """Return the noise of the sums of several parts with separate rows: variances add."""
        each = [cls(**{**record, "units": tuple(record["units"])}) for record in records]
        return cls(
            max(one.epsilon for one in each), max(one.delta for one in each), math.hypot(*(one.sigma for one in each)),
            sum(one.raised for one in each), each[0].units,
        )  # fmt: skip

    @property
    def norm(self) -> float:
        """Return what the spectral norm of the noise is at most, with probability 1 - CHANCE."""
        return self.sigma * (math.sqrt(2.0 * (len(self.units) + 1)) + math.sqrt(2.0 * math.log(2.0 / CHANCE)))

    def more(self, moments: Moments, preprocess: Preprocess, chosen: Any, b: Floats, b0: Floats) -> float:
        """Return how much more of ||Y||^2 the rows may leave than the sums say, for the same coefficients.

        chosen, b, b0: columns, coefficients (columns, targets) and intercepts (targets,).
        """
        units = np.array(self.units)
        size = np.asarray(b0) ** 2 + (units[chosen] ** 2) @ b**2
        return self._share(moments, preprocess, self.norm, size)

    def less(self, moments: Moments, preprocess: Preprocess) -> float:
        """Return how much less of ||Y||^2 the rows may leave than the sums say, for any columns; 1 at most."""
        n, m, scale = moments.mean_x.size, moments.weight, np.array([1.0, *self.units])[: moments.mean_x.size + 1]
        means = np.concatenate([[1.0], moments.mean_x])
        products = m * np.outer(means, means)
        products[1:, 1:] += moments.K
        least = scipy.linalg.eigvalsh(products / np.outer(scale, scale), lower=False, subset_by_index=(0, 0))[0]
        lost = self.norm + self.raised
        if least <= lost:
            return 1.0
        yy, mean = (moments.yy, moments.mean_y) if moments.yy.size else (moments.squares, means[1 : n + 1])
        return min(self._share(moments, preprocess, lost, (yy + m * mean**2) / (least - lost)), 1.0)

    def _share(self, moments: Moments, preprocess: Preprocess, norm: float, size: Floats) -> float:
        """Return norm times the squared norms of (target, coefficients), as a share of ||Y||^2.

        size: (targets,) those of the coefficients.
        """
        of_data, units = moments.yy.size, np.array(self.units)
        total, mean = (moments.yy, moments.mean_y) if of_data else (moments.squares, moments.mean_x)
        if preprocess in ("unit", "none"):
            total = total + moments.weight * mean**2
        size = size + (units[-of_data:] if of_data else units) ** 2
        varies = total > 0.0
        scale = total[varies] if preprocess in SCALED else np.ones(int(varies.sum()))
        return float(norm * (size[varies] / scale).sum() / (total[varies] / scale).sum())


def leak(sigma: float, epsilon: float) -> float:
    """Return the delta of Gaussian noise for an epsilon (Balle and Wang 2018, theorem 8)."""
    half, shift = SENSITIVITY / (2.0 * sigma), epsilon * sigma / SENSITIVITY
    return float(scipy.special.ndtr(half - shift) - np.exp(epsilon + scipy.special.log_ndtr(-half - shift)))


def from_system(size: int) -> Floats:
    """Return standard normal numbers from the random source of the operating system, which nobody can repeat."""
    whole = np.frombuffer(os.urandom(8 * size), np.uint64) >> np.uint64(12)
    return np.asarray(scipy.special.ndtri((whole + 0.5) * 2.0**-52))


def noisy_products(
    dataset: Dataset, noise: Noise, engine: Engine = THREADS, draw: Callable[[int], Floats] = from_system
) -> tuple[Floats, NoiseRecord]:
    """Return the noisy sums of products of (1, X, Y) in the units of the data, and what is known of their noise.

    draw: returns standard normal numbers.
    """
    p, sigma = noise.units.size + 1, noise.sigma
    row_pass = RowPass("noisy sums", dataset, partial(_block_products, where=dataset.name), np.add, 8 * p * p,
                       2 * dataset.m * p * p, share=True)  # fmt: skip
    with naming_columns(dataset):
        exact: Floats = row_pass.run(engine, units=noise.units)
    G = draw(p * p).reshape(p, p)
    found, raised = _projected(exact + 0.5 * sigma * (G + G.T))
    count = max(math.ceil(found[0, 0]), 1)
    raised += count - found[0, 0]
    found[0, 0] = count
    scale = np.concatenate([[1.0], noise.units])
    record = NoiseRecord(noise.epsilon, noise.delta, sigma, float(raised), tuple(noise.units.tolist()))
    return found * np.outer(scale, scale), record


def _block_products(x: Any, y: Any, block: Block, units: Floats, where: str) -> Floats:
    """Return the sums of products of the rows of a block, each scaled down to norm 1 at most."""
    n, found = x.shape[1], np.zeros((units.size + 1,) * 2)
    place = f"{where}, rows {block.start} to {block.stop - 1}"
    step = max(1, PIECE_BYTES // (8 * (units.size + 1)))
    for start in range(0, x.shape[0], step):
        u = np.ones((min(step, x.shape[0] - start), units.size + 1))
        u[:, 1 : n + 1] = dense_rows(x, start, start + step)
        require_finite(u[:, 1 : n + 1], place, "X", block.start + start)
        if units.size > n:
            u[:, n + 1 :] = dense_rows(y, start, start + step)
            require_finite(u[:, n + 1 :], place, "Y", block.start + start)
        u[:, 1:] /= units
        u[:, 1:] /= np.maximum(np.linalg.norm(u[:, 1:], axis=1), 1.0)[:, None]
        found += u.T @ u
    return found


def _projected(products: Floats) -> tuple[Floats, float]:
    """Return the nearest positive semidefinite matrix, and how far it is above the given one at most."""
    values, vectors = scipy.linalg.eigh(products)
    if values[0] >= 0.0:
        return products, 0.0
    roots = vectors * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(roots @ roots.T), -float(values[0])


def _number(value: Any, name: str) -> float:
    """Return a positive finite number. Errors: OptionError."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not 0.0 < found < math.inf:
        raise OptionError(f"{name} is {value!r}.", "Give a number above 0.")
    return found


def _bounds(given: Any, labels: Sequence[str]) -> Floats:
    """Return the bound of each column. Errors: OptionError for columns without a bound, and for unknown labels."""
    if not isinstance(given, Mapping):
        given = {OTHERS: given}
    unknown = [str(label) for label in given if label != OTHERS and str(label) not in labels]
    if unknown:
        raise OptionError(f"bounds has columns that the data lack: {shorten(unknown)}.", "Correct the labels.")
    lost = [label for label in labels if label not in given and OTHERS not in given]
    if lost:
        raise OptionError(
            f"bounds lacks {shorten(lost)}.", f"State a bound that you know without the data, or {OTHERS!r} for all."
        )
    return np.array([_number(given.get(label, given.get(OTHERS)), f"The bound of {label}") for label in labels])

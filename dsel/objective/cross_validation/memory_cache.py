"""Algorithm 3 of the greedy RLS paper for data in memory: its cache C is updated and read in one sweep.

R = Z - H Q (the paper's lam C) is kept as float64. When column b enters S, the new R is R_j - R_b rho_j, rho being the
last row of the new Q divided by the root of delta_b. This update and the errors of all S + j are one sweep over R,
block by block, on several threads. Errors are added in the order of the blocks, so that no bit depends on the threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsel._lib.blas import usable_cores
from dsel._lib.jit import compiled
from dsel._lib.types import Floats
from dsel.objective.cross_validation.leave_one_out import LooRound, n_errors
from dsel.objective.cross_validation.losses import (
    UNDETERMINED,
    RowTransform,
    RowWeights,
    drop_zero_weights,
    fitted_rows,
    subset_errors,
)

#: After this many updates R is computed again from the data, so that rounding errors cannot accumulate.
REBUILD_AFTER = 128

#: Blocks of R.
_BLOCK_BYTES = 8 << 20


@compiled(nogil=True)
def _sweep_squared(
    R: Floats, u: Floats, rho: Floats, e: Floats, g: Floats, inverse: Floats, tau: Floats, errors: Floats
) -> None:  # pragma: no cover
    """Subtract u rho_j from R_j, and add ((e - R_j tau_j) / (g - R_j^2 inverse_j))^2 to errors_j, row by row.

    A divisor <= UNDETERMINED counts as 0, so that the error is inf (or NaN).
    """
    r, n = R.shape
    single = e.shape[1] == 1
    for i in range(r):
        R_i, u_i, g_i = R[i], u[i], g[i]
        if single:
            e_i, tau_0 = e[i, 0], tau[0]
            for j in range(n):
                v = R_i[j] - u_i * rho[j]
                R_i[j] = v
                d = g_i - v * v * inverse[j]
                q = (e_i - v * tau_0[j]) / (d if d > UNDETERMINED else 0.0)
                errors[j] += q * q
        else:
            for j in range(n):
                R_i[j] -= u_i * rho[j]
            for t in range(e.shape[1]):
                e_it, tau_t = e[i, t], tau[t]
                for j in range(n):
                    v = R_i[j]
                    d = g_i - v * v * inverse[j]
                    q = (e_it - v * tau_t[j]) / (d if d > UNDETERMINED else 0.0)
                    errors[j] += q * q


@compiled(nogil=True)
def _sweep_zero_one(
    R: Floats, u: Floats, rho: Floats, e: Floats, g: Floats, inverse: Floats, tau: Floats, flip: Floats,
    count: Floats, errors: Floats,
) -> None:  # fmt: skip  # pragma: no cover
    """Do the same for the zero-one loss.

    flip (e - R_j tau_j) >= g - R_j^2 inverse_j is an error, and so is a divisor <= UNDETERMINED.
    """
    r, n = R.shape
    for i in range(r):
        R_i, u_i, g_i, w = R[i], u[i], g[i], count[i]
        for j in range(n):
            R_i[j] -= u_i * rho[j]
        for t in range(e.shape[1]):
            e_it, tau_t, c = e[i, t], tau[t], flip[i, t]
            for j in range(n):
                v = R_i[j]
                d = g_i - v * v * inverse[j]
                errors[j] += w if c * (e_it - v * tau_t[j]) >= (d if d > UNDETERMINED else -np.inf) else 0.0


@dataclass
class _Block:
    """Preprocessed rows: Z (r, n), R, and e and g of the present S, all multiplied by the root of the weights."""

    x: Any
    targets: Floats
    weights: RowWeights
    flip: Floats | None
    R: Floats
    e: Floats
    g: Floats


def cache_bytes(m: int, n: int) -> int:
    """Return the memory that the cache takes, in bytes."""
    return 8 * m * n


class LooCache:
    """Rows in memory with their R.

    parts: (x, y, weights or None) of the row blocks, dense or sparse. base_leverage: see `LooProblem`.
    """

    def __init__(
        self, parts: Sequence[tuple[Any, Any, Floats | None]], transform: RowTransform, base_leverage: float
    ) -> None:
        self._transform = transform
        self._blocks: list[_Block] = []
        self._last: LooRound | None = None
        self._updates = 0
        for x, y, w in (drop_zero_weights(*part) for part in parts):
            step = max(64, _BLOCK_BYTES // (8 * x.shape[1]))
            targets, labels = transform.targets(y)
            whole = RowWeights.of(w, x.shape[0], base_leverage)
            for start in range(0, x.shape[0], step):
                rows = x[start : start + step]
                weights = whole.rows(start, start + step)
                t = targets[start : start + step] * weights.root[:, None]
                flip = weights.flip(labels[start : start + step], transform)
                flip = None if flip is None else np.ascontiguousarray(flip)
                self._blocks.append(_Block(rows, t, weights, flip, np.empty(0), t.copy(), np.empty(0)))

    def errors(self, round: LooRound) -> Floats:
        """Return `losses.block_errors` summed over all rows, for a round with insertions only."""
        assert not round.remove
        last, before = self._last, round.members[:-1]
        if last is not None and (self._updates >= REBUILD_AFTER or list(last.members) != list(before)):
            last = None
        if last is not None and last.members.size == round.members.size:  # both are empty
            last = None
        self._updates, self._last = 0 if last is None else self._updates + 1, round
        inverse = 1.0 / np.where(round.delta > 0.0, round.delta, np.inf)
        tau = np.ascontiguousarray((round.T * inverse[:, None]).T)
        rho = np.zeros(round.n) if last is None else round.Q[-1] / np.sqrt(last.delta[round.members[-1]])

        def work(block: _Block) -> Floats:
            if last is None:
                block.R, block.e, block.g = fitted_rows(block.x, block.targets, block.weights, round, self._transform)
            else:
                self._advance(block, last, int(round.members[-1]))
            return self._sweep(block, round, rho, inverse, tau, last is not None)

        with ThreadPoolExecutor(usable_cores()) as pool:
            total = np.zeros(n_errors(round))
            for part in pool.map(work, self._blocks):
                total += part
        return total

    @staticmethod
    def _advance(block: _Block, last: LooRound, b: int) -> None:
        u = block.R[:, b]
        block.e = block.e - u[:, None] * (last.T[b] / last.delta[b])
        block.g = block.g - np.square(u) / last.delta[b]

    def _sweep(self, block: _Block, round: LooRound, rho: Floats, inverse: Floats, tau: Floats, step: bool) -> Floats:
        flat = np.zeros(n_errors(round))
        flat[0] = subset_errors(block.e, block.g, block.flip, block.weights.w)
        u = block.R[:, round.members[-1]].copy() if step else np.zeros(block.R.shape[0])
        inserted = flat[1 : 1 + round.n]
        if block.flip is None:
            _sweep_squared(block.R, u, rho, block.e, block.g, inverse, tau, inserted)
        else:
            w = block.weights.w
            _sweep_zero_one(block.R, u, rho, block.e, block.g, inverse, tau, block.flip, w, inserted)
        return flat

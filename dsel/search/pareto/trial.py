"""The speed of a Pareto search, from a short trial on random numbers."""

from __future__ import annotations

import time

import numpy as np

from dsel._lib.jit import is_compiled
from dsel.objective.base import FEW_TARGETS
from dsel.objective.dense import DenseObjective
from dsel.search.greedy.forward import forward
from dsel.search.pareto import kernel
from dsel.search.pareto.compiled import Poss
from dsel.search.pareto.options import default_interval

#: The trial has at most this many columns, columns to choose, and iterations.
_MAX_COLUMNS, _MAX_K, _MAX_ITERATIONS = 2000, 64, 5_000


def seconds_per_iteration(n: int, k: int, n_targets: int, iterations: int) -> float | None:
    """Return the seconds of one iteration of a Pareto search, or None if a trial would take too long.

    The trial has as many columns as the data, at most 2000, and starts from an archive with a subset of every size.
    With more columns the tables leave the caches, and the search takes longer.

    Parameters
    ----------
    n, k, n_targets : int
        The columns to choose from, the columns to choose, and the targets (0 where Y = X).
    iterations : int
        The iterations of the search.

    Returns
    -------
    float or None
        None for more than 64 columns to choose, and while the search is not compiled on this machine.
    """
    if k > _MAX_K or not (is_compiled(kernel.run) and is_compiled(kernel.exchange_search)):
        return None
    n, k = min(n, _MAX_COLUMNS), min(k, n)
    keeps_moments = not 0 < n_targets <= FEW_TARGETS
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3 * k + 10, n))
    Y = X if keeps_moments else X @ rng.normal(size=(n, n_targets)) + rng.normal(size=(X.shape[0], n_targets))
    search = Poss(
        DenseObjective(X.T @ X, None if keeps_moments else X.T @ Y, float(np.vdot(Y, Y))),
        k,
        exchange_every=default_interval(n, k),
    )
    for point in forward(search.objective, min(2 * k - 1, n)).front[1:]:
        search.offer(point.members)
    tried = min(_MAX_ITERATIONS, iterations)
    search.advance(tried)
    began = time.perf_counter()
    search.advance(2 * tried)
    return (time.perf_counter() - began) / tried

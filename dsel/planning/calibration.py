"""How long a plan will take, from a short trial.

The trial reads one block of the store, calls BLAS, and sums a part of the block. A Pareto search is not tried, because
its first iterations take many times as long as the others. Its time follows from its iterations.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg.blas import dsyrk

from dsel._lib.blas import one_blas_thread
from dsel._lib.kernel_loading import seconds_to_compile
from dsel.data.dataset import Dataset
from dsel.passes.data_pass import PassCost
from dsel.passes.moments import block_moments
from dsel.planning.plan import Plan
from dsel.search.pareto.compiled import pareto_kernels

#: Seconds for repeated calls, about.
_SECONDS = 0.1
#: Columns and rows of the BLAS call.
_COLUMNS, _ROWS = 500, 2000
#: Seconds for an entry of a Gram matrix that is copied, scaled and checked (one core of 2.0 GHz).
_ENTRY_SECONDS = 4e-8
#: Up to this many columns, a selection with Y = X computes the eigenvalues of K.
_MOST_EIGENVALUES = 2000
#: What a task costs the scheduler and the client, about (two shared cores).
TASK_SECONDS = 0.003


@dataclass(frozen=True)
class Speed:
    """The speed of one worker.

    read: bytes per second. flops: per second. overhead: the time of a block's sums over that of their flops in BLAS. It
    is below 1 for whole numbers, which are multiplied in float32.
    """

    read: float
    flops: float
    overhead: float

    def seconds(self, cost: PassCost, workers: int) -> float:
        """Return the seconds of passes on workers."""
        work = cost.bytes_read / self.read + self.overhead * cost.flops / self.flops
        return work / max(1, workers) + TASK_SECONDS * cost.tasks


def calibrated(plan: Plan, dataset: Dataset) -> Plan:
    """Return the plan with an estimate of its seconds. This takes a second or two, and reads one block.

    Errors: those of reading them.
    """
    speed, notes = measure(plan, dataset), plan.notes
    if plan.placement.seconds is not None and plan.iterations and (compiling := _compilation_seconds(plan)):
        notes = (*notes, f"the first search compiles before, for about {compiling} s on quiet cores")
    seconds = speed.seconds(plan.total, plan.workers)
    return replace(plan, seconds=seconds, search_seconds=search_seconds(plan, speed), notes=notes)


def _compilation_seconds(plan: Plan) -> int:
    """Return the seconds that a Pareto search compiles before it begins, 0 where the cache has what it needs."""
    few_targets = not plan.chosen.shape.keeps_moments
    entries, unused = pareto_kernels(few_targets=few_targets, has_gram=plan.chosen.holds_gram)
    return seconds_to_compile(*entries, without=unused)


def search_seconds(plan: Plan, speed: Speed) -> float | None:
    """Return the seconds of a Pareto search, from its iterations; None where each of them calls a user's function.

    To these it adds what the search needs first: the matrices where they fit, and elsewhere passes for rows of them.
    """
    if plan.placement.seconds is None or not plan.iterations:
        return None
    least, expected = (speed.seconds(cost, plan.workers) for cost in (plan.total, plan.expected))
    seconds = plan.placement.seconds + expected - least
    seconds = seconds if plan.iteration_seconds is None else min(seconds, plan.iteration_seconds)
    return seconds + (_preparation(plan, speed) if plan.chosen.holds_gram else 0.0)


def _preparation(plan: Plan, speed: Speed) -> float:
    """Return the seconds that K and M = B B' take after the pass: to scale and check them, M, and the best rank k."""
    shape = plan.chosen.shape
    n = shape.n
    if not shape.keeps_moments:
        return _ENTRY_SECONDS * n**2
    flops = n**2 * (4 * shape.m if shape.m < n / 16 else shape.N or n)  # of a low rank, from as few columns
    flops += 0 if shape.N or n > _MOST_EIGENVALUES else 4 * n**3
    return 2 * _ENTRY_SECONDS * n**2 + flops / speed.flops


def measure(plan: Plan, dataset: Dataset) -> Speed:
    """Measure the speed: read a block, call BLAS, and sum a part of the block."""
    with one_blas_thread():
        read, block = plan.chosen.trial(dataset).run()
        flops = _blas_speed(min(_COLUMNS, dataset.n))
        return Speed(read, flops, _overhead(block, flops))


def _blas_speed(n: int) -> float:
    z = np.random.default_rng(0).normal(size=(_ROWS, n))
    seconds = _best(lambda: dsyrk(1.0, z.T))
    return _ROWS * n * n / seconds


def _overhead(x: Any, flops: float) -> float:
    """Return the time of the sums of a part of a block, over that of their flops in BLAS. Without a block it is 1."""
    if x is None:
        return 1.0
    rows, n = min(x.shape[0], _ROWS), min(x.shape[1], _COLUMNS)
    part = x[:rows, :n]
    if isinstance(part, np.ndarray):
        part = np.nan_to_num(np.ascontiguousarray(part, np.float64))
    seconds = _best(lambda: block_moments(part, None))
    return float(seconds / (rows * n * n / flops))


def _best(call: Callable[[], Any], least: int = 3) -> float:
    """Return the seconds of the fastest of a few calls."""
    best, began, calls = float("inf"), time.perf_counter(), 0
    while calls < least or (time.perf_counter() - began < _SECONDS and calls < 50):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
        calls += 1
    return float(max(best, 1e-9))

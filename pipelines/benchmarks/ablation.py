"""Compare the extensions of the Pareto search, and exchange search alone, at equal time."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dsel.objective.dense import DenseObjective
from dsel.search.greedy.path import forward
from pipelines.benchmarks.quality import EXCHANGE_EVERY, Start, local_optima, run_search


@dataclass(frozen=True)
class Variant:
    """The initial archive (see `quality.run_search`) and the options of the search."""

    start: Start = "empty"
    exchange_every: int = 0


VARIANTS = {
    "POSS as published": Variant(),
    "start: forward": Variant("forward"),
    "start: exchange search": Variant("exchange"),
    "exchange_every": Variant(exchange_every=EXCHANGE_EVERY),
    "start: forward, exchange_every": Variant("forward", EXCHANGE_EVERY),
    "start: exchange search, exchange_every": Variant("exchange", EXCHANGE_EVERY),
}
ALONE = "exchange search alone (IterFS, restarts)"


def run_once(objective: DenseObjective, k: int, name: str, seconds: float, seed: int) -> tuple[float, int]:
    """Return f of the best subset after `seconds` of wall time, and the number of iterations or restarts."""
    if name == ALONE:
        found = [objective.value(S) for S in local_optima(objective, k, time.perf_counter() + seconds, seed)]
        return min(found), len(found)
    search = run_search(objective, k, seconds=seconds, seed=seed, **asdict(VARIANTS[name]))
    return search.best_value, search.iteration


def table(objective: DenseObjective, k: int, unit: float, seconds: float, seeds: int) -> list[dict[str, Any]]:
    """Return one row per variant: mean, least and largest f / unit over the seeds, and mean iterations."""
    rows: list[dict[str, Any]] = []
    for name in (*VARIANTS, ALONE):
        runs = [run_once(objective, k, name, seconds, seed) for seed in range(seeds)]
        f = np.array([run[0] for run in runs]) / unit
        row = {"variant": name, "seconds": seconds, "mean": float(f.mean()), "least": float(f.min())}
        rows.append(row | {"largest": float(f.max()), "iterations": float(np.mean([run[1] for run in runs]))})
    rows.append({"variant": "forward alone", "mean": forward(objective, k).best(k).value / unit})
    return rows

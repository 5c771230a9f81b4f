"""What the additions to the papers' search bring at equal time, and how exchange search alone does."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dsel.objective.dense import QuadraticObjective
from dsel.search.greedy.forward import forward
from pipelines.benchmarks.quality import EXCHANGE_EVERY, Start, local_optima, searched

RECOMBINATION = 0.05


@dataclass(frozen=True)
class Variant:
    """What the archive starts with (see `quality.searched`), and the options of the search."""

    start: Start = "empty"
    exchange_every: int = 0
    recombination: float = 0.0


VARIANTS = {
    "plain (the paper's)": Variant(),
    "start: forward": Variant("forward"),
    "start: swapping": Variant("swapping"),
    "exchange_every": Variant(exchange_every=EXCHANGE_EVERY),
    "recombination": Variant(recombination=RECOMBINATION),
    "start: forward, exchange_every": Variant("forward", EXCHANGE_EVERY),
    "start: swapping, both": Variant("swapping", EXCHANGE_EVERY, RECOMBINATION),
}
ALONE = "swapping alone (IterFS, restarts)"


def run_once(objective: QuadraticObjective, k: int, name: str, seconds: float, seed: int) -> tuple[float, int]:
    """f of the best subset after so many seconds of wall time, and iterations (or restarts) made."""
    if name == ALONE:
        found = [objective.value(S) for S in local_optima(objective, k, time.perf_counter() + seconds, seed)]
        return min(found), len(found)
    search = searched(objective, k, seconds=seconds, seed=seed, **asdict(VARIANTS[name]))
    return search.best_value, search.iteration


def table(objective: QuadraticObjective, k: int, unit: float, seconds: float, seeds: int) -> list[dict[str, Any]]:
    """One row a variant: mean, least and largest f / unit over the seeds, and the mean number of
    iterations."""
    rows: list[dict[str, Any]] = []
    for name in (*VARIANTS, ALONE):
        runs = [run_once(objective, k, name, seconds, seed) for seed in range(seeds)]
        f = np.array([run[0] for run in runs]) / unit
        row = {"variant": name, "seconds": seconds, "mean": float(f.mean()), "least": float(f.min())}
        rows.append(row | {"largest": float(f.max()), "iterations": float(np.mean([run[1] for run in runs]))})
    rows.append({"variant": "forward alone", "mean": forward(objective, k).best(k).value / unit})
    return rows
